/*
 * Purging: what goes at which level, what stays for how long, and what growth pays. The clock is moved by hand, but for
 * superslabs and mappings, whose age the system's clock tells. At the end heaps and purges at random, from one thread
 * and from several.
 */
#include "by_hand.h"
#include "test_heap.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <chrono>
#include <thread>

#include "c_begin.h"
#include "heap/clock.h"
#include "heap/limit.h"
#include "heap/payment.h"
#include "heap/purge_counts.h"
#include "heap/regret.h"
#include "heap/purge.h"
#include "heap/surplus.h"
#include "c_end.h"

namespace
{

constexpr unsigned kBlocksPerSlot = 16; /* of 4,096 bytes: each a page, or part of one */
constexpr size_t kMib = 1 << 20;
constexpr size_t kWarm = 8 * kMib; /* what stays of idle memory while the process works, at least */

using Blocks = std::vector<void *>;
using Slabs = std::vector<Blocks>; /* the blocks of each */

class Purge : public HeapTest
{
  protected:
    TestHeap heap;

    void SetUp() override
    {
        HeapTest::SetUp();
        hk_clock_look();
        system_clock = hk_clock_now();
        set_clock(kAheadOfTheSystem);
        /* As if there had been no earlier tests: superslabs never had memory, heaps have not grown. */
        HeldLock held(&hk_pool_lock);
        for (hk_superslab *superslab : all_superslabs())
            superslab->freed_at_ms = 0;
        heap->grown_bytes = 0;
    }
    /* No stamp outlives a test, since nothing idle does: the clock can go back. */
    void TearDown() override
    {
        HeapTest::TearDown();
        follow_the_system();
    }
    void follow_the_system() { set_clock(system_clock); }
    static constexpr uint32_t kLongerThanAnyRest = 100 * HK_CLOCK_SECOND;
    static void make_payments_rest()
    {
        hk_payment_note_paid(size_t{1} << 40);
        hk_regret(size_t{1} << 40);
        EXPECT_FALSE(hk_purge_demand_payment());
    }
    static void set_clock(uint32_t now) { atomic_store(&hk_clock, now); }
    static void advance(uint32_t quarters) { set_clock(hk_clock_now() + quarters); }
    static void advance_a_second() { advance(HK_CLOCK_SECOND + 1); }

