/*
 * Prewarming by the environment: what is mapped and what is resident when main begins, what the first allocations need
 * then, that it stays while a process idles, and goes when asked. On kernels without MADV_POPULATE_WRITE, and when
 * memory is short; and what is said of bad values.
 *
 *   prewarm                 runs itself as a child in several environments
 *   prewarm look BYTES      how many pages are resident of the superslab of a first block, before that is written
 *   prewarm take BYTES MIB  allocates that much in such blocks
 *   prewarm rest            KiB resident at first, after some idle seconds with a second thread, and after malloc_trim
 *   prewarm short           what hak_prewarm says when there is not that much address space
 */
#include "check.h"
#include "child.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

enum { KIB = 1 << 10, MIB = 1 << 20, SUPERSLAB = 2 * MIB };

static struct child child;

/* ---- The child ---- */

static int look(size_t n)
{
    static unsigned char pages[SUPERSLAB / 4096];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t resident = 0;
    char *p = malloc(n);
    REQUIRE(p != NULL);
    char *superslab = p - (uintptr_t)p % SUPERSLAB;
    REQUIRE(mincore(superslab, SUPERSLAB, pages) == 0);
    for (size_t i = 0; i < SUPERSLAB / page; i++)
        resident += pages[i] & 1;
    dprintf(STDOUT_FILENO, "%zu of %zu\n", resident, SUPERSLAB / page);
    return 0;
}

static int take(size_t n, size_t mib)
{
    for (size_t bytes = 0; bytes < mib * MIB; bytes += n)
        REQUIRE(malloc(n) != NULL);
    return 0;
}

static size_t resident_kib(void)
{
    char text[4096] = "";
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    return strtoul(strstr(text, "\nRss:") + 5, NULL, 10);
}

