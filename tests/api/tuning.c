/* mallopt, mallinfo, mallinfo2, malloc_trim and malloc_stats. */
#include "check.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <regex.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Every parameter of glibc is accepted, and so is one that does not exist; only a bad M_MXFAST is not. */
static void mallopt_takes_parameters_of_glibc(void)
{
    static const int parameters[] = {M_MXFAST,   M_NLBLKS,       M_GRAIN,   M_KEEP,       M_TRIM_THRESHOLD, M_TOP_PAD,
                                     M_MMAP_MAX, M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX,      0,
                                     99};
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++)
        CHECK_MSG(mallopt(parameters[i], 2) == 1, "parameter %d", parameters[i]);
    CHECK(mallopt(M_PERTURB, 0) == 1);
    CHECK(mallopt(M_MMAP_MAX, 65536) == 1);
    CHECK(mallopt(M_MMAP_THRESHOLD, 128 * 1024) == 1);
    CHECK(mallopt(M_TRIM_THRESHOLD, 128 * 1024) == 1);
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    const int mxfast_max = (int)(80 * sizeof(size_t) / 4);
    CHECK(mallopt(M_MXFAST, 0) == 1);
    CHECK(mallopt(M_MXFAST, mxfast_max) == 1);
    CHECK(mallopt(M_MXFAST, mxfast_max + 1) == 0);
    CHECK(mallopt(M_MXFAST, INT_MAX) == 0);

    /* It still allocates with all of that set. */
    for (size_t n = 1; n < 100 * MIB; n *= 2)
        free(malloc(n));
}

static void fields_are_sane(const char *when)
{
    struct mallinfo2 info = mallinfo2();
    CHECK_MSG(info.arena >= info.uordblks, "%s: arena %zu, uordblks %zu", when, info.arena, info.uordblks);
    CHECK_MSG(info.uordblks + info.fordblks <= info.arena, "%s: arena %zu, uordblks %zu, fordblks %zu", when,
              info.arena, info.uordblks, info.fordblks);
    CHECK_MSG(info.keepcost <= info.fordblks, "%s: keepcost %zu, fordblks %zu", when, info.keepcost, info.fordblks);
    CHECK_MSG(info.fsmblks <= info.fordblks, "%s: fsmblks %zu, fordblks %zu", when, info.fsmblks, info.fordblks);
    CHECK_MSG((info.hblks == 0) == (info.hblkhd == 0), "%s: hblks %zu, hblkhd %zu", when, info.hblks, info.hblkhd);
    CHECK_MSG(info.arena < (size_t)1 << 47 && info.hblkhd < (size_t)1 << 47, "%s: below zero", when);
}

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void mallinfo2_follows_the_program(void)
{
    enum { SMALL = 20000, LARGE = 4 };
    static void *small[SMALL];
    void *large[LARGE];

    fields_are_sane("at first");
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < SMALL; i++)
        REQUIRE((small[i] = malloc(500)) != NULL);
    size_t grown = mallinfo2().uordblks;
    CHECK_MSG(grown >= before + SMALL * (size_t)500, "uordblks: %zu, then %zu", before, grown);
    CHECK_MSG(grown <= before + SMALL * (size_t)700, "uordblks: %zu, then %zu", before, grown);
    fields_are_sane("with small blocks");
    for (int i = 0; i < SMALL; i++)
        free(small[i]);
    size_t fallen = mallinfo2().uordblks;
    CHECK_MSG(fallen <= before + MIB, "uordblks: %zu, then %zu, then %zu", before, grown, fallen);
    fields_are_sane("after small blocks");

    before = in_use();
    for (int i = 0; i < LARGE; i++)
        REQUIRE((large[i] = malloc(100 * MIB)) != NULL);
    grown = in_use();
    CHECK_MSG(grown >= before + LARGE * 100 * MIB, "in use: %zu, then %zu", before, grown);
    CHECK_MSG(grown <= before + LARGE * 101 * MIB, "in use: %zu, then %zu", before, grown);
    fields_are_sane("with large blocks");
    for (int i = 0; i < LARGE; i++)
        free(large[i]);
    fallen = in_use();
    CHECK_MSG(fallen <= before + MIB, "in use: %zu, then %zu, then %zu", before, grown, fallen);
    fields_are_sane("after large blocks");
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void mallinfo_is_mallinfo2_in_ints(void)
{
    void *p = malloc(5000);
    struct mallinfo narrow = mallinfo();
    struct mallinfo2 wide = mallinfo2();
    CHECK_MSG(narrow.arena == (int)wide.arena, "%d, %zu", narrow.arena, wide.arena);
    CHECK_MSG(narrow.uordblks == (int)wide.uordblks, "%d, %zu", narrow.uordblks, wide.uordblks);
    CHECK_MSG(narrow.fordblks == (int)wide.fordblks, "%d, %zu", narrow.fordblks, wide.fordblks);
    CHECK_MSG(narrow.hblks == (int)wide.hblks, "%d, %zu", narrow.hblks, wide.hblks);
    CHECK_MSG(narrow.hblkhd == (int)wide.hblkhd, "%d, %zu", narrow.hblkhd, wide.hblkhd);
    free(p);
}
#pragma GCC diagnostic pop

