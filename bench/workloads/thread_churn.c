/*
 * Thread churn: short threads one after another, each freeing what its predecessor left.
 *
 * Stands for servers that start a thread for each request, thread pools that shrink and grow, and build tools: data
 * outlives the thread that made it. Allocators that set up and tear down much for a thread lose time; those that do
 * not hand on what a thread leaves behind grow without end, so the resident size after the 100th thread and
 * after the last are reported, and ought to be equal.
 *
 * With LATE 1, half of the frees are made in the destructor of a thread-specific value, in the last round of
 * destructors that POSIX promises, when the allocator's own destructor has run. The C library and many libraries
 * free their per-thread state at that time.
 *
 * With BOUND 1, the process stays on one processor. No two threads run at the same time, but the kernel may start each
 * on another processor than the last, or not, by what it knows of their load: in a virtual machine it costs several
 * times what an allocator does to wake a processor that has gone to sleep.
 *
 * Figure: microseconds per thread, creation and join included. Check: each block carries its maker and its index.
 *
 *     thread_churn THREADS BLOCKS LATE BOUND
 */
#include "workload.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

enum { MIN = 16, MAX = 1040, EARLY_THREADS = 100 };

struct tag {
    uint32_t maker;
    uint32_t index;
};
_Static_assert(sizeof(struct tag) <= MIN, "every block has room for its tag");

static struct tag **blocks[2]; /* [thread % 2]: what that thread leaves; the other is what it inherits */
static size_t blocks_each;
static size_t inherited_late; /* how many of the inherited blocks the destructor frees */
static size_t current;        /* number of the running thread, from 1; written only while none runs */
static pthread_key_t late_key;

static void free_inherited(size_t from, size_t to)
{
    struct tag **inherited = blocks[(current + 1) % 2];
    for (size_t i = from; i < to; i++) {
        if (!inherited[i])
            continue;
        if (inherited[i]->maker != current - 1 || inherited[i]->index != i)
            fail("thread %zu inherited a block that is not what was left", current);
        free(inherited[i]);
        inherited[i] = NULL;
    }
}

/* The value counts the rounds of destructors; setting it again asks for another round. */
static void free_late(void *round)
{
    uintptr_t next = (uintptr_t)round + 1;
    if (next <= PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(late_key, (void *)next);
    else
        free_inherited(blocks_each - inherited_late, blocks_each);
}

static void *serve(void *unused)
{
    uint64_t state = current;
    if (inherited_late)
        pthread_setspecific(late_key, (void *)1);
    free_inherited(0, blocks_each - inherited_late);
    for (size_t i = 0; i < blocks_each; i++) {
        size_t size = MIN + random_below((uint32_t)random_next(&state), MAX - MIN + 1);
        struct tag *block = malloc(size);
        if (!block)
            fail("malloc(%zu) returned NULL", size);
        *block = (struct tag){(uint32_t)current, (uint32_t)i};
        blocks[current % 2][i] = block;
    }
    return unused;
}

static void stay_on_this_processor(void)
{
    int processor = sched_getcpu();
    cpu_set_t set;
    CPU_ZERO(&set);
    if (processor >= 0)
        CPU_SET((size_t)processor, &set);
    if (processor < 0 || sched_setaffinity(0, sizeof set, &set) != 0)
        fail("cannot stay on one processor");
}

int main(int argc, char **argv)
{
    size_t threads = argument(argc, argv, 1, "THREADS");
    blocks_each = argument(argc, argv, 2, "BLOCKS");
    inherited_late = argument(argc, argv, 3, "LATE") ? blocks_each / 2 : 0;
    bool bound = argument(argc, argv, 4, "BOUND") != 0;
    if (threads <= EARLY_THREADS) {
        fprintf(stderr, "%s: expected more than %d THREADS\n", argv[0], EARLY_THREADS);
        return 2;
    }
    for (int i = 0; i < 2; i++)
        blocks[i] = table_of(blocks_each, sizeof *blocks[i]);
    if (pthread_key_create(&late_key, free_late) != 0)
        fail("no thread-specific key");

    if (bound)
        stay_on_this_processor();

    long resident_early = 0;
    struct stopwatch start = stopwatch_start();
    for (current = 1; current <= threads; current++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, NULL) != 0)
            fail("no thread");
        pthread_join(thread, NULL);
        if (current == EARLY_THREADS)
            resident_early = resident_kib();
    }
    struct stopwatch elapsed = stopwatch_read(start);
    long resident_last = resident_kib();
    free_inherited(0, blocks_each); /* current is one past the last: what the last thread left */
    report(elapsed.cpu / (double)threads * 1e6, "us", elapsed, "resident_last_kib=%ld growth_kib=%ld", resident_last,
           resident_last - resident_early);
    return 0;
}
