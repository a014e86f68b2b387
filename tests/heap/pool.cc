/* The pool: the three stages in their order, affinity of classes, runs of slots, giving back and purging. */
#include "test_heap.h"

#include <random>
#include <sys/mman.h>

namespace
{

constexpr unsigned kClass = k64, kOther = k1024;

using Counts = struct hk_pool_counts;

struct hk_heap *const kOwner = &hk_guests; /* who owns the slabs that tests make does not matter here */

class Pool : public HeapTest
{
  protected:
    Counts before = counts_now();

    static Counts counts_now()
    {
        HeldLock held(&hk_pool_lock);
        return hk_pool_counts;
    }
    /* How often a stage was used since the last question. */
    size_t since(size_t Counts::*counter)
    {
        size_t n = counts_now().*counter - before.*counter;
        before = counts_now();
        return n;
    }
    static hk_slab *acquire(unsigned size_class, hk_key key = kOwner->key)
    {
        size_t grown = 0;
        if (hk_classes[size_class].slots != 1)
            return hk_pool_acquire_run(key, size_class, &grown);
        hk_slab *slab = nullptr;
        EXPECT_LE(hk_pool_acquire_slots(key, size_class, &slab, 1, &grown), 1u);
        return slab;
    }
    /* A slab's life, in which its first n blocks are handed out. */
    static void live(hk_slab *slab, unsigned size_class, unsigned n = 1)
    {
        hk_slab_init(slab, size_class, kOwner);
        ASSERT_EQ(take_blocks(slab, n).size(), n);
        for (unsigned i = 0; i < n; i++)
            ASSERT_TRUE(put_block(slab, i));
        hk_slab_fini(slab);
    }
    static void use_and_release(hk_slab *slab, unsigned size_class, unsigned n = 1)
    {
        live(slab, size_class, n);
        hk_pool_release_run(slab, hk_classes[size_class].slots);
    }
    static void release_untouched(hk_slab *slab, unsigned nslots = 1) { hk_pool_release_run(slab, nslots); }
    static uint32_t bit(const hk_slab *slab) { return 1u << slab->slot; }
};

TEST_F(Pool, TakesAnEmptySlotBeforeAnUnusedOneBeforeASuperslab)
{
    hk_slab *first = acquire(kClass);
    EXPECT_EQ(since(&Counts::stage3_mapped), 1u);
    hk_slab *second = acquire(kClass);
    EXPECT_EQ(since(&Counts::stage2_unused), 1u);
    EXPECT_EQ(second->superslab, first->superslab);
    use_and_release(first, kClass);
    EXPECT_EQ(first->superslab->empty, bit(first));
    EXPECT_EQ(acquire(kClass), first);
    EXPECT_EQ(since(&Counts::stage1_same_class), 1u);
    use_and_release(first, kClass);
    EXPECT_EQ(acquire(kOther), first) << "memory of another class is better than none";
    EXPECT_EQ(since(&Counts::stage1_any_class), 1u);
    check_pool();
    release_untouched(first);
    release_untouched(second);
}

TEST_F(Pool, PrefersAnEmptySlotOfTheSameClass)
{
    hk_slab *pin = acquire(kClass), *mine = acquire(kClass), *others[3];
    for (hk_slab *&slab : others)
        slab = acquire(kOther);
    use_and_release(others[0], kOther);
    use_and_release(mine, kClass);
    use_and_release(others[1], kOther);
    EXPECT_EQ(acquire(kClass), mine);
    hk_slab *any = acquire(kClass);
    EXPECT_TRUE(any == others[0] || any == others[1]);
    for (hk_slab *slab : {pin, mine, any, others[2]})
        release_untouched(slab);
}

/* What is there of them is in the caches of its processor. */
TEST_F(Pool, AHeapTakesTheSlotsThatItGaveBackItself)
{
    constexpr hk_key kMine = 5u << HK_KEY_SHIFT, kOthers = 6u << HK_KEY_SHIFT;
    hk_slab *pin = acquire(kClass), *mine = acquire(kClass, kMine), *other = acquire(kClass, kOthers);
    use_and_release(mine, kClass);
    use_and_release(other, kClass);
    EXPECT_EQ(acquire(kClass, kMine), mine) << "though the other was given back later";
    EXPECT_EQ(acquire(kClass, kMine), other) << "which is better than one without memory";
    use_and_release(mine, kOther);
    use_and_release(other, kClass);
    EXPECT_EQ(acquire(kClass, kOthers), other) << "both were mine by then, but only one the class's";
    use_and_release(other, kClass);
    EXPECT_EQ(acquire(kClass, kMine), mine) << "though it was another class's";
    EXPECT_EQ(acquire(kClass, kMine), other);
    for (hk_slab *slab : {pin, mine, other})
        release_untouched(slab);

    pin = acquire(kClass);
    hk_slab *runs[2] = {acquire(kRun, kMine), acquire(kRun, kOthers)};
    for (hk_slab *run : runs)
        use_and_release(run, kRun, hk_classes[kRun].nblocks);
    EXPECT_EQ(acquire(kRun, kMine), runs[0]);
    EXPECT_EQ(acquire(kRun, kMine), runs[1]);
    for (hk_slab *run : runs)
        release_untouched(run, hk_classes[kRun].slots);
    release_untouched(pin);
    check_pool();
}

/* The lock is held meanwhile. */
TEST_F(Pool, AHeapDoesNotLookFarForSlotsOfItsOwn)
{
    constexpr hk_key kMine = 5u << HK_KEY_SHIFT, kOthers = 6u << HK_KEY_SHIFT;
    std::vector<hk_slab *> slots = {acquire(kClass), acquire(kClass, kMine)};
    for (unsigned i = 0; i < 4; i++)
        slots.push_back(acquire(kClass, kOthers));
    for (unsigned i = 1; i < slots.size(); i++)
        use_and_release(slots[i], kClass);
    EXPECT_EQ(acquire(kClass, kMine), slots.back());
    EXPECT_EQ(acquire(kClass, kMine), slots[1]) << "now it is the fourth";
    for (hk_slab *slab : {slots[0], slots[1], slots.back()})
        release_untouched(slab);
    check_pool();
}

TEST_F(Pool, FillsTheFullestSuperslab)
{
    std::vector<hk_slab *> slots;
    for (unsigned i = 0; i < 2 * HK_SLOTS_PER_SUPERSLAB; i++)
        slots.push_back(acquire(kClass));
    hk_superslab *fuller = slots[0]->superslab, *emptier = slots.back()->superslab;
    ASSERT_NE(fuller, emptier);
    for (unsigned i : {3u, 9u})
        release_untouched(slots[i]);
    for (unsigned i = 40; i < 60; i++)
        release_untouched(slots[i]);
    check_pool();
    for (unsigned i : {3u, 9u})
        EXPECT_EQ(slots[i] = acquire(kClass), &fuller->table->slabs[i]);
    for (unsigned i = 40; i < 60; i++) {
        slots[i] = acquire(kClass);
        EXPECT_EQ(slots[i]->superslab, emptier);
    }
    for (hk_slab *slab : slots)
        release_untouched(slab);
}

TEST_F(Pool, ASuperslabWithoutSlotsInUseGoesBack)
{
    size_t carved = hk_superslab_counts.carved;
    hk_slab *used = acquire(kClass), *untouched = acquire(kClass);
    hk_superslab *superslab = used->superslab;
    EXPECT_EQ(hk_superslab_counts.carved, carved + 1);
    release_untouched(untouched);
    use_and_release(used, kClass);
    EXPECT_EQ(hk_superslab_counts.carved, carved);
    EXPECT_EQ(superslab->state, HK_SUPERSLAB_FREE);
    EXPECT_TRUE(superslab->resident);
    EXPECT_EQ(since(&Counts::superslab_releases), 1u);
    /* And comes back, knowing which of its slots have memory. */
    hk_slab *again = acquire(kClass);
    EXPECT_EQ(since(&Counts::stage3_cached), 1u);
    EXPECT_EQ(again->superslab, superslab);
    EXPECT_EQ(superslab->active | superslab->empty, bit(used) | bit(again));
    check_pool();
    release_untouched(again);
    trim_all();
    hk_slab *untouched_again = acquire(kClass);
    release_untouched(untouched_again);
    EXPECT_FALSE(superslab->resident) << "no slot had memory";
    EXPECT_TRUE(superslab->zero);
}

TEST_F(Pool, ASuperslabThatWasALargeBlockHasMemoryEverywhere)
{
    void *large = hk_large_alloc(HK_SUPERSLAB_SIZE, HK_MIN_ALIGN, HK_LARGE_ANY, false);
    ASSERT_NE(large, nullptr);
    memset(large, 0xa5, HK_SUPERSLAB_SIZE);
    hk_fault fault{};
    ASSERT_TRUE(hk_large_free(large, &fault));
    hk_slab *slab = acquire(kClass);
    hk_superslab *superslab = slab->superslab;
    ASSERT_EQ(superslab->base,
              reinterpret_cast<char *>(hk_align_down(reinterpret_cast<uintptr_t>(large), HK_SUPERSLAB_SIZE)));
    EXPECT_EQ(superslab->active | superslab->empty, ~0u);
    hk_slab_init(slab, kClass, kOwner);
    EXPECT_EQ(slab->fresh_from, hk_classes[kClass].nblocks) << "nothing in it is zero";
    hk_slab_fini(slab);
    hk_pool_release_run(slab, 1);
}

/* ---- Runs ---- */

TEST_F(Pool, RunsAreAdjacentSlotsOfOneSuperslab)
{
    std::vector<std::pair<hk_slab *, unsigned>> runs;
    for (unsigned size_class = HK_CLASS_FIRST_MEDIUM; size_class < HK_NCLASSES; size_class++) {
        unsigned n = hk_classes[size_class].slots;
        hk_slab *slab = acquire(size_class);
        ASSERT_NE(slab, nullptr);
        EXPECT_LE(slab->slot + n, HK_SLOTS_PER_SUPERSLAB);
        uint32_t mask = hk_low_mask32(n) << slab->slot;
        EXPECT_EQ(slab->superslab->active & mask, mask);
        for (auto [other, slots] : runs) {
            EXPECT_TRUE(other->superslab != slab->superslab || other->slot + slots <= slab->slot ||
                        slab->slot + n <= other->slot)
                << "two runs overlap";
        }
        check_pool();
        runs.emplace_back(slab, n);
    }
    for (auto [slab, n] : runs) {
        release_untouched(slab, n);
        check_pool();
    }
}

TEST_F(Pool, ARunWithMemoryIsPreferred)
{
    hk_slab *pin = acquire(kClass), *gap = acquire(kRun), *run = acquire(kRun);
    release_untouched(gap, 3);
    use_and_release(run, kRun, hk_classes[kRun].nblocks);
    EXPECT_EQ(hk_count_bits32(run->superslab->empty), 3u);
    EXPECT_EQ(acquire(kRun), run) << "and not the untouched slots before it";
    release_untouched(run, 3);
    release_untouched(pin);
}

TEST_F(Pool, SlotsOfARunServeAsSingleOnes)
{
    hk_slab *pin = acquire(kClass), *run = acquire(kRun);
    use_and_release(run, kRun, hk_classes[kRun].nblocks);
    std::set<hk_slab *> slots;
    for (int i = 0; i < 3; i++) {
        hk_slab *slab = acquire(kClass);
        slots.insert(slab);
        hk_slab_init(slab, kClass, kOwner);
        EXPECT_EQ(hk_slab_of(slab->blocks), slab) << "its slot is not the second of a run any more";
        hk_slab_fini(slab);
    }
    EXPECT_EQ(slots, (std::set<hk_slab *>{run, run + 1, run + 2}));
    for (hk_slab *slab : slots)
        hk_pool_release_run(slab, 1);
    release_untouched(pin);
}

TEST_F(Pool, TheSlotsOfASlabServeTheNextOfItsClass)
{
    hk_slab *pin = acquire(kClass), *run = acquire(kRun), *behind = acquire(kRun);
    use_and_release(run, kRun, hk_classes[kRun].nblocks);
    use_and_release(behind, kRun, hk_classes[kRun].nblocks);
    check_pool();
    since(&Counts::stage1_same_class);
    EXPECT_EQ(acquire(kRun), behind) << "the last that ended comes first";
    EXPECT_EQ(acquire(kRun), run);
    EXPECT_EQ(since(&Counts::stage1_same_class), 2u);
    release_untouched(run, 3);
    release_untouched(behind, 3);
    release_untouched(pin);
}

TEST_F(Pool, ACachedSuperslabServesARunBeforeSlotsWithoutMemory)
{
    std::vector<hk_slab *> slots;
    while (slots.size() < 2 || slots.back()->superslab == slots.front()->superslab)
        slots.push_back(acquire(kClass));
    hk_slab *other = slots.back();
    slots.pop_back();
    for (size_t i = 1; i < slots.size(); i++)
        release_untouched(slots[i]);
    use_and_release(other, kClass);
    ASSERT_TRUE(other->superslab->resident);
    hk_slab *run = acquire(kRun);
    EXPECT_EQ(run->superslab, other->superslab);
    check_pool();
    release_untouched(run, 3);
    release_untouched(slots[0]);
}

TEST_F(Pool, ACachedSuperslabGivesARunThatHasMemory)
{
    std::vector<hk_slab *> slots;
    for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++)
        slots.push_back(acquire(kClass));
    hk_superslab *superslab = slots[0]->superslab;
    for (hk_slab *slab : slots) {
        ASSERT_EQ(slab->superslab, superslab);
        if (slab->slot >= 10)
            use_and_release(slab, kClass);
        else
            release_untouched(slab);
    }
    ASSERT_TRUE(superslab->resident);
    hk_slab *run = acquire(kRun);
    EXPECT_EQ(run->superslab, superslab);
    EXPECT_GE(run->slot, 10);
    release_untouched(run, 3);
}

