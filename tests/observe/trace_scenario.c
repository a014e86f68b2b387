/*
 * What trace.py traces. By itself it proves that memory and errno are as they should be, whatever becomes of the trace.
 *
 *   trace_scenario           every event that docs/trace.md lists, in a process with one thread at a time
 *   trace_scenario threads   four threads at once, of which each frees blocks of its neighbour
 *   trace_scenario still     frees much, and then nobody does anything for two seconds
 *   trace_scenario pass      one pass over slots, holes and superslabs; "pass" and "passed" on standard error say when
 *   trace_scenario switch    traces slots for a while: "on" and "off" say when
 */
#include "../front/check.h"
#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <malloc.h>
#include <sys/stat.h>

enum { MIB = 1 << 20, BLOCKS = 20000, THREADS = 4 };

static const int some_errno = 77;

/* ---- The library, which may have been preloaded ---- */

static void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    HK_CHECK(found != NULL, "no %s", name);
    return found;
}

static size_t purge(enum hak_purge_level level)
{
    size_t (*function)(enum hak_purge_level) = (size_t(*)(enum hak_purge_level))symbol("hak_purge");
    return function(level);
}

static void set_option(const char *name, const char *value)
{
    int (*function)(const char *, const char *) = (int (*)(const char *, const char *))symbol("hak_option_set");
    HK_CHECK(function(name, value) == 0, "%s=%s", name, value);
}

/* ---- Blocks ---- */

struct block {
    void *p;
    size_t size;
};

static void allocate(struct block *blocks, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        errno = some_errno;
        blocks[i].p = malloc(size);
        HK_CHECK(blocks[i].p != NULL, "malloc(%zu)", size);
        HK_CHECK(errno == some_errno, "malloc has changed errno");
        blocks[i].size = size;
        hk_fill(blocks[i].p, size, hk_key(blocks[i].p, 1));
    }
}

/* Frees the blocks from `from` on, but for every each-th; those may be freed later. */
static void release(struct block *blocks, size_t from, size_t n, size_t each)
{
    for (size_t i = from; i < n; i++) {
        if (blocks[i].p == NULL || (each != 0 && i % each == 0))
            continue;
        HK_CHECK_CONTENT(blocks[i].p, blocks[i].size, blocks[i].size, hk_key(blocks[i].p, 1));
        errno = some_errno;
        free(blocks[i].p);
        HK_CHECK(errno == some_errno, "free has changed errno");
        blocks[i].p = NULL;
    }
}

static void trim(void)
{
    errno = some_errno;
    malloc_trim(0);
    HK_CHECK(errno == some_errno, "malloc_trim has changed errno");
}

/* ---- One thread at a time ---- */

static struct block small[BLOCKS], medium[BLOCKS], large[10];

static void *frees_anothers(void *unused)
{
    static struct block own[200];
    allocate(own, HK_COUNT(own), 100);
    release(small, 0, BLOCKS, 0);
    release(own, 0, HK_COUNT(own), 0);
    return unused;
}

static void run_all(void)
{
    /* What the only thread drops goes at once. */
    set_option("surplus_mb", "2");
    allocate(small, BLOCKS, 500);
    release(small, 0, BLOCKS, 0);
    set_option("surplus_mb", "96");
    /* Superslabs are begun, then their slots; slabs become empty, and their slots serve another class. */
    allocate(small, BLOCKS, 500);
    allocate(medium, 1000, 4000);
    release(medium, 0, 1000, 0);
    allocate(medium, 1000, 3000);
    /* Memory that is idle pays for what grows; then all that is idle goes. */
    release(small, 0, BLOCKS, 100);
    allocate(large, 5, 3 * MIB);
    release(large, 0, 5, 0);
    release(medium, 0, 1000, 100);
    trim();
    release(medium, 0, 1000, 0);
    /* What lies in the cache for a second goes, but for the warm budget; and that. */
    allocate(large, HK_COUNT(large), 3 * MIB);
    release(large, 0, HK_COUNT(large), 0);
    usleep(1300000);
    HK_CHECK(purge(HAK_PURGE_DECAY) != 0, "nothing lay idle");
    HK_CHECK(purge(HAK_PURGE_QUIET) != 0, "no warm budget was left");
    hk_join(hk_thread(frees_anothers, NULL));
    trim();
}

/* ---- Four threads ---- */

static struct block theirs[THREADS][2000];
static pthread_barrier_t barrier;

static void *thread_body(void *argument)
{
    size_t self = (size_t)(uintptr_t)argument;
    for (int round = 0; round < 5; round++) {
        allocate(theirs[self], HK_COUNT(theirs[self]), 100 + 500 * self);
        pthread_barrier_wait(&barrier);
        release(theirs[(self + 1) % THREADS], 0, HK_COUNT(theirs[self]), 0);
        pthread_barrier_wait(&barrier);
        if (self == 0)
            trim();
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        threads[i] = hk_thread(thread_body, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        hk_join(threads[i]);
}

/* ---- A thread for maintenance, and two that rest ---- */

static void *allocates_and_rests(void *unused)
{
    static struct block own[10];
    allocate(own, HK_COUNT(own), 100);
    usleep(2500000);
    release(own, 0, HK_COUNT(own), 0);
    return unused;
}

static void run_still(void)
{
    allocate(small, BLOCKS / 2, 500);
    pthread_t thread = hk_thread(allocates_and_rests, NULL);
    release(small, 0, BLOCKS / 2, 0);
    hk_join(thread);
}

/* ---- With marks ---- */

static void mark(const char *text) { HK_CHECK(write(STDERR_FILENO, text, strlen(text)) > 0, "stderr"); }

static void run_pass(void)
{
    allocate(large, 3, 3 * MIB); /* first: what grows is paid for with what is idle */
    allocate(small, BLOCKS, 500);
    release(small, 0, BLOCKS, 500);
    release(large, 0, 3, 0);
    mark("pass\n");
    trim();
    mark("passed\n");
}

static void run_switch(void)
{
    for (int on = 0; on < 3; on++) {
        if (on == 1)
            mark("on\n");
        set_option("trace", on == 1 ? "slot" : "none");
        if (on == 2)
            mark("off\n");
        allocate(small, BLOCKS, 500);
        release(small, 0, BLOCKS, 0);
        trim();
    }
}

/* As a daemon does: closes all, and has a file of its own where standard error was. */
static void run_daemon(const char *path)
{
    for (int fd = 2; fd < 1024; fd++)
        close(fd);
    HK_CHECK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) == STDERR_FILENO, "open %s", path);
    run_all();
    struct stat status;
    HK_CHECK(fstat(STDERR_FILENO, &status) == 0 && status.st_size == 0, "a trace went into a program's file");
    set_option("on_error", "warn");
    void *volatile p = malloc(3 * MIB);
    free(p);
    free(p);
}

int main(int argc, char **argv)
{
    hk_watchdog(50);
    const char *what = argc > 1 ? argv[1] : "all";
    if (strcmp(what, "all") == 0)
        run_all();
    else if (strcmp(what, "threads") == 0)
        run_threads();
    else if (strcmp(what, "still") == 0)
        run_still();
    else if (strcmp(what, "pass") == 0)
        run_pass();
    else if (strncmp(what, "daemon=", 7) == 0)
        run_daemon(what + 7);
    else if (strcmp(what, "switch") == 0)
        run_switch();
    else
        HK_CHECK(false, "no scenario is called %s", what);
    return 0;
}
