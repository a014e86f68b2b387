/* Superslabs: runs that split and coalesce, memory before none, the LRU cache and its bounds, giving back. */
#include "test_heap.h"

extern "C" {
#include "base/os.h"
}

#include <sys/mman.h>

namespace
{

/* All superslabs are free and without memory at the start of each test, and at its end. */
class Superslab : public HeapTest
{
  protected:
    static hk_superslab *acquire(size_t n, hk_superslab_state state = HK_SUPERSLAB_LARGE)
    {
        HeldLock held(&hk_pool_lock);
        return hk_superslabs_acquire(n, state);
    }
    static void release(hk_superslab *first, size_t n, bool resident)
    {
        HeldLock held(&hk_pool_lock);
        hk_superslabs_release(first, n, resident);
    }
    static bool extend(hk_superslab *first, size_t have, size_t n)
    {
        HeldLock held(&hk_pool_lock);
        return hk_superslabs_extend(first, have, n);
    }
    static void dirty(hk_superslab *superslab) { memset(superslab->base, 0xa5, 8192); }
    static bool is_zero(hk_superslab *superslab)
    {
        return std::all_of(superslab->base, superslab->base + 8192, [](char c) { return c == 0; });
    }
    /* A run of n in use, of which the test then releases parts: so nothing outside of it is their neighbour. */
    static hk_superslab *fenced(size_t n)
    {
        hk_superslab *first = acquire(n + 2);
        return hk_superslab_next(first, 1);
    }
    static void release_fence(hk_superslab *first, size_t n)
    {
        release(hk_superslab_next(first, n), 1, false);
        hk_superslab *before = hk_superslab_of(first->base - HK_SUPERSLAB_SIZE);
        release(before, 1, false);
    }
};

TEST_F(Superslab, RunsAreAdjacentAndReadableAndZero)
{
    for (size_t n : {1, 2, 3, 17, 32, 33, 70}) {
        size_t large = hk_superslab_counts.large;
        hk_superslab *first = acquire(n);
        ASSERT_NE(first, nullptr);
        for (size_t i = 0; i < n; i++) {
            hk_superslab *superslab = hk_superslab_next(first, i);
            ASSERT_NE(superslab, nullptr);
            EXPECT_EQ(superslab->base, first->base + i * HK_SUPERSLAB_SIZE);
            EXPECT_EQ(superslab->state, HK_SUPERSLAB_LARGE);
            EXPECT_EQ(hk_superslab_of(superslab->base + HK_SUPERSLAB_SIZE - 1), superslab);
            EXPECT_TRUE(superslab->zero);
            EXPECT_TRUE(is_zero(superslab));
            dirty(superslab);
        }
        EXPECT_EQ(reinterpret_cast<uintptr_t>(first->base) % HK_SUPERSLAB_SIZE, 0u);
        EXPECT_EQ(hk_superslab_counts.large, large + n);
        check_superslabs();
        release(first, n, true);
        check_superslabs();
        trim_all();
    }
}

TEST_F(Superslab, NeighboursCoalesceInWhateverOrderTheyAreReleased)
{
    const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto &order : orders) {
        hk_superslab *first = fenced(6);
        for (unsigned part : order) {
            release(hk_superslab_next(first, 2 * part), 2, false);
            check_superslabs();
        }
        EXPECT_EQ(first->run, 6u);
        release_fence(first, 6);
    }
}

TEST_F(Superslab, ARunIsSplitAndTheRestStaysARun)
{
    hk_superslab *first = fenced(5);
    release(first, 5, false);
    hk_superslab *part = acquire(5);
    EXPECT_EQ(part, first) << "the run that fits exactly";
    release(part, 5, false);
    part = acquire(2);
    EXPECT_EQ(part, first) << "the shortest run that is long enough";
    EXPECT_EQ(hk_superslab_next(first, 2)->run, 3u);
    check_superslabs();
    release(part, 2, false);
    EXPECT_EQ(first->run, 5u);
    release_fence(first, 5);
}

TEST_F(Superslab, MemoryIsUsedBeforeThatWithoutAny)
{
    hk_superslab *without = fenced(2), *with = fenced(4);
    release(without, 2, false);
    dirty(with);
    release(with, 4, true);
    hk_superslab *taken = acquire(2);
    EXPECT_EQ(taken, with) << "though the other run would fit better";
    EXPECT_FALSE(taken->zero);
    release(taken, 2, true);
    release_fence(without, 2);
    release_fence(with, 4);
}

