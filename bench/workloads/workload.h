/*
 * What the workloads share: random numbers, clocks, the resident size, and the one line of figures.
 *
 * None of this takes memory from malloc while a workload is being measured: tables come straight from mmap, and the
 * resident size is read into a static buffer. What a run shows of memory is the workload's blocks and the allocator.
 *
 * The line that report() prints is `key=value` pairs, read by bench/lab/measure.py:
 *     figure=113.2 unit=Mops/s seconds=0.1767 cpu=0.1766 ... malloc=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2
 * `malloc` comes last, because a path may contain blanks.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A workload that finds its data wrong says what is wrong and ends with status 1, one called wrongly with 2. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("self-check failed: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static inline size_t argument(int argc, char **argv, int index, const char *name)
{
    if (index >= argc) {
        fprintf(stderr, "%s: argument %d, %s, is missing\n", argv[0], index, name);
        exit(2);
    }
    char *end;
    errno = 0;
    unsigned long long value = strtoull(argv[index], &end, 10);
    if (errno || *end || end == argv[index]) {
        fprintf(stderr, "%s: %s must be a number, not '%s'\n", argv[0], name, argv[index]);
        exit(2);
    }
    return (size_t)value;
}

/* SplitMix64 (Steele, Lea, Flood 2014). Its state advances by an addition, so the draws of successive steps overlap
 * in the processor and cost a workload little. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number below bound out of 32 random bits, without a division. */
static inline size_t random_below(uint32_t bits, size_t bound) { return (size_t)(((uint64_t)bits * bound) >> 32); }

/* Zeroed memory for a workload's own tables. */
static inline void *table_of(size_t count, size_t size)
{
    void *table = mmap(NULL, count * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        fail("no memory for the workload's own table");
    return table;
}

/* Workloads that have one thread running at a time take their figure from processor time, which on a quiet machine is
 * the same as wall time and on a busy one leaves out what others do in between; the rest take it from wall time. */
struct stopwatch {
    double wall;
    double cpu;
};

static inline double clock_seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline struct stopwatch stopwatch_start(void)
{
    return (struct stopwatch){clock_seconds(CLOCK_MONOTONIC), clock_seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

/* What has passed since start. */
static inline struct stopwatch stopwatch_read(struct stopwatch start)
{
    struct stopwatch now = stopwatch_start();
    return (struct stopwatch){now.wall - start.wall, now.cpu - start.cpu};
}

/* KiB resident now, counted from the page tables: the kernel's quick counters may be a few hundred KiB off. */
static inline long resident_kib(void)
{
    static char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *line = strstr(text, "\nRss:");
    return line ? strtol(line + 5, NULL, 10) : -1;
}

/* The file that a function of the malloc family is taken from in this process. */
static inline const char *origin_of(const char *function)
{
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, function);
    return address && dladdr(address, &info) ? info.dli_fname : "?";
}

/* Prints the line of figures; more is `key=value` pairs of the workload's own, or an empty string. */
__attribute__((format(printf, 4, 5))) static inline void report(double figure, const char *unit,
                                                                struct stopwatch elapsed, const char *more, ...)
{
    static const char *const family[] = {"free", "calloc", "realloc"};
    const char *origin = origin_of("malloc");
    for (size_t i = 0; i < sizeof family / sizeof *family; i++)
        if (strcmp(origin_of(family[i]), origin) != 0)
            fail("malloc comes from %s and %s from %s", origin, family[i], origin_of(family[i]));
    printf("figure=%.6g unit=%s seconds=%.6f cpu=%.6f ", figure, unit, elapsed.wall, elapsed.cpu);
    va_list args;
    va_start(args, more);
    vprintf(more, args);
    va_end(args);
    printf(" malloc=%s\n", origin);
}

#endif
