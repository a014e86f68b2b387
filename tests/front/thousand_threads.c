/*
 * Proves: idle threads are cheap. 1,000 threads that each hold four blocks of different sizes and sleep cost at most
 * 8 KiB a thread above the same program whose threads hold nothing; and when they end, their blocks can be freed by
 * the main thread, after which as many threads again add nothing.
 *
 * The program starts itself for each of the two measurements, so that neither sees what the other left.
 * Usage: thousand_threads [hold|empty]
 */
#include "check.h"
#include <semaphore.h>

enum { THREADS = 1000, HELD = 4, BOUND_BYTES = 8192 };
static const size_t sizes[HELD] = {40, 200, 600, 1500};

static void *blocks[THREADS][HELD];
static sem_t ready, leave;
static bool hold;

static void *thread_body(void *argument)
{
    void **mine = argument;
    if (hold)
        for (int i = 0; i < HELD; i++) {
            mine[i] = malloc(sizes[i]);
            HK_CHECK(mine[i] != NULL, "malloc(%zu)", sizes[i]);
            hk_fill(mine[i], sizes[i], hk_key(mine[i], 3));
        }
    sem_post(&ready);
    while (sem_wait(&leave) != 0)
        ;
    return NULL;
}

/* Returns the resident size with all threads asleep. */
static long measure(void)
{
    static pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = hk_thread(thread_body, blocks[i]);
        sem_wait(&ready);
    }
    long kib = hk_rss_kib();
    for (int i = 0; i < THREADS; i++)
        sem_post(&leave);
    for (int i = 0; i < THREADS; i++)
        hk_join(threads[i]);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < HELD && blocks[i][j] != NULL; j++) {
            HK_CHECK_CONTENT(blocks[i][j], sizes[j], sizes[j], hk_key(blocks[i][j], 3));
            free(blocks[i][j]);
            blocks[i][j] = NULL;
        }
    return kib;
}

static int run(void)
{
    hk_watchdog(30);
    sem_init(&ready, 0, 0);
    sem_init(&leave, 0, 0);
    long first = measure();
    long second = measure();
    HK_CHECK(second - first <= 1024, "a second thousand threads adds %ld KiB", second - first);
    hk_say("%ld\n", first);
    return 0;
}

static long run_child(char *program, const char *what)
{
    int ends[2];
    HK_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", program, what, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    char text[64] = "";
    HK_CHECK(read(ends[0], text, sizeof text - 1) > 0, "no figure from %s", what);
    close(ends[0]);
    HK_WAIT_OK(child, "%s", what);
    return atol(text);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        hold = strcmp(argv[1], "hold") == 0;
        return run();
    }
    long empty = run_child(argv[0], "empty"), held = run_child(argv[0], "hold");
    long bytes = (held - empty) * 1024 / THREADS;
    hk_say("%d threads: %ld KiB without blocks, %ld KiB with %d blocks each: %ld bytes a thread\n", THREADS, empty,
           held, HELD, bytes);
    HK_CHECK(bytes <= BOUND_BYTES, "%ld bytes a thread", bytes);
    return 0;
}
