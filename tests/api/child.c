#include "child.h"

#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { STRINGS_MAX = 256 };

static void make_environment(const char **to, const char *const *added)
{
    int count = 0;
    for (char **at = environ; *at != NULL; at++) {
        if (strncmp(*at, "HAKMEM_", 7) == 0)
            continue;
        REQUIRE(count < STRINGS_MAX - 1);
        to[count++] = *at;
    }
    for (; *added != NULL; added++) {
        REQUIRE(count < STRINGS_MAX - 1);
        to[count++] = *added;
    }
    to[count] = NULL;
}

static void make_arguments(const char **to, const char *program, const char *const *arguments)
{
    int count = 0;
    to[count++] = program;
    for (; *arguments != NULL; arguments++) {
        REQUIRE(count < STRINGS_MAX - 1);
        to[count++] = *arguments;
    }
    to[count] = NULL;
}

/* Both at once, or a child that fills one pipe while we read the other waits for ever. */
static void read_both(int out, int err, struct child *child)
{
    struct pollfd fds[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
    char *texts[] = {child->out, child->err};
    size_t lengths[] = {0, 0}, room = sizeof child->out - 1;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        REQUIRE(poll(fds, 2, -1) > 0);
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            ssize_t got = read(fds[i].fd, texts[i] + lengths[i], room - lengths[i]);
            REQUIRE(got >= 0);
            lengths[i] += (size_t)got;
            if (got == 0) {
                close(fds[i].fd);
                fds[i].fd = -1;
            }
        }
    }
}

void child_run(struct child *child, const char *program, const char *const *arguments, const char *const *environment)
{
    const char *argv[STRINGS_MAX], *envp[STRINGS_MAX];
    int out[2], err[2];

    memset(child, 0, sizeof *child);
    make_arguments(argv, program, arguments);
    make_environment(envp, environment);
    REQUIRE(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
        _exit(126);
    }
    close(out[1]), close(err[1]);
    read_both(out[0], err[0], child);
    REQUIRE(waitpid(pid, &child->status, 0) == pid);
}

bool child_exited(const struct child *child, int code)
{
    return WIFEXITED(child->status) && WEXITSTATUS(child->status) == code;
}

bool child_was_killed(const struct child *child, int signal)
{
    return WIFSIGNALED(child->status) && WTERMSIG(child->status) == signal;
}

/* Calls belongs for each line, without its newline, and returns how often it said true. */
static int count_if(const char *text, bool (*belongs)(const char *line, const void *with), const void *with)
{
    static char line[sizeof((struct child *)0)->err];
    int count = 0;
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        REQUIRE(length < sizeof line);
        memcpy(line, text, length);
        line[length] = 0;
        count += belongs(line, with);
        text += length + (text[length] == '\n');
    }
    return count;
}

static bool any_line(const char *line, const void *with)
{
    (void)line, (void)with;
    return true;
}
static bool equal_line(const char *line, const void *with) { return strcmp(line, with) == 0; }
static bool matching_line(const char *line, const void *with) { return regexec(with, line, 0, NULL, 0) == 0; }

int count_lines(const char *text) { return count_if(text, any_line, NULL); }
int count_lines_equal(const char *text, const char *line) { return count_if(text, equal_line, line); }

int count_lines_matching(const char *text, const char *extended_regex)
{
    regex_t regex;
    REQUIRE(regcomp(&regex, extended_regex, REG_EXTENDED | REG_NOSUB) == 0);
    int count = count_if(text, matching_line, &regex);
    regfree(&regex);
    return count;
}

void child_show(const struct child *child, const char *title)
{
    fprintf(stderr, "--- %s: ", title);
    if (WIFSIGNALED(child->status))
        fprintf(stderr, "killed by signal %d (%s)\n", WTERMSIG(child->status), strsignal(WTERMSIG(child->status)));
    else
        fprintf(stderr, "exited with %d\n", WEXITSTATUS(child->status));
    fprintf(stderr, "stdout:\n%sstderr:\n%s---\n", child->out, child->err);
}