    static size_t purge(hk_purge_level level, size_t pad = 0, size_t most = SIZE_MAX)
    {
        hk_fault fault{};
        size_t bytes = hk_purge(level, pad, most, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        return bytes;
    }
    size_t pay(size_t grown)
    {
        size_t before = hk_purge_counts.growth_paid_bytes;
        HeldLock held(&heap->lock);
        hk_purge_pay(grown, heap.get());
        return hk_purge_counts.growth_paid_bytes - before;
    }
    static void tend()
    {
        hk_fault fault{};
        hk_heaps_tend(true, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    }
    static size_t empty_bytes()
    {
        HeldLock held(&hk_pool_lock);
        return hk_pool_counts.slots_empty * HK_SLOT_SIZE;
    }
    static size_t active_bytes()
    {
        HeldLock held(&hk_pool_lock);
        return hk_pool_counts.slots_active * HK_SLOT_SIZE;
    }
    static size_t cached_bytes()
    {
        HeldLock held(&hk_pool_lock);
        return hk_superslab_counts.cached * HK_SUPERSLAB_SIZE;
    }
    static void give(TestHeap &to, const Slabs &slabs)
    {
        for (const Blocks &blocks : slabs)
            EXPECT_EQ(to.give(blocks).kind, HK_FAULT_NONE);
    }
    void give(const Slabs &slabs) { give(heap, slabs); }
    static Slabs take_slabs(TestHeap &from, size_t n)
    {
        Slabs slabs;
        for (size_t i = 0; i < n; i++)
            slabs.push_back(from.take_slab(k4096));
        return slabs;
    }
    /* So many superslabs of slots, EMPTY but for one in each, whose blocks are all live and returned. */
    Slabs make_empty(size_t superslabs)
    {
        Slabs pins;
        for (Blocks &blocks : take_slabs(heap, superslabs * HK_SLOTS_PER_SUPERSLAB)) {
            const hk_superslab *superslab = hk_slab_of(blocks[0])->superslab;
            if (pins.empty() || hk_slab_of(pins.back()[0])->superslab != superslab)
                pins.push_back(blocks);
            else
                heap.give(blocks);
        }
        tend(); /* the slab that the heap kept goes, too */
        EXPECT_EQ(empty_bytes(), superslabs * (HK_SUPERSLAB_SIZE - HK_SLOT_SIZE));
        return pins;
    }
    /* So many slabs of which one block in each is live, and returned; the rest is idle. */
    Slabs make_idle(TestHeap &owner, size_t n)
    {
        Slabs live;
        for (Blocks &blocks : take_slabs(owner, n)) {
            live.push_back({blocks[0]});
            owner.give({blocks.begin() + 1, blocks.end()});
        }
        return live;
    }
    static size_t idle_of_slab() /* in bytes that can go: one page stays */
    {
        return HK_SLOT_SIZE - std::max(hk_os_page_size(), size_t{4096});
    }
    /* A block of superslabs, or a mapping; freed it is in the cache. What is allocated between the two does not push it
     * out: a heap that grows pays with what is cached. */
    class LargeBlock
    {
      public:
        explicit LargeBlock(size_t bytes, hk_large_kind kind = HK_LARGE_ANY)
            : p_(hk_large_alloc(bytes, HK_MIN_ALIGN, kind, false))
        {
            EXPECT_NE(p_, nullptr);
        }
        void free()
        {
            hk_fault fault{};
            EXPECT_TRUE(hk_large_free(p_, &fault));
        }

      private:
        void *p_;
    };
    static void make_cached(size_t superslabs)
    {
        LargeBlock(superslabs * HK_SUPERSLAB_SIZE - 4096).free();
        EXPECT_EQ(cached_bytes(), superslabs * HK_SUPERSLAB_SIZE);
    }
    static void age_cached(uint64_t ms)
    {
        HeldLock held(&hk_pool_lock);
        for (hk_superslab *superslab : all_superslabs())
            if (superslab->state == HK_SUPERSLAB_FREE && superslab->resident)
                superslab->freed_at_ms -= ms;
    }

  private:
    uint32_t system_clock = 0;
};

/* ---- Age ---- */

TEST_F(Purge, WhatWasUsedWithinASecondStays)
{
    Slabs pins = make_empty(1);
    Slabs live = make_idle(heap, 4); /* in the slots that were EMPTY */
    size_t empty = empty_bytes();
    EXPECT_EQ(empty, 27 * HK_SLOT_SIZE);
    for (unsigned quarters = 0; quarters <= HK_CLOCK_SECOND; quarters++) {
        EXPECT_EQ(purge(HK_PURGE_QUIET), 0u) << quarters << " quarters";
        advance(1);
    }
    EXPECT_EQ(empty_bytes(), empty);
    EXPECT_EQ(purge(HK_PURGE_QUIET), empty + 4 * idle_of_slab());
    EXPECT_EQ(empty_bytes(), 0u);
    EXPECT_EQ(hk_heaps_idle_bytes(), 0u);
    check_everything();
    advance_a_second();
    EXPECT_EQ(purge(HK_PURGE_QUIET), 0u);
    EXPECT_EQ(purge(HK_PURGE_ALL), 0u);
    give(pins);
    give(live);
}

TEST_F(Purge, ASlabThatIsUsedAgainIsYoungAgain)
{
    Slabs live = make_idle(heap, 3);
    advance(HK_CLOCK_SECOND);
    heap.give({heap.take_one(k4096)}); /* the fullest, and of equals any */
    EXPECT_EQ(free_remotely(live[1][0]).kind, HK_FAULT_NONE);
    EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_NONE); /* the slab is empty, and released */
    advance(1);
    unsigned old = 0;
    for (size_t i : {0, 2})
        old += hk_slab_of(live[i][0])->used_at + HK_CLOCK_SECOND < hk_clock_now();
    EXPECT_EQ(old, 1u);
    EXPECT_EQ(purge(HK_PURGE_QUIET), idle_of_slab());
    advance(HK_CLOCK_SECOND);
    EXPECT_EQ(purge(HK_PURGE_QUIET), idle_of_slab() + HK_SLOT_SIZE);
    give({live[0], live[2]});
}

TEST_F(Purge, AllDoesNotWait)
{
    Slabs pins = make_empty(2);
    Slabs live = make_idle(heap, 4);
    size_t empty = empty_bytes();
    EXPECT_EQ(purge(HK_PURGE_ALL), empty + 4 * idle_of_slab());
    check_everything();
    make_cached(3);
    EXPECT_EQ(purge(HK_PURGE_QUIET), 0u);
    EXPECT_EQ(purge(HK_PURGE_ALL), 3 * HK_SUPERSLAB_SIZE);
    LargeBlock(12 * kMib, HK_LARGE_MAPPING).free();
    EXPECT_EQ(hk_large_read_counts().cached_bytes, 12 * kMib);
    EXPECT_EQ(purge(HK_PURGE_QUIET), 0u);
    EXPECT_EQ(purge(HK_PURGE_ALL), 12 * kMib);
    EXPECT_EQ(purge(HK_PURGE_ALL), 0u);
    give(pins);
    give(live);
}

TEST_F(Purge, AStillProcessKeepsWhatWasPrewarmedAlone)
{
    Slabs pins = make_empty(2);
    Slabs live = make_idle(heap, 4);
    size_t empty = empty_bytes();
    EXPECT_EQ(purge(HK_PURGE_QUIET), 0u);
    EXPECT_EQ(purge(HK_PURGE_STILL), empty + 4 * idle_of_slab());
    check_everything();
    make_cached(3);
    hk_prewarmed_end(0, 2 * HK_SUPERSLAB_SIZE);
    EXPECT_EQ(purge(HK_PURGE_STILL), HK_SUPERSLAB_SIZE);
    EXPECT_EQ(purge(HK_PURGE_STILL), 0u);
    hk_prewarmed_forget();
    EXPECT_EQ(purge(HK_PURGE_STILL), 2 * HK_SUPERSLAB_SIZE);
    give(pins);
    give(live);
}

TEST_F(Purge, SuperslabsAndMappingsGoAfterASecond)
{
    LargeBlock run(6 * kMib - 4096), mapping(12 * kMib, HK_LARGE_MAPPING);
    run.free();
    mapping.free();
    EXPECT_EQ(purge(HK_PURGE_QUIET), 0u);
    age_cached(1100);
    EXPECT_EQ(purge(HK_PURGE_QUIET), 3 * HK_SUPERSLAB_SIZE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1020));
    EXPECT_EQ(purge(HK_PURGE_QUIET), 12 * kMib);
}

TEST_F(Purge, CountsWhatItDoes)
{
    Slabs live = make_idle(heap, 4);
    struct hk_purge_counts before = hk_purge_counts;
    advance_a_second();
    EXPECT_EQ(purge(HK_PURGE_DECAY), 0u);
    EXPECT_EQ(purge(HK_PURGE_QUIET), 4 * idle_of_slab());
    EXPECT_EQ(hk_purge_counts.purge_passes - before.purge_passes, 2u);
    EXPECT_EQ(hk_purge_counts.purge_passes_quiet - before.purge_passes_quiet, 1u);
    EXPECT_EQ(hk_purge_counts.holes_purged - before.holes_purged, 4u);
    EXPECT_EQ(hk_purge_counts.hole_bytes_purged - before.hole_bytes_purged, 4 * idle_of_slab());
    void *p = heap.take_one(k4096);
    EXPECT_EQ(hk_purge_counts.hole_bytes_returned - before.hole_bytes_returned, hk_os_page_size());
    heap.give({p});
    give(live);
}

/* ---- The warm budget ---- */

TEST_F(Purge, AWorkingProcessKeepsEmptySlotsUpToItsBudget)
{
    Slabs pins = make_empty(10);
    advance_a_second();
    EXPECT_GT(purge(HK_PURGE_DECAY), 0u);
    EXPECT_GE(empty_bytes(), kWarm);
    EXPECT_LT(empty_bytes(), kWarm + HK_SUPERSLAB_SIZE);
    EXPECT_EQ(purge(HK_PURGE_DECAY), 0u);
    EXPECT_GT(purge(HK_PURGE_QUIET), 0u);
    EXPECT_EQ(empty_bytes(), 0u) << "a quiet one keeps nothing";
    give(pins);
}

TEST_F(Purge, TheBudgetGrowsWithWhatIsInUse)
{
    LargeBlock large(320 * kMib);
    Slabs pins = make_empty(10);
    ASSERT_LT(empty_bytes(), 20 * kMib);
    advance_a_second();
    EXPECT_EQ(purge(HK_PURGE_DECAY), 0u);
    large.free();
    EXPECT_GT(purge(HK_PURGE_DECAY), 0u);
    give(pins);
}

TEST_F(Purge, AWorkingProcessKeepsCachedSuperslabsUpToItsBudget)
{
    make_cached(10);
    EXPECT_EQ(purge(HK_PURGE_DECAY), 0u) << "all are young";
    age_cached(1100);
    EXPECT_EQ(purge(HK_PURGE_DECAY), 20 * kMib - kWarm);
    EXPECT_EQ(cached_bytes(), kWarm);
    EXPECT_EQ(purge(HK_PURGE_DECAY), 0u);
    EXPECT_EQ(purge(HK_PURGE_QUIET), kWarm);
}

TEST_F(Purge, WithinTheBudgetSuperslabsStayForTheirTime)
{
    WithOption ttl("superslab_ttl_sec", "5");
    make_cached(2);
    age_cached(4500);
    EXPECT_EQ(purge(HK_PURGE_DECAY), 0u);
    age_cached(1000);
    EXPECT_EQ(purge(HK_PURGE_DECAY), 2 * HK_SUPERSLAB_SIZE);
}

TEST_F(Purge, SuperslabsAndSlotsShareTheBudget)
{
    LargeBlock large(6 * kMib - 4096);
    Slabs pins = make_empty(6);
    large.free();
    age_cached(1100);
    advance_a_second();
    EXPECT_GT(purge(HK_PURGE_DECAY), 0u);
    EXPECT_EQ(cached_bytes(), 6 * kMib);
    EXPECT_GE(empty_bytes(), 2 * kMib - HK_SLOT_SIZE);
    EXPECT_LT(empty_bytes(), 4 * kMib);
    give(pins);
}

TEST_F(Purge, AWorkingProcessKeepsHolesWithinItsBudget)
{
    for (size_t slabs : {100u, 200u}) { /* 6 MiB, 12 MiB */
        Slabs live = make_idle(heap, slabs);
        advance_a_second();
        size_t idle = slabs * idle_of_slab(), bytes = purge(HK_PURGE_DECAY);
        if (idle <= kWarm)
            EXPECT_EQ(bytes, 0u);
        else
            EXPECT_GE(bytes, idle - kWarm);
        EXPECT_EQ(purge(HK_PURGE_QUIET), idle - bytes);
        EXPECT_EQ(hk_heaps_idle_bytes(), 0u);
        give(live);
        trim_all();
    }
}

/* ---- How much ---- */

TEST_F(Purge, PadStaysOfSlotsAndSuperslabs)
{
    LargeBlock large(10 * kMib - 4096);
    Slabs pins = make_empty(6);
    EXPECT_GT(purge(HK_PURGE_ALL, 6 * kMib), 0u);
    EXPECT_GE(empty_bytes(), 6 * kMib);
    EXPECT_LT(empty_bytes(), 6 * kMib + HK_SUPERSLAB_SIZE);
    EXPECT_EQ(purge(HK_PURGE_ALL, 6 * kMib), 0u);
    large.free();
    EXPECT_GT(purge(HK_PURGE_ALL, 6 * kMib), 0u);
    EXPECT_GE(empty_bytes() + cached_bytes(), 6 * kMib);
    EXPECT_LE(empty_bytes() + cached_bytes(), 6 * kMib + HK_SUPERSLAB_SIZE);
    EXPECT_GT(purge(HK_PURGE_ALL), 0u);
    EXPECT_EQ(empty_bytes() + cached_bytes(), 0u);
    give(pins);
}

TEST_F(Purge, PadIsOneForAllKinds)
{
    LargeBlock run(10 * kMib - 4096), mapping(6 * kMib, HK_LARGE_MAPPING);
    run.free();
    mapping.free();
    purge(HK_PURGE_ALL, 8 * kMib);
    size_t left = cached_bytes() + hk_large_read_counts().cached_bytes;
    EXPECT_GE(left, 8 * kMib);
    EXPECT_LE(left, 8 * kMib + HK_SUPERSLAB_SIZE) << "and not as much of each";
}

TEST_F(Purge, PadStaysOfHoles)
{
    Slabs live = make_idle(heap, 300);
    size_t idle = hk_heaps_idle_bytes();
    EXPECT_EQ(purge(HK_PURGE_ALL, idle), 0u);
    EXPECT_GT(purge(HK_PURGE_ALL, 8 * kMib), 0u);
    EXPECT_GE(hk_heaps_idle_bytes(), 8 * kMib - HK_SUPERSLAB_SIZE) << "superslab by superslab";
    EXPECT_LE(hk_heaps_idle_bytes(), 8 * kMib + HK_SLOT_SIZE);
    EXPECT_GT(purge(HK_PURGE_ALL), 0u);
    EXPECT_EQ(hk_heaps_idle_bytes(), 0u);
    give(live);
}

TEST_F(Purge, MostBoundsOneCallAndNotWhatManyDo)
{
    LargeBlock large(8 * kMib - 4096);
    Slabs pins = make_empty(5), live = make_idle(heap, 50);
    large.free();
    size_t idle = empty_bytes() + cached_bytes() + 50 * idle_of_slab(), gone = 0;
    unsigned calls = 0;
    for (size_t bytes; (bytes = purge(HK_PURGE_ALL, 0, 3 * kMib)) != 0; gone += bytes, calls++) {
        ASSERT_LE(bytes, 3 * kMib + HK_SUPERSLAB_SIZE);
        ASSERT_LT(calls, 100u);
    }
    EXPECT_EQ(gone, idle);
    EXPECT_GE(calls, idle / (5 * kMib));
    EXPECT_EQ(hk_heaps_idle_bytes(), 0u);
    give(pins);
    give(live);
}

/* What is left is what live blocks need: a page, and no page that no live block touches. */
TEST_F(Purge, AfterAllOnlyPagesOfLiveBlocksHaveMemory)
{
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* a huge page brings neighbours that were never asked for */
    constexpr unsigned kClasses[] = {0, 2, k64, 12, 20, k1024, 38, k4096, 50, kRun, 62, 83};
    uint64_t random = 7;
    auto below = [&random](uint64_t n) {
        random = random * 6364136223846793005 + 1442695040888963407;
        return (random >> 33) % n;
    };
    std::vector<std::pair<char *, size_t>> live;
    for (unsigned size_class : kClasses) {
        const hk_class &c = hk_classes[size_class];
        Blocks blocks = heap.take(size_class, 3 * c.nblocks);
        for (void *p : blocks)
            memset(p, 0x5a, c.size);
        unsigned run = 0; /* of blocks that go */
        for (void *p : blocks) {
            run = run != 0 ? run - 1 : static_cast<unsigned>(below(20000 / c.size + 3));
            if (run != 0)
                EXPECT_EQ(heap.give({p}).kind, HK_FAULT_NONE);
            else
                live.emplace_back(static_cast<char *>(p), c.size);
        }
    }
    EXPECT_GT(purge(HK_PURGE_ALL), 0u);
    std::set<char *> needed;
    const size_t page = hk_os_page_size();
    for (auto [p, size] : live)
        for (uintptr_t at = hk_align_down(reinterpret_cast<uintptr_t>(p), page);
             at < reinterpret_cast<uintptr_t>(p) + size; at += page)
            needed.insert(reinterpret_cast<char *>(at));
    size_t resident = 0;
    for (hk_superslab *superslab : all_superslabs()) {
        std::vector<unsigned char> in_core(HK_SUPERSLAB_SIZE / page);
        if (!superslab->committed)
            continue;
        ASSERT_EQ(mincore(superslab->base, HK_SUPERSLAB_SIZE, in_core.data()), 0);
        for (size_t i = 0; i < in_core.size(); i++)
            if ((in_core[i] & 1) != 0) {
                resident++;
                EXPECT_EQ(needed.count(superslab->base + i * page), 1u) << "page " << i << " of " << superslab->base;
            }
    }
    EXPECT_EQ(resident, needed.size());
    check_everything();
    for (auto [p, size] : live) {
        EXPECT_TRUE(std::all_of(p, p + size, [](char byte) { return byte == 0x5a; }));
        EXPECT_EQ(heap.give({p}).kind, HK_FAULT_NONE);
    }
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

/* ---- Amount ---- */

/* The only thread of a process; surplus.cc has the rules. Our clock is ahead of the system's, so that nothing goes by
 * age, and nobody pays for growth. */
class PurgeSurplus : public Purge
{
  protected:
    static constexpr size_t kBound = 96 * kMib, kRest = kMib;

    void SetUp() override
    {
        Purge::SetUp();
        set_clock(UINT32_MAX / 4);
        make_payments_rest();
        tick();
    }
    static size_t idle() { return empty_bytes() + cached_bytes() + hk_heaps_idle_bytes(); }
    /* A slow path. Returns what went. */
    size_t tick()
    {
        hk_fault fault{};
        size_t before = hk_purge_counts.surplus_bytes_purged;
        hk_purge_tick(true, heap.get(), &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        return hk_purge_counts.surplus_bytes_purged - before;
    }
    size_t tick_until_nothing_goes()
    {
        size_t sum = 0;
        for (size_t bytes; (bytes = tick()) != 0; sum += bytes) {}
        return sum;
    }
    /* Returns what went with the frees, and with some calls after them. */
    size_t drop(std::vector<LargeBlock> blocks)
    {
        size_t gone = tick();
        for (LargeBlock &block : blocks) {
            block.free();
            gone += tick();
        }
        return gone + tick_until_nothing_goes();
    }
    size_t drop(const Slabs &slabs)
    {
        size_t gone = tick();
        for (const Blocks &blocks : slabs) {
            EXPECT_EQ(heap.give(blocks).kind, HK_FAULT_NONE);
            gone += tick();
        }
        return gone + tick_until_nothing_goes();
    }
    std::vector<LargeBlock> take(size_t mib)
    {
        std::vector<LargeBlock> blocks;
        for (; mib >= 2; mib -= 2) {
            blocks.emplace_back(2 * kMib - 4096);
            tick();
        }
        return blocks;
    }
    Slabs take_small(size_t mib)
    {
        Slabs slabs = take_slabs(heap, mib * kMib / HK_SLOT_SIZE);
        tick();
        return slabs;
    }
};

TEST_F(PurgeSurplus, SuperslabsGo)
{
    EXPECT_EQ(drop(take(90)), 0u);
    EXPECT_EQ(idle(), 90 * kMib);
    size_t all = drop(take(120));
    EXPECT_GE(all, 120 * kMib - kRest);
    EXPECT_LE(idle(), kRest);
    check_everything();
}

TEST_F(PurgeSurplus, MappingsGo)
{
    auto cached = [] { return hk_large_read_counts().cached_bytes; };
    auto take_mappings = [this] {
        std::vector<void *> blocks;
        for (unsigned i = 0; i < 25; i++) {
            blocks.push_back(hk_large_alloc(5 * kMib, HK_MIN_ALIGN, HK_LARGE_MAPPING, false));
            tick();
        }
        return blocks;
    };
    auto drop_mappings = [this](const std::vector<void *> &blocks) {
        size_t gone = tick();
        for (void *p : blocks) {
            hk_fault fault{};
            EXPECT_TRUE(hk_large_free(p, &fault));
            gone += tick();
        }
        return gone + tick_until_nothing_goes();
    };
    /* A mapping that cannot grow where it is takes nothing: that tells nothing of what went before. */
    auto fail_to_grow = [] {
        auto *p = static_cast<char *>(hk_large_alloc(5 * kMib, HK_MIN_ALIGN, HK_LARGE_MAPPING, false));
        void *wall = p + hk_large_usable(p);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        ASSERT_EQ(mmap(wall, hk_os_page_size(), PROT_NONE, flags, -1, 0), wall);
        EXPECT_FALSE(hk_large_resize(p, 6 * kMib));
        munmap(wall, hk_os_page_size());
        hk_fault fault{};
        EXPECT_TRUE(hk_large_free(p, &fault));
    };
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    tick();
    EXPECT_GE(drop_mappings(take_mappings()), 125 * kMib - kRest);
    EXPECT_LE(cached(), kRest);
    fail_to_grow();
    EXPECT_EQ(drop_mappings(take_mappings()), 0u) << "they were needed again: twice as many must go";
    EXPECT_GE(cached(), 100 * kMib);
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
}

/* Those that no cache keeps leave nothing idle: what else there is stays as it is. */
TEST_F(PurgeSurplus, MappingsThatGoAnywayAreNoReason)
{
    drop(take(50));
    for (int round = 0; round < 3; round++) {
        tick();
        void *p = hk_large_alloc(200 * kMib, HK_MIN_ALIGN, HK_LARGE_MAPPING, false);
        tick();
        hk_fault fault{};
        EXPECT_TRUE(hk_large_free(p, &fault));
        EXPECT_EQ(tick_until_nothing_goes(), 0u);
    }
}

TEST_F(PurgeSurplus, OthersSeeToItWhereThereAreOthers)
{
    hk_fault fault{};
    auto blocks = take(120);
    for (LargeBlock &block : blocks) {
        block.free();
        hk_purge_tick(true, nullptr, &fault);
        hk_purge_tick(false, nullptr, &fault);
    }
    EXPECT_EQ(idle(), 120 * kMib);
}

TEST_F(PurgeSurplus, SlotsGo)
{
    Slabs slabs = take_small(120), pins;
    for (size_t i = 0; i < slabs.size(); i += HK_SLOTS_PER_SUPERSLAB)
        pins.push_back(std::exchange(slabs[i], {}));
    size_t bytes = slabs.size() * HK_SLOT_SIZE - pins.size() * HK_SLOT_SIZE;
    EXPECT_GE(drop(slabs), bytes - 2 * kRest);
    EXPECT_LE(idle(), 2 * kRest);
    check_everything();
    drop(pins);
    EXPECT_LE(idle(), 2 * kRest) << "nothing is left of their superslabs";
}

TEST_F(PurgeSurplus, HolesGo)
{
    Slabs slabs = take_small(160), live;
    for (Blocks &blocks : slabs) {
        live.push_back({blocks[5]});
        blocks.erase(blocks.begin() + 5);
    }
    EXPECT_GE(drop(slabs), 160 * kMib / 16 * 14);
    EXPECT_LE(hk_heaps_idle_bytes(), 2 * kRest);
    check_everything();
    drop(live);
}

/* Of each slab something stays idle, at the edges of pages: it is looked at again and again. */
TEST_F(PurgeSurplus, HolesOfASingleClassGo)
{
    for (unsigned size_class : {k1024, hk_class_of(3000)}) {
        Slabs slabs, live;
        hk_surplus_reset(); /* else the second is told that the first was a mistake */
        tick();
        for (size_t i = 0; i < 180 * kMib / HK_SLOT_SIZE; i++) {
            slabs.push_back(heap.take_slab(size_class));
            Blocks &blocks = slabs.back();
            live.push_back({blocks[6], blocks[13]});
            blocks.erase(blocks.begin() + 13);
            blocks.erase(blocks.begin() + 6);
        }
        EXPECT_GE(drop(slabs), 180 * kMib / 16 * 11) << size_class;
        check_everything();
        drop(live);
    }
}

/* Each slab loses a page now and then: the kernel would be asked for each by itself. */
TEST_F(PurgeSurplus, SinglePagesDoNotGo)
{
    Slabs slabs = take_small(400);
    size_t madvise = hk_os_counts.madvise, pages = 0;
    for (size_t i = 0; i < kBlocksPerSlot; i++)
        for (Blocks &blocks : slabs) {
            heap.give({blocks[i * 7 % kBlocksPerSlot]});
            pages++;
            if (pages % 64 == 0)
                tick();
        }
    tick_until_nothing_goes();
    EXPECT_LE(idle(), 2 * kRest);
    EXPECT_LE(hk_os_counts.madvise - madvise, pages / 8);
}

TEST_F(PurgeSurplus, AMistakeIsMadeOnce)
{
    for (size_t mib : {120, 180, 230}) {
        size_t gone = drop(take(mib));
        if (mib == 120)
            EXPECT_GT(gone, 100 * kMib);
        else
            EXPECT_EQ(gone, 0u) << mib;
    }
}

TEST_F(PurgeSurplus, HolesInVainAreNoMistake)
{
    size_t vain = hk_purge_counts.hole_bytes_in_vain, regretted = hk_purge_counts.regretted_bytes;
    Slabs slabs = take_small(160), rest;
    for (Blocks &blocks : slabs) {
        rest.push_back({blocks.begin(), blocks.begin() + 2});
        blocks.erase(blocks.begin(), blocks.begin() + 2);
    }
    drop(slabs);
    give(rest);
    vain = hk_purge_counts.hole_bytes_in_vain - vain;
    EXPECT_GE(vain, 100 * kMib);
    EXPECT_EQ(hk_purge_counts.regretted_bytes - regretted, vain);
    advance(3 * HK_CLOCK_SECOND); /* to take it again is no mistake either */
    EXPECT_GT(drop(take(100)), 90 * kMib) << "the bound is the same";
}

TEST_F(PurgeSurplus, NeedingItAgainDoesNotLetPaymentsRest)
{
    advance(kLongerThanAnyRest);
    hk_purge_after_fork();
    tick();
    drop(take(120));
    hk_payment_note_paid(2 * kMib);
    auto again = take(100);
    EXPECT_TRUE(hk_purge_demand_payment());
    hk_regret(100 * kMib);
    EXPECT_FALSE(hk_purge_demand_payment()) << "beyond what went so";
    drop(std::move(again));
}

TEST_F(PurgeSurplus, WhatWasPrewarmedStays)
{
    hk_prewarmed_end(0, 40 * kMib);
    auto last = take(20);
    drop(take(200));
    EXPECT_GE(idle(), 40 * kMib);
    EXPECT_LE(idle(), 40 * kMib + kRest + HK_SUPERSLAB_SIZE);
    drop(std::move(last));
    EXPECT_GE(idle(), 40 * kMib);
    EXPECT_LE(idle(), 40 * kMib + kRest + HK_SUPERSLAB_SIZE) << "and keeps nothing more from going";
    trim_all();
    tick();
    Slabs slabs = take_small(160), pins;
    for (size_t i = 0; i < slabs.size(); i += HK_SLOTS_PER_SUPERSLAB)
        pins.push_back(std::exchange(slabs[i], {}));
    drop(slabs);
    EXPECT_GE(empty_bytes(), 40 * kMib);
    hk_prewarmed_forget();
    drop(pins);
}

TEST_F(PurgeSurplus, WhatIsKeptAfterAMistakeAndGrowsOldIsForgiven)
{
    drop(take(120));
    for (int round = 0; round < 2; round++) {
        EXPECT_EQ(drop(take(120)), 0u);
        for (int pass = 0; pass < 40; pass++) {
            age_cached(2000);
            advance(2 * HK_CLOCK_SECOND);
            tick();
        }
        EXPECT_EQ(idle(), 0u);
    }
    EXPECT_GT(drop(take(120)), 100 * kMib);
}

/* Passes by age take what was dropped slowly; that is not taken by the program. */
TEST_F(PurgeSurplus, WhatIsDroppedSlowlyGoesToo)
{
    Slabs slabs = take_small(200);
    size_t gone = 0;
    for (size_t i = 0; i < slabs.size(); i++) {
        heap.give(slabs[i]);
        gone += tick();
        if (i % (2 * HK_SLOTS_PER_SUPERSLAB) == 0)
            advance(1);
    }
    EXPECT_GT(gone, 60 * kMib);
    EXPECT_LE(idle(), 2 * kRest + kWarm);
}

/* ---- Growth ---- */

TEST_F(Purge, GrowthIsPaidWithEmptySlots)
{
    Slabs pins = make_empty(4);
    EXPECT_EQ(pay(0), 0u);
    size_t paid = pay(kMib);
    EXPECT_GE(paid, kMib);
    EXPECT_LE(paid, HK_SUPERSLAB_SIZE) << "about as much, and not all";
    EXPECT_EQ(empty_bytes(), 4 * (HK_SUPERSLAB_SIZE - HK_SLOT_SIZE) - paid);
    check_everything();
    give(pins);
}

TEST_F(Purge, GrowthIsPaidWithHoles)
{
    Slabs live = make_idle(heap, 100);
    size_t paid = pay(kMib);
    EXPECT_GE(paid, kMib);
    EXPECT_LE(paid, kMib + HK_SUPERSLAB_SIZE);
    check_everything();
    EXPECT_GE(pay(kMib), kMib) << "the walk goes on where it stood";
    for (int i = 0; i < 20; i++)
        pay(kMib);
    EXPECT_LE(hk_heaps_idle_bytes(), active_bytes() / 20 + HK_SLOT_SIZE);
    check_everything();
    give(live);
}

TEST_F(Purge, ATwentiethOfWhatIsInUseMayLieIdle)
{
    Slabs used = take_slabs(heap, 3 * HK_SLOTS_PER_SUPERSLAB - 3), few = take_slabs(heap, 3);
    give(few); /* EMPTY: 3 slots of 96 */
    tend();
    EXPECT_EQ(empty_bytes(), 3 * HK_SLOT_SIZE);
    EXPECT_EQ(pay(4 * kMib), 0u);
    /* Four pages of one slab of 16, in a sixth of all: 4 %. */
    for (size_t i = 0; i < 16; i++)
        heap.give({used[i].begin(), used[i].begin() + 4});
    EXPECT_EQ(pay(4 * kMib), 0u);
    EXPECT_EQ(hk_heaps_idle_bytes(), 16u * 4 * 4096);
    EXPECT_EQ(empty_bytes(), 3 * HK_SLOT_SIZE);
    /* And some more. */
    for (size_t i = 16; i < 32; i++)
        heap.give({used[i].begin(), used[i].begin() + 4});
    EXPECT_EQ(pay(4 * kMib), 32u * 4 * 4096);
    EXPECT_EQ(hk_heaps_idle_bytes(), 0u);
    for (size_t i = 0; i < used.size(); i++)
        heap.give({used[i].begin() + (i < 32 ? 4 : 0), used[i].end()});
}

TEST_F(Purge, AHeapThatGrowsPaysBeforeItsPeakRises)
{
    constexpr size_t kSlabs = 10 * HK_SLOTS_PER_SUPERSLAB;
    Slabs live = make_idle(heap, kSlabs);
    for (const Blocks &blocks : live)
        memset(blocks[0], 0x11, 4096);
    size_t idle = hk_heaps_idle_bytes(), paid = hk_purge_counts.growth_paid_bytes;
    /* Half as much of another class. */
    Blocks others;
    for (size_t i = 0; i < kSlabs / 2; i++)
        for (void *p : heap.take_slab(k1024))
            others.push_back(p);
    size_t grown = kSlabs / 2 * HK_SLOT_SIZE;
    paid = hk_purge_counts.growth_paid_bytes - paid;
    EXPECT_GE(paid, grown - 2 * HK_SUPERSLAB_SIZE);
    EXPECT_LE(paid, 2 * grown + HK_SUPERSLAB_SIZE) << "superslab by superslab";
    EXPECT_LE(hk_heaps_idle_bytes(), idle - paid + hk_os_page_size());
    for (const Blocks &blocks : live) {
        const char *bytes = static_cast<const char *>(blocks[0]);
        EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](char byte) { return byte == 0x11; }));
    }
    check_everything();
    heap.give(others);
    give(live);
}

