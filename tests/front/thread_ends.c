/*
 * Proves: threads may end in any way, and what they leave behind stays usable.
 *   - return, pthread_exit, cancellation while allocating at full speed (joined and detached);
 *   - a pending cancellation is never acted upon inside malloc's family: none of it is a cancellation point;
 *   - cleanup handlers that free run as usual, and blocks of dead threads can be read, resized and freed by others;
 *   - exit() while other threads allocate, hundreds of times, with statistics printed at exit or not;
 *   - the main thread leaves by pthread_exit: the process ends, with status 0, when its last thread does. A thread that
 *     the allocator made for itself must not keep it alive.
 */
#include "check.h"
#include <malloc.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdatomic.h>

extern char **environ;

/* ---- Return, pthread_exit, cancellation ---- */

enum { BLOCKS = 64 };

struct worker {
    uint64_t random;
    void *block[BLOCKS];
    size_t size[BLOCKS];
    void *legacy; /* outlives the thread; 1,000 bytes */
    uint64_t legacy_key;
    sem_t running;
    _Atomic bool cleaned;
};

static void churn_step(struct worker *w)
{
    size_t i = hk_random_below(&w->random, BLOCKS);
    if (w->block[i] != NULL)
        HK_CHECK_CONTENT(w->block[i], w->size[i], w->size[i], hk_key(w->block[i], 1));
    free(w->block[i]);
    w->size[i] = hk_random_size(&w->random, i == 0 ? 21 : 13);
    w->block[i] = malloc(w->size[i]);
    HK_CHECK(w->block[i] != NULL, "malloc(%zu)", w->size[i]);
    hk_fill(w->block[i], w->size[i], hk_key(w->block[i], 1));
}

static void clean_up(void *argument)
{
    struct worker *w = argument;
    for (size_t i = 0; i < BLOCKS; i++) {
        free(w->block[i]);
        w->block[i] = NULL;
    }
    w->cleaned = true;
}

static void leave_legacy(struct worker *w)
{
    w->legacy = malloc(1000);
    w->legacy_key = hk_key(w->legacy, 2);
    hk_fill(w->legacy, 1000, w->legacy_key);
}

static void *ends_by_return(void *argument)
{
    struct worker *w = argument;
    for (int i = 0; i < 2000; i++)
        churn_step(w);
    leave_legacy(w);
    clean_up(w);
    return NULL;
}

static void *ends_by_pthread_exit(void *argument)
{
    struct worker *w = argument;
    pthread_cleanup_push(clean_up, w);
    for (int i = 0; i < 2000; i++)
        churn_step(w);
    leave_legacy(w);
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
}

/* Cancelled at a cancellation point in the middle of its churn. */
static void *ends_by_cancel(void *argument)
{
    struct worker *w = argument;
    pthread_cleanup_push(clean_up, w);
    leave_legacy(w);
    sem_post(&w->running);
    for (;;) {
        for (int i = 0; i < 50; i++)
            churn_step(w);
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
}

/* Cancelled before it allocates for the first time: if any call of malloc's family were a cancellation point, the
 * thread would end there and not set `survived`. */
struct pending {
    struct worker worker;
    _Atomic bool cancelled, survived;
};

static void *ignores_pending_cancel(void *argument)
{
    struct pending *p = argument;
    struct worker *w = &p->worker;
    sem_post(&w->running);
    while (!p->cancelled)
        ;
    for (int i = 0; i < 4000; i++)
        churn_step(w);
    for (int i = 0; i < 20; i++) { /* mappings made, moved, returned */
        char *large = malloc((size_t)3 << 20);
        HK_CHECK(large != NULL, "malloc of 3 MiB");
        memset(large, 1, (size_t)3 << 20);
        large = realloc(large, (size_t)80 << 20);
        HK_CHECK(large != NULL && large[(3 << 20) - 1] == 1, "realloc to 80 MiB");
        free(large);
        free(calloc(1, (size_t)70 << 20));
    }
    malloc_trim(0);
    free(mallinfo2().arena != 0 ? malloc(1) : NULL);
    leave_legacy(w);
    p->survived = true;
    clean_up(w);
    pthread_testcancel();
    HK_CHECK(false, "the cancellation was lost");
    return NULL;
}

static void use_legacy(struct worker *w)
{
    if (w->legacy == NULL)
        return;
    HK_CHECK_CONTENT(w->legacy, 1000, 1000, w->legacy_key);
    w->legacy = realloc(w->legacy, 3000);
    HK_CHECK_CONTENT(w->legacy, 1000, 1000, w->legacy_key);
    free(w->legacy);
    w->legacy = NULL;
}

static void end_in_all_ways(void)
{
    static void *(*const bodies[])(void *) = {ends_by_return, ends_by_pthread_exit, ends_by_cancel};
    enum { ROUNDS = 60, AT_ONCE = 6 };
    static struct worker workers[AT_ONCE];
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            memset(&workers[i], 0, sizeof workers[i]);
            workers[i].random = (uint64_t)(round * AT_ONCE + i);
            sem_init(&workers[i].running, 0, 0);
            threads[i] = hk_thread(bodies[(size_t)i % HK_COUNT(bodies)], &workers[i]);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            if (bodies[(size_t)i % HK_COUNT(bodies)] == ends_by_cancel) {
                sem_wait(&workers[i].running);
                pthread_cancel(threads[i]);
            }
            hk_join(threads[i]);
            HK_CHECK(workers[i].cleaned, "cleanup handler of worker %d", i);
            use_legacy(&workers[i]);
        }
    }
    hk_say("%d threads ended by return, pthread_exit and cancellation\n", ROUNDS * AT_ONCE);
}