static size_t resident_bytes(void)
{
    size_t size, resident;
    FILE *statm = fopen("/proc/self/statm", "r");
    REQUIRE(statm != NULL && fscanf(statm, "%zu %zu", &size, &resident) == 2);
    fclose(statm);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void trim_says_whether_it_gave_memory_back(void)
{
    enum { BLOCKS = 60000 };
    static void *blocks[BLOCKS];

    int result = malloc_trim(0);
    CHECK_MSG(result == 0 || result == 1, "malloc_trim = %d", result);
    CHECK(malloc_trim(hide_size(SIZE_MAX)) == 0); /* nothing: all is to stay */

    size_t before = resident_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        REQUIRE((blocks[i] = malloc(1000)) != NULL);
        memset(blocks[i], 1, 1000);
    }
    void *last = malloc(1000);
    size_t peak = resident_bytes();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    result = malloc_trim(0);
    size_t after = resident_bytes();
    CHECK_MSG(result == 0 || result == 1, "malloc_trim = %d", result);
    CHECK_MSG(after < before + 8 * MIB, "resident: %zu before, %zu at the peak, %zu after", before, peak, after);
    free(last);
}

static void *prints(void *unused)
{
    malloc_stats();
    return unused;
}

/* malloc_stats writes to stderr, and to nothing else; on a stack as small as a thread's can be. */
static void stats_go_to_stderr(void)
{
    static char text[1 << 20];
    fflush(stdout);
    int saved_err = dup(STDERR_FILENO), saved_out = dup(STDOUT_FILENO);
    FILE *err = tmpfile(), *out = tmpfile();
    REQUIRE(saved_err >= 0 && saved_out >= 0 && err != NULL && out != NULL);
    dup2(fileno(err), STDERR_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    pthread_attr_t small;
    pthread_t thread;
    REQUIRE(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, (size_t)PTHREAD_STACK_MIN) == 0);
    REQUIRE(pthread_create(&thread, &small, prints, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&small);
    fflush(stdout);
    dup2(saved_err, STDERR_FILENO);
    dup2(saved_out, STDOUT_FILENO);

    CHECK(lseek(fileno(out), 0, SEEK_END) == 0);
    lseek(fileno(err), 0, SEEK_SET);
    ssize_t length = read(fileno(err), text, sizeof text - 1);
    CHECK_MSG(length > 0, "nothing on stderr");
    if (under_hakmem()) {
        regex_t line;
        int lines = 0;
        REQUIRE(regcomp(&line, "^  [a-z][a-z0-9_.]* +[0-9]+", REG_EXTENDED | REG_NOSUB) == 0);
        for (char *at = strtok(text, "\n"); at != NULL; at = strtok(NULL, "\n"))
            lines += regexec(&line, at, 0, NULL, 0) == 0;
        CHECK_MSG(lines >= 10, "%d lines of a name and a value", lines);
        regfree(&line);
    }
    fclose(err), fclose(out);
}

int main(void)
{
    trim_says_whether_it_gave_memory_back();
    mallinfo2_follows_the_program();
    mallinfo_is_mallinfo2_in_ints();
    stats_go_to_stderr();
    mallopt_takes_parameters_of_glibc();
    return check_result();
}