TEST_F(Purge, WhoReusesItsMemoryPaysNothing)
{
    size_t paid = hk_purge_counts.growth_paid_bytes;
    Slabs slabs = take_slabs(heap, 200);
    for (int round = 0; round < 5; round++) {
        give(slabs);
        slabs = take_slabs(heap, 200);
    }
    EXPECT_EQ(hk_purge_counts.growth_paid_bytes, paid);
    give(slabs);
}

/* What is paid is not worth it if it is needed again at once. */
TEST_F(Purge, PaymentsThatAreRegrettedRest)
{
    Slabs pins = make_empty(4), live = make_idle(heap, 30);
    make_payments_rest();
    EXPECT_EQ(pay(100 * kMib), 0u);
    advance(kLongerThanAnyRest);
    EXPECT_GT(pay(100 * kMib), 0u) << "but not for ever";
    give(pins);
    give(live);
}

/* What was found out about a small program does not hold for a large one. */
TEST_F(Purge, ARestEndsWhenTheProgramHasGrownAndMuchLiesIdle)
{
    Slabs live = make_idle(heap, 30 * HK_SLOTS_PER_SUPERSLAB);
    make_payments_rest();
    LargeBlock some(62 * kMib);
    EXPECT_FALSE(hk_purge_demand_payment()) << "by 62 MiB";
    EXPECT_EQ(pay(100 * kMib), 0u);
    LargeBlock more(4 * kMib);
    EXPECT_TRUE(hk_purge_demand_payment()) << "by 66 MiB";
    EXPECT_GT(pay(100 * kMib), 0u);
    some.free();
    more.free();
    give(live);
}

