/*
 * Proves: memory that a program does not use goes back to the system while the program sleeps, and what it does use
 * stays as it is. How much must stay is counted from the addresses of the blocks that live: each page that one lies on.
 *
 *   sleep  four threads allocate 64 MiB of small blocks, another frees nearly all of them, and all sleep. Nobody calls
 *          anything any more, and yet the memory goes;
 *   off    the same with HAKMEM_BACKGROUND=0: no thread is started for it, and malloc_trim does it for all of them;
 *   late   the process has slept so long that nothing was left to do, then a large block is freed, then small ones;
 *   alone  without threads the memory goes while the program works on, a little, but for what a working process keeps;
 *   drop   without threads, and much of it: nearly all has gone with the frees, before the program sleeps.
 *
 * Times are generous: on an idle machine it takes about two seconds.
 */
#include "tasks.h"
#include <malloc.h>
#include <semaphore.h>

enum { MAKERS = 4, PATIENCE_S = 25, WARM_KIB = 8 << 10 };
static size_t bytes_per_maker = (size_t)16 << 20;
enum { MOST_BLOCKS = 1 << 20 };  /* of a maker */
enum { RUN = 10000, KEPT = 60 }; /* of so many blocks in a row so many are kept */

struct block {
    void *p;
    uint32_t size;
};
static struct block *blocks[MAKERS]; /* not on the heap */
static size_t counts[MAKERS];
static sem_t made, leave;

static bool is_kept(size_t i) { return i % RUN < KEPT; }

static void make_blocks(size_t maker)
{
    uint64_t random = maker;
    size_t n = 0;
    for (size_t sum = 0; sum < bytes_per_maker && n < MOST_BLOCKS; n++) {
        struct block *b = &blocks[maker][n];
        b->size = (uint32_t)hk_random_size(&random, 10);
        b->p = malloc(b->size);
        HK_CHECK(b->p != NULL, "malloc(%u)", b->size);
        hk_fill(b->p, b->size, hk_key(b->p, 1));
        sum += b->size;
    }
    counts[maker] = n;
}

static void free_most(void)
{
    for (size_t maker = 0; maker < MAKERS; maker++)
        for (size_t i = 0; i < counts[maker]; i++)
            if (!is_kept(i))
                free(blocks[maker][i].p);
}

static void check_and_free_rest(void)
{
    for (size_t maker = 0; maker < MAKERS; maker++)
        for (size_t i = 0; i < counts[maker]; i++)
            if (is_kept(i)) {
                const struct block *b = &blocks[maker][i];
                HK_CHECK_CONTENT(b->p, b->size, b->size, hk_key(b->p, 1));
                free(b->p);
            }
}

/* KiB of pages on which a kept block lies. */
static long floor_kib(void)
{
    enum { SLOTS = 1 << 18 };
    static uintptr_t *seen; /* a hash table of page numbers */
    if (seen == NULL)
        seen = hk_test_pages(SLOTS * sizeof *seen);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    memset(seen, 0, SLOTS * sizeof *seen);
    for (size_t maker = 0; maker < MAKERS; maker++)
        for (size_t i = 0; i < counts[maker]; i++) {
            uintptr_t first = (uintptr_t)blocks[maker][i].p / page;
            uintptr_t last = ((uintptr_t)blocks[maker][i].p + blocks[maker][i].size - 1) / page;
            for (uintptr_t at = first; is_kept(i) && at <= last; at++) {
                size_t slot = hk_mix(at) % SLOTS;
                while (seen[slot] != 0 && seen[slot] != at)
                    slot = (slot + 1) % SLOTS;
                n += seen[slot] == 0;
                seen[slot] = at;
                HK_CHECK(n < SLOTS / 2, "too many pages for the table");
            }
        }
    munmap(seen, SLOTS * sizeof *seen);
    seen = NULL;
    return (long)(n * page / 1024);
}

/* Waits until no more than so much is resident. */
static void expect_rss_falls_to(long kib, const char *what)
{
    double start = hk_now();
    long rss;
    while ((rss = hk_rss_kib()) > kib && hk_now() - start < PATIENCE_S)
        usleep(50000);
    HK_CHECK(rss <= kib, "%s: %ld KiB are resident after %d s, %ld would do", what, rss, PATIENCE_S, kib);
    hk_say("%s: %ld KiB after %.1f s, at most %ld are asked for\n", what, rss, hk_now() - start, kib);
}

/* ---- With threads ---- */

static void sleep_until_told(void)
{
    while (sem_wait(&leave) != 0)
        ;
}

static void *maker(void *argument)
{
    make_blocks((size_t)(uintptr_t)argument);
    sem_post(&made);
    sleep_until_told();
    return NULL;
}

static void *freer(void *argument)
{
    (void)argument;
    free_most();
    sem_post(&made);
    sleep_until_told();
    return NULL;
}

static pthread_t threads[MAKERS + 1];

static void start_threads(void)
{
    sem_init(&made, 0, 0);
    sem_init(&leave, 0, 0);
    for (size_t i = 0; i < MAKERS; i++)
        threads[i] = hk_thread(maker, (void *)i);
    for (size_t i = 0; i < MAKERS; i++)
        while (sem_wait(&made) != 0)
            ;
}

static void start_freer(void)
{
    threads[MAKERS] = hk_thread(freer, NULL);
    while (sem_wait(&made) != 0)
        ;
}

static void end_threads(void)
{
    for (size_t i = 0; i < MAKERS + 1; i++)
        sem_post(&leave);
    for (size_t i = 0; i < MAKERS + 1; i++)
        hk_join(threads[i]);
}

