/*
 * Proves: limits that refer to the cgroup are those of the group that the process is in, and of those around it; and a
 * program that wants more than its group has gets NULL and ENOMEM instead of being killed, and goes on.
 *
 * Two groups, one in the other, are made in the hierarchy of version 2 under /sys/fs/cgroup, which takes root; the test
 * runs itself there.
 * Usage: cgroup_limit              all
 *        cgroup_limit fill         what runs there: allocates and writes until there is no more; twice
 */
#include "check.h"
#include <limits.h>
#include <sys/stat.h>

#define HK_CGROUPS "/sys/fs/cgroup"
#define HK_MIB ((size_t)1 << 20)

/* ---- In the group ---- */

struct block {
    struct block *next;
    size_t size;
};

/* Returns bytes. */
static size_t fill(void)
{
    const size_t sizes[] = {200, 3000, 70000, 5 * HK_MIB};
    struct block *blocks = NULL;
    size_t bytes = 0;
    errno = 0;
    for (size_t n = 0;; n++) {
        size_t size = sizes[n % 1000 == 999 ? 3 : n % 3];
        struct block *b = malloc(size);
        if (b == NULL)
            break;
        memset(b, 1, size);
        b->next = blocks;
        b->size = size;
        blocks = b;
        bytes += size;
    }
    HK_CHECK(errno == ENOMEM, "errno when there is no more");
    for (struct block *b = blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    return bytes;
}

static int run_fill(void)
{
    hk_watchdog(50);
    int (*get)(const char *, char *, size_t) =
        (int (*)(const char *, char *, size_t))dlsym(RTLD_DEFAULT, "hak_option_get");
    char soft[32], hard[32];
    HK_CHECK(get != NULL && get("limit_soft", soft, sizeof soft) > 0 && get("limit_hard", hard, sizeof hard) > 0,
             "hak_option_get");
    size_t first = strtoull(hard, NULL, 10) != 0 ? fill() : 0, second = first != 0 ? fill() : 0;
    hk_say("%s %s %zu %zu\n", soft, hard, first, second);
    return 0;
}

/* ---- The groups ---- */

static char outer[PATH_MAX / 4], inner[PATH_MAX / 2];

static bool write_file(const char *folder, const char *file, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

static size_t read_file(const char *folder, const char *file, char *text, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return strlen(text);
}

static void make_outer_group(void)
{
    char controllers[1024];
    if (read_file(HK_CGROUPS, "cgroup.controllers", controllers, sizeof controllers) == 0 ||
        strstr(controllers, "memory") == NULL)
        hk_skip("%s has no memory controller of version 2", HK_CGROUPS);
    snprintf(outer, sizeof outer, "%s/hakmem-test-%d", HK_CGROUPS, (int)getpid());
    snprintf(inner, sizeof inner, "%s/inner", outer);
    if (!write_file(HK_CGROUPS, "cgroup.subtree_control", "+memory") || mkdir(outer, 0755) != 0)
        hk_skip("no group can be made under %s: errno %d", HK_CGROUPS, errno);
}

static size_t killed(void)
{
    char events[1024];
    HK_CHECK(read_file(outer, "memory.events", events, sizeof events) > 0, "memory.events");
    const char *line = strstr(events, "oom_kill ");
    HK_CHECK(line != NULL, "no oom_kill in memory.events");
    return strtoul(line + 9, NULL, 10);
}

struct result {
    size_t soft, hard;    /* in force */
    size_t first, second; /* bytes that could be had */
};

/* Runs the program in the inner group, where these are the limits. */
static struct result run_in_group(const char *outer_max, const char *inner_max, const char *soft, const char *hard)
{
    int out[2];
    HK_CHECK(write_file(outer, "memory.max", outer_max) && write_file(inner, "memory.max", inner_max), "memory.max");
    HK_CHECK(pipe(out) == 0, "pipe");
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        HK_CHECK(write_file(inner, "cgroup.procs", "0"), "cgroup.procs");
        dup2(out[1], STDOUT_FILENO);
        setenv("HAKMEM_LIMIT_SOFT", soft, 1);
        setenv("HAKMEM_LIMIT_HARD", hard, 1);
        execl("/proc/self/exe", "cgroup_limit", "fill", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    char text[256];
    ssize_t n = read(out[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    close(out[0]);
    HK_WAIT_OK(child, "in groups of %s and %s with %s and %s", outer_max, inner_max, soft, hard);
    struct result r;
    HK_CHECK(sscanf(text, "%zu %zu %zu %zu", &r.soft, &r.hard, &r.first, &r.second) == 4, "it says: %s", text);
    HK_CHECK(killed() == 0, "the kernel had to kill in groups of %s and %s", outer_max, inner_max);
    hk_say("outer %s, inner %s, soft %s, hard %s: limits %zu and %zu MiB, had %zu and %zu MiB\n", outer_max, inner_max,
           soft, hard, r.soft / HK_MIB, r.hard / HK_MIB, r.first / HK_MIB, r.second / HK_MIB);
    return r;
}

static void expect_limits(const char *outer_max, const char *inner_max, size_t lowest)
{
    struct result r = run_in_group(outer_max, inner_max, "cgroup", "60%");
    HK_CHECK(r.soft <= lowest && lowest - r.soft < 100, "soft is %zu, the group's is %zu", r.soft, lowest);
    HK_CHECK(r.hard == lowest / 100 * 60, "hard is %zu, the group's is %zu", r.hard, lowest);
    HK_CHECK(r.first <= r.hard && r.first >= r.hard / 2, "had %zu of %zu bytes", r.first, r.hard);
    HK_CHECK(r.second <= r.hard && r.second >= r.hard / 2, "had %zu of %zu bytes the second time", r.second, r.hard);
}

static void run_cases(void)
{
    hk_watchdog(50);
    HK_CHECK(write_file(outer, "cgroup.subtree_control", "+memory"), "the memory controller for %s", inner);
    HK_CHECK(mkdir(inner, 0755) == 0, "%s", inner);
    expect_limits("200M", "max", 200 * HK_MIB);
    expect_limits("max", "100M", 100 * HK_MIB);
    expect_limits("200M", "100M", 100 * HK_MIB);
    expect_limits("100M", "200M", 100 * HK_MIB);
    struct result none = run_in_group("max", "max", "cgroup", "60%");
    HK_CHECK(none.soft == 0 && none.hard == 0, "limits of %zu and %zu in a group without", none.soft, none.hard);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "fill") == 0)
        return run_fill();
    make_outer_group();
    pid_t child = fork(); /* the groups go, whatever becomes of it */
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        run_cases();
        _exit(0);
    }
    int status = hk_wait(child);
    bool removed = (rmdir(inner) == 0 || errno == ENOENT) && rmdir(outer) == 0;
    HK_CHECK(status == 0, "wait status %d", status);
    HK_CHECK(removed, "the groups are still there");
    return 0;
}