TEST_F(Purge, ARestEndsWhenALargeProgramHasGrownByHalf)
{
    LargeBlock most(400 * kMib);
    Slabs live = make_idle(heap, 60 * HK_SLOTS_PER_SUPERSLAB);
    make_payments_rest();
    const size_t half = hk_limit_in_use() / 2;
    LargeBlock some(half - 4 * kMib, HK_LARGE_MAPPING);
    EXPECT_FALSE(hk_purge_demand_payment());
    LargeBlock more(6 * kMib, HK_LARGE_MAPPING);
    EXPECT_TRUE(hk_purge_demand_payment());
    for (LargeBlock *block : {&most, &some, &more})
        block->free();
    give(live);
}

TEST_F(Purge, ARestDoesNotEndWhileLittleLiesIdle)
{
    Slabs live = make_idle(heap, 10 * HK_SLOTS_PER_SUPERSLAB);
    const size_t idle = hk_heaps_idle_bytes();
    make_payments_rest();
    LargeBlock most(9 * idle), other(3 * idle);
    EXPECT_FALSE(hk_purge_demand_payment());
    other.free();
    EXPECT_TRUE(hk_purge_demand_payment());
    most.free();
    give(live);
}

TEST_F(Purge, MemoryThatIsNeededAgainIsRegretted)
{
    Slabs pins = make_empty(1);
    Slabs live = make_idle(heap, 2);
    purge(HK_PURGE_ALL);
    size_t regretted = hk_purge_counts.regretted_bytes;
    auto since = [&regretted] {
        size_t bytes = hk_purge_counts.regretted_bytes - regretted;
        regretted += bytes;
        return bytes;
    };
    void *p = heap.take_one(k4096);
    EXPECT_EQ(since(), hk_os_page_size()) << "a page of a hole";
    EXPECT_EQ(heap.give({p}).kind, HK_FAULT_NONE);
    Blocks others = heap.take_slab(k1024);
    EXPECT_EQ(since(), HK_SLOT_SIZE) << "a slot that was EMPTY";
    heap.give(others);
    LargeBlock(3 * kMib).free();
    EXPECT_EQ(since(), 0u) << "it never had memory";
    purge(HK_PURGE_ALL);
    EXPECT_EQ(since(), HK_SLOT_SIZE) << "the pages of a slab that is released, which paid for the large block";
    LargeBlock(3 * kMib).free();
    EXPECT_EQ(since(), 2 * HK_SUPERSLAB_SIZE);
    give(pins);
    give(live);
}

