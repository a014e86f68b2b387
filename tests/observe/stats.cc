/*
 * Statistics and reports, by the hak_ names: after known allocations the numbers say so, they fit together, and none is
 * ever negative, also while threads change them.
 */
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hakmem/hakmem.h"

#include "c_begin.h"
#include "front/memory.h"
#include "observe/report.h"
#include "observe/stats.h"
#include "c_end.h"

namespace
{

constexpr size_t kNoNumber = size_t{1} << 50; /* what is above is a difference that went below zero */

struct hk_stats now()
{
    struct hk_stats stats;
    hk_stats_read(&stats);
    return stats;
}

/* What must hold at any time. */
void expect_consistent(const struct hk_stats &stats)
{
    size_t live = 0, live_bytes = 0, cached_bytes = 0, free_bytes = 0;
    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        const hk_class_stats &c = stats.classes[i];
        EXPECT_LE(c.live + c.cached + c.free, c.slabs * hk_classes[i].nblocks) << "class " << i;
        live += c.live;
        live_bytes += c.live * hk_classes[i].size;
        cached_bytes += c.cached * hk_classes[i].size;
        free_bytes += c.free * hk_classes[i].size;
    }
    EXPECT_EQ(stats.live_blocks, live + stats.large.runs + stats.large.mappings);
    EXPECT_EQ(stats.live_bytes, live_bytes + stats.large.run_bytes + stats.large.mapping_bytes);
    EXPECT_EQ(stats.cached_bytes, cached_bytes);
    EXPECT_EQ(stats.free_bytes, free_bytes);
    EXPECT_LE(live_bytes + cached_bytes + free_bytes, stats.slab_bytes);
    EXPECT_LE(stats.heaps_parked, stats.heaps);
    EXPECT_LE(stats.meta_used, stats.meta_mapped);
    for (size_t number : {stats.live_blocks,
                          stats.live_bytes,
                          stats.cached_bytes,
                          stats.free_bytes,
                          stats.slab_bytes,
                          stats.meta_used,
                          stats.mapped,
                          stats.committed,
                          stats.committed_peak,
                          stats.resident,
                          stats.pool.slots_active,
                          stats.pool.slots_empty,
                          stats.superslabs.reserved,
                          stats.superslabs.carved,
                          stats.superslabs.large,
                          stats.superslabs.free,
                          stats.superslabs.cached,
                          stats.large.cached_bytes,
                          stats.large.run_bytes,
                          stats.large.mapping_bytes,
                          stats.large.runs,
                          stats.large.mappings})
        EXPECT_LT(number, kNoNumber);
}

TEST(Stats, CountBlocksOfEachClass)
{
    for (size_t n : {16u, 100u, 1000u, 4096u, 50000u}) {
        unsigned size_class = hk_class_of(n);
        std::vector<void *> blocks(500);
        struct hk_stats before = now();
        for (void *&p : blocks)
            p = hak_malloc(n);
        struct hk_stats during = now();
        expect_consistent(during);
        EXPECT_EQ(during.classes[size_class].live - before.classes[size_class].live, 500u) << n;
        for (void *p : blocks)
            hak_free(p);
        EXPECT_EQ(now().classes[size_class].live, before.classes[size_class].live) << n;
        hk_trim(HK_PURGE_ALL, 0);
        struct hk_stats after = now();
        expect_consistent(after);
        EXPECT_EQ(after.classes[size_class].live, 0u) << n;
        EXPECT_EQ(after.classes[size_class].cached, 0u) << n;
    }
}

TEST(Stats, WhatThreadsThatHaveEndedHoldIsNotLive)
{
    auto in_thread = [](size_t count) {
        std::thread thread([count] {
            for (size_t n = 16; n < 1000; n += 64) {
                std::vector<void *> blocks(count);
                for (void *&p : blocks)
                    p = hak_malloc(n);
                for (void *p : blocks)
                    hak_free(p);
            }
        });
        thread.join();
    };
    in_thread(1);
    struct hk_stats before = now();
    in_thread(500);
    in_thread(1); /* the heap that has lent some is looked into */
    struct hk_stats after = now();
    EXPECT_EQ(after.live_blocks, before.live_blocks);
    EXPECT_GT(after.cached_bytes, before.cached_bytes);
    expect_consistent(after);
}