TEST_F(Superslab, ARunIsTakenFromTheEndThatHasMoreMemory)
{
    for (bool high : {false, true}) {
        hk_superslab *first = fenced(6);
        release(hk_superslab_next(first, high ? 0 : 3), 3, false);
        release(hk_superslab_next(first, high ? 3 : 0), 3, true);
        check_superslabs();
        EXPECT_EQ(acquire(2), hk_superslab_next(first, high ? 4 : 0));
        check_superslabs();
        release(hk_superslab_next(first, high ? 4 : 0), 2, true);
        release_fence(first, 6);
        trim_all();
    }
}

TEST_F(Superslab, MemoryInTheMiddleOfARunIsFound)
{
    for (size_t n : {1, 2}) {
        hk_superslab *first = fenced(7);
        release(first, 3, false);
        release(hk_superslab_next(first, 5), 2, false);
        release(hk_superslab_next(first, 3), 2, true);
        check_superslabs();
        EXPECT_EQ(acquire(n), hk_superslab_next(first, 3));
        check_superslabs();
        release(hk_superslab_next(first, 3), n, true);
        release_fence(first, 7);
        trim_all();
    }
}

TEST_F(Superslab, ARunGrowsIntoFreeNeighboursOnly)
{
    hk_superslab *first = fenced(6);
    release(hk_superslab_next(first, 2), 3, true);
    EXPECT_FALSE(extend(first, 2, 4)) << "the fourth is in use";
    check_superslabs();
    EXPECT_TRUE(extend(first, 2, 1));
    EXPECT_EQ(hk_superslab_next(first, 2)->state, HK_SUPERSLAB_LARGE);
    EXPECT_EQ(hk_superslab_next(first, 3)->run, 2u);
    check_superslabs();
    EXPECT_TRUE(extend(first, 3, 2));
    EXPECT_FALSE(extend(first, 5, 1));
    check_superslabs();
    release(first, 6, false);
    release_fence(first, 6);
}

/* ---- The LRU cache ---- */

TEST_F(Superslab, TheOldestIsPurgedFirst)
{
    hk_superslab *first = fenced(5);
    for (size_t i : {1, 3, 0}) {
        dirty(hk_superslab_next(first, i));
        release(hk_superslab_next(first, i), 1, true);
    }
    EXPECT_EQ(hk_superslab_counts.cached, 3u);
    size_t purged = hk_superslab_counts.purged;
    EXPECT_EQ(hk_superslabs_purge(2, UINT64_MAX, SIZE_MAX), HK_SUPERSLAB_SIZE);
    EXPECT_FALSE(hk_superslab_next(first, 1)->resident);
    EXPECT_TRUE(hk_superslab_next(first, 1)->zero);
    EXPECT_TRUE(hk_superslab_next(first, 3)->resident);
    check_superslabs();
    hk_superslabs_purge(0, UINT64_MAX, 1);
    EXPECT_FALSE(hk_superslab_next(first, 3)->resident);
    EXPECT_TRUE(first->resident);
    EXPECT_EQ(hk_superslab_counts.purged, purged + 2);
    check_superslabs();
    hk_superslabs_purge(0, UINT64_MAX, 100);
    EXPECT_EQ(hk_superslab_counts.cached, 0u);
    check_superslabs();
    release(hk_superslab_next(first, 2), 1, false);
    release(hk_superslab_next(first, 4), 1, false);
    hk_superslab *again = acquire(5);
    EXPECT_EQ(again, first);
    for (size_t i = 0; i < 5; i++)
        EXPECT_TRUE(is_zero(hk_superslab_next(first, i))) << i;
    release(again, 5, false);
    release_fence(first, 5);
}

/* The cache is bounded by each of its options. */
void trim_to_bounds()
{
    EXPECT_TRUE(hk_superslabs_are_too_many());
    hk_superslabs_purge(hk_superslabs_max_cached(), UINT64_MAX, SIZE_MAX);
    EXPECT_FALSE(hk_superslabs_are_too_many());
}

TEST_F(Superslab, TheCacheIsBoundedByCount)
{
    WithOption count("superslab_max_cached", "3");
    hk_superslab *first = acquire(10);
    release(first, 10, true);
    trim_to_bounds();
    EXPECT_EQ(hk_superslab_counts.cached, 3u);
    check_superslabs();
}

