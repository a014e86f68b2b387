/*
 * Starts one program and reports what it cost.
 *
 *     launch REPORT_FD exact|tree PROGRAM [ARGUMENT...]
 *
 * Writes one line to REPORT_FD: `status wall_s user_s sys_s peak_kib minor_faults major_faults`, status as wait(2)
 * gives it; times and faults are those of the program and of all its children that were waited for, the peak is that
 * of the largest of them. LD_PRELOAD, where it is set, takes effect in the program only: this one is linked
 * statically. It also is smaller than any program it starts, which the lab is not: a child's peak in getrusage begins
 * with what its parent had resident before the exec.
 *
 * The kernel keeps resident sizes in per-processor counters that are only roughly summed for getrusage, some hundred
 * KiB off, which is much beside the smallest workloads. So with `exact` the program is stopped at its exit, when its
 * memory is still there, and the exact sum is read from /proc. Where tracing is forbidden, getrusage has to do, as it
 * does with `tree`, for scripts whose peak is that of a child.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOT_STARTED = 127 }; /* as of a shell */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec * 1e-6; }

/* The number after `field` in a file of /proc/PID, or 0. */
static long proc_field(pid_t pid, const char *file, const char *field)
{
    char path[64];
    static char text[8192];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *found = strstr(text, field);
    return found ? strtol(found + strlen(field), NULL, 10) : 0;
}

static long most(long a, long b) { return a > b ? a : b; }

/* Runs the child to its end; peak_kib is what was seen at its exit, 0 if it could not be stopped there. */
static int wait_for_end(pid_t pid, struct rusage *usage, long *peak_kib)
{
    *peak_kib = 0;
    for (bool started = false;;) {
        int status;
        if (wait4(pid, &status, 0, usage) != pid)
            return -1;
        if (!WIFSTOPPED(status))
            return status;
        int deliver = WSTOPSIG(status);
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
            *peak_kib = most(proc_field(pid, "status", "VmHWM:"), proc_field(pid, "smaps_rollup", "\nRss:"));
            deliver = 0;
        } else if (deliver == SIGTRAP && !started) { /* the exec */
            started = true;
            ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL));
            deliver = 0;
        }
        ptrace(PTRACE_CONT, pid, NULL, (void *)(long)deliver);
    }
}

int main(int argc, char **argv)
{
    bool exact = argc > 2 && strcmp(argv[2], "exact") == 0;
    if (argc < 4 || (!exact && strcmp(argv[2], "tree") != 0)) {
        fprintf(stderr, "usage: launch REPORT_FD exact|tree PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    int report = atoi(argv[1]);
    fcntl(report, F_SETFD, FD_CLOEXEC);

    double start = now();
    pid_t pid = vfork(); /* as cheap as it gets, and no page of ours is copied and counted as the child's fault */
    if (pid == 0) {
        if (exact)
            ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(argv[3], argv + 3);
        dprintf(STDERR_FILENO, "%s cannot be started: %s\n", argv[3], strerror(errno));
        _exit(NOT_STARTED);
    }
    struct rusage usage;
    long peak_kib;
    int status = pid < 0 ? -1 : wait_for_end(pid, &usage, &peak_kib);
    if (status == -1) {
        fprintf(stderr, "launch: cannot start %s: %s\n", argv[3], strerror(errno));
        return 1;
    }
    dprintf(report, "%d %.6f %.6f %.6f %ld %ld %ld\n", status, now() - start, seconds(usage.ru_utime),
            seconds(usage.ru_stime), most(peak_kib, usage.ru_maxrss), usage.ru_minflt, usage.ru_majflt);
    return 0;
}
