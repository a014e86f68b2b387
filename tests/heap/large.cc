/* Large blocks: runs and mappings, growth in place and by mremap, the cache of mappings, double frees. */
#include "test_heap.h"

#include <algorithm>
#include <chrono>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>

#include "c_begin.h"
#include "heap/limit.h"
#include "c_end.h"

namespace
{

constexpr size_t kPage = 4096;

class Large : public HeapTest
{
  protected:
    struct hk_large_counts before = hk_large_read_counts();

    static char *alloc(size_t n, size_t alignment = HK_MIN_ALIGN, hk_large_kind kind = HK_LARGE_ANY, bool zero = false)
    {
        auto *p = static_cast<char *>(hk_large_alloc(n, alignment, kind, zero));
        EXPECT_NE(p, nullptr) << n << " bytes at " << alignment;
        return p;
    }
    static char *map(size_t n) { return alloc(n, HK_MIN_ALIGN, HK_LARGE_MAPPING); }
    static void free(void *p)
    {
        hk_fault fault{};
        EXPECT_TRUE(hk_large_free(p, &fault));
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    }
    /* A word in each page says whose it is. */
    static void fill(char *p, size_t n)
    {
        for (size_t i = 0; i + sizeof i <= n; i += kPage)
            memcpy(p + i, &i, sizeof i);
    }
    static bool holds(const char *p, size_t n)
    {
        for (size_t i = 0, got; i + sizeof i <= n; i += kPage) {
            memcpy(&got, p + i, sizeof got);
            if (got != i)
                return false;
        }
        return true;
    }
    /* Bytes of the pages of [p, p + n) that have memory. */
    static size_t in_memory(char *p, size_t n)
    {
        const size_t page_size = hk_os_page_size();
        size_t before = reinterpret_cast<uintptr_t>(p) % page_size;
        std::vector<unsigned char> pages((before + n + page_size - 1) / page_size);
        EXPECT_EQ(mincore(p - before, before + n, pages.data()), 0);
        auto has_memory = [](unsigned char page) { return (page & 1) != 0; };
        return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), has_memory)) * page_size;
    }
    static bool is_zero(const char *p, size_t n)
    {
        for (size_t i = 0; i < n; i += kPage)
            if (p[i] != 0)
                return false;
        return p[n - 1] == 0;
    }
};

TEST_F(Large, BlocksAreUsableAlignedAndCounted)
{
    std::vector<std::pair<char *, size_t>> live;
    size_t bytes = 0;
    for (size_t alignment : {size_t{16}, size_t{64}, 128 * HK_KIB, HK_SUPERSLAB_SIZE, 16 * HK_MIB})
        for (size_t n : {size_t{1}, HK_MIB + 1, HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE + 1, 5 * HK_MIB + 123, 40 * HK_MIB,
                         HK_LARGE_RUN_MAX, HK_LARGE_RUN_MAX + 1}) {
            SCOPED_TRACE(testing::Message() << n << " bytes at " << alignment);
            bool zero = n % 2 == 0;
            char *p = alloc(n, alignment, HK_LARGE_ANY, zero);
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
            EXPECT_GE(hk_large_usable(p), n);
            if (zero) {
                EXPECT_TRUE(is_zero(p, n));
            }
            EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_LARGE));
            fill(p, hk_large_usable(p));
            live.emplace_back(p, hk_large_usable(p));
            bytes += n;
        }
    struct hk_large_counts counts = hk_large_read_counts();
    EXPECT_EQ(counts.runs + counts.mappings, live.size());
    EXPECT_GE(counts.run_bytes + counts.mapping_bytes, bytes);
    check_everything();
    for (auto [p, n] : live)
        EXPECT_TRUE(holds(p, n)) << n;
    for (auto [p, n] : live)
        free(p);
    counts = hk_large_read_counts();
    EXPECT_EQ(counts.runs + counts.mappings, 0u);
    EXPECT_EQ(counts.run_bytes + counts.mapping_bytes, 0u);
    EXPECT_EQ(counts.frees - before.frees, live.size());
}

TEST_F(Large, TwoBlocksNeverShareASlotsKey)
{
    std::vector<char *> live;
    std::set<uintptr_t> slots;
    for (int i = 0; i < 40; i++) {
        live.push_back(alloc(100, 128 * HK_MIB)); /* a mapping with room around it */
        live.push_back(map(1300 * HK_KIB));
        live.push_back(map(1100 * HK_KIB + 4096));
    }
    for (char *p : live)
        EXPECT_TRUE(slots.insert(reinterpret_cast<uintptr_t>(p) >> HK_SLOT_SHIFT).second);
    for (char *p : live)
        free(p);
}

TEST_F(Large, HeadsOfEqualBlocksLieInManyCacheSets)
{
    std::vector<char *> live;
    std::set<uintptr_t> sets, tlb_sets;
    for (int i = 0; i < 32; i++) {
        live.push_back(alloc(3 * HK_MIB));
        sets.insert(reinterpret_cast<uintptr_t>(live.back()) / HK_CACHE_LINE % 64);
        tlb_sets.insert(reinterpret_cast<uintptr_t>(live.back()) / 4096 % 16);
    }
    EXPECT_GE(sets.size(), 16u);
    EXPECT_GE(tlb_sets.size(), 12u);
    for (char *p : live)
        free(p);
}

/* ---- Whose memory is zero ---- */

TEST_F(Large, IsZeroIfThatIsWished)
{
    constexpr size_t kOdd = 5 * HK_MIB + 123;
    for (hk_large_kind kind : {HK_LARGE_ANY, HK_LARGE_MAPPING})
        for (size_t alignment : {HK_MIN_ALIGN + size_t{0}, 128 * HK_KIB, 8 * HK_MIB})
            for (int i = 0; i < 5; i++) {
                char *p = alloc(kOdd, alignment, kind, true);
                EXPECT_TRUE(is_zero(p, kOdd));
                memset(p, 0xa5, hk_large_usable(p));
                free(p);
            }
}