/* They are a guest's, of which there are few: they lie in the outbox, and in parcels that nobody has opened yet. */
TEST(Stats, WhatWasFreedAndIsOnItsWayIsNotLive)
{
    struct hk_stats before = now();
    std::vector<void *> blocks(1000);
    for (void *&p : blocks)
        p = hak_malloc(5000);
    for (void *p : blocks)
        hak_free(p);
    EXPECT_EQ(now().live_blocks, before.live_blocks);
    expect_consistent(now());
}

TEST(Stats, CountLargeBlocks)
{
    struct hk_stats before = now();
    void *run = hak_malloc(10 << 20), *mapping = hak_malloc(100 << 20);
    struct hk_stats during = now();
    expect_consistent(during);
    EXPECT_EQ(during.large.runs - before.large.runs, 1u);
    EXPECT_EQ(during.large.mappings - before.large.mappings, 1u);
    EXPECT_GE(during.live_bytes - before.live_bytes, size_t{110} << 20);
    EXPECT_LT(during.live_bytes - before.live_bytes, size_t{120} << 20);
    EXPECT_GE(during.resident, size_t{110} << 20);
    hak_free(run);
    hak_free(mapping);
    expect_consistent(now());
    EXPECT_EQ(now().live_bytes, before.live_bytes);
}

TEST(Stats, ThePeakIsOfWhatWasCommittedAtOnce)
{
    hk_trim(HK_PURGE_ALL, 0);
    for (int i = 0; i < 20; i++)
        hak_free(hak_malloc(200 << 20)); /* more than the cache keeps */
    EXPECT_LT(now().committed_peak, size_t{1} << 30);
    EXPECT_LT(now().committed, size_t{200} << 20);
    EXPECT_GE(now().committed_peak, size_t{200} << 20);
}

TEST(Stats, AreNeverNegativeWhileThreadsWork)
{
    std::atomic<bool> stop{false};
    static std::atomic<void *> slots[256];
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 3; t++)
        threads.emplace_back([t, &stop] {
            for (uint64_t random = t; !stop;) {
                random = random * 6364136223846793005 + 1442695040888963407;
                size_t n = (random >> 40) % (random % 64 == 0 ? 3 << 20 : 5000);
                hak_free(slots[(random >> 33) % 256].exchange(hak_malloc(n)));
            }
        });
    for (int i = 0; i < 300 / HK_TEST_SLOWDOWN; i++) {
        struct hk_stats stats = now();
        for (unsigned j = 0; j < HK_NCLASSES; j++) {
            EXPECT_LT(stats.classes[j].live, kNoNumber);
            EXPECT_LT(stats.classes[j].cached, kNoNumber);
            EXPECT_LT(stats.classes[j].free, kNoNumber);
        }
        EXPECT_LT(stats.live_bytes, kNoNumber);
        EXPECT_LT(stats.resident, kNoNumber);
        struct mallinfo2 info = hk_report_mallinfo();
        for (size_t number :
             {info.arena, info.ordblks, info.hblks, info.hblkhd, info.uordblks, info.fordblks, info.keepcost})
            EXPECT_LT(number, kNoNumber);
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    for (auto &p : slots)
        hak_free(p);
    hk_trim(HK_PURGE_ALL, 0);
    expect_consistent(now());
    EXPECT_EQ(now().live_blocks, 0u);
}

/* ---- The report ---- */

std::string report()
{
    testing::internal::CaptureStderr();
    hk_report_print();
    return testing::internal::GetCapturedStderr();
}

