/*
 * Proves: option checked is for a thread, too, that has got its heap before the options were read: by calls of
 * constructors that run before ours, as those of libraries do in a program that is linked with the archive.
 */
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void allocate_early(void)
{
    for (int i = 0; i < 1000; i++)
        free(malloc(40));
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = allocate_early;

int main(void)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        void *volatile p = malloc(40), *volatile q = malloc(40);
        free(p);
        free(q);
        free(p);
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", status);
    return check_result();
}