TEST_F(Large, IsZeroWhereverItWasWrittenTo)
{
    constexpr size_t kSize = 70 * HK_MIB + 4096;
    for (size_t step : {kPage + 8, 100 * kPage + 8, HK_MIB + 8, 16 * HK_MIB + 8}) {
        char *p = map(kSize);
        for (size_t at = 0; at < kSize; at += step)
            p[at] = 1;
        p[kSize - 1] = 1;
        free(p);
        auto cache_hits = hk_large_read_counts().cache_hits;
        p = alloc(kSize, HK_MIN_ALIGN, HK_LARGE_MAPPING, true);
        EXPECT_GT(hk_large_read_counts().cache_hits, cache_hits);
        for (size_t at = 0; at < kSize; at += step)
            ASSERT_EQ(p[at], 0) << "written to every " << step << " bytes";
        EXPECT_TRUE(is_zero(p, kSize));
        free(p);
    }
}

TEST_F(Large, WhatHasNoMemoryGetsNoneToBeZero)
{
    char *p = alloc(64 * HK_MIB);
    ASSERT_TRUE(hk_large_resize(p, HK_SUPERSLAB_SIZE));
    trim_all();
    memset(p, 0xa5, HK_MIB);
    free(p); /* of what was 64 MiB this is all that may have memory */
    p = alloc(64 * HK_MIB, HK_MIN_ALIGN, HK_LARGE_ANY, true);
    EXPECT_LE(in_memory(p, 64 * HK_MIB), 2 * HK_SUPERSLAB_SIZE);
    EXPECT_TRUE(is_zero(p, 64 * HK_MIB));
    free(p);

    p = map(80 * HK_MIB);
    p[0] = 1;
    free(p);
    p = alloc(80 * HK_MIB, HK_MIN_ALIGN, HK_LARGE_MAPPING, true);
    EXPECT_LE(in_memory(p, 80 * HK_MIB), HK_MIB);
    EXPECT_TRUE(is_zero(p, 80 * HK_MIB));
    free(p);
}

/* Sparse tables, one after the other: zeros that are written would give memory to all that the last one left unused. */
TEST_F(Large, WhatIsUsedHereAndThereStaysSmall)
{
    for (hk_large_kind kind : {HK_LARGE_ANY, HK_LARGE_MAPPING}) {
        constexpr size_t kSize = 48 * HK_MIB, kStep = HK_MIB + 8 * kPage + 8;
        trim_all();
        for (int round = 0; round < 5; round++) {
            char *p = alloc(kSize, HK_MIN_ALIGN, kind, true);
            EXPECT_LE(in_memory(p, kSize), kSize / 4) << "round " << round;
            for (size_t at = 0; at < kSize; at += kStep) {
                ASSERT_EQ(p[at], 0);
                p[at] = 1;
            }
            free(p);
        }
        char *p = alloc(kSize, HK_MIN_ALIGN, kind, true);
        EXPECT_TRUE(is_zero(p, kSize));
        free(p);
    }
}

/* ---- Other sizes, in place ---- */

TEST_F(Large, RunsGrowAndShrinkInPlace)
{
    char *p = alloc(20 * HK_MIB);
    size_t usable = hk_large_usable(p);
    fill(p, usable);
    ASSERT_TRUE(hk_large_resize(p, 5 * HK_MIB));
    EXPECT_LT(hk_large_usable(p), usable);
    EXPECT_GE(hk_large_usable(p), 5 * HK_MIB);
    check_everything();
    ASSERT_TRUE(hk_large_resize(p, 12 * HK_MIB)) << "what it gave back is still free";
    EXPECT_GE(hk_large_usable(p), 12 * HK_MIB);
    EXPECT_TRUE(holds(p, 5 * HK_MIB));
    check_everything();
    char *behind = alloc(8 * HK_MIB);
    if (behind > p && behind < p + 30 * HK_MIB) {
        EXPECT_FALSE(hk_large_resize(p, 40 * HK_MIB)) << "somebody is in the way";
        EXPECT_TRUE(holds(p, 5 * HK_MIB));
    }
    free(behind);
    free(p);
}

TEST_F(Large, AResizedBlockHoldsWhatWasAskedFor)
{
    /* A mapping out of the cache may be somewhat larger than what is asked for. */
    for (size_t first : {70 * HK_MIB, 80 * HK_MIB, 85 * HK_MIB})
        for (size_t n : {66 * HK_MIB + 1, 70 * HK_MIB + 5, 80 * HK_MIB - 4096, 80 * HK_MIB, 84 * HK_MIB + 1}) {
            char *p = map(first);
            ASSERT_TRUE(hk_large_resize(p, n) || n > first);
            free(p);
            p = map(66 * HK_MIB);
            if (hk_large_resize(p, n)) {
                EXPECT_GE(hk_large_usable(p), n) << "first " << first;
                p[n - 1] = 1;
            }
            free(p);
        }
}

TEST_F(Large, MappingsShrinkInPlaceAndGiveTheRestBack)
{
    char *p = map(80 * HK_MIB);
    fill(p, 80 * HK_MIB);
    size_t bytes = hk_large_read_counts().mapping_bytes;
    ASSERT_TRUE(hk_large_resize(p, 10 * HK_MIB));
    EXPECT_EQ(bytes - hk_large_read_counts().mapping_bytes, 70 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u) << "nothing is kept of a large one";
    EXPECT_TRUE(holds(p, 10 * HK_MIB));
    EXPECT_GE(hk_large_usable(p), 10 * HK_MIB);
    EXPECT_LT(hk_large_usable(p), 20 * HK_MIB);
    free(p);
}