static void *allocates_and_waits(void *barrier)
{
    free(malloc(100));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

static int rest(void)
{
    pthread_t thread;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    size_t at_first = resident_kib();
    free(malloc(100));
    REQUIRE(pthread_create(&thread, NULL, allocates_and_waits, &barrier) == 0);
    pthread_barrier_wait(&barrier);
    sleep(4); /* what was freed would have gone by now */
    size_t later = resident_kib();
    malloc_trim(0);
    dprintf(STDOUT_FILENO, "%zu %zu %zu\n", at_first, later, resident_kib());
    pthread_barrier_wait(&barrier);
    return pthread_join(thread, NULL);
}

static struct rlimit allow_address_space(size_t bytes)
{
    struct rlimit before, limit;
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = bytes;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    return before;
}

static int run_short(void)
{
    size_t (*prewarm)(size_t, size_t) = (size_t(*)(size_t, size_t))dlsym(RTLD_DEFAULT, "hak_prewarm");
    REQUIRE(prewarm != NULL);
    allow_address_space((size_t)200 * MIB);
    size_t ready = prewarm(1000, (size_t)1 << 20);
    CHECK(malloc(1000) != NULL);
    dprintf(STDOUT_FILENO, "%zu\n", ready);
    return check_result();
}

/* ---- The parent ---- */

static void run(const char *const *arguments, const char *first, const char *second)
{
    const char *const environment[] = {"HAKMEM_STATS=1", first, second, NULL};
    child_run(&child, "/proc/self/exe", arguments, environment);
    CHECK_MSG(child_exited(&child, 0), "%s with %s %s", arguments[0], first, second);
    if (!child_exited(&child, 0))
        child_show(&child, first);
}

static void run_look(const char *n, const char *first, const char *second)
{
    const char *const arguments[] = {"look", n, NULL};
    run(arguments, first, second);
}

static size_t counter(const char *name)
{
    char label[64];
    snprintf(label, sizeof label, "\n  %s ", name);
    const char *line = strstr(child.err, label);
    REQUIRE(line != NULL);
    return strtoul(line + strlen(label), NULL, 10);
}

static size_t missing_bytes(void)
{
    size_t resident = 0, all = 0;
    REQUIRE(sscanf(child.out, "%zu of %zu", &resident, &all) == 2);
    return SUPERSLAB / all * (all - resident);
}

static bool all_was_resident(void) { return missing_bytes() == 0; }

/* Superslabs that have or had memory, but for those that large blocks took. */
static size_t with_memory(void) { return counter("superslabs_cached") + counter("superslabs_carved"); }

static void without_it_nothing_is_ready(void)
{
    run_look("100", NULL, NULL);
    CHECK(!all_was_resident());
    CHECK(with_memory() == 1);
    run_look("100", "HAKMEM_PREFAULT=1", NULL);
    CHECK(!all_was_resident());
    CHECK(with_memory() == 1);
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS=0", "HAKMEM_PREFAULT=1");
    CHECK(!all_was_resident());
}

static void prefaulted_superslabs_are_resident(void)
{
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS=1", "HAKMEM_PREFAULT=1");
    CHECK_MSG(all_was_resident(), "%s", child.out);
    CHECK(with_memory() == 1);
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS=8", "HAKMEM_PREFAULT=1");
    CHECK_MSG(all_was_resident(), "%s", child.out);
    CHECK_MSG(with_memory() == 8, "%zu superslabs", with_memory());
    CHECK(counter("superslabs_mapped") >= 8);
    CHECK(counter("resident_estimate") >= (size_t)8 * SUPERSLAB);
}

/* For each band: the first slabs of its class are cut from slots that are said to be of it. */
static void bands_are_those_of_the_classes(void)
{
    static const char *const sizes[] = {"16", "32", "48", "64", "128", "256", "512", "1024"};
    for (int band = 0; band < 8; band++) {
        char setting[64];
        snprintf(setting, sizeof setting, "HAKMEM_PREWARM_SUPERSLABS_C%d=2", band);
        run_look(sizes[band], setting, "HAKMEM_PREFAULT=1");
        /* A slab of 16-byte blocks fills half its slot, and gives back the other half. */
        CHECK_MSG(missing_bytes() <= (band == 0 ? 32 * KIB : 0), "%s: %s", setting, child.out);
        CHECK_MSG(with_memory() == 2, "%s: %zu superslabs", setting, with_memory());
        const char *const arguments[] = {"take", sizes[band], "1", NULL};
        run(arguments, setting, "HAKMEM_PREFAULT=1");
        CHECK_MSG(counter("stage1_same_class") >= 10, "%s: %zu slots", setting, counter("stage1_same_class"));
        CHECK_MSG(counter("stage2_unused") == 0, "%s: %zu slots", setting, counter("stage2_unused"));
        CHECK_MSG(with_memory() == 2, "%s: %zu superslabs", setting, with_memory());
    }
}

static void bands_add_up(void)
{
    const char *const arguments[] = {"look", "16", NULL};
    const char *const environment[] = {"HAKMEM_PREWARM_SUPERSLABS_C0=2", "HAKMEM_PREWARM_SUPERSLABS_C5=3",
                                       "HAKMEM_PREFAULT=1", "HAKMEM_STATS=1", NULL};
    child_run(&child, "/proc/self/exe", arguments, environment);
    CHECK(child_exited(&child, 0));
    CHECK_MSG(with_memory() == 5, "%zu superslabs", with_memory());
}

/* Without prefault: address space that may be written at once, and no memory. */
static void else_they_are_mapped_only(void)
{
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS=8", NULL);
    CHECK(!all_was_resident());
    CHECK(counter("superslabs_mapped") >= 8);
    CHECK(counter("committed") >= (size_t)8 * SUPERSLAB);
    CHECK(counter("resident_estimate") < (size_t)2 * SUPERSLAB);

    const char *const little[] = {"take", "1000", "0", NULL}, *const much[] = {"take", "1000", "13", NULL};
    run(little, "HAKMEM_PREWARM_SUPERSLABS=8", NULL);
    size_t calls = counter("mprotect");
    run(much, "HAKMEM_PREWARM_SUPERSLABS=8", NULL);
    CHECK_MSG(counter("mprotect") == calls, "%zu more calls", counter("mprotect") - calls);
    run(much, NULL, NULL);
    CHECK_MSG(counter("mprotect") > calls - 8 + 6, "the test shows nothing");
}

static void it_stays_while_the_process_idles(void)
{
    const char *const arguments[] = {"rest", NULL};
    size_t at_first, later, trimmed;
    const size_t ready = (size_t)12 * SUPERSLAB / KIB;
    run(arguments, "HAKMEM_PREWARM_SUPERSLABS=12", "HAKMEM_PREFAULT=1");
    REQUIRE(sscanf(child.out, "%zu %zu %zu", &at_first, &later, &trimmed) == 3);
    CHECK_MSG(at_first >= ready, "%zu KiB", at_first);
    CHECK_MSG(later >= ready, "%zu KiB of %zu", later, at_first);
    CHECK_MSG(trimmed + ready - 2 * SUPERSLAB / KIB <= later, "%zu KiB of %zu", trimmed, later);
    CHECK(counter("purge_passes") > 1);
}

/* As on Linux before 5.14; in this process's children from now on. */
static void forbid_populate(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof program[0], .filter = program};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
        printf("skipped: seccomp filters are not available: errno %d\n", errno);
        exit(CHECK_SKIPPED);
    }
}