TEST_F(Pool, ARunThatWasCutDoesNotHideTheOthersOfItsClass)
{
    hk_slab *pin = acquire(kClass), *runs[3];
    for (hk_slab *&run : runs)
        run = acquire(kRun);
    for (hk_slab *run : runs)
        use_and_release(run, kRun, hk_classes[kRun].nblocks);
    hk_slab *single = acquire(kClass);
    EXPECT_EQ(single, runs[2] + 2) << "the end of the last run";
    since(&Counts::stage1_same_class);
    hk_slab *again = acquire(kRun);
    EXPECT_EQ(again, runs[1]);
    EXPECT_EQ(since(&Counts::stage1_same_class), 1u);
    check_pool();
    release_untouched(again, 3);
    release_untouched(single);
    release_untouched(pin);
}

/* Or small slabs, which stay, would take what a large block leaves, and the next one would need another superslab. */
TEST_F(Pool, LongRunsHaveSuperslabsOfTheirOwn)
{
    constexpr unsigned kLong = class_of_blocks(1048640); /* a slab of 17 slots */
    const size_t before_all = hk_superslab_counts.carved;
    std::vector<hk_slab *> stay;
    for (unsigned i = 0; i < 320; i++) {
        hk_slab *large = acquire(kLong);
        live(large, kLong);
        hk_slab *small = acquire(kClass), *other = acquire(kRun);
        EXPECT_NE(small->superslab, large->superslab);
        EXPECT_NE(other->superslab, large->superslab);
        live(small, kClass);
        hk_pool_release_run(large, hk_classes[kLong].slots);
        hk_slab *next = acquire(kClass);
        live(next, kClass);
        stay.push_back(next);
        hk_pool_release_run(small, 1);
        release_untouched(other, hk_classes[kRun].slots);
    }
    EXPECT_LE(hk_superslab_counts.carved - before_all, 320u / HK_SLOTS_PER_SUPERSLAB + 2);
    check_pool();
    for (hk_slab *slab : stay)
        hk_pool_release_run(slab, 1);
    /* What was for the one serves the other when it is wholly free. */
    hk_slab *large = acquire(kLong);
    EXPECT_EQ(hk_superslab_counts.carved, before_all + 1);
    use_and_release(large, kLong);
    hk_superslab *superslab = large->superslab;
    hk_slab *small = acquire(kClass);
    EXPECT_EQ(small->superslab, superslab) << "cached, with memory";
    check_pool();
    use_and_release(small, kClass);
}