/* ---- Rule 12: moving a mapping ---- */

TEST_F(Large, MappingsMoveWithoutCopying)
{
    char *p = map(3 * HK_MIB);
    fill(p, 3 * HK_MIB);
    size_t n = 3 * HK_MIB, moves = 0;
    while (n < 100 * HK_MIB) {
        size_t more = n + n / 2;
        void *end = p + hk_large_usable(p);
        void *theirs = mmap(end, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        EXPECT_FALSE(hk_large_resize(p, more));
        char *q = static_cast<char *>(hk_large_remap(p, more));
        ASSERT_NE(q, nullptr);
        ASSERT_NE(q, p);
        if (theirs != MAP_FAILED)
            munmap(theirs, kPage);
        moves++;
        EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_GONE_LARGE)) << "where it was";
        EXPECT_EQ(hk_key_kind(hk_key_of(q)), static_cast<unsigned>(HK_KEY_LARGE));
        EXPECT_GE(hk_large_usable(q), more);
        EXPECT_TRUE(holds(q, n));
        fill(q, more);
        p = q;
        n = more;
    }
    EXPECT_EQ(hk_large_read_counts().remaps - before.remaps, moves);
    EXPECT_EQ(hk_large_read_counts().mappings, 1u);
    EXPECT_GE(hk_large_read_counts().mapping_bytes, n);
    free(p);
    EXPECT_EQ(hk_large_read_counts().mapping_bytes, 0u);
}

TEST_F(Large, AMappingThatCannotBeMovedIsAsBefore)
{
    char *p = map(5 * HK_MIB);
    fill(p, 5 * HK_MIB);
    size_t usable = hk_large_usable(p), mapped = hk_mapped_bytes();
    EXPECT_EQ(hk_large_remap(p, size_t{1} << 46), nullptr) << "no such room";
    EXPECT_FALSE(hk_large_resize(p, size_t{1} << 46));
    EXPECT_EQ(hk_large_alloc(size_t{1} << 46, HK_MIN_ALIGN, HK_LARGE_ANY, false), nullptr);
    EXPECT_EQ(hk_mapped_bytes(), mapped) << "what did not come about does not count";
    EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_LARGE));
    EXPECT_EQ(hk_large_usable(p), usable);
    EXPECT_TRUE(holds(p, 5 * HK_MIB));
    free(p);
    char *run = alloc(5 * HK_MIB);
    EXPECT_EQ(hk_large_remap(run, 6 * HK_MIB), nullptr) << "a run is part of a mapping that others use";
    free(run);
}

#if !defined(__aarch64__) /* which the tests see through qemu-user: that enforces no RLIMIT_AS */
/* Where it goes to may lie in a window that is not there yet. It cannot go back then: its place may be another's. */
TEST_F(Large, AMappingDoesNotMoveWithoutMemoryForAWindow)
{
    char *p = map(5 * HK_MIB);
    fill(p, 5 * HK_MIB);
    struct hk_window *spare = hk_window_obtain();
    ASSERT_NE(spare, nullptr);
    const size_t calls = hk_os_counts.mremap;
    rlimit full{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &full), 0);
    const rlimit none{1, full.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    void *moved = hk_large_remap(p, 3 * HK_MIB);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &full), 0);
    EXPECT_EQ(moved, nullptr);
    EXPECT_EQ(hk_os_counts.mremap, calls);
    EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_LARGE));
    EXPECT_TRUE(holds(p, 5 * HK_MIB));
    hk_window_enter(spare, p);
    EXPECT_EQ(hk_large_remap(p, 3 * HK_MIB), p);
    free(p);
}
#endif

/* ---- The cache of mappings ---- */

TEST_F(Large, FreedMappingsAreUsedAgain)
{
    char *p = map(80 * HK_MIB);
    free(p);
    EXPECT_GE(hk_large_read_counts().cached_bytes, 80 * HK_MIB);
    char *q = map(80 * HK_MIB - 100);
    EXPECT_EQ(q, p);
    EXPECT_EQ(hk_large_read_counts().cache_hits - before.cache_hits, 1u);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    free(q);
}

/* What a block has no use for stays cached, and serves others. */
TEST_F(Large, BlocksShareAFreedMapping)
{
    char *p = map(80 * HK_MIB);
    size_t mapped = hk_mapped_bytes();
    free(p);
    char *first = map(20 * HK_MIB);
    EXPECT_EQ(first, p);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 60 * HK_MIB);
    char *second = map(59 * HK_MIB + 1);
    EXPECT_EQ(second, p + 20 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, HK_MIB - kPage);
    EXPECT_EQ(hk_large_read_counts().mapping_bytes - before.mapping_bytes, 79 * HK_MIB + kPage);
    EXPECT_EQ(hk_mapped_bytes(), mapped);
    fill(first, 20 * HK_MIB);
    fill(second, 59 * HK_MIB);
    EXPECT_TRUE(holds(first, 20 * HK_MIB));
    free(first);
    EXPECT_TRUE(holds(second, 59 * HK_MIB));
    char *one = map(2 * HK_MIB);
    EXPECT_EQ(one, p) << "where it has the most room to grow";
    free(second);
    free(one);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 80 * HK_MIB);
}