TEST_F(Purge, WhoPaysWaitsForNoHeap)
{
    TestHeap other;
    other->grown_bytes = 0;
    Slabs theirs = make_idle(other, 20), mine = make_idle(heap, 20); /* too few to be made to pay */
    hk_lock_seize(&other->lock);                                     /* as another thread would */
    size_t paid = pay(100 * kMib);
    hk_lock_unseize(&other->lock);
    EXPECT_EQ(paid, 20 * idle_of_slab()) << "its own go";
    EXPECT_EQ(other->idle_bytes, 20 * idle_of_slab());
    EXPECT_EQ(pay(100 * kMib), 20 * idle_of_slab()) << "and another's, if it is not at work";
    check_everything();
    give(other, theirs);
    give(mine);
}

TEST_F(Purge, ALargeBlockPaysToo)
{
    Slabs live = make_idle(heap, 100);
    size_t idle = hk_heaps_idle_bytes();
    LargeBlock(3 * kMib).free();
    EXPECT_LE(hk_heaps_idle_bytes(), idle - 3 * kMib);
    idle = hk_heaps_idle_bytes();
    LargeBlock(3 * kMib).free();
    EXPECT_EQ(hk_heaps_idle_bytes(), idle) << "from the cache: it has memory";
    give(live);
}

