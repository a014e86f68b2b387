/*
 * Proves: a program that goes through the same motions again and again does not grow. In each cycle every thread builds
 * up, replaces and tears down a working set in each of four ranges of sizes, leaves one block in ten alive until the
 * next cycle (so that pages are never empty when the next range wants them), and hands a part of what it built to
 * another thread, which frees it. Every few cycles the threads are replaced by new ones. The resident size is taken at
 * the same point of each cycle: the last third of the cycles must not be above the first.
 *
 * Some seconds in CI; an hour by argument is a soak.
 */
#include "../front/check.h"
#include "names.h"
#include "stress.h"

enum { BLOCKS = 2000, MAX_THREADS = 32, FEWEST_CYCLES = 9, CYCLES_A_THREAD = 5 };

static const struct range {
    size_t smallest, largest, blocks;
} ranges[] = {{16, 128, 2000}, {128, 1024, 2000}, {1024, 16384, 400}, {16384, 500000, 24}};

struct block {
    void *p;
    size_t size;
    uint64_t key;
};

static struct worker {
    pthread_t id;
    uint64_t random, seed;
    struct block now[BLOCKS];
    struct block survivors[HK_COUNT(ranges)][BLOCKS / 10];
    struct block given[BLOCKS / 8]; /* by the thread before this one, under the barrier */
    unsigned cycles;
} workers[MAX_THREADS];

static unsigned thread_count;
static pthread_barrier_t barrier;

static void end_block(struct block *b)
{
    if (b->p == NULL)
        return;
    HK_CHECK_CONTENT(b->p, b->size, b->size, b->key);
    hk_names.free(b->p);
    b->p = NULL;
}

static void begin_block(struct block *b, const struct range *r, uint64_t *random)
{
    b->size = r->smallest + hk_random_below(random, r->largest - r->smallest);
    b->p = hk_random_below(random, 4) == 0 ? hk_names.calloc(1, b->size) : hk_names.malloc(b->size);
    HK_CHECK(b->p != NULL, "%zu bytes", b->size);
    b->key = hk_key(b->p, *random);
    hk_fill(b->p, b->size, b->key);
}

static void one_range(struct worker *w, size_t range)
{
    const struct range *r = &ranges[range];
    struct worker *next = &workers[((size_t)(w - workers) + 1) % thread_count];
    for (size_t i = 0; i < r->blocks; i++)
        begin_block(&w->now[i], r, &w->random);
    for (size_t i = 0; i < 2 * r->blocks; i++) {
        struct block *b = &w->now[hk_random_below(&w->random, r->blocks)];
        end_block(b);
        begin_block(b, r, &w->random);
    }
    /* Every tenth block survives until this range's turn in the next cycle; every eighth of the rest goes next door. */
    for (size_t i = 0; i < r->blocks; i++) {
        if (i % 10 == 0) {
            end_block(&w->survivors[range][i / 10]);
            w->survivors[range][i / 10] = w->now[i];
            w->now[i].p = NULL;
        } else if (i % 8 == 0) {
            next->given[i / 8] = w->now[i];
            w->now[i].p = NULL;
        }
    }
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < BLOCKS / 8; i++)
        end_block(&w->given[i]);
    for (size_t i = 0; i < r->blocks; i++)
        end_block(&w->now[i]);
    pthread_barrier_wait(&barrier);
}

static void *body(void *argument)
{
    struct worker *w = argument;
    for (unsigned cycle = 0; cycle < w->cycles; cycle++) {
        w->random = w->seed; /* the same motions */
        for (size_t i = 0; i < HK_COUNT(ranges); i++)
            one_range(w, i);
    }
    return NULL;
}

/* Runs all threads for some cycles and returns the resident size. */
static long generation(unsigned cycles)
{
    for (unsigned i = 0; i < thread_count; i++) {
        workers[i].cycles = cycles;
        workers[i].id = hk_thread(body, &workers[i]);
    }
    for (unsigned i = 0; i < thread_count; i++)
        hk_join(workers[i].id);
    return hk_rss_kib();
}

void hk_stress_run(const struct hk_stress *stress)
{
    enum { THIRDS = 3 };
    thread_count = stress->threads;
    HK_CHECK(thread_count <= MAX_THREADS, "at most %d threads", MAX_THREADS);
    pthread_barrier_init(&barrier, NULL, thread_count);
    for (unsigned i = 0; i < thread_count; i++)
        workers[i].seed = hk_mix(stress->seed + i);

    long most[THIRDS] = {0};
    double start = hk_now(), end = start + stress->seconds;
    unsigned generations = 0;
    generation(CYCLES_A_THREAD); /* warm-up */
    for (unsigned third = 0; third < THIRDS; third++) {
        double third_end = start + (end - start) * (third + 1) / THIRDS;
        for (unsigned i = 0; i < FEWEST_CYCLES / THIRDS || hk_now() < third_end; i++, generations++) {
            long kib = generation(CYCLES_A_THREAD);
            if (kib > most[third])
                most[third] = kib;
        }
    }
    for (unsigned i = 0; i < thread_count; i++)
        for (size_t r = 0; r < HK_COUNT(ranges); r++)
            for (size_t j = 0; j < BLOCKS / 10; j++)
                end_block(&workers[i].survivors[r][j]);
    hk_say("%u cycles of %u threads: resident at most %ld, %ld, %ld KiB in the three thirds\n",
           generations * CYCLES_A_THREAD, thread_count, most[0], most[1], most[2]);
    HK_CHECK(most[2] <= most[0] + most[0] / 10 + 2048, "resident size grew from %ld to %ld KiB", most[0], most[2]);
}