/* A buffer that is built and dropped again and again faults its memory in once. */
TEST_F(Large, BlocksGrowIntoWhatIsCachedBehindThem)
{
    char *p = map(64 * HK_MIB);
    free(p);
    char *q = map(2 * HK_MIB);
    ASSERT_EQ(q, p);
    fill(q, 2 * HK_MIB);
    size_t calls = hk_os_counts.mremap, mapped = hk_mapped_bytes();
    for (size_t n : {3 * HK_MIB, 5 * HK_MIB + 1, 20 * HK_MIB, 64 * HK_MIB}) {
        ASSERT_TRUE(hk_large_resize(q, n)) << n;
        EXPECT_GE(hk_large_usable(q), n);
        EXPECT_EQ(hk_large_read_counts().mapping_bytes - before.mapping_bytes + hk_large_read_counts().cached_bytes,
                  64 * HK_MIB);
        EXPECT_TRUE(holds(q, 2 * HK_MIB));
    }
    EXPECT_EQ(hk_mapped_bytes(), mapped);
    EXPECT_EQ(hk_os_counts.mremap, calls);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    free(q);
}

/* Also into several pieces, and into none beyond one that is in use. */
TEST_F(Large, BlocksGrowAsFarAsWhatIsCachedGoes)
{
    char *p = map(32 * HK_MIB);
    free(p);
    std::vector<char *> piece(4);
    for (size_t i = 0; i < 4; i++) {
        piece[i] = map(8 * HK_MIB);
        ASSERT_EQ(piece[i], p + i * 8 * HK_MIB);
    }
    fill(piece[0], 8 * HK_MIB);
    fill(piece[3], 8 * HK_MIB);
    free(piece[2]);
    free(piece[1]);
    ASSERT_TRUE(hk_large_resize(piece[0], 24 * HK_MIB));
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    EXPECT_TRUE(holds(piece[0], 8 * HK_MIB));
    fill(piece[0], 24 * HK_MIB);
    EXPECT_TRUE(holds(piece[3], 8 * HK_MIB));
    if (!hk_large_resize(piece[0], 25 * HK_MIB))
        piece[0] = static_cast<char *>(hk_large_remap(piece[0], 25 * HK_MIB));
    ASSERT_NE(piece[0], nullptr);
    EXPECT_TRUE(holds(piece[0], 24 * HK_MIB));
    fill(piece[0], 25 * HK_MIB);
    EXPECT_TRUE(holds(piece[3], 8 * HK_MIB));
    free(piece[0]);
    free(piece[3]);
}

/* And beyond: what lies there is all taken, and the kernel asked for the rest alone. */
TEST_F(Large, BlocksGrowBeyondWhatIsCachedBehindThem)
{
    char *p = map(12 * HK_MIB);
    free(p);
    char *q = map(2 * HK_MIB);
    ASSERT_EQ(q, p);
    char *cached = map(2 * HK_MIB); /* so that two pieces lie behind */
    ASSERT_EQ(cached, p + 2 * HK_MIB);
    free(cached);
    fill(q, 2 * HK_MIB);
    const size_t calls = hk_os_counts.mremap, mapped = hk_mapped_bytes();
    ASSERT_TRUE(hk_large_resize(q, 20 * HK_MIB));
    EXPECT_EQ(hk_os_counts.mremap, calls + 1);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    EXPECT_EQ(hk_large_read_counts().mapping_bytes - before.mapping_bytes, 20 * HK_MIB);
    EXPECT_EQ(hk_mapped_bytes(), mapped + 8 * HK_MIB);
    EXPECT_EQ(hk_large_usable(q), 20 * HK_MIB);
    EXPECT_TRUE(holds(q, 2 * HK_MIB));
    fill(q, 20 * HK_MIB);
    ASSERT_TRUE(hk_large_resize(q, 40 * HK_MIB));
    EXPECT_TRUE(holds(q, 20 * HK_MIB));
    free(q);
}

TEST_F(Large, BlocksThatGrowSideBySideStayWhereTheyAre)
{
    for (size_t most : {HK_MIB, 60 * HK_MIB}) {
        const size_t start = most / 5;
        std::vector<char *> live(8);
        std::generate(live.begin(), live.end(), [start] { return map(start); });
        for (size_t n = start; n <= most; n += n / 2)
            for (char *p : live)
                EXPECT_TRUE(hk_large_resize(p, n)) << n;
        for (char *p : live)
            free(p);
        hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    }
}

/* What goes wrong leaves the cache to others. */
TEST_F(Large, BlocksThatCannotGrowTakeNothing)
{
    char *p = map(60 * HK_MIB);
    free(p);
    char *q = map(3 * HK_MIB);
    ASSERT_EQ(q, p);
    EXPECT_FALSE(hk_large_resize(q, size_t{1} << 45));
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 57 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().mapping_bytes - before.mapping_bytes, 3 * HK_MIB);
    free(q);
}

/* Pieces that lie one behind the other serve as one: sizes that differ a little find what the last one left. */
TEST_F(Large, BlocksTakeSeveralPieces)
{
    char *p = map(80 * HK_MIB);
    free(p);
    size_t mapped = hk_mapped_bytes();
    for (size_t mib : {70u, 71u, 79u, 66u, 80u, 75u}) {
        char *q = alloc(mib * HK_MIB);
        EXPECT_EQ(q, p) << mib;
        fill(q, mib * HK_MIB);
        free(q);
        EXPECT_EQ(hk_large_read_counts().cached_bytes, 80 * HK_MIB) << mib;
    }
    EXPECT_EQ(hk_mapped_bytes(), mapped);
}

/* What is left must not begin in the slot in which the block does. */
TEST_F(Large, NoPieceIsSmallerThanASlot)
{
    char *p = map(70 * HK_MIB);
    free(p);
    char *q = alloc(70 * HK_MIB - HK_SLOT_SIZE + kPage);
    EXPECT_EQ(q, p);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    free(q);
    q = alloc(70 * HK_MIB - HK_SLOT_SIZE);
    EXPECT_EQ(q, p);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, HK_SLOT_SIZE);
    free(q);
}