/* Slots that were fetched for a warm pool, and not used. */
TEST_F(Pool, ASlotOfARunThatIsNotUsedComesBackAsItWas)
{
    hk_slab *pin = acquire(kClass), *run = acquire(kRun);
    live(run, kRun, hk_classes[kRun].nblocks);
    run->used_at = 12345;
    hk_pool_release_run(run, 3);
    hk_slab *slot = acquire(kClass);
    EXPECT_EQ(slot, run + 2);
    release_untouched(slot);
    EXPECT_EQ(slot->cls, kRun);
    EXPECT_EQ(slot->used_at, 12345u);
    release_untouched(pin);
}

/* Slabs of many lengths, begun and ended in no order, and all that may happen to superslabs meanwhile: runs of EMPTY
 * slots are cut, kept and forgotten; what is fresh is zero. Pages that are locked refuse to go. */
class PoolFuzz : public Pool
{
  protected:
    std::mt19937 random{7};
    std::vector<std::pair<hk_slab *, unsigned>> slabs;
    std::vector<std::pair<hk_superslab *, unsigned>> large;
    std::vector<char *> locked;

    unsigned below(size_t n) { return static_cast<unsigned>(random() % n); }

    void begin_slab()
    {
        const unsigned classes[] = {kClass, kOther, kRun, 56, 65, 69, 73, 77, 81, 87};
        unsigned c = classes[below(std::size(classes))];
        hk_slab *slab = acquire(c);
        ASSERT_NE(slab, nullptr);
        slabs.emplace_back(slab, c);
        if (hk_classes[c].slots == 1 && below(8) == 0)
            return; /* it stays warm, and is not used */
        hk_slab_trim_tail(slab, c);
        hk_slab_init(slab, c, kOwner);
        for (unsigned b = slab->fresh_from; b < hk_classes[c].nblocks; b += 1 + below(7)) {
            const char *p = static_cast<const char *>(hk_slab_block(slab, b));
            for (size_t at = 0; at < hk_classes[c].size; at += 512)
                ASSERT_EQ(p[at], 0) << "block " << b << " is not fresh";
        }
        std::vector<void *> blocks = take_blocks(slab, below(hk_classes[c].nblocks + 1u));
        for (unsigned b = 0; b < blocks.size(); b++) {
            static_cast<char *>(blocks[b])[0] = static_cast<char *>(blocks[b])[hk_classes[c].size - 1] = 0x5a;
            ASSERT_TRUE(put_block(slab, b));
        }
        hk_slab_fini(slab);
    }
    void end_slab()
    {
        std::swap(slabs[below(slabs.size())], slabs.back());
        auto [slab, c] = slabs.back();
        slabs.pop_back();
        hk_pool_release_run(slab, hk_classes[c].slots);
    }
    void begin_large()
    {
        HeldLock held(&hk_pool_lock);
        unsigned n = 1 + below(3);
        hk_superslab *first = hk_superslabs_acquire(n, HK_SUPERSLAB_LARGE);
        ASSERT_NE(first, nullptr);
        for (unsigned i = 0; i < n; i++)
            memset(hk_superslab_next(first, i)->base, 0x77, below(HK_SUPERSLAB_SIZE));
        large.emplace_back(first, n);
    }
    void end_large()
    {
        HeldLock held(&hk_pool_lock);
        hk_superslabs_release(large.back().first, large.back().second, true);
        large.pop_back();
    }
    static void prewarm(size_t superslabs, unsigned size_class, bool populate)
    {
        const hk_prewarm wish = {superslabs, size_class};
        hk_pool_prewarm(&wish, 1, SIZE_MAX, populate);
    }
    void lock_a_page()
    {
        char *p = slabs[below(slabs.size())].first->superslab->base + below(HK_SLOTS_PER_SUPERSLAB) * HK_SLOT_SIZE;
        if (mlock(p, 4096) == 0)
            locked.push_back(p);
    }
    void unlock_all()
    {
        for (char *p : locked)
            munlock(p, 4096);
        locked.clear();
    }
    void step()
    {
        unsigned what = below(100);
        if (what < 45 && slabs.size() < 40)
            begin_slab();
        else if (what < 90 && !slabs.empty())
            end_slab();
        else if (what == 90 && large.size() < 4)
            begin_large();
        else if (what == 91 && !large.empty())
            end_large();
        else if (what == 92)
            prewarm(1 + below(2), below(2) == 0 ? kRun : kClass, below(2) == 0);
        else if (what == 93)
            hk_superslabs_purge(below(2), UINT64_MAX, SIZE_MAX);
        else if (what == 94)
            hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
        else if (what == 95 && below(4) == 0)
            hk_superslabs_unmap_free(true);
        else if (what == 96 && !slabs.empty() && locked.size() < 8)
            lock_a_page();
        else if (what == 97)
            unlock_all();
        else if (what == 98)
            after_fork();
    }
    static void after_fork()
    {
        HeldLock held(&hk_pool_lock);
        hk_pool_after_fork();
    }
};

