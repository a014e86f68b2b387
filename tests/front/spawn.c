/*
 * Proves: while threads allocate, other programs can be started by every means there is: vfork and exec, posix_spawn,
 * popen, system, fork and exec. The parent's memory is as before; the started programs (under the same preload) run.
 * Between vfork and exec the child runs on the parent's memory, and must not be taken for a forked one.
 */
#include "check.h"
#include <spawn.h>

extern char **environ;

enum { ROUNDS = 60, WORKERS = 2, HELD = 200 };

static _Atomic bool stop;

static void *worker(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    void *block[HELD] = {NULL};
    size_t size[HELD] = {0};
    while (!stop) {
        size_t i = hk_random_below(&random, HELD);
        if (block[i] != NULL)
            HK_CHECK_CONTENT(block[i], size[i], size[i], hk_key(block[i], 6));
        free(block[i]);
        size[i] = hk_random_size(&random, i == 0 ? 20 : 12);
        block[i] = malloc(size[i]);
        HK_CHECK(block[i] != NULL, "malloc(%zu)", size[i]);
        hk_fill(block[i], size[i], hk_key(block[i], 6));
    }
    for (int i = 0; i < HELD; i++)
        free(block[i]);
    return NULL;
}

static char true_path[] = "/bin/true";
static char *const true_arguments[] = {true_path, NULL};

static void by_vfork(void)
{
    void *before = malloc(500);
    hk_fill(before, 500, 8);
    pid_t child = vfork();
    if (child == 0) {
        execve(true_path, true_arguments, environ);
        _exit(127);
    }
    HK_CHECK(child > 0, "vfork");
    HK_WAIT_OK(child, "vfork and exec");
    HK_CHECK_CONTENT(before, 500, 500, 8);
    free(before);
}

static void by_failing_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execve("/no/such/program", true_arguments, environ);
        _exit(errno == ENOENT ? 0 : 127);
    }
    HK_CHECK(child > 0, "vfork");
    HK_WAIT_OK(child, "vfork and exec of nothing");
}

static void by_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        char **copy = malloc(2 * sizeof *copy); /* what real programs do between fork and exec */
        copy[0] = strdup(true_path);
        copy[1] = NULL;
        execve(copy[0], copy, environ);
        _exit(127);
    }
    HK_CHECK(child > 0, "fork");
    HK_WAIT_OK(child, "fork and exec");
}

static void by_posix_spawn(void)
{
    pid_t child;
    int error = posix_spawn(&child, true_path, NULL, NULL, true_arguments, environ);
    HK_CHECK(error == 0, "posix_spawn: %d", error);
    HK_WAIT_OK(child, "posix_spawn");
    error = posix_spawn(&child, "/no/such/program", NULL, NULL, true_arguments, environ);
    HK_CHECK(error == ENOENT, "posix_spawn of nothing: %d", error);
}

static void by_popen(void)
{
    FILE *stream = popen("echo twelve letters", "r");
    HK_CHECK(stream != NULL, "popen");
    char line[100] = "";
    HK_CHECK(fgets(line, sizeof line, stream) != NULL && strcmp(line, "twelve letters\n") == 0, "popen gave %s", line);
    int status = pclose(stream);
    HK_CHECK(status == 0, "pclose: %d", status);
}

static void by_system(void)
{
    int status = system("exit 3");
    HK_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "system: %d", status);
}

int main(void)
{
    static void (*const ways[])(void) = {by_vfork, by_failing_vfork, by_fork, by_posix_spawn, by_popen, by_system};
    hk_watchdog(55);
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = hk_thread(worker, (void *)(intptr_t)(i + 1));
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < HK_COUNT(ways); i++)
            ways[i]();
    stop = true;
    for (int i = 0; i < WORKERS; i++)
        hk_join(workers[i]);
    hk_say("%zu ways of starting a program, %d times each\n", HK_COUNT(ways), ROUNDS);
    return 0;
}