/* ---- Medium mappings: of what realloc has made grow beyond 128 KiB, up to 1 MiB ---- */

TEST_F(Large, MediumMappingsHaveACacheOfTheirOwn)
{
    char *large = map(80 * HK_MIB), *medium = map(HK_MIB / 2);
    free(large);
    free(medium);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 80 * HK_MIB + HK_MIB / 2);
    char *other = map(HK_MIB / 2 + 1);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 80 * HK_MIB + HK_MIB / 2) << "it does not cut up what is cached";
    EXPECT_TRUE(other < large || other >= large + 80 * HK_MIB) << "not in what large ones have left";
    char *p = map(300 * HK_KIB), *q = map(2 * HK_MIB);
    EXPECT_EQ(p, medium);
    EXPECT_EQ(q, large);
    const size_t calls = hk_os_counts.mremap;
    fill(p, 300 * HK_KIB);
    ASSERT_TRUE(hk_large_resize(p, HK_MIB / 2));
    EXPECT_EQ(hk_os_counts.mremap, calls) << "it takes what is cached behind it";
    EXPECT_TRUE(holds(p, 300 * HK_KIB));
    for (char *each : {other, p, q})
        free(each);
}

/* It has a short stretch: there it does not stay. */
TEST_F(Large, AMediumMappingMovesWhenItBecomesALargeOne)
{
    char *p = map(HK_MIB / 2), *other = map(HK_MIB / 2);
    fill(p, HK_MIB / 2);
    ASSERT_EQ(hk_large_read_counts().medium, 2u);
    EXPECT_FALSE(hk_large_resize(p, HK_MEDIUM_MAX + 1));
    char *q = static_cast<char *>(hk_large_remap(p, HK_MEDIUM_MAX + 1));
    ASSERT_NE(q, nullptr);
    EXPECT_TRUE(holds(q, HK_MIB / 2));
    EXPECT_EQ(hk_large_read_counts().medium, 1u);
    EXPECT_EQ(hk_large_read_counts().mapping_bytes, HK_MIB + HK_MIB / 2 + kPage);
    free(q);
    EXPECT_EQ(hk_large_read_counts().medium, 1u);
    char *medium = map(HK_MIB / 2), *large = map(HK_MEDIUM_MAX + 1);
    EXPECT_NE(medium, q);
    EXPECT_EQ(large, q) << "what it leaves is for large ones";
    for (char *each : {other, medium, large})
        free(each);
}

TEST_F(Large, AMediumMappingBecomesALargeOneByACopyIfOneIsCached)
{
    char *p = map(HK_MIB / 2), *large = map(2 * HK_MIB), *medium = map(HK_MIB);
    free(medium);
    free(large);
    const size_t calls = hk_os_counts.mremap;
    EXPECT_EQ(hk_large_remap(p, 2 * HK_MIB), nullptr);
    EXPECT_EQ(hk_os_counts.mremap, calls);
    EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_LARGE));
    p = static_cast<char *>(hk_large_remap(p, 2 * HK_MIB + kPage));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(hk_large_read_counts().medium, 0u);
    free(p);
}

/* To copy it costs less than to fault memory in. */
TEST_F(Large, AMediumMappingMovesOnlyIfNothingIsCachedThatWouldDo)
{
    char *p = map(300 * HK_KIB), *other = map(600 * HK_KIB);
    fill(p, 300 * HK_KIB);
    free(other);
    const size_t calls = hk_os_counts.mremap;
    EXPECT_EQ(hk_large_remap(p, 500 * HK_KIB), nullptr);
    EXPECT_EQ(hk_os_counts.mremap, calls);
    EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_LARGE));
    char *q = static_cast<char *>(hk_large_remap(p, 700 * HK_KIB));
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(hk_os_counts.mremap, calls + 1);
    EXPECT_TRUE(holds(q, 300 * HK_KIB));
    free(q);
}

TEST_F(Large, TheOldestOfBothCachesGoesFirst)
{
    char *large = map(80 * HK_MIB), *medium = map(HK_MIB / 2), *other = map(20 * HK_MIB);
    free(large);
    free(medium);
    free(other);
    EXPECT_EQ(hk_large_purge(0, UINT64_MAX, 80 * HK_MIB), 80 * HK_MIB);
    EXPECT_EQ(map(HK_MIB / 2), medium);
    free(medium); /* last */
    EXPECT_EQ(hk_large_purge(0, UINT64_MAX, 20 * HK_MIB), 20 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, HK_MIB / 2);
    EXPECT_EQ(map(HK_MIB / 2), medium);
    free(medium);
}

/* What a small block needs is not paid with all that a large one has left. */
TEST_F(Large, OfACachedMappingGoesWhatIsAskedFor)
{
    char *p = map(80 * HK_MIB);
    fill(p, 80 * HK_MIB);
    free(p);
    EXPECT_EQ(hk_large_purge(0, UINT64_MAX, 3 * HK_MIB + 1), 3 * HK_MIB + kPage);
    EXPECT_EQ(hk_large_purge(70 * HK_MIB, UINT64_MAX, SIZE_MAX), 7 * HK_MIB - kPage);
    EXPECT_EQ(map(70 * HK_MIB), p);
    EXPECT_EQ(in_memory(p, 70 * HK_MIB), 70 * HK_MIB);
    free(p);
    EXPECT_EQ(hk_large_purge(HK_SLOT_SIZE - 1, UINT64_MAX, SIZE_MAX), 70 * HK_MIB) << "what is left must hold a block";
}

