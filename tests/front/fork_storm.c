/*
 * Proves: fork works at any moment. While threads allocate, free and hand blocks to each other at full speed, four
 * threads fork thousands of times. Each child checks and frees blocks that any thread of the parent allocated, and
 * allocates; some children trim, start threads, fork again (grandchildren start threads, too), end by exit, or end by
 * leaving the thread that forked. The parent's own blocks keep their content.
 *
 * Handlers of pthread_atfork allocate and free in all three places. One set is registered as early as a program can (in
 * .preinit_array), one later. With the archive the first comes before the allocator's own, and runs with its locks held
 * by fork; the library's own come before both.
 * Usage: fork_storm [forks [seed]]
 */
#include "check.h"
#include <malloc.h>

enum { WORKERS = 2, FORKERS = 3, STABLE = 600, STABLE_PER_WORKER = STABLE / (WORKERS + 1) };

/* ---- Handlers that allocate ---- */

static _Thread_local void *prepared[2]; /* several threads may be inside fork at once */

static void prepare(int set)
{
    free(malloc(2000));
    prepared[set] = malloc(100);
    HK_CHECK(prepared[set] != NULL, "malloc before fork");
    hk_fill(prepared[set], 100, 7);
}

static void finish(int set)
{
    HK_CHECK_CONTENT(prepared[set], 100, 100, 7);
    void *p = malloc(100000);
    HK_CHECK(p != NULL, "malloc after fork");
    prepared[set] = realloc(prepared[set], 300);
    HK_CHECK_CONTENT(prepared[set], 100, 100, 7);
    free(prepared[set]);
    free(p);
}

static void prepare_early(void) { prepare(0); }
static void finish_early(void) { finish(0); }
static void prepare_late(void) { prepare(1); }
static void finish_late(void) { finish(1); }