TEST_F(PoolFuzz, RunsAreCutKeptAndForgottenInAnyOrder)
{
    for (unsigned steps = 0; steps < 8000 && !HasFailure(); steps++) {
        SCOPED_TRACE(steps);
        step();
        check_pool();
        check_superslabs();
    }
    while (!slabs.empty())
        end_slab();
    while (!large.empty())
        end_large();
    unlock_all();
    check_pool();
}

/* ---- Purging ---- */

TEST_F(Pool, PurgedSlotsAreZeroAndUnusedAgain)
{
    hk_slab *pin = acquire(kClass), *slab = acquire(kClass), *neighbour = acquire(kOther);
    char *slot = slab->superslab->base + slab->slot * HK_SLOT_SIZE;
    memset(slot, 0xa5, 2 * HK_SLOT_SIZE);
    live(slab, kClass, hk_classes[kClass].nblocks);
    live(neighbour, kOther, 7);
    hk_pool_release_run(slab, 1);
    hk_pool_release_run(neighbour, 1);
    EXPECT_EQ(counts_now().slots_empty, 2u);
    since(&Counts::slots_purged);
    EXPECT_EQ(hk_pool_purge(UINT32_MAX, 0, SIZE_MAX), 2 * HK_SLOT_SIZE);
    EXPECT_EQ(since(&Counts::slots_purged), 2u);
    EXPECT_EQ(counts_now().slots_empty, 0u);
    EXPECT_EQ(slab->superslab->purging, 0u);
    for (size_t i = 0; i < 2 * HK_SLOT_SIZE; i += 4096)
        EXPECT_EQ(slot[i], 0) << i;
    EXPECT_EQ(hk_pool_purge(UINT32_MAX, 0, SIZE_MAX), 0u) << "there is nothing left";
    check_pool();
    hk_slab *again = acquire(kClass);
    hk_slab_init(again, kClass, kOwner);
    EXPECT_EQ(again->fresh_from, 0) << "all of it is fresh again";
    hk_slab_fini(again);
    hk_pool_release_run(again, 1);
    release_untouched(pin);
}

