/*
 * Memory after a peak: what a program that has gone quiet still holds.
 *
 * Stands for servers after a burst of requests, editors after a large file was closed, batch jobs between two batches.
 * THREADS threads build MIB of blocks of 16 to 1,040 bytes together; another thread frees most of them, in runs of RUN
 * consecutive blocks of which every tenth survives (sessions, documents, tables that were allocated one after the other
 * and go together), or with RUN 0 all but one block in a hundred, singly and at random. Then all threads sleep. With
 * one thread there is no other: it builds, frees and sleeps, and nothing but its own calls can return memory.
 *
 * Figure: resident size after 2.5 s of sleep over live bytes. Also after malloc_trim, and the floor, see scene.h.
 * Check: every byte of every surviving block.
 *
 *     peak_idle THREADS RUN MIB
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { MIN = BLOCK_MIN, MAX = 1040, SURVIVING_RUNS = 10, SURVIVING_SINGLE = 100, STEPS_A_LOOK = 1024 };
enum { MOST_MIB = 1 << 14 };

struct builder {
    _Alignas(64) atomic_size_t live_bytes; /* written by the builder, then by the freeing thread */
    uint64_t *blocks;
    size_t count;
    uint64_t seed;
    pthread_t thread;
};

static struct builder *builders;
static size_t threads;
static size_t run;
static size_t bytes_each;
static sem_t worked; /* posted by each thread that has done its work */
static sem_t leave;

static size_t live_bytes(void)
{
    size_t sum = 0;
    for (size_t i = 0; i < threads; i++)
        sum += atomic_load_explicit(&builders[i].live_bytes, memory_order_relaxed);
    return sum;
}

/* A thread alone must take the samples itself; else the main thread does, which has nothing else to do. */
static void look_around(size_t step)
{
    if (threads == 1 && step % STEPS_A_LOOK == 0)
        scene_sample_if_due(live_bytes());
}

static void build(struct builder *builder)
{
    uint64_t state = builder->seed;
    for (size_t live = 0; live < bytes_each; builder->count++) {
        size_t size = size_between(&state, MIN, MAX);
        builder->blocks[builder->count] = block_new(size);
        live += size;
        atomic_store_explicit(&builder->live_bytes, live, memory_order_relaxed);
        look_around(builder->count);
    }
}

static bool survives(size_t index, uint64_t *state)
{
    if (run == 0)
        return random_below((uint32_t)random_next(state), SURVIVING_SINGLE) == 0;
    return index / run % SURVIVING_RUNS == 0;
}

/* Runs are counted through all the threads' blocks, so that a tenth survives however long they are. */
static void free_most(void)
{
    uint64_t state = 0; /* the builders' seeds begin at 1: who survives has nothing to do with sizes */
    size_t before = 0;
    for (size_t i = 0; i < threads; i++) {
        struct builder *builder = &builders[i];
        size_t live = atomic_load_explicit(&builder->live_bytes, memory_order_relaxed);
        for (size_t index = 0; index < builder->count; index++) {
            uint64_t block = builder->blocks[index];
            if (survives(before + index, &state))
                continue;
            builder->blocks[index] = 0;
            free(block_address(block));
            live -= block_size(block);
            atomic_store_explicit(&builder->live_bytes, live, memory_order_relaxed);
            look_around(index);
        }
        before += builder->count;
    }
}

static void say_and_wait(void)
{
    sem_post(&worked);
    while (sem_wait(&leave) != 0)
        ;
}

static void *builder_main(void *builder)
{
    build(builder);
    say_and_wait();
    return NULL;
}

static void *freeing_main(void *unused)
{
    free_most();
    say_and_wait();
    return unused;
}

static void watch_until_worked(size_t count)
{
    while (count > 0) {
        if (sem_trywait(&worked) == 0) {
            count--;
            continue;
        }
        sleep_seconds(SAMPLE_SECONDS / 4);
        scene_sample_if_due(live_bytes());
    }
}

static pthread_t started(void *(*function)(void *), void *argument_of_it)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument_of_it) != 0)
        fail("no thread");
    return thread;
}

int main(int argc, char **argv)
{
    threads = threads_argument(argc, argv, 1);
    run = argument(argc, argv, 2, "RUN");
    size_t mib = argument_between(argc, argv, 3, "MIB", threads, MOST_MIB);
    scene_begin();
    bytes_each = (mib << 20) / threads;
    builders = own_table(threads, sizeof *builders);
    /* Room for a mean that random draws stay above. */
    size_t most_blocks = bytes_each / (MIN + (MAX - MIN) * 2 / 5) + STEPS_A_LOOK;
    for (size_t i = 0; i < threads; i++) {
        builders[i].blocks = own_table(most_blocks, sizeof *builders[i].blocks);
        builders[i].seed = i + 1;
    }
    sem_init(&worked, 0, 0);
    sem_init(&leave, 0, 0);
    scene_sample(0);

    struct stopwatch start = stopwatch_start();
    pthread_t freeing = 0;
    if (threads == 1) {
        build(&builders[0]);
        scene_sample(live_bytes());
        free_most();
    } else {
        for (size_t i = 0; i < threads; i++)
            builders[i].thread = started(builder_main, &builders[i]);
        watch_until_worked(threads);
        scene_sample(live_bytes());
        freeing = started(freeing_main, NULL);
        watch_until_worked(1);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    size_t live = live_bytes();
    struct settled settled = scene_settle(live_bytes);

    long peak = scene_peak_kib();
    struct page_set pages = page_set_new();
    for (size_t i = 0; i < threads; i++)
        page_set_add_blocks(&pages, builders[i].blocks, builders[i].count);
    long floor = page_set_finish(&pages);

    if (threads > 1) {
        for (size_t i = 0; i < threads + 1; i++)
            sem_post(&leave);
        for (size_t i = 0; i < threads; i++)
            pthread_join(builders[i].thread, NULL);
        pthread_join(freeing, NULL);
    }
    for (size_t i = 0; i < threads; i++)
        for (size_t index = 0; index < builders[i].count; index++)
            if (builders[i].blocks[index])
                block_check_and_free(builders[i].blocks[index]);
    scene_report((double)settled.idle_kib * 1024 / (double)live, "x live", elapsed, settled, live, floor, peak);
    return 0;
}
