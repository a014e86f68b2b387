/*
 * Start-up: what every process pays before and after it does anything.
 *
 * Stands for shell scripts, compilers' drivers, test suites, CGI programs, build systems: PROGRAM, one of those beside
 * this one, is started COUNT times, one after the other, under the same preload, and waited for. Loading the library,
 * relocating it, setting up the first heap and taking down the process are all in it.
 *
 * Figure: microseconds of wall time a start. Also the processor time and the page faults of a start. Check: the exit
 * status and the output of each, and that PROGRAM takes its malloc from where this one does.
 *
 *     start_up PROGRAM COUNT
 */
#include "arguments.h"

#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

enum { OUTPUT_ROOM = PATH_MAX + 1 };

static char program[PATH_MAX];

/* Runs the program with one argument or none; what it printed, up to the first line's end. */
static void run(const char *word, char output[OUTPUT_ROOM])
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    char *const command[] = {program, (char *)word, NULL};
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail("no pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    int error = posix_spawn(&child, program, &actions, NULL, command, environ);
    if (error)
        fail("cannot start %s: %s", program, strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], output + length, OUTPUT_ROOM - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    output[length] = '\0';
    output[strcspn(output, "\n")] = '\0';
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("%s ended with status %#x", program, (unsigned)status);
}

static struct rusage usage_of_children(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return usage;
}

static double cpu_seconds(struct rusage usage)
{
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"tiny_c", "tiny_cxx"};
    const char *name = names[word_argument(argc, argv, 1, "PROGRAM", names, sizeof names / sizeof *names)];
    size_t count = count_argument(argc, argv, 2, "COUNT");
    static char own[PATH_MAX];
    static char first[OUTPUT_ROOM], output[OUTPUT_ROOM];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0)
        fail("cannot read /proc/self/exe");
    if (snprintf(program, sizeof program, "%s/%s", dirname(own), name) >= (int)sizeof program)
        fail("the path of %s is too long", name);
    run("origin", output);
    if (strcmp(output, origin_of("malloc")) != 0)
        fail("%s takes its malloc from %s, this program from %s", name, output, origin_of("malloc"));
    run(NULL, first);

    struct rusage before = usage_of_children();
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < count; i++) {
        run(NULL, output);
        if (strcmp(output, first) != 0)
            fail("%s printed '%s', and before '%s'", name, output, first);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    struct rusage after = usage_of_children();
    double starts = (double)count;
    report(elapsed.wall / starts * 1e6, "us/start", elapsed, "start_cpu_us=%.1f start_faults=%.1f start_peak_kib=%ld",
           (cpu_seconds(after) - cpu_seconds(before)) / starts * 1e6,
           (double)(after.ru_minflt - before.ru_minflt) / starts, after.ru_maxrss);
    return 0;
}