constexpr size_t kMost = 512; /* medium mappings, live or cached */

TEST_F(Large, TheOldestMediumMappingMakesRoom)
{
    std::vector<char *> medium(kMost + 1);
    for (char *&p : medium)
        p = map(200 * HK_KIB);
    char *large = map(20 * HK_MIB);
    free(large);
    std::reverse(medium.begin(), medium.end()); /* the oldest is not the lowest */
    for (char *p : medium)
        free(p);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 20 * HK_MIB + kMost * 200 * HK_KIB);
    EXPECT_EQ(hk_large_purge(0, UINT64_MAX, 20 * HK_MIB), 20 * HK_MIB) << "which was freed before";
    std::vector<char *> again(kMost);
    for (char *&p : again) {
        p = map(200 * HK_KIB);
        EXPECT_NE(p, medium[0]);
    }
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    for (char *p : again)
        free(p);
}

/* What would not be cached is no mapping; and there are as many as a block has KiB. */
TEST_F(Large, MediumMappingsAreNoMoreThanTheirCacheKeeps)
{
    std::vector<char *> blocks(kMost);
    char *large = map(2 * HK_MIB);
    size_t live = 0;
    for (char *&p : blocks) {
        EXPECT_EQ(hk_large_takes_medium(200 * HK_KIB), live < 200) << live;
        EXPECT_EQ(hk_large_takes_medium(400 * HK_KIB), live < 400) << live;
        ASSERT_TRUE(hk_large_takes_medium(600 * HK_KIB)) << live;
        p = map(200 * HK_KIB);
        live++;
    }
    EXPECT_FALSE(hk_large_takes_medium(HK_MIB));
    EXPECT_EQ(hk_large_read_counts().medium, kMost);
    free(blocks.back());
    EXPECT_TRUE(hk_large_takes_medium(HK_MIB));
    blocks.back() = large;
    for (char *p : blocks)
        free(p);
    EXPECT_EQ(hk_large_read_counts().medium, 0u);
}

/* Pieces that lie one behind the other are as good as one. */
TEST_F(Large, AMediumMappingDoesNotMoveIfSeveralPiecesWouldDo)
{
    char *p = map(200 * HK_KIB), *whole = map(600 * HK_KIB);
    free(whole);
    ASSERT_EQ(map(300 * HK_KIB), whole);
    free(whole);
    EXPECT_EQ(hk_large_remap(p, 600 * HK_KIB), nullptr);
    free(p);
}

/* So one that shrinks and grows again has its memory. */
TEST_F(Large, WhatAMediumMappingLosesIsCached)
{
    char *p = map(HK_MIB);
    fill(p, HK_MIB);
    const size_t calls = hk_os_counts.mremap + hk_os_counts.munmap, mapped = hk_mapped_bytes();
    ASSERT_TRUE(hk_large_resize(p, 300 * HK_KIB));
    EXPECT_EQ(hk_large_usable(p), 300 * HK_KIB);
    EXPECT_EQ(hk_large_read_counts().mapping_bytes, 300 * HK_KIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 724 * HK_KIB);
    char *q = map(200 * HK_KIB);
    EXPECT_EQ(q, p + 300 * HK_KIB) << "it serves another";
    free(q);
    ASSERT_TRUE(hk_large_resize(p, HK_MIB));
    EXPECT_EQ(hk_large_read_counts().mapping_bytes, HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    EXPECT_EQ(hk_os_counts.mremap + hk_os_counts.munmap, calls);
    EXPECT_EQ(hk_mapped_bytes(), mapped);
    EXPECT_TRUE(holds(p, HK_MIB)) << "not even this was touched";
    ASSERT_TRUE(hk_large_resize(p, HK_MIB - HK_SLOT_SIZE + kPage));
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u) << "too little for a block";
    EXPECT_EQ(hk_mapped_bytes(), mapped - HK_SLOT_SIZE + kPage);
    free(p);
}

/* The rest of a mapping is as old as that was. */
TEST_F(Large, PiecesKeepTheirAge)
{
    free(map(80 * HK_MIB));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    uint64_t later = hk_os_now_ms();
    char *p = map(70 * HK_MIB);
    free(p);
    EXPECT_EQ(hk_large_purge(0, later, SIZE_MAX), 10 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 70 * HK_MIB);
}

TEST_F(Large, PiecesServeAlignedBlocksOnlyWhereTheyAreAligned)
{
    free(map(100 * HK_MIB));
    char *first = map(3 * HK_MIB);
    char *p = alloc(66 * HK_MIB, 2 * HK_MIB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (2 * HK_MIB), 0u);
    free(p);
    free(first);
}

/* Whole huge pages go to who takes over a mapping that has them, and it keeps the advice. */
TEST_F(Large, AMappingIsCutBetweenHugePages)
{
    if (hk_os_page_size() != kPage)
        GTEST_SKIP() << "huge pages are 2 MiB where pages are 4 KiB";
    char *p = map(3 * HK_MIB);
    p = hk_large_resize(p, 32 * HK_MIB) ? p : static_cast<char *>(hk_large_remap(p, 32 * HK_MIB));
    ASSERT_NE(p, nullptr);
    free(p);
    char *q = map(3 * HK_MIB);
    EXPECT_EQ(q, p);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 28 * HK_MIB);
    size_t advised = hk_os_counts.madvise;
    ASSERT_TRUE(hk_large_resize(q, 20 * HK_MIB));
    EXPECT_EQ(hk_os_counts.madvise, advised) << "it is";
    free(q);
}

