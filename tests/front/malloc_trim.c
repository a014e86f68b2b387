/*
 * Proves: malloc_trim gives back what can go, for all threads, at once; it leaves what it is asked to leave; it returns
 * 1 if something went, and then 0. With and without threads, for blocks of all kinds.
 */
#include "check.h"
#include <malloc.h>
#include <semaphore.h>

enum { BLOCKS = 60000, TRIES = 5 };
static const size_t block_size = 1000;
static const long pad_kib = 8 << 10, slack_kib = 3 << 10;

static void **blocks; /* not on the heap */
static sem_t done, leave;

static void make_blocks(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(block_size);
        HK_CHECK(blocks[i] != NULL, "malloc(%zu)", block_size);
        hk_fill(blocks[i], block_size, hk_key(blocks[i], 1));
    }
}

static void free_blocks(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static void expect_trimmed_to(long kib, const char *what)
{
    long rss = hk_rss_kib();
    HK_CHECK(rss <= kib, "%s: %ld KiB are resident, %ld would do", what, rss, kib);
}

static void no_memory_left_to_trim(long base, const char *what)
{
    expect_trimmed_to(base + slack_kib, what);
    HK_CHECK(malloc_trim(0) == 0, "%s: there was more", what);
    HK_CHECK(malloc_trim((size_t)1 << 40) == 0, "%s: there was more than all of it", what);
}

/* What is freed lies idle for a moment, unless this machine is so slow that time passes: then the allocator gives it
 * back by itself, and the scene must be played again. */
static void pad_is_left(long base)
{
    for (int attempt = 1;; attempt++) {
        make_blocks();
        free_blocks();
        long full = hk_rss_kib();
        if (full < base + 3 * pad_kib && attempt < TRIES)
            continue;
        HK_CHECK(full >= base + 3 * pad_kib, "%ld KiB are resident, only %ld above the start", full, full - base);
        HK_CHECK(malloc_trim((size_t)(full - base) << 12) == 0, "all was to be left");
        HK_CHECK(malloc_trim((size_t)pad_kib << 10) == 1, "nothing went");
        long left = hk_rss_kib();
        HK_CHECK(left <= base + pad_kib + slack_kib, "%ld KiB are left, %ld were to be", left - base, pad_kib);
        if (left < base + pad_kib - slack_kib && attempt < TRIES)
            continue;
        HK_CHECK(left >= base + pad_kib - slack_kib, "%ld KiB are left, %ld were to be", left - base, pad_kib);
        HK_CHECK(malloc_trim((size_t)pad_kib << 10) == 0, "some of what was to be left went");
        HK_CHECK(malloc_trim(0) == 1, "nothing went");
        no_memory_left_to_trim(base, "after the rest");
        return;
    }
}

/* One block in so many lives: what is around them goes, and they stay as they are. */
static void holes_go(long base)
{
    enum { EACH = 100 };
    make_blocks();
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % EACH != 0)
            free(blocks[i]);
    HK_CHECK(malloc_trim(0) == 1, "nothing went");
    long floor = BLOCKS / EACH * 2 * sysconf(_SC_PAGESIZE) / 1024; /* two pages each at most */
    no_memory_left_to_trim(base + floor, "between live blocks");
    for (size_t i = 0; i < BLOCKS; i += EACH)
        HK_CHECK_CONTENT(blocks[i], block_size, block_size, hk_key(blocks[i], 1));
    for (size_t i = 0; i < BLOCKS; i += EACH)
        free(blocks[i]);
    malloc_trim(0);
    no_memory_left_to_trim(base, "and then they");
}

static void large_blocks_go(long base)
{
    const size_t sizes[] = {3 << 20, 20 << 20, 80 << 20};
    for (size_t i = 0; i < HK_COUNT(sizes); i++) {
        char *p = malloc(sizes[i]);
        HK_CHECK(p != NULL, "malloc(%zu)", sizes[i]);
        memset(p, 0x33, sizes[i]);
        free(p);
        HK_CHECK(malloc_trim(0) == 1, "nothing of %zu bytes went", sizes[i]);
        no_memory_left_to_trim(base, "a large block");
    }
}

static void *frees(void *argument)
{
    (void)argument;
    free_blocks();
    sem_post(&done);
    while (sem_wait(&leave) != 0)
        ;
    return NULL;
}

static void *makes_and_sleeps(void *argument)
{
    (void)argument;
    make_blocks();
    sem_post(&done);
    while (sem_wait(&leave) != 0)
        ;
    return NULL;
}

/* What lies in another thread's outbox and in the bitmaps of a third goes, though both sleep. */
static void sleeping_threads_are_trimmed(long base)
{
    pthread_t maker = hk_thread(makes_and_sleeps, NULL);
    while (sem_wait(&done) != 0)
        ;
    pthread_t freer = hk_thread(frees, NULL);
    while (sem_wait(&done) != 0)
        ;
    /* 0 at once if the allocator's own thread was faster; more than once if that has something in hand. */
    for (int i = 0; i < 10 && malloc_trim(0) == 1; i++)
        usleep(1000);
    no_memory_left_to_trim(base + 1024, "of sleeping threads");
    sem_post(&leave);
    sem_post(&leave);
    hk_join(maker);
    hk_join(freer);
}

int main(void)
{
    hk_watchdog(55);
    sem_init(&done, 0, 0);
    sem_init(&leave, 0, 0);
    blocks = hk_test_pages(BLOCKS * sizeof *blocks);
    memset(blocks, 0, BLOCKS * sizeof *blocks);
    make_blocks(); /* once, so that the allocator has what it needs for so many */
    free_blocks();
    malloc_trim(0);
    HK_CHECK(malloc_trim(0) == 0, "there was more");
    long base = hk_rss_kib();
    errno = 55;
    malloc_trim(0);
    HK_CHECK(errno == 55, "errno is %d", errno);
    pad_is_left(base);
    holes_go(base);
    large_blocks_go(base);
    sleeping_threads_are_trimmed(base);
    hk_say("base %ld KiB, at the end %ld\n", base, hk_rss_kib());
    return 0;
}