/* A mapping that grows page by page gives a superslab back when it has grown by one, and not for each page. */
TEST_F(Purge, GrowthByPagesPaysWhatItComesTo)
{
    std::vector<LargeBlock> blocks;
    for (unsigned i = 0; i < 20; i++)
        blocks.emplace_back(2 * kMib - 4096);
    for (LargeBlock &block : blocks)
        block.free();
    size_t grown = 0, paid = hk_purge_counts.growth_paid_bytes;
    auto *p = static_cast<char *>(hk_large_alloc(3 * kMib / 2, HK_MIN_ALIGN, HK_LARGE_MAPPING, false));
    for (; grown < 2 * kMib; grown += 4096)
        ASSERT_TRUE(hk_large_resize(p, 3 * kMib / 2 + grown + 4096) ||
                    (p = static_cast<char *>(hk_large_remap(p, 3 * kMib / 2 + grown + 4096))) != nullptr);
    EXPECT_GT(hk_purge_counts.growth_paid_bytes, paid);
    EXPECT_LE(hk_purge_counts.growth_paid_bytes - paid, 3 * kMib / 2 + grown + 2 * kMib);
    hk_fault fault{};
    EXPECT_TRUE(hk_large_free(p, &fault));
}

/* ---- Heaps that sleep ---- */