static void pending_cancellation(void)
{
    static struct pending pending;
    for (int round = 0; round < 3; round++) {
        memset(&pending, 0, sizeof pending);
        pending.worker.random = (uint64_t)round;
        sem_init(&pending.worker.running, 0, 0);
        pthread_t thread = hk_thread(ignores_pending_cancel, &pending);
        sem_wait(&pending.worker.running);
        pthread_cancel(thread);
        pending.cancelled = true;
        hk_join(thread);
        HK_CHECK(pending.survived, "a function of malloc's family acted upon a cancellation");
        use_legacy(&pending.worker);
    }
    hk_say("pending cancellation kept pending\n");
}

/* ---- Detached threads ---- */

static _Atomic int detached_left;
static struct worker *_Atomic detached_legacy;

static void *detached_body(void *argument)
{
    struct worker *w = argument;
    w->random = (uint64_t)(uintptr_t)w;
    for (int i = 0; i < 300; i++)
        churn_step(w);
    leave_legacy(w);
    clean_up(w);
    w = atomic_exchange(&detached_legacy, w);
    if (w != NULL) {
        use_legacy(w);
        free(w);
    }
    detached_left--;
    return NULL;
}

static void detached_threads(void)
{
    enum { THREADS = 1000, AT_ONCE = 16 };
    for (int i = 0; i < THREADS; i++) {
        while (detached_left >= AT_ONCE)
            sched_yield();
        detached_left++;
        pthread_detach(hk_thread(detached_body, calloc(1, sizeof(struct worker))));
    }
    while (detached_left != 0)
        usleep(100);
    struct worker *w = atomic_exchange(&detached_legacy, NULL);
    use_legacy(w);
    free(w);
    hk_say("%d detached threads\n", THREADS);
}

/* ---- The end of the process ---- */

static _Atomic bool stop;

static void *runs_for_ever(void *argument)
{
    struct worker *w = argument;
    sem_post(&w->running);
    while (!stop)
        churn_step(w);
    clean_up(w);
    return NULL;
}

static struct worker at_the_end[6];

static void start_endless_workers(void)
{
    for (size_t i = 0; i < HK_COUNT(at_the_end); i++) {
        at_the_end[i].random = i;
        sem_init(&at_the_end[i].running, 0, 0);
        hk_thread(runs_for_ever, &at_the_end[i]);
    }
    for (size_t i = 0; i < HK_COUNT(at_the_end); i++)
        sem_wait(&at_the_end[i].running);
}

static void *exits_in_thread(void *argument)
{
    (void)argument;
    exit(0);
}

static void *stops_the_others(void *argument)
{
    (void)argument;
    usleep(2000);
    stop = true;
    return NULL;
}

static int run_ending(const char *how)
{
    hk_watchdog(20);
    start_endless_workers();
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "exit_in_thread") == 0) {
        hk_join(hk_thread(exits_in_thread, NULL));
        return 1;
    }
    if (strcmp(how, "main_leaves") == 0) {
        hk_thread(stops_the_others, NULL);
        pthread_exit(NULL);
    }
    return 0; /* return from main */
}

static void endings(char *program)
{
    static const char *const ways[] = {"return", "exit", "exit_in_thread", "main_leaves"};
    static char statistics[] = "HAKMEM_STATS=1";
    static char *environment[1000];
    size_t n = 0;
    for (; environ[n] != NULL && n < HK_COUNT(environment) - 2; n++)
        environment[n] = environ[n];
    int ended = 0;
    for (int round = 0; round < 60; round++)
        for (size_t i = 0; i < HK_COUNT(ways); i++) {
            environment[n] = round % 2 == 0 ? statistics : NULL;
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            if (round % 2 == 0) /* the statistics are not what is tested here */
                posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
            char *arguments[] = {program, (char *)ways[i], NULL};
            pid_t child;
            int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environment);
            HK_CHECK(error == 0, "posix_spawn: %d", error);
            posix_spawn_file_actions_destroy(&actions);
            HK_WAIT_OK(child, "process that ends by %s while threads allocate", ways[i]);
            ended++;
        }
    hk_say("%d processes ended while threads allocate\n", ended);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_ending(argv[1]);
    hk_watchdog(55);
    end_in_all_ways();
    pending_cancellation();
    detached_threads();
    endings(argv[0]);
    return 0;
}
