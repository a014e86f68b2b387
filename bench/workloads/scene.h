/*
 * What the scenes of memory share: blocks that know their size and prove their content, the pages they need at least,
 * the resident size without the scene's own index, samples of it over time, and settling: idle, then trimmed.
 *
 * A scene's index of its blocks comes from own_table(), which makes all of it resident at once: its resident size is
 * then its size, and can be taken off what the process has. What is left is the blocks, the allocator's own, and about
 * 1.5 MiB of code, libraries and stacks, which are the same for all allocators.
 *
 * The floor is the size of the pages on which a live block lies. Nothing can be below it without moving blocks.
 *
 * Samples are printed while the scene runs, one a line, for the curve of resident size over live bytes:
 *     sample t=0.250 resident_kib=12345 live_kib=10000
 */
#ifndef SCENE_H
#define SCENE_H

#include "workload.h"

#include <stdbool.h>

static const double SAMPLE_SECONDS = 0.05;
static const double IDLE_SECONDS = 2.5;

static double scene_began;
static size_t scene_own_bytes;

/* To be called first. */
static inline void scene_begin(void) { scene_began = clock_seconds(CLOCK_MONOTONIC); }

static inline size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Without huge pages, so that the kernel does not extend the table by parts of its neighbours. */
static inline void *own_table(size_t count, size_t size)
{
    size_t bytes = (count * size + page_bytes() - 1) / page_bytes() * page_bytes();
    void *table = table_of(bytes, 1);
    madvise(table, bytes, MADV_NOHUGEPAGE);
    memset(table, 0, bytes);
    scene_own_bytes += bytes;
    return table;
}

/* A block in one word, 0 for none: its address, which is a multiple of 16, and its size, 16 bytes to just under
 * 1 MiB. Half of what a pointer and a size take, so that the index is small beside the blocks. */
enum { BLOCK_ALIGN_BITS = 4, BLOCK_SIZE_BITS = 20, BLOCK_MIN = 16, BLOCK_MAX = (1 << BLOCK_SIZE_BITS) - 1 };

static inline unsigned char *block_address(uint64_t block)
{
    return (unsigned char *)(uintptr_t)(block >> BLOCK_SIZE_BITS << BLOCK_ALIGN_BITS);
}

static inline size_t block_size(uint64_t block) { return (size_t)(block & BLOCK_MAX); }

/* What a block is filled with. Never 0: a page that was given back while the block was live reads as zeros. */
static inline unsigned char block_pattern(uint64_t block)
{
    return (unsigned char)((block * 0x9e3779b97f4a7c15u) >> 56 | 1);
}

/* A block that malloc, or another of the family, has just returned, filled. */
static inline uint64_t block_adopt(void *address, size_t size)
{
    if (!address)
        fail("no memory for a block of %zu bytes", size);
    if ((uintptr_t)address % (1 << BLOCK_ALIGN_BITS) != 0)
        fail("a block of %zu bytes at %p, which is no multiple of %d", size, address, 1 << BLOCK_ALIGN_BITS);
    uint64_t block = (uint64_t)(uintptr_t)address >> BLOCK_ALIGN_BITS << BLOCK_SIZE_BITS | size;
    memset(address, block_pattern(block), size);
    return block;
}

static inline uint64_t block_new(size_t size) { return block_adopt(malloc(size), size); }

static inline void block_check(uint64_t block)
{
    const unsigned char *bytes = block_address(block);
    if (bytes[0] != block_pattern(block) || memcmp(bytes, bytes + 1, block_size(block) - 1) != 0)
        fail("a block of %zu bytes at %p changed", block_size(block), (const void *)bytes);
}

static inline void block_check_and_free(uint64_t block)
{
    block_check(block);
    free(block_address(block));
}

/* The set of pages on which blocks lie: a hash table of regions of 512 pages, a bit a page. Blocks of one allocator lie
 * close together, so regions are few, and counting adds next to nothing to what is resident. */
enum { REGION_PAGES = 512, PAGE_SET_REGIONS = 1 << 14 };

struct page_region {
    uint64_t number; /* from 1; 0: free entry */
    uint64_t pages[REGION_PAGES / 64];
};

struct page_set {
    struct page_region *regions;
    size_t pages;
};

static inline struct page_set page_set_new(void)
{
    return (struct page_set){table_of(PAGE_SET_REGIONS, sizeof(struct page_region)), 0};
}

static inline void page_set_add(struct page_set *set, const void *address, size_t size)
{
    size_t last = ((uintptr_t)address + size - 1) / page_bytes();
    for (size_t page = (uintptr_t)address / page_bytes(); page <= last; page++) {
        uint64_t number = page / REGION_PAGES + 1;
        size_t entry = (size_t)(number * 0x9e3779b97f4a7c15u >> 32) % PAGE_SET_REGIONS;
        for (size_t probes = 0; set->regions[entry].number && set->regions[entry].number != number; probes++) {
            if (probes == PAGE_SET_REGIONS)
                fail("blocks lie in more than %d regions of %d pages", PAGE_SET_REGIONS, REGION_PAGES);
            entry = (entry + 1) % PAGE_SET_REGIONS;
        }
        set->regions[entry].number = number;
        uint64_t *word = &set->regions[entry].pages[page % REGION_PAGES / 64];
        uint64_t bit = (uint64_t)1 << page % 64;
        set->pages += !(*word & bit);
        *word |= bit;
    }
}

