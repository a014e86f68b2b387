/*
 * The limits by the environment: what values they take, what is said of others, and that a program that knows nothing
 * of them gets NULL and ENOMEM at the hard one, and goes on.
 *
 *   limit_options           runs itself as a child in several environments
 *   limit_options values    writes the limits in force to stdout
 *   limit_options fill      allocates until there is no more, or MIB_MAX; frees; and again; writes how many MiB it had
 */
#include "check.h"
#include "child.h"

#include <string.h>

enum { MIB = 1 << 20, MIB_MAX = 100, BLOCKS_MAX = MIB_MAX * 1024 };

static struct child child;

/* ---- The child ---- */

static int write_values(void)
{
    int (*get)(const char *, char *, size_t) =
        (int (*)(const char *, char *, size_t))dlsym(RTLD_DEFAULT, "hak_option_get");
    char soft[64], hard[64];
    REQUIRE(get != NULL && get("limit_soft", soft, sizeof soft) > 0 && get("limit_hard", hard, sizeof hard) > 0);
    printf("%s %s\n", soft, hard);
    return 0;
}

static void *blocks[BLOCKS_MAX];

/* Blocks of all kinds in turn, until one is refused. Returns MiB. */
static size_t fill(void)
{
    static const size_t sizes[] = {1500, 7000, 1100, 100000, 2000, 3 * MIB};
    size_t bytes = 0, n = 0;
    while (bytes < (size_t)MIB_MAX * MIB) {
        size_t size = sizes[n % 6];
        errno = 0;
        blocks[n] = n % 5 == 0 ? calloc(1, size) : malloc(size);
        if (blocks[n] == NULL) {
            CHECK(errno == ENOMEM);
            break;
        }
        pattern_fill(blocks[n], 0, 1000, n);
        bytes += size;
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        CHECK(pattern_holds(blocks[i], 0, 1000, i));
        free(blocks[i]);
    }
    return bytes / MIB;
}

static int write_fill(void)
{
    size_t first = fill(), second = fill();
    printf("%zu %zu\n", first, second);
    return check_result();
}

/* ---- The parent ---- */

static void run(const char *what, const char *first, const char *second)
{
    const char *const arguments[] = {what, NULL}, *const environment[] = {first, second, NULL};
    child_run(&child, "/proc/self/exe", arguments, environment);
    CHECK_MSG(child_exited(&child, 0), "%s with %s %s", what, first, second);
    if (!child_exited(&child, 0))
        child_show(&child, first);
}

static void values_are_bytes_with_units(void)
{
    static const char *const cases[][3] = {
        {NULL, NULL, "0 0\n"},
        {"HAKMEM_LIMIT_SOFT=0", "HAKMEM_LIMIT_HARD=0", "0 0\n"},
        {"HAKMEM_LIMIT_SOFT=123456789", "HAKMEM_LIMIT_HARD=234567890", "123456789 234567890\n"},
        {"HAKMEM_LIMIT_SOFT=500000K", "HAKMEM_LIMIT_HARD=700000k", "512000000 716800000\n"},
        {"HAKMEM_LIMIT_SOFT=300M", "HAKMEM_LIMIT_HARD=400m", "314572800 419430400\n"},
        {"HAKMEM_LIMIT_SOFT=3G", "HAKMEM_LIMIT_HARD=4g", "3221225472 4294967296\n"},
        {"HAKMEM_LIMIT_HARD=8589934591G", NULL, "0 9223372035781033984\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run("values", cases[i][0], cases[i][1]);
        CHECK_MSG(strcmp(child.out, cases[i][2]) == 0, "%s %s: %s", cases[i][0], cases[i][1], child.out);
        CHECK_MSG(child.err[0] == 0, "%s %s: %s", cases[i][0], cases[i][1], child.err);
    }
}

/* One line that names the knob, the value and what is expected; and no limit. */
static void bad_values_limit_nothing(void)
{
    static const char *const knobs[] = {"HAKMEM_LIMIT_SOFT", "HAKMEM_LIMIT_HARD"};
    static const char *const values[] = {"",
                                         "x",
                                         "-1",
                                         "1.5G",
                                         "64T",
                                         "64KB",
                                         "1 M",
                                         "0x1000",
                                         "101%",
                                         "0%",
                                         "cgroup%",
                                         "Cgroup",
                                         "%",
                                         "50%%",
                                         "9223372036854775808",
                                         "99999999999999999999"};
    for (size_t k = 0; k < 2; k++)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            char setting[64], line[256];
            snprintf(setting, sizeof setting, "%s=%s", knobs[k], values[v]);
            snprintf(line, sizeof line,
                     "hakmem: %s is not valid: expected bytes (K, M or G may follow), cgroup, or a percentage of the "
                     "cgroup's limit; using 0",
                     setting);
            run("values", setting, NULL);
            CHECK_MSG(strcmp(child.out, "0 0\n") == 0, "%s: %s", setting, child.out);
            CHECK_MSG(count_lines(child.err) == 1 && count_lines_equal(child.err, line) == 1, "%s: %s", setting,
                      child.err);
        }
}

