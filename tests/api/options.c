/*
 * The environment: which lines it gives, how often, and on which stream.
 *
 *   options           runs itself as a child in several environments
 *   options child     allocates in two threads and a forked process, says so on stdout, and ends well
 *   options daemon    closes all descriptors from 3 on, as daemons do, and opens a file as each of many; says so on
 *                     stdout, and ends with 1 if there is anything in the file when its exit handlers have run
 */
#include "check.h"
#include "child.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const option_names[] = {
#define HK_OPTION(name, ...) #name,
#include "../../src/base/options.def"
#undef HK_OPTION
};

enum { OPTIONS = sizeof option_names / sizeof option_names[0], NAME_SIZE = 64 };

#define STATS_LINE "^  [a-z][a-z0-9_.]* +[0-9]+"

static struct child child;

/* ---- The child ---- */

static void *allocate_some(void *unused)
{
    for (size_t n = 1; n < (size_t)10 << 20; n = n * 2 + 1)
        for (int i = 0; i < 100; i++)
            free(malloc(n));
    return unused;
}

static int be_the_child(void)
{
    pthread_t thread;
    allocate_some(NULL);
    REQUIRE(pthread_create(&thread, NULL, allocate_some, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        allocate_some(NULL);
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
    puts("ran");
    return 0;
}

static int be_a_daemon(void)
{
    enum { FROM = 3, TO = 300 };
    char name[] = "/tmp/hakmem-options-XXXXXX";
    for (int fd = FROM; fd < TO; fd++)
        close(fd);
    int file = mkstemp(name);
    REQUIRE(file == FROM && unlink(name) == 0);
    for (int fd = FROM + 1; fd < TO; fd++)
        REQUIRE(dup2(file, fd) == fd);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0)
        exit(0);
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
    puts("ran");
    return lseek(file, 0, SEEK_END) != 0;
}

/* ---- The parent ---- */

/* Whatever the environment says, the program does its work. */
static void run(const char *first, const char *second)
{
    const char *const arguments[] = {"child", NULL}, *const environment[] = {first, second, NULL};
    child_run(&child, "/proc/self/exe", arguments, environment);
    CHECK_MSG(child_exited(&child, 0) && strcmp(child.out, "ran\n") == 0, "%s %s", first, second);
}

static void expect_lines(int expected, const char *what)
{
    int lines = count_lines(child.err);
    CHECK_MSG(lines == expected, "%s: %d lines on stderr, not %d", what, lines, expected);
    if (lines != expected)
        child_show(&child, what);
}

static void expect_line(const char *line)
{
    CHECK_MSG(count_lines_equal(child.err, line) == 1, "expected: %s", line);
    if (count_lines_equal(child.err, line) != 1)
        child_show(&child, line);
}

static void expect_match(const char *regex)
{
    CHECK_MSG(count_lines_matching(child.err, regex) == 1, "expected: %s", regex);
    if (count_lines_matching(child.err, regex) != 1)
        child_show(&child, regex);
}

static void variable_of(const char *name, char *to)
{
    size_t length = (size_t)snprintf(to, NAME_SIZE, "HAKMEM_");
    while (*name != 0 && length < NAME_SIZE - 1)
        to[length++] = (char)toupper((unsigned char)*name++);
    to[length] = 0;
}

static void nothing_is_said_unasked(void)
{
    run(NULL, NULL);
    expect_lines(0, "no option");
    run("HAKMEMORY=1", "NOT_HAKMEM_FOO=1");
    expect_lines(0, "names of others");
}

static void unknown_names(void)
{
    run("HAKMEM_FOO=1", NULL);
    expect_lines(1, "HAKMEM_FOO");
    expect_line("hakmem: unknown option HAKMEM_FOO (HAKMEM_HELP=1 lists them)");

    run("HAKMEM_FOO=1", "HAKMEM_ON_ERRORS=abort");
    expect_lines(2, "two unknown names");
    expect_line("hakmem: unknown option HAKMEM_FOO (HAKMEM_HELP=1 lists them)");
    expect_line("hakmem: unknown option HAKMEM_ON_ERRORS (HAKMEM_HELP=1 lists them)");

    run("HAKMEM_on_error=warn", "HAKMEM_=");
    expect_lines(2, "a name in small letters, and none");
    expect_line("hakmem: unknown option HAKMEM_on_error (HAKMEM_HELP=1 lists them)");
    expect_line("hakmem: unknown option HAKMEM_ (HAKMEM_HELP=1 lists them)");

    static char endless[20000];
    memset(endless, 'X', sizeof endless - 1);
    memcpy(endless, "HAKMEM_", 7);
    endless[10000] = '=';
    run(endless, NULL);
    expect_lines(1, "a very long name");
    expect_match("^hakmem: unknown option HAKMEM_X{90,}");
}

static void bad_values(void)
{
    run("HAKMEM_ON_ERROR=xyz", NULL);
    expect_lines(1, "HAKMEM_ON_ERROR=xyz");
    expect_line("hakmem: HAKMEM_ON_ERROR=xyz is not valid: expected abort, warn or ignore; using abort");

    run("HAKMEM_ON_ERROR=", "HAKMEM_PROFILE=fast");
    expect_lines(2, "two bad values");
    expect_line("hakmem: HAKMEM_ON_ERROR= is not valid: expected abort, warn or ignore; using abort");
    expect_line("hakmem: HAKMEM_PROFILE=fast is not valid: expected default, throughput, low-memory, hardened or "
                "debug; using default");

    for (int i = 0; i < OPTIONS; i++) {
        char variable[NAME_SIZE], setting[2 * NAME_SIZE], expected[4 * NAME_SIZE];
        variable_of(option_names[i], variable);
        snprintf(setting, sizeof setting, "%s=-no value-", variable);
        snprintf(expected, sizeof expected, "^hakmem: %s=-no value- is not valid: expected .+; using .+$", variable);
        run(setting, NULL);
        expect_lines(1, setting);
        expect_match(expected);
    }

    static char endless[20000];
    memset(endless, 'x', sizeof endless - 1);
    memcpy(endless, "HAKMEM_ON_ERROR=", 16);
    run(endless, NULL);
    expect_lines(1, "a very long value");
    expect_match("^hakmem: HAKMEM_ON_ERROR=x{90,}");
}

static void help_lists_every_option(void)
{
    run("HAKMEM_HELP=1", NULL);
    CHECK(OPTIONS >= 4);
    for (int i = 0; i < OPTIONS; i++) {
        char variable[NAME_SIZE], regex[2 * NAME_SIZE];
        variable_of(option_names[i], variable);
        snprintf(regex, sizeof regex, "^ +%s=.+", variable);
        expect_match(regex);
    }
    run("HAKMEM_HELP=0", NULL);
    expect_lines(0, "HAKMEM_HELP=0");
}

static bool printed_stats(void) { return count_lines_matching(child.err, STATS_LINE) >= 10; }

static void stats_at_exit(void)
{
    run("HAKMEM_STATS=1", NULL);
    CHECK(printed_stats());
    if (!printed_stats())
        child_show(&child, "HAKMEM_STATS=1");
    run("HAKMEM_STATS=0", NULL);
    expect_lines(0, "HAKMEM_STATS=0");
}

/* What is kept of standard error is not mistaken for what the program has there later. */
static void stats_of_a_daemon(void)
{
    const char *const arguments[] = {"daemon", NULL}, *const environment[] = {"HAKMEM_STATS=1", NULL};
    child_run(&child, "/proc/self/exe", arguments, environment);
    CHECK(child_exited(&child, 0) && strcmp(child.out, "ran\n") == 0);
    CHECK(printed_stats());
    if (!child_exited(&child, 0) || !printed_stats())
        child_show(&child, "a daemon with HAKMEM_STATS=1");
}

static void on_error_takes_its_words(void)
{
    static const char *const settings[] = {"HAKMEM_ON_ERROR=abort", "HAKMEM_ON_ERROR=warn", "HAKMEM_ON_ERROR=ignore"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        run(settings[i], NULL);
        expect_lines(0, settings[i]);
    }
}

/* A profile sets several options; what is set besides it wins, wherever it stands. */
static void profiles(void)
{
    static const char *const silent[] = {"HAKMEM_PROFILE=default", "HAKMEM_PROFILE=throughput",
                                         "HAKMEM_PROFILE=low-memory", "HAKMEM_PROFILE=hardened"};
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++) {
        run(silent[i], NULL);
        expect_lines(0, silent[i]);
        run(silent[i], "HAKMEM_STATS=1");
        CHECK_MSG(printed_stats(), "%s with statistics", silent[i]);
    }
    run("HAKMEM_PROFILE=debug", NULL);
    CHECK(printed_stats());
    run("HAKMEM_PROFILE=debug", "HAKMEM_STATS=0");
    expect_lines(0, "debug without statistics");
    run("HAKMEM_STATS=0", "HAKMEM_PROFILE=debug");
    expect_lines(0, "debug without statistics");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return be_the_child();
    if (argc > 1 && strcmp(argv[1], "daemon") == 0)
        return be_a_daemon();
    if (skipped_without_hakmem("these are options of hakmem"))
        return CHECK_SKIPPED;
    nothing_is_said_unasked();
    unknown_names();
    bad_values();
    help_lists_every_option();
    stats_at_exit();
    stats_of_a_daemon();
    on_error_takes_its_words();
    profiles();
    return check_result();
}