static void register_early(int argc, char **argv, char **environment)
{
    (void)argc, (void)argv, (void)environment;
    pthread_atfork(prepare_early, finish_early, finish_early);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = register_early;

/* ---- Blocks of the parent that children free: each thread of the parent allocated some ---- */

static struct {
    void *block;
    size_t size;
} stable[STABLE];

static void make_stable(int part, uint64_t *random)
{
    for (int i = part * STABLE_PER_WORKER; i < (part + 1) * STABLE_PER_WORKER; i++) {
        size_t size = hk_random_size(random, i % 50 == 0 ? 19 : 13);
        stable[i].size = size;
        stable[i].block = malloc(size);
        HK_CHECK(stable[i].block != NULL, "malloc(%zu)", size);
        hk_fill(stable[i].block, size, hk_key(stable[i].block, 4));
    }
}

static void free_stable(size_t from, size_t step, bool resize)
{
    for (size_t i = from; i < STABLE; i += step) {
        void *p = stable[i].block;
        size_t size = stable[i].size;
        uint64_t key = hk_key(p, 4);
        HK_CHECK_CONTENT(p, size, size, key);
        if (resize && i % 5 == 0) {
            p = realloc(p, size + size / 2 + 40);
            HK_CHECK_CONTENT(p, size, size, key);
        }
        free(p);
    }
}

/* ---- The parent's workers ---- */

static _Atomic bool stop;
static _Atomic int ready;
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static void *mailbox[64];

static void *worker(void *argument)
{
    int part = (int)(intptr_t)argument;
    uint64_t random = (uint64_t)part;
    make_stable(part, &random);
    ready++;
    void *mine[64] = {NULL};
    while (!stop) {
        for (int i = 0; i < 200; i++) {
            size_t j = hk_random_below(&random, HK_COUNT(mine));
            if (mine[j] == NULL)
                mine[j] = calloc(1, hk_random_size(&random, j == 0 ? 20 : 12));
            else if (j % 4 == 0)
                mine[j] = realloc(mine[j], hk_random_size(&random, 12));
            else
                free(mine[j]), mine[j] = NULL;
        }
        size_t j = hk_random_below(&random, HK_COUNT(mine));
        pthread_mutex_lock(&mailbox_lock);
        void *theirs = mailbox[j];
        mailbox[j] = mine[j];
        pthread_mutex_unlock(&mailbox_lock);
        mine[j] = NULL;
        free(theirs);
    }
    for (size_t i = 0; i < HK_COUNT(mine); i++)
        free(mine[i]);
    return NULL;
}

/* ---- Children ---- */

static void allocate_some(uint64_t *random, int n)
{
    void *block[100];
    size_t size[100];
    for (int i = 0; i < n; i++) {
        size[i] = hk_random_size(random, i == 0 ? 18 : 13);
        block[i] = malloc(size[i]);
        HK_CHECK(block[i] != NULL, "malloc(%zu)", size[i]);
        hk_fill(block[i], size[i], hk_key(block[i], 5));
    }
    for (int i = 0; i < n; i++) {
        HK_CHECK_CONTENT(block[i], size[i], size[i], hk_key(block[i], 5));
        free(block[i]);
    }
}

struct child_thread {
    pthread_t id;
    uint64_t random;
    size_t from;
};

static void *child_thread(void *argument)
{
    struct child_thread *t = argument;
    allocate_some(&t->random, 100);
    free_stable(t->from, 6, true); /* three threads: the odd half of the blocks */
    allocate_some(&t->random, 100);
    return NULL;
}

static void child_with_threads(uint64_t random)
{
    struct child_thread threads[3];
    for (size_t i = 0; i < 3; i++) {
        threads[i].random = random + i;
        threads[i].from = 2 * i + 1;
        threads[i].id = hk_thread(child_thread, &threads[i]);
    }
    free_stable(0, 2, false);
    allocate_some(&random, 50);
    for (size_t i = 0; i < 3; i++)
        hk_join(threads[i].id);
    allocate_some(&random, 50);
}

static void child(uint64_t random, unsigned number)
{
    hk_watchdog(30);
    allocate_some(&random, 20);
    if (number % 16 == 1) {
        malloc_trim(0);
        allocate_some(&random, 50);
    }
    if (number % 16 == 2) {
        pid_t grandchild = fork();
        HK_CHECK(grandchild >= 0, "fork in a child");
        if (grandchild == 0) {
            hk_watchdog(30);
            child_with_threads(random);
            _exit(0);
        }
        child_with_threads(random + 10);
        HK_WAIT_OK(grandchild, "grandchild of fork %u", number);
    } else if (number % 8 == 3) {
        child_with_threads(random);
    } else {
        free_stable(0, 1, true);
    }
    allocate_some(&random, 20);
}

/* ---- The storm ---- */

enum ending { END_BY_UNDERSCORE_EXIT, END_BY_EXIT, END_BY_RETURN };

/* Returns true in a child that is to end by returning from the thread that forked. */
static bool fork_once(uint64_t seed, unsigned number, enum ending ending)
{
    pid_t pid = fork();
    HK_CHECK(pid >= 0, "fork %u", number);
    if (pid == 0) {
        child(hk_mix(seed + number), number);
        if (ending == END_BY_EXIT)
            exit(0);
        if (ending == END_BY_UNDERSCORE_EXIT)
            _exit(0);
        return true;
    }
    HK_WAIT_OK(pid, "fork %u", number);
    return false;
}

static uint64_t seed;
static unsigned forks = 2000;

static void *forker(void *argument)
{
    uint64_t own_seed = seed + (uintptr_t)argument;
    for (unsigned i = 0; i < forks / (FORKERS + 1); i++)
        if (fork_once(own_seed, i, i % 4 == 0 ? END_BY_RETURN : END_BY_UNDERSCORE_EXIT))
            return NULL; /* the only thread of the child: the process ends with status 0 */
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        forks = (unsigned)strtoul(argv[1], NULL, 0);
    seed = hk_seed(argc > 2 ? argv[2] : NULL);
    hk_watchdog(5 + forks / 40);
    pthread_atfork(prepare_late, finish_late, finish_late);

    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = hk_thread(worker, (void *)(intptr_t)i);
    uint64_t random = seed;
    make_stable(WORKERS, &random);
    while (ready < WORKERS)
        usleep(100);

    double start = hk_now();
    pthread_t forkers[FORKERS];
    for (int i = 0; i < FORKERS; i++)
        forkers[i] = hk_thread(forker, (void *)(intptr_t)(i + 1));
    for (unsigned i = 0; i < forks / (FORKERS + 1); i++)
        fork_once(seed, i, i % 16 == 5 ? END_BY_EXIT : END_BY_UNDERSCORE_EXIT);
    for (int i = 0; i < FORKERS; i++)
        hk_join(forkers[i]);
    stop = true;
    for (int i = 0; i < WORKERS; i++)
        hk_join(workers[i]);
    free_stable(0, 1, true);
    for (size_t i = 0; i < HK_COUNT(mailbox); i++)
        free(mailbox[i]);
    hk_say("%u forks in %.1f s\n", forks, hk_now() - start);
    return 0;
}
