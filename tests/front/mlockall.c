/*
 * Proves: under mlockall, where madvise(MADV_DONTNEED) fails and pages are populated as soon as they are mapped, calloc
 * still gives zeros, malloc_trim does no harm, and the resident size is that of the blocks and not of what is reserved.
 * With MCL_CURRENT|MCL_FUTURE set in the running process, with MCL_ONFAULT, after munlockall, and in a forked child
 * (which does not inherit the locks); and that what could not be purged under MCL_FUTURE can be later. Without the
 * right to lock memory there is nothing to test.
 */
#include "check.h"
#include <malloc.h>
#include <sys/resource.h>

enum { BLOCKS = 400, ROUNDS = 12, MIB = 1 << 20 };
static const long bound_kib = 192 << 10; /* locked pages cannot be returned; at the peak, some 72 MiB are live */

static size_t round_size(uint64_t *random, int i)
{
    if (i % 100 == 0)
        return 5 * MIB + hk_random_below(random, MIB);
    if (i % 20 == 0)
        return hk_random_size(random, 20);
    return hk_random_size(random, 14);
}

/* Dirties blocks of all sizes, frees them, and sees whether calloc clears what it hands out of them. */
static void *dirty_and_clear(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    static _Thread_local void *block[BLOCKS];
    static _Thread_local size_t size[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t same = random;
        for (int i = 0; i < BLOCKS; i++) {
            size[i] = round_size(&same, i);
            block[i] = malloc(size[i]);
            HK_CHECK(block[i] != NULL, "malloc(%zu)", size[i]);
            memset(block[i], 0xee, size[i]);
        }
        for (int i = 0; i < BLOCKS; i++)
            free(block[i]);
        if (round % 3 == 1)
            malloc_trim(0);
        for (int i = 0; i < BLOCKS; i++) {
            block[i] = calloc(1, size[i]);
            HK_CHECK(block[i] != NULL, "calloc(%zu)", size[i]);
            HK_CHECK(hk_all_zero(block[i], size[i]), "calloc of %zu bytes is not zero", size[i]);
            memset(block[i], 0xdd, size[i]);
        }
        for (int i = 0; i < BLOCKS; i++) {
            block[i] = realloc(block[i], size[i] + size[i] / 2);
            HK_CHECK(block[i] != NULL, "realloc to %zu", size[i] + size[i] / 2);
            memset(block[i], 0xcc, size[i] + size[i] / 2);
        }
        for (int i = BLOCKS - 1; i >= 0; i--)
            free(block[i]);
        if (round % 2 == 0)
            random = hk_random(&same);
    }
    return NULL;
}

static void run(const char *what)
{
    pthread_t other = hk_thread(dirty_and_clear, (void *)2);
    dirty_and_clear((void *)1);
    hk_join(other);
    long kib = hk_rss_kib();
    hk_say("%-30s resident %ld KiB\n", what, kib);
    HK_CHECK(kib <= bound_kib, "%s: %ld KiB resident", what, kib);
}

/* What was purged in vain while new memory is locked does not count later. */
static void purge_after_future(void)
{
    enum { N = 20000, SIZE = 1000 };
    static void *block[N];
    for (int lock = 1; lock >= 0; lock--) {
        for (int i = 0; i < N; i++) {
            block[i] = malloc(SIZE);
            HK_CHECK(block[i] != NULL, "malloc");
            memset(block[i], 1, SIZE);
        }
        if (lock)
            HK_CHECK(mlockall(MCL_FUTURE) == 0, "mlockall(MCL_FUTURE)");
        for (int i = 0; i < N; i++)
            if (i % 50 != 0) /* whole superslabs can go in another way */
                free(block[i]);
        int trimmed = malloc_trim(0);
        HK_CHECK(lock || trimmed == 1, "malloc_trim gives nothing back of %d KiB", N * SIZE >> 10);
        for (int i = 0; i < N; i += 50)
            free(block[i]);
        HK_CHECK(munlockall() == 0, "munlockall");
    }
}

int main(int argc, char **argv)
{
    hk_watchdog(55);
    if (argc > 1 && strcmp(argv[1], "future") == 0) {
        purge_after_future();
        return 0;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        hk_skip("mlockall: errno %d (it takes CAP_IPC_LOCK or a larger RLIMIT_MEMLOCK)", errno);
    run("mlockall");
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        hk_watchdog(55);
        run("child of a locked process");
        _exit(0);
    }
    HK_WAIT_OK(child, "child of a locked process");
    HK_CHECK(munlockall() == 0, "munlockall");
    run("munlockall");
    HK_CHECK(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0, "mlockall with MCL_ONFAULT");
    run("mlockall with MCL_ONFAULT");
    HK_CHECK(munlockall() == 0, "munlockall");
    child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        execl("/proc/self/exe", "mlockall", "future", (char *)NULL);
        _exit(1);
    }
    HK_WAIT_OK(child, "MCL_FUTURE alone");
    return 0;
}
