/*
 * One thread allocates, another frees.
 *
 * Stands for pipelines: a reader that hands requests to a worker, a logger thread, a decoder that feeds a renderer.
 * Every free is of a block that another thread allocated, which is the path where allocators differ most: some let
 * the blocks pile up in the freeing thread's cache, some send each one back, some take a lock.
 *
 * The two share a bounded ring. Both publish their position once in a batch, so that the ring's own cache lines cost
 * little beside the allocator; a side that cannot go on yields. Each side keeps to one processor: left to the
 * scheduler, both may share one for a whole run, and then no cache line ever travels.
 *
 * Figure: blocks handed over per second (one malloc and one free each). Check: every block carries its number.
 *
 *     producer_consumer MIN MAX BLOCKS
 */
#include "workload.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { RING = 4096, BATCH = 32, CACHE_LINE = 64 };
_Static_assert(RING % BATCH == 0, "a batch must not straddle the end of the ring");

static struct {
    _Alignas(CACHE_LINE) atomic_size_t produced; /* written by the producer only */
    _Alignas(CACHE_LINE) atomic_size_t consumed; /* written by the consumer only */
    _Alignas(CACHE_LINE) uint64_t *block[RING];  /* entry i % RING is the producer's until i + 1 <= produced */
} ring;

static size_t total;

static void wait_until_at_least(atomic_size_t *position, size_t goal)
{
    while (atomic_load_explicit(position, memory_order_acquire) < goal)
        sched_yield();
}

/* Keeps the calling thread on the n-th of the processors that the program may use, if there are so many. */
static void stay_on_processor(int n)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) <= n)
        return;
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || n-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static size_t batch_end(size_t begin) { return begin + BATCH < total ? begin + BATCH : total; }

static void *consume(void *unused)
{
    stay_on_processor(1);
    for (size_t i = 0; i < total;) {
        size_t end = batch_end(i);
        wait_until_at_least(&ring.produced, end);
        for (; i < end; i++) {
            uint64_t *block = ring.block[i % RING];
            if (*block != i)
                fail("block %zu carries %llu", i, (unsigned long long)*block);
            free(block);
        }
        atomic_store_explicit(&ring.consumed, i, memory_order_release);
    }
    return unused;
}

static void produce(size_t min, size_t max)
{
    uint64_t state = 1;
    for (size_t i = 0; i < total;) {
        size_t end = batch_end(i);
        if (end > RING)
            wait_until_at_least(&ring.consumed, end - RING);
        for (; i < end; i++) {
            size_t size = min + random_below((uint32_t)random_next(&state), max - min + 1);
            uint64_t *block = malloc(size);
            if (!block)
                fail("malloc(%zu) returned NULL", size);
            *block = i;
            ring.block[i % RING] = block;
        }
        atomic_store_explicit(&ring.produced, i, memory_order_release);
    }
}

int main(int argc, char **argv)
{
    size_t min = argument(argc, argv, 1, "MIN");
    size_t max = argument(argc, argv, 2, "MAX");
    total = argument(argc, argv, 3, "BLOCKS");
    if (min < sizeof(uint64_t) || min > max) {
        fprintf(stderr, "%s: expected %zu <= MIN <= MAX\n", argv[0], sizeof(uint64_t));
        return 2;
    }
    pthread_t consumer;
    struct stopwatch start = stopwatch_start();
    if (pthread_create(&consumer, NULL, consume, NULL) != 0)
        fail("no thread");
    stay_on_processor(0);
    produce(min, max);
    pthread_join(consumer, NULL);
    struct stopwatch elapsed = stopwatch_read(start);
    report((double)total / elapsed.wall * 1e-6, "Mblocks/s", elapsed, "blocks=%zu", total);
    return 0;
}