TEST_F(Superslab, TheCacheIsBoundedByBytes)
{
    WithOption bytes("superslab_max_memory_mb", "9"); /* four superslabs and a half */
    hk_superslab *first = acquire(10);
    release(first, 10, true);
    trim_to_bounds();
    EXPECT_EQ(hk_superslab_counts.cached, 4u);
    check_superslabs();
}

/* More than 64 are kept when what was let go was needed again soon, and no longer when what is kept grows old. */
TEST_F(Superslab, TheCacheLearnsHowManyAreWanted)
{
    hk_superslab *first = acquire(8);
    size_t first_bound = hk_superslabs_max_cached();
    ASSERT_GE(first_bound, 64u);
    release(first, 8, true);
    hk_superslabs_purge(0, UINT64_MAX, SIZE_MAX);
    EXPECT_EQ(hk_superslabs_max_cached(), first_bound) << "nobody wanted them";
    first = acquire(6);
    EXPECT_EQ(hk_superslabs_max_cached(), first_bound + 6);
    {
        WithOption count("superslab_max_cached", "3");
        EXPECT_EQ(hk_superslabs_max_cached(), 3u);
    }
    {
        WithOption bytes("superslab_max_memory_mb", "9");
        EXPECT_EQ(hk_superslabs_max_cached(), 4u);
    }
    release(first, 6, true);
    EXPECT_EQ(hk_superslabs_purge(2, hk_os_now_ms() + 1, SIZE_MAX), 4 * HK_SUPERSLAB_SIZE);
    EXPECT_EQ(hk_superslabs_max_cached(), first_bound + 2);
    hk_superslabs_purge(0, hk_os_now_ms() + 1, SIZE_MAX);
    EXPECT_EQ(hk_superslabs_max_cached(), first_bound);
}

TEST_F(Superslab, OnlyThoseFreedBeforeATimeArePurged)
{
    hk_superslab *first = acquire(4);
    uint64_t before = hk_os_now_ms();
    release(first, 4, true);
    EXPECT_EQ(hk_superslabs_purge(0, before, SIZE_MAX), 0u) << "all are younger";
    {
        HeldLock held(&hk_pool_lock);
        for (size_t i : {0, 1}) /* the order of the cache is that of age */
            hk_superslab_next(first, i)->freed_at_ms -= 11000;
    }
    EXPECT_EQ(hk_superslabs_purge(0, before, SIZE_MAX), 2 * HK_SUPERSLAB_SIZE);
    EXPECT_EQ(hk_superslab_counts.cached, 2u);
    check_superslabs();
}

/* ---- Giving address space back ---- */

TEST_F(Superslab, FreeRunsAreUnmappedWhenThatIsNeeded)
{
    hk_superslab *kept = acquire(2);
    dirty(kept);
    hk_superslab *first = acquire(3);
    char *base = first->base;
    release(first, 3, true);
    size_t unmapped = hk_superslab_counts.unmapped;
    EXPECT_TRUE(hk_superslabs_unmap_free(true));
    EXPECT_GE(hk_superslab_counts.unmapped, unmapped + 3);
    EXPECT_EQ(hk_superslab_counts.free, 0u);
    EXPECT_EQ(hk_superslab_counts.cached, 0u);
    EXPECT_EQ(hk_superslab_of(base), nullptr);
    unsigned char resident;
    EXPECT_EQ(mincore(base, 4096, &resident), -1) << "it is not mapped any more";
    EXPECT_EQ(kept->base[0], static_cast<char>(0xa5));
    check_superslabs();
    EXPECT_FALSE(hk_superslabs_unmap_free(true)) << "there is nothing left";
    hk_superslab *again = acquire(3);
    ASSERT_NE(again, nullptr);
    EXPECT_TRUE(is_zero(again));
    release(again, 3, true);
    release(kept, 2, true);
}