/* "  name   value   doc" of the report. */
std::map<std::string, size_t> rows(const std::string &text)
{
    std::map<std::string, size_t> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name, value;
        if (words >> name >> value && !isdigit(name[0]) && value.find_first_not_of("0123456789") == std::string::npos)
            found[name] = std::stoull(value);
    }
    return found;
}

TEST(Report, HasEveryCounterAndIsNotCutOff)
{
    std::vector<void *> blocks;
    for (size_t n = 1; n < 2 << 20; n += 1 + n / 3)
        blocks.push_back(hak_malloc(n));
    std::string text = report();
    auto values = rows(text);
    for (const char *name : {
#define HK_HEAP_COUNTER(name, doc) #name,
#define HK_POOL_COUNTER(name, doc) #name,
#include "base/stats.def"
             "live", "cached", "free_in_slabs", "committed", "mapped", "heaps", "mmap", "madvise", "failed"})
        EXPECT_EQ(values.count(name), 1u) << name;
    EXPECT_EQ(text.back(), '\n');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), 120u) << line;
    for (void *p : blocks)
        hak_free(p);
}

TEST(Report, BandsSumUpToAllBlocks)
{
    std::vector<void *> blocks;
    for (size_t n = 1; n < 1 << 20; n += 1 + n / 5)
        blocks.push_back(hak_malloc(n));
    struct hk_stats stats = now();
    std::string text = report();
    size_t live = 0, cached = 0, free = 0, slabs = 0, last = 0;
    std::istringstream table(text.substr(text.find("blocks by size")));
    std::string line;
    std::getline(table, line); /* the title */
    std::getline(table, line); /* the heads of the columns */
    for (size_t to, a, b, c, d; std::getline(table, line) && std::istringstream(line) >> to >> a >> b >> c >> d;) {
        EXPECT_GT(to, last);
        last = to;
        live += a;
        cached += b;
        free += c;
        slabs += d;
    }
    hk_class_stats sum{};
    for (const hk_class_stats &c : stats.classes) {
        sum.live += c.live;
        sum.cached += c.cached;
        sum.free += c.free;
        sum.slabs += c.slabs;
    }
    EXPECT_EQ(live, sum.live);
    EXPECT_EQ(cached, sum.cached);
    EXPECT_EQ(free, sum.free);
    EXPECT_EQ(slabs, sum.slabs);
    EXPECT_GT(slabs, 0u);
    for (void *p : blocks)
        hak_free(p);
}

TEST(Report, MallinfoFitsTheStatistics)
{
    void *small = hak_malloc(1000), *mapping = hak_malloc(100 << 20);
    struct hk_stats stats = now();
    struct mallinfo2 info = hk_report_mallinfo();
    EXPECT_EQ(info.hblks, stats.large.runs + stats.large.mappings);
    EXPECT_EQ(info.hblkhd, stats.large.run_bytes + stats.large.mapping_bytes);
    EXPECT_EQ(info.uordblks + info.hblkhd, stats.live_bytes);
    EXPECT_EQ(info.uordblks + info.fordblks, info.arena);
    EXPECT_LE(info.keepcost, info.fordblks);
    hak_free(small);
    hak_free(mapping);
}

TEST(Report, XmlHasTheSameNumbers)
{
    void *p = hak_malloc(1000);
    hk_trim(HK_PURGE_ALL, 0);
    struct hk_stats stats = now();
    char *text = nullptr;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    hk_report_xml(stream);
    fclose(stream);
    std::string xml(text, length);
    std::free(text);
    EXPECT_EQ(xml.rfind("<malloc version=\"1\">\n", 0), 0u);
    EXPECT_EQ(xml.substr(xml.size() - 10), "</malloc>\n");
    std::string rest = "<total type=\"rest\" count=\"";
    size_t at = xml.find(rest);
    ASSERT_NE(at, std::string::npos);
    size_t count = 0;
    for (const hk_class_stats &c : stats.classes)
        count += c.free + c.cached;
    EXPECT_EQ(std::stoull(xml.substr(at + rest.size())), count);
    hak_free(p);
}

} // namespace