/* A mapping that was made for a block that did not grow is advised when one grows in it. */
TEST_F(Large, WhatGrowsInTheCacheIsAdvised)
{
    char *p = alloc(80 * HK_MIB);
    free(p);
    char *q = map(2 * HK_MIB);
    ASSERT_EQ(q, p);
    size_t advised = hk_os_counts.madvise;
    ASSERT_TRUE(hk_large_resize(q, 3 * HK_MIB));
    EXPECT_EQ(hk_os_counts.madvise, advised) << "too small";
    ASSERT_TRUE(hk_large_resize(q, 20 * HK_MIB));
    EXPECT_EQ(hk_os_counts.madvise, advised + 1);
    ASSERT_TRUE(hk_large_resize(q, 80 * HK_MIB));
    EXPECT_EQ(hk_os_counts.madvise, advised + 2) << "as a whole again: what it has grown into is not";
    free(q);
}

/* But one that is not to grow goes where there is least room, and leaves the others theirs. */
TEST_F(Large, BlocksThatDoNotGrowTakeTheLeastRoom)
{
    char *small = map(65 * HK_MIB), *large = map(100 * HK_MIB);
    WithOption bytes("superslab_max_memory_mb", "1000");
    free(large);
    free(small);
    EXPECT_EQ(alloc(65 * HK_MIB), small);
    EXPECT_EQ(map(3 * HK_MIB), large);
    free(small);
    free(large);
}

TEST_F(Large, TheOldestCachedMappingMakesRoom)
{
    WithOption bytes("superslab_max_memory_mb", "2048");
    std::vector<char *> live;
    for (size_t i = 0; i <= HK_CACHED_LARGE; i++)
        live.push_back(map(2 * HK_MIB));
    for (char *p : live)
        free(p);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, HK_CACHED_LARGE * 2 * HK_MIB);
    std::vector<char *> again(live.size());
    std::generate(again.begin() + 1, again.end(), [] { return map(2 * HK_MIB); });
    again[0] = live[0];
    std::sort(live.begin() + 1, live.end());
    std::sort(again.begin() + 1, again.end());
    EXPECT_EQ(again, live) << "all but the first";
    for (size_t i = 1; i < live.size(); i++)
        free(live[i]);
}

/* What goes of one that is advised for huge pages goes between two of them. */
TEST_F(Large, OfAnAdvisedMappingGoWholeHugePages)
{
    if (hk_os_page_size() != kPage)
        GTEST_SKIP() << "huge pages are 2 MiB where pages are 4 KiB";
    char *p = map(8 * HK_MIB);
    ASSERT_TRUE(hk_large_resize(p, 7 * HK_MIB)); /* what is resized is advised */
    free(p);
    EXPECT_EQ(hk_large_purge(0, UINT64_MAX, 1), 2 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 6 * HK_MIB);
}

TEST_F(Large, WhatLiesIdleMakesRoomBelowTheLimit)
{
    char *p = map(20 * HK_MIB), *other = map(40 * HK_MIB);
    free(other);
    WithOption limit("limit_hard", std::to_string(hk_limit_in_use() + 20 * HK_MIB).c_str());
    char *q = static_cast<char *>(hk_large_remap(p, 70 * HK_MIB));
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    EXPECT_EQ(hk_large_remap(q, 90 * HK_MIB), nullptr);
    free(q);
}

#if !defined(__aarch64__) /* which the tests see through qemu-user: that knows no seccomp */
/* From now on munmap fails, as where the kernel would have to make two mappings of one, and has no more. */
void refuse_munmap()
{
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter = {sizeof code / sizeof code[0], code};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

TEST_F(Large, WhatTheKernelDoesNotTakeBackIsKeptWithoutMemory)
{
    auto purged = [] {
        char *p = map(8 * HK_MIB);
        fill(p, 8 * HK_MIB);
        free(p);
        const size_t mapped = hk_mapped_bytes();
        refuse_munmap();
        EXPECT_EQ(hk_large_purge(0, UINT64_MAX, 3 * HK_MIB), 0u);
        EXPECT_EQ(in_memory(p, 8 * HK_MIB), 5 * HK_MIB);
        EXPECT_EQ(hk_large_purge(0, UINT64_MAX, SIZE_MAX), 0u);
        EXPECT_EQ(in_memory(p, 8 * HK_MIB), 0u);
        EXPECT_EQ(hk_mapped_bytes(), mapped);
        EXPECT_EQ(hk_large_read_counts().cached_bytes, 8 * HK_MIB);
        EXPECT_EQ(map(8 * HK_MIB), p) << "it serves again";
        EXPECT_TRUE(is_zero(p, 8 * HK_MIB));
        exit(HasFailure());
    };
    EXPECT_EXIT(purged(), testing::ExitedWithCode(0), "");
}

/* Only one more is lost, since there is no room for it: the program is told what it has. */
TEST_F(Large, WhatTheKernelDoesNotTakeBackMakesRoomForNone)
{
    auto full = [] {
        WithOption bytes("superslab_max_memory_mb", "2048");
        std::vector<char *> live;
        for (size_t i = 0; i <= HK_CACHED_LARGE; i++) {
            live.push_back(map(2 * HK_MIB));
            fill(live.back(), 2 * HK_MIB);
        }
        refuse_munmap();
        for (char *p : live)
            free(p);
        EXPECT_EQ(hk_large_read_counts().cached_bytes, HK_CACHED_LARGE * 2 * HK_MIB);
        EXPECT_EQ(hk_mapped_bytes(), HK_CACHED_LARGE * 2 * HK_MIB);
        EXPECT_EQ(in_memory(live.back(), 2 * HK_MIB), 0u);
        exit(HasFailure());
    };
    EXPECT_EXIT(full(), testing::ExitedWithCode(0), "");
}
#endif

TEST_F(Large, TheCacheOfMappingsIsBounded)
{
    std::vector<char *> live;
    for (int i = 0; i < 20; i++)
        live.push_back(map(30 * HK_MIB));
    for (char *p : live) {
        free(p);
        EXPECT_LE(hk_large_read_counts().cached_bytes, size_t{128} * HK_MIB);
    }
    {
        WithOption bytes("superslab_max_memory_mb", "160");
        free(map(30 * HK_MIB));
        EXPECT_LE(hk_large_read_counts().cached_bytes, 40 * HK_MIB);
        free(map(50 * HK_MIB));
        EXPECT_LE(hk_large_read_counts().cached_bytes, 40 * HK_MIB) << "too large to be kept";
    }
    live.clear();
    for (int i = 0; i < 30; i++)
        live.push_back(map(2 * HK_MIB));
    for (char *p : live)
        free(p);
    EXPECT_LE(hk_large_read_counts().cached_bytes, size_t{128} * HK_MIB);
    EXPECT_GT(hk_large_purge(0, UINT64_MAX, SIZE_MAX), 0u);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
}

TEST_F(Large, MemoryThatGrowsIsPaidForWithWhatLiesIdle)
{
    char *mapping = map(60 * HK_MIB), *run = alloc(60 * HK_MIB);
    free(mapping);
    free(run);
    EXPECT_GT(hk_large_read_counts().cached_bytes, 0u);
    EXPECT_GT(hk_superslab_counts.cached, 0u);
    char *p = map(300 * HK_MIB);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 0u);
    EXPECT_EQ(hk_superslab_counts.cached, 0u);
    free(p);
}