TEST_F(Superslab, UnmappingLeavesTheProgramItsMappings)
{
    constexpr size_t kPieces = 5000, kRangesMost = 4096;
    std::vector<hk_superslab *> all;
    for (size_t i = 0; i < 2 * kPieces; i++)
        all.push_back(acquire(1));
    ASSERT_NE(all.back(), nullptr);
    std::sort(all.begin(), all.end(), [](auto *a, auto *b) { return a->base < b->base; });
    for (size_t i = 0; i < 2 * kPieces; i += 2)
        release(all[i], 1, false);
    EXPECT_TRUE(hk_superslabs_unmap_free(false));
    check_superslabs();
    size_t ranges = 0;
    const char *end = nullptr;
    hk_superslab_cursor cursor{};
    {
        HeldLock held(&hk_pool_lock);
        while (hk_superslab *superslab = hk_superslabs_walk(&cursor)) {
            ranges += superslab->base != end;
            end = superslab->base + HK_SUPERSLAB_SIZE;
        }
    }
    /* Where two windows meet the walk goes on elsewhere, so that one range looks like two. */
    EXPECT_GE(ranges, kRangesMost);
    EXPECT_LE(ranges, kRangesMost + 10);
    for (size_t i = 1; i < 2 * kPieces; i += 2)
        release(all[i], 1, false);
    EXPECT_TRUE(hk_superslabs_unmap_free(false));
    EXPECT_EQ(hk_superslab_counts.reserved, 0u) << "larger pieces went";
}

/* ---- Fork ---- */

TEST_F(Superslab, WhatAnotherThreadWasPurgingIsFreeInAForksChild)
{
    hk_superslab *first = fenced(3);
    release(first, 1, false);
    hk_superslab *middle = hk_superslab_next(first, 1);
    {
        /* As in the middle of a purge: in no run, not in the cache, counted as free. */
        HeldLock held(&hk_pool_lock);
        hk_superslab_counts.large--;
        hk_superslab_counts.free++;
        middle->state = HK_SUPERSLAB_PURGING;
        hk_superslabs_after_fork();
    }
    EXPECT_EQ(middle->state, HK_SUPERSLAB_FREE);
    EXPECT_FALSE(middle->zero) << "nobody knows how far the purge came";
    EXPECT_EQ(first->run, 2u);
    check_superslabs();
    release(hk_superslab_next(first, 2), 1, false);
    hk_superslab *again = acquire(3);
    dirty(hk_superslab_next(again, 1));
    release(again, 3, false);
    release_fence(first, 3);
}

/* ---- At random ---- */

TEST_F(Superslab, StayInOrderWhateverHappens)
{
    uint64_t random = 7;
    auto below = [&random](uint64_t n) {
        random = random * 6364136223846793005 + 1442695040888963407;
        return (random >> 33) % n;
    };
    std::vector<std::pair<hk_superslab *, size_t>> runs;
    size_t used = 0;
    for (int step = 0; step < 4000 / HK_TEST_SLOWDOWN; step++) {
        if (below(2) == 0 && used < 300) {
            size_t n = below(4) != 0 ? 1 + below(3) : 1 + below(45);
            hk_superslab *first = acquire(n, below(2) == 0 ? HK_SUPERSLAB_LARGE : HK_SUPERSLAB_CARVED);
            ASSERT_NE(first, nullptr);
            for (size_t i = 0; i < n; i++) {
                hk_superslab *superslab = hk_superslab_next(first, i);
                if (superslab->zero) {
                    ASSERT_EQ(superslab->base[100], 0) << "said to be zero";
                }
                if (below(4) == 0)
                    superslab->base[100] = 1;
            }
            runs.emplace_back(first, n);
            used += n;
        } else if (!runs.empty()) {
            size_t at = below(runs.size());
            auto [first, n] = runs[at];
            size_t part = below(3) == 0 ? 1 + below(n) : n; /* the tail, or all */
            for (size_t i = n - part; i < n; i++)
                if (hk_superslab_next(first, i)->state == HK_SUPERSLAB_CARVED)
                    hk_superslab_next(first, i)->active = 0;
            release(hk_superslab_next(first, n - part), part, true);
            used -= part;
            if (part < n) {
                runs[at].second = n - part;
            } else {
                runs[at] = runs.back();
                runs.pop_back();
            }
        }
        if (step % 16 == 0)
            hk_superslabs_purge(0, UINT64_MAX, below(4));
        if (step % 100 == 0)
            hk_superslabs_purge(below(20), UINT64_MAX, SIZE_MAX);
        if (step % 500 == 0)
            hk_superslabs_unmap_free(true);
        if (step % 10 == 0)
            check_superslabs();
    }
    for (auto [first, n] : runs)
        release(first, n, true);
}

} // namespace