TEST_F(Purge, AParkedHeapIsDissolvedAfterASecond)
{
    TestHeap other;
    Blocks blocks = other.take(k64, 100);
    for (size_t i = 50; i < 60; i++)
        other.free(k64, blocks[i]);
    ASSERT_GT(other.in_magazine(k64), 0u);
    struct hk_heap *parked = other.park();
    for (unsigned quarters = 0; quarters <= HK_CLOCK_SECOND; quarters++) {
        purge(HK_PURGE_DECAY);
        EXPECT_EQ(parked->classes[k64].nslabs, 1u) << quarters << " quarters";
        EXPECT_NE(*parked->parked_top[k64], nullptr);
        advance(1);
    }
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(parked->classes[k64].nslabs, 0u);
    EXPECT_EQ(*parked->parked_top[k64], nullptr);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), &hk_orphans);
    EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 1024 - 100 + 10) << "what its magazine held is free";
    check_everything();
    heap.give({blocks.begin(), blocks.begin() + 50});
    heap.give({blocks.begin() + 60, blocks.end()});
}

TEST_F(Purge, AHeapThatHasAThreadAgainIsNotDissolved)
{
    TestHeap other;
    Blocks blocks = other.take(k64, 100);
    other.park();
    advance(3);
    other.start();
    advance_a_second();
    purge(HK_PURGE_QUIET);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), other.get());
    other.give(blocks);
}

/* Its slabs are all it takes along: an orphan's memory ages like any other. */
TEST_F(Purge, WhatAParkedHeapLeavesIdleGoes)
{
    TestHeap other;
    Slabs live = make_idle(other, 20);
    other.park();
    advance_a_second();
    purge(HK_PURGE_QUIET);
    advance_a_second();
    purge(HK_PURGE_QUIET);
    EXPECT_EQ(hk_heaps_idle_bytes(), 0u);
    for (const Blocks &blocks : live)
        EXPECT_EQ(hk_slab_of(blocks[0])->nabsent, kBlocksPerSlot - hk_os_page_size() / 4096);
    give(live);
}