static void without_the_advice_pages_are_touched(void)
{
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS=3", "HAKMEM_PREFAULT=1");
    size_t failed = counter("failed");
    bool kernel_has_it = failed < 3;
    forbid_populate();
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS=3", "HAKMEM_PREFAULT=1");
    CHECK_MSG(all_was_resident(), "%s", child.out);
    CHECK(with_memory() == 3);
    CHECK_MSG(counter("failed") == failed + 3 || !kernel_has_it, "%zu calls failed", counter("failed"));
}

static void when_memory_is_short_the_program_runs(void)
{
    static const char *const look_arguments[] = {"look", "100", NULL}, *const short_arguments[] = {"short", NULL};
    struct rlimit before = allow_address_space((size_t)200 * MIB);
    run(look_arguments, "HAKMEM_PREWARM_SUPERSLABS=65536", "HAKMEM_PREFAULT=1");
    CHECK_MSG(all_was_resident(), "%s", child.out);
    CHECK_MSG(with_memory() >= 30, "%zu superslabs", with_memory());
    run(look_arguments, "HAKMEM_PREWARM_SUPERSLABS_C7=65536", NULL);
    CHECK(counter("superslabs_mapped") >= 30);
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);

    run(short_arguments, NULL, NULL);
    size_t ready = strtoul(child.out, NULL, 10);
    CHECK_MSG(ready > 50000 && ready < 200000, "%zu blocks of 1000 in 200 MiB", ready);
}

static void bad_values(void)
{
    static const struct {
        const char *setting, *expected;
    } cases[] = {
        {"HAKMEM_PREWARM_SUPERSLABS=65537", "a number from 0 to 65536"},
        {"HAKMEM_PREWARM_SUPERSLABS=-1", "a number from 0 to 65536"},
        {"HAKMEM_PREWARM_SUPERSLABS=", "a number from 0 to 65536"},
        {"HAKMEM_PREWARM_SUPERSLABS=1K", "a number from 0 to 65536"},
        {"HAKMEM_PREWARM_SUPERSLABS=four", "a number from 0 to 65536"},
        {"HAKMEM_PREWARM_SUPERSLABS_C0=99999999999999999999", "a number from 0 to 65536"},
        {"HAKMEM_PREWARM_SUPERSLABS_C7=2M", "a number from 0 to 65536"},
        {"HAKMEM_PREFAULT=2", "0 or 1"},
        {"HAKMEM_PREFAULT=yes", "0 or 1"},
        {"HAKMEM_PREFAULT=", "0 or 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "hakmem: %s is not valid: expected %s; using 0", cases[i].setting,
                 cases[i].expected);
        run_look("100", cases[i].setting, NULL);
        CHECK_MSG(count_lines_equal(child.err, line) == 1, "expected: %s", line);
        CHECK_MSG(count_lines_matching(child.err, " is not valid| unknown option ") == 1, "%s", cases[i].setting);
        CHECK_MSG(!all_was_resident() && with_memory() == 1, "%s", cases[i].setting);
    }
    run_look("100", "HAKMEM_PREWARM_SUPERSLABS_C8=1", NULL);
    CHECK(count_lines_equal(child.err,
                            "hakmem: unknown option HAKMEM_PREWARM_SUPERSLABS_C8 (HAKMEM_HELP=1 lists them)") == 1);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "look") == 0)
        return look(strtoul(argv[2], NULL, 10));
    if (argc > 3 && strcmp(argv[1], "take") == 0)
        return take(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    if (argc > 1 && strcmp(argv[1], "rest") == 0)
        return rest();
    if (argc > 1 && strcmp(argv[1], "short") == 0)
        return run_short();
    if (skipped_without_hakmem("these are options of hakmem"))
        return CHECK_SKIPPED;
    without_it_nothing_is_ready();
    prefaulted_superslabs_are_resident();
    bands_are_those_of_the_classes();
    bands_add_up();
    else_they_are_mapped_only();
    it_stays_while_the_process_idles();
    when_memory_is_short_the_program_runs();
    bad_values();
    without_the_advice_pages_are_touched(); /* the last: there is no way back */
    return check_result();
}