TEST_F(Large, GrowthIsPaidForWithWhatLiesIdle)
{
    char *p = map(2 * HK_MIB), *idle = map(30 * HK_MIB);
    free(idle);
    ASSERT_TRUE(hk_large_resize(p, 8 * HK_MIB));
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 24 * HK_MIB);
    p = static_cast<char *>(hk_large_remap(p, 18 * HK_MIB));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 14 * HK_MIB);
    char *medium = map(300 * HK_KIB);
    ASSERT_TRUE(hk_large_resize(medium, 600 * HK_KIB));
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 14 * HK_MIB) << "it is not worth a large one";
    free(medium);
    free(p);
}

TEST_F(Large, ARunThatGrowsInPlacePaysToo)
{
    trim_all();
    char *p = alloc(2 * HK_MIB), *idle = map(30 * HK_MIB);
    free(idle);
    size_t cached = hk_large_read_counts().cached_bytes;
    ASSERT_TRUE(hk_large_resize(p, 10 * HK_MIB)) << "there is room behind it";
    EXPECT_EQ(hk_large_read_counts().cached_bytes, cached - 8 * HK_MIB);
    ASSERT_TRUE(hk_large_resize(p, 2 * HK_MIB));
    memset(p, 0x5a, 2 * HK_MIB);
    ASSERT_TRUE(hk_large_resize(p, 10 * HK_MIB));
    EXPECT_EQ(hk_large_read_counts().cached_bytes, cached - 8 * HK_MIB) << "it has memory, for all that is known";
    free(p);
}

/* ---- Faults ---- */

TEST_F(Large, ASecondFreeIsRefused)
{
    for (size_t n : {2 * HK_MIB, 50 * HK_MIB, 100 * HK_MIB, 200 * HK_MIB}) {
        char *p = alloc(n);
        size_t usable = hk_large_usable(p);
        free(p);
        hk_slab *slab;
        hk_fault fault{};
        ASSERT_NE(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_LARGE));
        EXPECT_FALSE(hk_slab_of_or_fault(p, &slab, &fault));
        EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
        EXPECT_EQ(fault.block_size, usable);
        /* By a thread that looked at the key before. */
        fault = {};
        EXPECT_FALSE(hk_large_free(p, &fault));
        EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
        EXPECT_EQ(fault.block_size, usable);
        EXPECT_EQ(hk_large_usable(p), 0u);
        EXPECT_FALSE(hk_large_resize(p, n + 1));
        EXPECT_EQ(hk_large_remap(p, n + 1), nullptr);
        EXPECT_EQ(hk_large_fault(p).kind, HK_FAULT_DOUBLE_FREE);
    }
}

TEST_F(Large, APointerIntoABlockIsRefused)
{
    for (size_t n : {2 * HK_MIB, 100 * HK_MIB}) {
        char *p = alloc(n);
        hk_fault fault{};
        EXPECT_FALSE(hk_large_free(p + 4096, &fault));
        EXPECT_EQ(fault.kind, HK_FAULT_INSIDE);
        EXPECT_EQ(fault.block, p);
        EXPECT_EQ(fault.block_size, hk_large_usable(p));
        EXPECT_FALSE(hk_large_resize(p + 4096, n / 2));
        EXPECT_EQ(fault.block_size, hk_large_usable(p));
        free(p);
    }
}

TEST_F(Large, APointerBehindTheFirstSlotOfARunIsNobodys)
{
    /* Slabs lie there first: their keys must not make an interior pointer of the run a double free of theirs. */
    {
        TestHeap heap;
        std::vector<void *> blocks = heap.take(class_of_blocks(1048640), 8);
        heap.give(blocks);
    }
    trim_all();
    char *p = alloc(30 * HK_MIB);
    ASSERT_TRUE(hk_large_resize(p, 10 * HK_MIB));
    ASSERT_TRUE(hk_large_resize(p, 20 * HK_MIB));
    for (size_t offset = HK_SLOT_SIZE; offset < hk_large_usable(p); offset += HK_SLOT_SIZE)
        ASSERT_EQ(hk_key_of(p + offset), 0u) << offset;
    free(p);
}

} // namespace
