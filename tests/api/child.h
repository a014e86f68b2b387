/* Runs a program as a child and keeps what it wrote, for tests of messages and of the end of a process. */
#ifndef TESTS_API_CHILD_H
#define TESTS_API_CHILD_H

#include <stdbool.h>
#include <stddef.h>

struct child {
    int status; /* as waitpid gives it */
    char out[1 << 16], err[1 << 16];
};

/* environment is NAME=VALUE pairs up to a NULL, added to this process's own; HAKMEM_ variables are not inherited, so
 * that the child has exactly those that are named here. */
void child_run(struct child *child, const char *program, const char *const *arguments, const char *const *environment);

bool child_exited(const struct child *child, int code);
bool child_was_killed(const struct child *child, int signal);

int count_lines(const char *text);
int count_lines_equal(const char *text, const char *line);
int count_lines_matching(const char *text, const char *extended_regex);

/* Writes all that is known of the child to stderr. */
void child_show(const struct child *child, const char *title);

#endif