TEST_F(Pool, ASuperslabWithoutMemoryIsCarvedAsIfForTheFirstTime)
{
    hk_slab *slab = acquire(kClass);
    hk_superslab *superslab = slab->superslab;
    hk_slot_table *table = superslab->table;
    use_and_release(slab, kClass);
    ASSERT_EQ(superslab->state, HK_SUPERSLAB_FREE);
    hk_superslabs_purge(0, UINT64_MAX, SIZE_MAX);
    /* Wherever the table begins, this lies on a page that is all its own. */
    EXPECT_EQ(table->slabs[HK_SLOTS_PER_SUPERSLAB - 1].superslab, nullptr) << "the table went with the memory";
    std::vector<hk_slab *> slots;
    do
        slots.push_back(acquire(kClass));
    while (slots.back()->superslab != superslab);
    EXPECT_EQ(superslab->table, table) << "for whoever looks late";
    for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++) {
        EXPECT_EQ(table->slabs[i].superslab, superslab) << i;
        EXPECT_EQ(table->slabs[i].slot, i);
    }
    use_and_release(slots.back(), kClass);
    slots.pop_back();
    for (hk_slab *taken : slots)
        release_untouched(taken);
}

TEST_F(Pool, NobodyTakesASlotThatIsBeingPurged)
{
    hk_slab *pin = acquire(kClass), *slab = acquire(kClass);
    {
        /* As another thread leaves it while it advises the kernel, without the lock. */
        HeldLock held(&hk_pool_lock);
        slab->superslab->active &= ~bit(slab);
        slab->superslab->purging |= bit(slab);
        hk_pool_counts.slots_active--;
        hk_slab_slots(slab)->touched = 1;
    }
    std::vector<hk_slab *> slots;
    while (slots.empty() || slots.back()->superslab == slab->superslab)
        slots.push_back(acquire(kClass));
    EXPECT_EQ(std::count(slots.begin(), slots.end(), slab), 0);
    EXPECT_EQ(slots.size(), HK_SLOTS_PER_SUPERSLAB - 2 + 1);
    for (hk_slab *s : slots)
        release_untouched(s);
    release_untouched(pin);
    EXPECT_EQ(slab->superslab->state, HK_SUPERSLAB_CARVED) << "a superslab does not go back meanwhile";
    /* The child of a fork takes it for EMPTY: then the superslab can go. */
    {
        HeldLock held(&hk_pool_lock);
        hk_pool_after_fork();
    }
    EXPECT_EQ(slab->superslab->purging, 0u);
    EXPECT_EQ(slab->superslab->state, HK_SUPERSLAB_FREE);
    EXPECT_FALSE(slab->superslab->zero);
}

TEST_F(Pool, WhatIsBeingPrewarmedIsFreeInAForksChild)
{
    std::vector<hk_slab *> slots;
    do
        slots.push_back(acquire(kClass));
    while (slots.size() < 2 * HK_SLOTS_PER_SUPERSLAB && slots.back()->superslab->active != ~0u);
    hk_superslab *superslab = slots.back()->superslab;
    ASSERT_EQ(superslab->active, ~0u);
    const size_t active = counts_now().slots_active;
    {
        /* As another thread leaves it while it faults the pages in, without the lock. */
        HeldLock held(&hk_pool_lock);
        superslab->purging = ~0u;
        hk_pool_after_fork();
    }
    EXPECT_EQ(superslab->state, HK_SUPERSLAB_FREE);
    EXPECT_EQ(superslab->active | superslab->purging, 0u);
    EXPECT_EQ(counts_now().slots_active, active - HK_SLOTS_PER_SUPERSLAB);
    for (hk_slab *slab : slots)
        if (slab->superslab != superslab)
            release_untouched(slab);
}

} // namespace