/* KiB of the set's pages; the set ends. */
static inline long page_set_finish(struct page_set *set)
{
    munmap(set->regions, PAGE_SET_REGIONS * sizeof(struct page_region));
    return (long)(set->pages * page_bytes() / 1024);
}

/* The floor of an index; entries that are 0 hold no block. */
static inline void page_set_add_blocks(struct page_set *set, const uint64_t *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (blocks[i])
            page_set_add(set, block_address(blocks[i]), block_size(blocks[i]));
}

/* The number after `field` in a file of /proc/self; fields of a file begin a line. */
static inline long proc_number(const char *file, const char *field)
{
    char text[4096];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[length < 0 ? 0 : length] = '\0';
    const char *found = strstr(text, field);
    if (!found)
        fail("no %s in %s", field, file);
    return strtol(found + strlen(field), NULL, 10);
}

/* KiB resident without the scene's own tables. */
static inline long scene_resident_kib(void)
{
    return proc_number("/proc/self/smaps_rollup", "Rss:") - (long)(scene_own_bytes / 1024);
}

/* The most that was ever resident, likewise. VmHWM is a quick counter, the present size is exact. */
static inline long scene_peak_kib(void)
{
    long peak = proc_number("/proc/self/status", "VmHWM:") - (long)(scene_own_bytes / 1024);
    long now = scene_resident_kib();
    return peak > now ? peak : now;
}

/* Prints a sample. Without stdio, which would take a buffer from malloc; and from the kernel's quick counters, which
 * may be a few hundred KiB off: to count the page tables of a large process takes milliseconds. */
static inline void scene_sample(size_t live_bytes)
{
    char text[96];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    unsigned long pages;
    text[length < 0 ? 0 : length] = '\0';
    if (sscanf(text, "%*u %lu", &pages) != 1)
        fail("cannot read /proc/self/statm");
    long resident = (long)(pages * page_bytes() - scene_own_bytes) / 1024;
    length = snprintf(text, sizeof text, "sample t=%.3f resident_kib=%ld live_kib=%zu\n",
                      clock_seconds(CLOCK_MONOTONIC) - scene_began, resident, live_bytes / 1024);
    if (write(STDOUT_FILENO, text, (size_t)length) != length)
        fail("cannot write a sample");
}

/* A sample if the last is long enough ago: for loops of a scene with one thread. */
static inline void scene_sample_if_due(size_t live_bytes)
{
    static double last;
    double now = clock_seconds(CLOCK_MONOTONIC);
    if (now - last < SAMPLE_SECONDS)
        return;
    last = now;
    scene_sample(live_bytes);
}

static inline void sleep_seconds(double seconds)
{
    struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

/* Sleeps, with samples of what live_bytes() says. The calling thread touches no memory that malloc gave. */
static inline void scene_watch(double seconds, size_t (*live_bytes)(void))
{
    double end = clock_seconds(CLOCK_MONOTONIC) + seconds;
    for (double rest = seconds; rest > 0; rest = end - clock_seconds(CLOCK_MONOTONIC)) {
        sleep_seconds(rest < 2 * SAMPLE_SECONDS ? rest : 2 * SAMPLE_SECONDS);
        scene_sample(live_bytes());
    }
}

/* Calls malloc_trim(0) if the allocator in use has one. The C library's is found under any other allocator too, and
 * would trim a heap that is not used. */
static inline bool scene_trim(void)
{
    union {
        void *object;
        int (*function)(size_t);
    } trim = {dlsym(RTLD_DEFAULT, "malloc_trim")};
    if (!trim.object || strcmp(origin_of("malloc_trim"), origin_of("malloc")) != 0)
        return false;
    trim.function(0);
    return true;
}

/* Resident KiB after some idle time, and after malloc_trim (the same again where the allocator has none). */
struct settled {
    long idle_kib;
    long trimmed_kib;
    bool trims;
};

static inline struct settled scene_settle(size_t (*live_bytes)(void))
{
    struct settled settled;
    scene_watch(IDLE_SECONDS, live_bytes);
    settled.idle_kib = scene_resident_kib();
    settled.trims = scene_trim();
    settled.trimmed_kib = scene_resident_kib();
    scene_sample(live_bytes());
    return settled;
}

/* The keys of a scene that settles, `settled_excess_kib` and `trimmed_excess_kib` being what is beyond the share of the
 * floor that returning is granted: a fixed sum remains for the program and for the allocator's own. */
#define SETTLED_FORMAT                                                                                            \
    "settled_kib=%ld trimmed_kib=%ld live_kib=%ld floor_kib=%ld settled_over_floor=%.0f trimmed_over_floor=%.0f " \
    "settled_over_live=%.0f trimmed_over_live=%.0f settled_excess_kib=%.0f trimmed_excess_kib=%.0f trims=%d "     \
    "scene_peak_kib=%ld"

static inline void scene_report(double figure, const char *unit, struct stopwatch elapsed, struct settled settled,
                                size_t live_bytes, long floor_kib, long peak_kib)
{
    double idle = (double)settled.idle_kib, trimmed = (double)settled.trimmed_kib;
    double floor = (double)(floor_kib ? floor_kib : 1), live = live_bytes ? (double)live_bytes / 1024 : 1;
    report(figure, unit, elapsed, SETTLED_FORMAT, settled.idle_kib, settled.trimmed_kib, (long)(live_bytes / 1024),
           floor_kib, 100 * idle / floor, 100 * trimmed / floor, 100 * idle / live, 100 * trimmed / live,
           idle - 1.15 * (double)floor_kib, trimmed - 1.08 * (double)floor_kib, settled.trims, peak_kib);
}

#endif