/* Whatever cgroup this is, the program runs; at most it is told that there is none. */
static void the_cgroup_of_this_process(void)
{
    run("values", "HAKMEM_LIMIT_HARD=cgroup", NULL);
    size_t soft = 1, hard = 0;
    CHECK_MSG(sscanf(child.out, "%zu %zu", &soft, &hard) == 2 && soft == 0, "%s", child.out);
    if (child.err[0] != 0) {
        CHECK_MSG(
            count_lines_matching(child.err, "^hakmem: HAKMEM_LIMIT_HARD: no cgroup v2 memory limit can be read") == 1,
            "%s", child.err);
        CHECK(count_lines(child.err) == 1 && hard == 0);
    }
}

static void expect_fill(const char *setting, size_t least, size_t most)
{
    size_t first = 0, second = 0;
    run("fill", setting, "HAKMEM_STATS=1");
    CHECK_MSG(sscanf(child.out, "%zu %zu", &first, &second) == 2, "%s: %s", setting, child.out);
    CHECK_MSG(first >= least && first <= most, "%s: had %zu MiB", setting, first);
    CHECK_MSG(second >= least && second <= most, "%s: had %zu MiB the second time", setting, second);
}

static size_t counter(const char *name)
{
    char label[64];
    snprintf(label, sizeof label, "\n  %s ", name);
    const char *line = strstr(child.err, label);
    REQUIRE(line != NULL);
    return strtoul(line + strlen(label), NULL, 10);
}

static void at_the_hard_limit_the_program_goes_on(void)
{
    expect_fill("HAKMEM_LIMIT_HARD=48M", 28, 48);
    expect_fill("HAKMEM_LIMIT_HARD=49152K", 28, 48);
    expect_fill("HAKMEM_LIMIT_HARD=50331648", 28, 48);
    expect_fill("HAKMEM_LIMIT_HARD=1G", MIB_MAX, SIZE_MAX);
    expect_fill("HAKMEM_LIMIT_HARD=0", MIB_MAX, SIZE_MAX);
    expect_fill("HAKMEM_LIMIT_HARD=48T", MIB_MAX, SIZE_MAX);
}

static void above_the_soft_limit_idle_memory_goes(void)
{
    expect_fill("HAKMEM_LIMIT_SOFT=20M", MIB_MAX, SIZE_MAX);
    CHECK_MSG(counter("purge_passes") >= 5, "%zu passes", counter("purge_passes"));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "values") == 0)
        return write_values();
    if (argc > 1 && strcmp(argv[1], "fill") == 0)
        return write_fill();
    if (skipped_without_hakmem("these are options of hakmem"))
        return CHECK_SKIPPED;
    values_are_bytes_with_units();
    bad_values_limit_nothing();
    the_cgroup_of_this_process();
    at_the_hard_limit_the_program_goes_on();
    above_the_soft_limit_idle_memory_goes();
    return check_result();
}
