/*
 * Symptom: threads that allocated nothing hung when they ended, and whoever made or ended a thread hung after them.
 *
 * The C library frees what it allocated for a thread (the thread's vector of thread-local memory) with the lock of its
 * cache of stacks held, and pthread_create takes that lock. So no call of free may create a thread, be it a thread's
 * first call and its process's first beside the main thread's.
 *   cached   stacks of more than the 40 MiB that the C library keeps: the last to end frees the others
 *   given    stacks that the program brought: freed at once
 *   alone    the same when main has left them by pthread_exit; another thread had allocated before
 * Each is a process of its own. Usage: hang_at_thread_end [scene]
 */
#include "tasks.h"
#include <stdatomic.h>

enum { THREADS = 12, ROUNDS = 5 };
static const size_t stack_size = (size_t)8 << 20;

static atomic_int begun;
static atomic_bool go;

/* Nothing here allocates. */
static void *waits(void *unused)
{
    begun++;
    while (!go)
        usleep(1000);
    return unused;
}

static void *allocates(void *unused)
{
    free(malloc(100));
    return unused;
}

static void start_detached(void *stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = stack != NULL ? pthread_attr_setstack(&attributes, stack, stack_size)
                              : pthread_attr_setstacksize(&attributes, stack_size);
    HK_CHECK(error == 0, "a stack of %zu bytes: %d", stack_size, error);
    error = pthread_create(&thread, &attributes, waits, NULL);
    HK_CHECK(error == 0, "pthread_create: %d", error);
    pthread_attr_destroy(&attributes);
}

/* Threads that end all at once. */
static void start_threads(bool with_given_stacks)
{
    static void *stacks[THREADS];
    go = false;
    begun = 0;
    for (size_t i = 0; i < THREADS; i++) {
        if (with_given_stacks && stacks[i] == NULL)
            stacks[i] = hk_test_pages(stack_size);
        start_detached(stacks[i]);
    }
    while (begun < THREADS)
        usleep(1000);
}

static void wait_until_alone(void)
{
    for (double start = hk_now(); hk_tasks().n > 1; usleep(1000))
        HK_CHECK(hk_now() - start < 20, "%zu threads do not end", hk_tasks().n - 1);
}

static void run_ending(bool with_given_stacks)
{
    free(malloc(100));
    for (int round = 0; round < ROUNDS; round++) {
        start_threads(with_given_stacks);
        HK_CHECK(hk_own_task() == 0, "the allocator has a thread before a second one allocates");
        go = true;
        wait_until_alone();
        hk_join(hk_thread(waits, NULL));
        HK_CHECK(hk_own_task() == 0, "the allocator has a thread, and no second one has allocated");
    }
}

/* The process ends with its last thread, which allocated nothing. */
static void run_alone(void)
{
    free(malloc(100));
    hk_join(hk_thread(allocates, NULL));
    hk_own_task_begun();
    start_threads(false);
    go = true;
    pthread_exit(NULL);
}

static void run(const char *scene)
{
    hk_watchdog(40);
    if (strcmp(scene, "cached") == 0)
        run_ending(false);
    else if (strcmp(scene, "given") == 0)
        run_ending(true);
    else if (strcmp(scene, "alone") == 0)
        run_alone();
    else
        HK_CHECK(false, "no scene is called %s", scene);
}

int main(int argc, char **argv)
{
    static const char *const scenes[] = {"cached", "given", "alone"};
    if (argc > 1) {
        run(argv[1]);
        return 0;
    }
    for (size_t i = 0; i < HK_COUNT(scenes); i++) {
        pid_t child = fork();
        HK_CHECK(child >= 0, "fork");
        if (child == 0) {
            execl("/proc/self/exe", argv[0], scenes[i], (char *)NULL);
            _exit(127);
        }
        HK_WAIT_OK(child, "scene %s", scenes[i]);
    }
    return 0;
}
