/*
 * Proves: a fork, which takes all locks of the allocator, waits for nobody who waits for one of them.
 *
 *   streams  threads fork while others read lines, which allocates with a stream locked, and one flushes all streams,
 *            for which it has the C library's list of them and waits for each; children use streams, too;
 *   library  a library's handler, registered by its constructor, takes a lock under which other threads allocate;
 *   signal   a program with one thread forks in a signal handler, which may have interrupted malloc or free. Parent and
 *            child go on from there, also where memory was on its way to the system: half of the children return from
 *            the handler and work on.
 *
 * Usage: fork_locks scene
 */
#include "check.h"
#include "fork_library.h"
#include <malloc.h>
#include <stdatomic.h>
#include <sys/time.h>

static _Atomic bool stop;

static void allocate_some(uint64_t *random)
{
    void *blocks[40];
    size_t sizes[HK_COUNT(blocks)];
    for (size_t i = 0; i < HK_COUNT(blocks); i++) {
        sizes[i] = hk_random_size(random, 16);
        blocks[i] = malloc(sizes[i]);
        HK_CHECK(blocks[i] != NULL, "malloc(%zu)", sizes[i]);
        hk_fill(blocks[i], sizes[i], hk_key(blocks[i], 1));
    }
    for (size_t i = 0; i < HK_COUNT(blocks); i++) {
        HK_CHECK_CONTENT(blocks[i], sizes[i], sizes[i], hk_key(blocks[i], 1));
        free(blocks[i]);
    }
}

/* ---- Streams ---- */

enum { READERS = 8, FORKERS = 4, SECONDS = 4, LINE = 50000 };
static char long_line[64]; /* the path of a file that has one */

static void make_long_line(void)
{
    static char text[LINE + 1];
    memset(text, 'x', LINE);
    text[LINE] = '\n';
    int fd = memfd_create("long line", 0);
    HK_CHECK(fd >= 0 && write(fd, text, sizeof text) == sizeof text, "memfd_create");
    snprintf(long_line, sizeof long_line, "/proc/self/fd/%d", fd);
}

static void *reads_lines(void *unused)
{
    FILE *file = fopen(long_line, "r");
    HK_CHECK(file != NULL, "fopen");
    while (!stop) {
        char *line = NULL;
        size_t size = 0;
        rewind(file);
        HK_CHECK(getline(&line, &size, file) == LINE + 1, "getline");
        free(line);
    }
    fclose(file);
    return unused;
}

static void *flushes_all(void *unused)
{
    while (!stop)
        fflush(NULL);
    return unused;
}

static void *forks_with_streams(void *unused)
{
    for (int i = 0; !stop || i == 0; i++) {
        pid_t pid = fork();
        HK_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            if (i % 256 != 0)
                _exit(0);
            hk_watchdog(20);
            fflush(NULL);
            FILE *file = fopen("/dev/null", "w");
            HK_CHECK(file != NULL && fprintf(file, "%d\n", i) > 0 && fclose(file) == 0, "a child writes");
            fflush(NULL);
            _exit(0);
        }
        HK_WAIT_OK(pid, "child %d", i);
    }
    return unused;
}

static void run_streams(void)
{
    pthread_t threads[READERS + 1], forkers[FORKERS];
    make_long_line();
    for (size_t i = 0; i < READERS; i++)
        threads[i] = hk_thread(reads_lines, NULL);
    threads[READERS] = hk_thread(flushes_all, NULL);
    for (size_t i = 0; i < FORKERS; i++)
        forkers[i] = hk_thread(forks_with_streams, NULL);
    sleep(SECONDS);
    stop = true;
    for (size_t i = 0; i < FORKERS; i++)
        hk_join(forkers[i]);
    for (size_t i = 0; i < HK_COUNT(threads); i++)
        hk_join(threads[i]);
    fflush(NULL);
}

/* ---- A library ---- */

enum { USERS = 2, LIBRARY_FORKS = 300 };

static void *uses_library(void *unused)
{
    uint64_t random = 3;
    while (!stop) {
        fork_library_locked(allocate_some, &random);
        usleep(50); /* or nobody else would get the lock */
    }
    return unused;
}

static void run_library(void)
{
    pthread_t threads[USERS];
    for (size_t i = 0; i < USERS; i++)
        threads[i] = hk_thread(uses_library, NULL);
    uint64_t random = 5;
    for (int i = 0; i < LIBRARY_FORKS; i++) {
        pid_t pid = fork();
        HK_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            hk_watchdog(20);
            fork_library_locked(allocate_some, &random);
            _exit(0);
        }
        HK_WAIT_OK(pid, "child %d", i);
    }
    stop = true;
    for (size_t i = 0; i < USERS; i++)
        hk_join(threads[i]);
    HK_CHECK(fork_library_handled() == LIBRARY_FORKS, "%d times", fork_library_handled());
}

/* ---- A signal handler ---- */

enum { SIGNAL_FORKS = 1000, MANY = 300 };
static volatile sig_atomic_t signals;
static volatile bool works_on; /* a child that returns from the handler */

/* Blocks whose memory goes back to the system, which takes a while, without locks, and with them. */
static void allocate_much(uint64_t *random)
{
    static struct {
        char *p;
        size_t size;
    } blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i].size = 1000 + hk_random(random) % 60000;
        blocks[i].p = malloc(blocks[i].size);
        HK_CHECK(blocks[i].p != NULL, "malloc(%zu)", blocks[i].size);
        hk_fill(blocks[i].p, blocks[i].size, hk_key(blocks[i].p, 1));
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < MANY; i++) {
            if ((i % 8 != 0) != (pass == 0))
                continue;
            HK_CHECK_CONTENT(blocks[i].p, blocks[i].size, blocks[i].size, hk_key(blocks[i].p, 1));
            free(blocks[i].p);
        }
        malloc_trim(0);
    }
}

/* The next signal comes when it may. */
static void rearm(void)
{
    static uint64_t random = 7;
    struct itimerval once = {.it_value.tv_usec = 50 + (suseconds_t)(hk_random(&random) % 2000)};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void forks(int number)
{
    (void)number;
    int saved = errno;
    signals++;
    pid_t pid = fork();
    HK_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        if (signals % 2 != 0)
            _exit(0);
        works_on = true;
        errno = saved;
        return;
    }
    HK_WAIT_OK(pid, "child %d", (int)signals);
    rearm();
    errno = saved;
}

static void run_signal(void)
{
    signal(SIGALRM, forks);
    rearm();
    uint64_t random = 9;
    double start = hk_now();
    for (int round = 0; signals < SIGNAL_FORKS && !works_on && hk_now() - start < 10; round++) {
        if (round % 2 == 0)
            allocate_much(&random);
        else
            allocate_some(&random);
    }
    if (!works_on) {
        signal(SIGALRM, SIG_IGN);
        return;
    }
    for (int i = 0; i < 5; i++) {
        allocate_some(&random);
        allocate_much(&random);
    }
    pid_t pid = fork(); /* as any process */
    if (pid == 0) {
        allocate_some(&random);
        _exit(0);
    }
    HK_WAIT_OK(pid, "a child of a child");
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *scene = argc > 1 ? argv[1] : "";
    if (strcmp(scene, "signal") != 0)
        hk_watchdog(55);
    if (strcmp(scene, "streams") == 0)
        run_streams();
    else if (strcmp(scene, "library") == 0)
        run_library();
    else if (strcmp(scene, "signal") == 0)
        run_signal();
    else
        HK_CHECK(false, "no scene is called \"%s\"", scene);
    return 0;
}