TEST_F(Purge, TheOutboxOfAHeapThatStandsStillIsSent)
{
    TestHeap freer;
    Blocks blocks = heap.take(k64, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    freer->tick++;
    ASSERT_TRUE(freer.post({blocks[3]}));
    for (int pass = 0; pass < 3; pass++) {
        purge(HK_PURGE_DECAY);
        EXPECT_EQ(slab->nfree, 1024 - 10) << "it has been at work since the last pass";
        EXPECT_FALSE(is_free(blocks[3]));
        freer->tick++;
    }
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(slab->nfree, 1024 - 10);
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(slab->nfree, 1024 - 9) << "and it is given back, too: the owner stands still";
    blocks.erase(blocks.begin() + 3);
    heap.give(blocks);
}

TEST_F(Purge, AnOwnerAtWorkOpensItsParcelsItself)
{
    TestHeap freer;
    Blocks blocks = heap.take(k64, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(free_remotely(blocks[3]).kind, HK_FAULT_NONE);
    heap->tick++;
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(slab->nfree, 1024 - 10);
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(slab->nfree, 1024 - 9);
    blocks.erase(blocks.begin() + 3);
    heap.give(blocks);
}

TEST_F(Purge, GrowthDoesNotPayWithWhatWasPrewarmed)
{
    make_cached(4);
    hk_prewarmed_end(0, 3 * HK_SUPERSLAB_SIZE);
    hk_purge_pay_large(100 * kMib);
    EXPECT_EQ(cached_bytes(), 3 * HK_SUPERSLAB_SIZE);
    Slabs pins = make_empty(3); /* in the same superslabs */
    EXPECT_EQ(cached_bytes(), 0u);
    EXPECT_EQ(pay(100 * kMib), 0u);
    hk_purge_pay_large(100 * kMib);
    EXPECT_EQ(empty_bytes(), 3 * (HK_SUPERSLAB_SIZE - HK_SLOT_SIZE));
    hk_prewarmed_forget();
    hk_purge_pay_large(100 * kMib);
    EXPECT_LT(empty_bytes(), HK_SUPERSLAB_SIZE);
    give(pins);
}

TEST_F(Purge, AHeapThatStandsStillKeepsNeitherWarmSlotsNorEmptySlabs)
{
    void *p = heap.take_one(k64);
    heap.give({p});
    {
        HeldLock held(&heap->lock);
        size_t grown = 0;
        ASSERT_EQ(hk_pool_acquire_slots(heap->key, k1024, &heap->warm.slots[0], 1, &grown), 1u);
        heap->warm.n = 1;
    }
    heap->tick++;
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(heap->warm.n, 1);
    EXPECT_EQ(heap->classes[k64].nslabs, 1u);
    purge(HK_PURGE_DECAY);
    EXPECT_EQ(heap->warm.n, 0);
    EXPECT_EQ(heap->classes[k64].nslabs, 0u);
    EXPECT_EQ(active_bytes(), 0u);
}

/* ---- On slow paths ---- */

TEST_F(Purge, ATickDoesABoundedPartIfTimeHasPassed)
{
    hk_fault fault{};
    auto passes = [] { return hk_purge_counts.purge_passes; };
    follow_the_system();
    /* As if the last look had been so long ago. */
    auto look_back = [](uint32_t quarters) {
        hk_clock_look();
        set_clock(hk_clock_now() - quarters);
        hk_purge_after_fork();
    };
    size_t before = passes();
    look_back(2);
    hk_purge_tick(false, nullptr, &fault);
    EXPECT_EQ(passes(), before) << "somebody else does it";
    look_back(2);
    hk_purge_tick(true, nullptr, &fault);
    EXPECT_EQ(passes(), before + 1);
    bool stood_still = false;
    for (int i = 0; i < 100 && !stood_still; i++) {
        uint32_t now = hk_clock_now();
        before = passes();
        hk_purge_tick(true, nullptr, &fault);
        stood_still = hk_clock_now() == now;
        EXPECT_EQ(passes(), before + !stood_still);
    }
    EXPECT_TRUE(stood_still);

    /* Nobody has looked for more than a second: the process was quiet. */
    while (hk_clock_now() < HK_CLOCK_SECOND + 2) { /* until there can be anything of that age */
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        hk_clock_look();
    }
    Slabs pins = make_empty(10);
    for (hk_superslab *superslab : all_superslabs())
        for (unsigned slot = 0; superslab->table != nullptr && slot < HK_SLOTS_PER_SUPERSLAB; slot++)
            if (((superslab->empty >> slot) & 1) != 0)
                superslab->table->slabs[slot].used_at = 0;
    size_t empty = empty_bytes(), quiet = hk_purge_counts.purge_passes_quiet;
    look_back(HK_CLOCK_SECOND + 2);
    hk_purge_tick(true, nullptr, &fault);
    EXPECT_EQ(hk_purge_counts.purge_passes_quiet, quiet + 1);
    EXPECT_LE(empty_bytes(), empty - 8 * kMib);
    EXPECT_GE(empty_bytes(), empty - 8 * kMib - HK_SUPERSLAB_SIZE);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    give(pins);
}

/* ---- At random ---- */

void fill(void *p, size_t size) { memset(p, static_cast<int>(reinterpret_cast<uintptr_t>(p) / 16 % 251 + 1), size); }

bool holds(const void *p, size_t size)
{
    const char *bytes = static_cast<const char *>(p);
    return bytes[0] == static_cast<char>(reinterpret_cast<uintptr_t>(p) / 16 % 251 + 1) &&
           memcmp(bytes, bytes + 1, size - 1) == 0;
}

TEST_F(Purge, StaysInOrderWhateverHappens)
{
    constexpr unsigned kClasses[] = {0, 2, k64, 15, k1024, k4096, 52, kRun, 62, 83};
    for (uint64_t seed = 1; seed <= 3; seed++) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        uint64_t random = seed;
        auto below = [&random](uint64_t n) {
            random = random * 6364136223846793005 + 1442695040888963407;
            return (random >> 33) % n;
        };
        TestHeap heaps[3];
        std::vector<std::pair<void *, unsigned>> live;
        /* Neighbours, mostly: what is freed at random leaves no holes. */
        auto free_some = [&](size_t from, size_t n) {
            for (size_t i = from; i < from + n && i < live.size(); i++) {
                auto [p, size_class] = live[i];
                ASSERT_TRUE(holds(p, hk_classes[size_class].size));
                TestHeap &by = heaps[below(3)];
                hk_fault fault = hk_slab_owner(hk_slab_of(p)) == by.get() ? by.give({p})
                                 : below(4) == 0                          ? free_remotely(p)
                                                                          : by.free_to_other(p);
                ASSERT_EQ(fault.kind, HK_FAULT_NONE);
            }
            live.erase(live.begin() + static_cast<ptrdiff_t>(from),
                       live.begin() + static_cast<ptrdiff_t>(std::min(from + n, live.size())));
        };
        for (int step = 0; step < 3000 / HK_TEST_SLOWDOWN; step++) {
            TestHeap &h = heaps[below(3)];
            unsigned what = static_cast<unsigned>(below(100));
            if (what < 35 && live.size() < 20000) {
                unsigned size_class = kClasses[below(std::size(kClasses))];
                size_t want = 1 + below(1 + 30000 / hk_classes[size_class].size);
                for (void *p : h.take(size_class, static_cast<unsigned>(want))) {
                    fill(p, hk_classes[size_class].size);
                    live.emplace_back(p, size_class);
                }
            } else if (what < 70 && !live.empty()) {
                free_some(below(live.size()), 1 + below(200));
            } else if (what < 80) {
                EXPECT_EQ(h.open_parcels().kind, HK_FAULT_NONE);
            } else if (what < 84) {
                purge(static_cast<hk_purge_level>(below(3)), below(4) == 0 ? below(kMib) : 0,
                      below(2) == 0 ? SIZE_MAX : below(8 * kMib));
            } else if (what < 88) {
                HeldLock held(&h->lock);
                hk_purge_pay(below(4 * kMib), h.get());
            } else if (what < 95) {
                advance(static_cast<uint32_t>(below(4)));
            } else if (what == 95) {
                h.park();
                h.start();
            } else if (what == 96) {
                h.send_outbox();
            } else if (what == 97) {
                make_cached(1 + below(3));
                purge(HK_PURGE_ALL);
            }
            if (step % 50 == 0)
                check_everything();
            if (HasFailure())
                return;
        }
        free_some(0, live.size());
    }
}

/* Threads allocate, check, and free each other's blocks, while one purges all the time and another as it grows. */
TEST_F(Purge, ThreadsKeepTheirBlocksWhilePagesGo)
{
    constexpr size_t kThreads = 3, kMailboxes = 512;
    constexpr int kSteps = 60000 / HK_TEST_SLOWDOWN;
    constexpr unsigned kClasses[] = {k64, 15, k1024, k4096, kRun};
    static std::atomic<void *> mailboxes[kMailboxes];
    std::atomic<bool> stop{false};
    auto free_it = [](TestHeap &by, void *p) {
        size_t size = hk_slab_class(hk_slab_of(p))->size;
        EXPECT_TRUE(holds(p, size));
        hk_fault fault = hk_slab_owner(hk_slab_of(p)) == by.get() ? by.give({p}) : by.free_to_other(p);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    };
    std::thread purger([&] {
        for (unsigned i = 0; !stop; i++) {
            purge(static_cast<hk_purge_level>(i % 3));
            advance(1);
            std::this_thread::yield();
        }
    });
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; t++)
        threads.emplace_back([&, t] {
            TestHeap mine;
            uint64_t random = t + 1;
            for (int i = 0; i < kSteps; i++) {
                random = random * 6364136223846793005 + 1442695040888963407;
                /* Bursts of one class, freed in bursts: so there are holes. */
                unsigned size_class = kClasses[static_cast<size_t>(i / 64) % std::size(kClasses)];
                void *p = mine.take_one(size_class);
                ASSERT_NE(p, nullptr);
                fill(p, hk_classes[size_class].size);
                p = mailboxes[(random >> 33) % kMailboxes].exchange(p);
                if (p != nullptr)
                    free_it(mine, p);
                if (i % 64 == 0) {
                    EXPECT_EQ(mine.open_parcels().kind, HK_FAULT_NONE);
                    atomic_store(&mine->tick, mine->tick + 1);
                }
                if (i % 128 == 0) {
                    size_t from = (random >> 40) % kMailboxes;
                    for (size_t k = from; k < std::min(from + 64, kMailboxes); k++)
                        if (void *q = mailboxes[k].exchange(nullptr))
                            free_it(mine, q);
                    HeldLock held(&mine->lock);
                    hk_purge_pay(kMib, mine.get());
                }
                if (i % 5000 == 4999) {
                    mine.park();
                    mine.start();
                }
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    stop = true;
    purger.join();
    for (auto &mailbox : mailboxes)
        if (void *p = mailbox.exchange(nullptr))
            free_it(heap, p);
    EXPECT_TRUE(heap.send_outbox());
}

} // namespace