static void run_sleep(long base)
{
    start_threads();
    hk_own_task_begun();
    long full = hk_rss_kib();
    start_freer();
    long floor = floor_kib();
    hk_say("%ld KiB before, %ld KiB with all blocks, the floor is %ld KiB\n", base, full, floor);
    HK_CHECK(floor < (full - base) / 3, "the scene leaves too little to give back");
    expect_rss_falls_to(base + floor + floor * 15 / 100 + 4096, "asleep");
    check_and_free_rest();
    expect_rss_falls_to(base + 4096, "asleep with nothing");
    end_threads();
}

static void run_off(long base)
{
    start_threads();
    start_freer();
    HK_CHECK(hk_own_task() == 0, "the allocator made a thread that was not wanted");
    HK_CHECK(hk_tasks().n == MAKERS + 2, "%zu threads", hk_tasks().n);
    long floor = floor_kib();
    bool gone = hk_rss_kib() < base + 3 * floor; /* on a slow machine, by the slow paths of a second and more */
    HK_CHECK(malloc_trim(0) == 1 || gone, "malloc_trim gave nothing back");
    long rss = hk_rss_kib(), bound = base + floor + floor * 8 / 100 + 3072;
    HK_CHECK(rss <= bound, "after malloc_trim %ld KiB are resident, %ld would do", rss, bound);
    hk_say("malloc_trim: %ld KiB, at most %ld are asked for\n", rss, bound);
    HK_CHECK(malloc_trim(0) == 0, "there was more to be given back");
    HK_CHECK(hk_tasks().n == MAKERS + 2, "%zu threads", hk_tasks().n);
    check_and_free_rest();
    end_threads();
}

/* Waits until the allocator's thread has not run for some passes of it. */
static void wait_until_it_sleeps(void)
{
    int task = hk_own_task_begun();
    double start = hk_now(), since = start;
    uint64_t seen = 0;
    while (hk_now() - since < 1.5) {
        uint64_t switches = hk_task_status(task, "\nvoluntary_ctxt_switches:", 10);
        if (switches != seen) {
            seen = switches;
            since = hk_now();
        }
        HK_CHECK(hk_now() - start < PATIENCE_S, "the allocator's thread does not come to rest");
        usleep(50000);
    }
}

static void run_late(long base)
{
    enum { LARGE = 40 << 20 };
    char *large = malloc(LARGE);
    HK_CHECK(large != NULL, "malloc(%d)", LARGE);
    memset(large, 0x55, LARGE);
    start_threads();
    wait_until_it_sleeps();
    free(large); /* larger than what slow paths see */
    expect_rss_falls_to(base + 4 * (long)(bytes_per_maker >> 10) * 3 / 2 + 4096, "a large block freed in its sleep");
    wait_until_it_sleeps();
    start_freer();
    long floor = floor_kib();
    expect_rss_falls_to(base + floor + floor * 15 / 100 + 4096, "small blocks freed in its sleep");
    check_and_free_rest();
    end_threads();
}

/* ---- Without ---- */

static void run_alone(long base)
{
    for (size_t i = 0; i < MAKERS; i++)
        make_blocks(i);
    free_most();
    long floor = floor_kib(), bound = base + floor + floor * 15 / 100 + WARM_KIB + 4096;
    void *some[64];
    uint64_t random = 1;
    double start = hk_now();
    long rss;
    while ((rss = hk_rss_kib()) > bound && hk_now() - start < PATIENCE_S) {
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < HK_COUNT(some); i++)
                some[i] = malloc(hk_random_size(&random, 12));
            for (size_t i = 0; i < HK_COUNT(some); i++)
                free(some[i]);
        }
        usleep(10000);
    }
    HK_CHECK(rss <= bound, "%ld KiB are resident after %d s of a little work, %ld would do", rss, PATIENCE_S, bound);
    hk_say("alone: %ld KiB after %.1f s, at most %ld are asked for\n", rss, hk_now() - start, bound);
    HK_CHECK(hk_tasks().n == 1, "a program without threads has %zu", hk_tasks().n);
    check_and_free_rest();
}

static void run_drop(long base)
{
    bytes_per_maker = (size_t)64 << 20;
    for (size_t i = 0; i < MAKERS; i++)
        make_blocks(i);
    long full = hk_rss_kib();
    free_most();
    long rss = hk_rss_kib(), floor = floor_kib(), bound = base + floor + floor * 15 / 100 + 4096;
    HK_CHECK(floor < (full - base) / 10, "the scene leaves too little to give back");
    HK_CHECK(rss <= bound, "%ld KiB are resident when most is freed, %ld would do", rss, bound);
    hk_say("drop: %ld KiB, then %ld KiB, at most %ld are asked for\n", full, rss, bound);
    check_and_free_rest();
}

int main(int argc, char **argv)
{
    hk_watchdog(58);
    for (size_t i = 0; i < MAKERS; i++) {
        blocks[i] = hk_test_pages(MOST_BLOCKS * sizeof **blocks);
        memset(blocks[i], 0, MOST_BLOCKS * sizeof **blocks);
    }
    free(malloc(100));
    long base = hk_rss_kib();
    const char *what = argc > 1 ? argv[1] : "sleep";
    if (strcmp(what, "sleep") == 0)
        run_sleep(base);
    else if (strcmp(what, "off") == 0)
        run_off(base);
    else if (strcmp(what, "late") == 0)
        run_late(base);
    else if (strcmp(what, "alone") == 0)
        run_alone(base);
    else if (strcmp(what, "drop") == 0)
        run_drop(base);
    else
        HK_CHECK(false, "no scene is called %s", what);
    return 0;
}
