/* Huge pages: which superslabs get them, that they have memory as a whole, when they lose them, and what happens when
 * they take long. */
#include "test_heap.h"

#include "c_begin.h"
#include "heap/hole.h"
#include "heap/limit.h"
#include "c_end.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <sys/mman.h>

namespace
{

constexpr size_t kLarge = 20; /* superslabs in use that make a heap large */

/* The kernel's flags of the mapping in which an address lies, as of /proc/self/smaps; "" if it shows none. */
std::string flags_of(const void *p)
{
    std::ifstream smaps("/proc/self/smaps");
    std::string line;
    bool here = false;
    while (std::getline(smaps, line)) {
        unsigned long begin, end;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
            here = begin <= reinterpret_cast<uintptr_t>(p) && reinterpret_cast<uintptr_t>(p) < end;
        else if (here && line.rfind("VmFlags:", 0) == 0)
            return line + " ";
    }
    return "";
}

/* False where the kernel knows no huge pages, or shows nothing of them. */
bool kernel_tells(const void *p)
{
    std::string flags = flags_of(p);
    return flags.find(" hg ") != std::string::npos || flags.find(" nh ") != std::string::npos;
}

/* False under the emulator, which takes the advice and does nothing. */
bool populates()
{
#if defined(__aarch64__)
    return false;
#else
    return true;
#endif
}

/* For each page of a superslab whether it has memory. */
std::vector<bool> pages_in_core(const hk_superslab *superslab)
{
    std::vector<unsigned char> in_core(HK_SUPERSLAB_SIZE / hk_os_page_size());
    EXPECT_EQ(mincore(superslab->base, HK_SUPERSLAB_SIZE, in_core.data()), 0);
    std::vector<bool> pages;
    for (unsigned char page : in_core)
        pages.push_back((page & 1) != 0);
    return pages;
}

size_t resident_pages(const hk_superslab *superslab)
{
    std::vector<bool> pages = pages_in_core(superslab);
    return static_cast<size_t>(std::count(pages.begin(), pages.end(), true));
}

class HugePages : public HeapTest
{
  protected:
    TestHeap heap;
    std::vector<void *> blocks;

    void SetUp() override
    {
        HeapTest::SetUp();
        HeldLock held(&hk_pool_lock);
        for (hk_superslab *superslab : all_superslabs())
            hk_huge_pages_end(superslab);
    }
    void TearDown() override
    {
        heap.give(blocks);
        blocks.clear();
        heap.park();
        HeapTest::TearDown();
    }
    /* A slab more: the first of a superslab, if all others are full. */
    hk_superslab *begin_superslab(unsigned size_class = k1024)
    {
        std::vector<void *> slab = heap.take_slab(size_class);
        blocks.insert(blocks.end(), slab.begin(), slab.end());
        return hk_superslab_of(slab.back());
    }
    /* Makes the heap so many superslabs larger, all of them full of blocks. Returns the last one. */
    hk_superslab *grow(size_t superslabs)
    {
        for (size_t i = 1; i < superslabs * HK_SLOTS_PER_SUPERSLAB; i++)
            begin_superslab();
        return begin_superslab();
    }
    void grow_large() { grow(kLarge); }
    /* Whether the next superslab would have them. */
    static bool are_wanted()
    {
        HeldLock held(&hk_pool_lock);
        hk_superslab *superslab = hk_superslabs_acquire(1, HK_SUPERSLAB_CARVED);
        EXPECT_TRUE(superslab->zero);
        bool wanted = hk_huge_pages_begin(superslab);
        hk_huge_pages_end(superslab);
        hk_superslabs_release(superslab, 1, false);
        return wanted;
    }
    void give_last(size_t n)
    {
        heap.give(std::vector<void *>(blocks.end() - static_cast<ptrdiff_t>(n), blocks.end()));
        blocks.resize(blocks.size() - n);
    }
};

TEST_F(HugePages, ASmallHeapHasNone)
{
    grow(kLarge - 1);
    EXPECT_EQ(hk_superslab_counts.huge, 0u);
    EXPECT_FALSE(are_wanted());
    EXPECT_LT(resident_pages(hk_superslab_of(blocks.back())), 8u);
}

TEST_F(HugePages, ALargeAndDenseOneGrowsByThem)
{
    grow_large();
    EXPECT_EQ(hk_superslab_counts.huge, 0u);
    size_t empty = hk_pool_counts.slots_empty;
    heap->grown_bytes = 0;
    hk_superslab *superslab = begin_superslab();
    EXPECT_TRUE(superslab->huge);
    EXPECT_EQ(hk_superslab_counts.huge, 1u);
    if (populates()) {
        EXPECT_EQ(resident_pages(superslab), HK_SUPERSLAB_SIZE / hk_os_page_size());
    }
    EXPECT_EQ(hk_pool_counts.slots_empty, empty + HK_SLOTS_PER_SUPERSLAB - 1) << "its slots have memory";
    EXPECT_EQ(hk_pool_counts.slots_populated, HK_SLOTS_PER_SUPERSLAB - 1);
    EXPECT_EQ(heap->grown_bytes, HK_SLOT_SIZE) << "as it is used";
    if (kernel_tells(superslab->base)) {
        EXPECT_NE(flags_of(superslab->base).find(" hg "), std::string::npos) << flags_of(superslab->base);
        EXPECT_NE(flags_of(hk_superslab_of(blocks.front())->base).find(" nh "), std::string::npos);
    }
}

TEST_F(HugePages, GrowthDoesNotPayWithWhatWasPopulatedForIt)
{
    grow_large();
    hk_superslab *superslab = begin_superslab();
    ASSERT_TRUE(superslab->huge);
    std::vector<void *> slab(blocks.begin(), blocks.begin() + hk_classes[k1024].nblocks); /* in the first superslab */
    blocks.erase(blocks.begin(), blocks.begin() + hk_classes[k1024].nblocks);
    for (void *p : slab)
        memset(p, 0xa5, 1);
    heap.give(slab);
    tend_all();
    EXPECT_EQ(hk_pool_counts.slots_empty, HK_SLOTS_PER_SUPERSLAB);
    EXPECT_EQ(hk_pool_pay(0, SIZE_MAX), HK_SLOT_SIZE);
    EXPECT_EQ(hk_pool_counts.slots_empty, HK_SLOTS_PER_SUPERSLAB - 1);
    EXPECT_EQ(hk_pool_counts.slots_populated, HK_SLOTS_PER_SUPERSLAB - 1);
    EXPECT_TRUE(superslab->huge);
}

TEST_F(HugePages, GrowthIsCountedAsItIsUsed)
{
    grow_large();
    ASSERT_TRUE(begin_superslab()->huge);
    heap->grown_bytes = 0;
    hk_huge_pages_after_fork(); /* however long that took */
    grow(1);
    EXPECT_EQ(hk_superslab_counts.huge, 2u);
    EXPECT_EQ(hk_pool_counts.slots_populated, HK_SLOTS_PER_SUPERSLAB - 1);
    EXPECT_EQ(heap->grown_bytes, HK_SUPERSLAB_SIZE);
}

TEST_F(HugePages, ASparseHeapDoesNot)
{
    grow_large();
    std::vector<void *> some, others; /* of every slab every tenth block, and the rest */
    for (size_t i = 0; i < blocks.size(); i++)
        (i % 10 == 0 ? some : others).push_back(blocks[i]);
    blocks = others;
    heap.give(some);
    EXPECT_FALSE(are_wanted());
}

TEST_F(HugePages, AHeapThatManyThreadsShareIsLargeLater)
{
    grow_large();
    EXPECT_TRUE(are_wanted());
    TestHeap another;
    EXPECT_FALSE(are_wanted()) << "what its magazines may hold counts";
    grow_large();
    EXPECT_TRUE(are_wanted());
}

TEST_F(HugePages, OptionsAndLimitsAreHeeded)
{
    grow_large();
    EXPECT_TRUE(are_wanted());
    for (const char *word : {"never", "always"}) {
        WithOption thp("thp", word);
        EXPECT_FALSE(are_wanted()) << word;
    }
    for (const char *name : {"limit_soft", "limit_hard"}) {
        WithOption limit(name, std::to_string(hk_limit_in_use() + HK_SUPERSLAB_SIZE / 2).c_str());
        EXPECT_FALSE(are_wanted()) << name;
        EXPECT_FALSE(hk_limit_is_pressing());
    }
}

TEST_F(HugePages, OnlySlabsThatFillASlotAskForThem)
{
    grow_large();
    EXPECT_FALSE(begin_superslab(class_of_blocks(1u << 20))->huge) << "a long run";
    EXPECT_FALSE(begin_superslab(kRun)->huge) << "a run";
}

TEST_F(HugePages, NorDoThoseThatUseHalfOfIt)
{
    grow_large();
    ASSERT_TRUE(hk_class_has_tail(class_of_blocks(16)));
    EXPECT_FALSE(begin_superslab(class_of_blocks(16))->huge);
}

TEST_F(HugePages, ASlabThatDoesNotFillItsSlotDoesNotBreakThemUp)
{
    grow_large();
    hk_superslab *superslab = begin_superslab();
    ASSERT_TRUE(superslab->huge);
    EXPECT_EQ(begin_superslab(class_of_blocks(16)), superslab);
    EXPECT_TRUE(superslab->huge);
}

TEST_F(HugePages, AreGivenUpForHoles)
{
    grow_large();
    hk_superslab *superslab = grow(1);
    ASSERT_TRUE(superslab->huge);
    ASSERT_EQ(superslab->empty, 0u);
    void *stays = blocks.back();
    blocks.pop_back();
    give_last(hk_classes[k1024].nblocks - 1u);
    blocks.push_back(stays);
    hk_holes holes;
    ASSERT_TRUE(hk_holes_open(&holes, hk_slab_of(stays)));
    EXPECT_GT(hk_holes_purge(&holes), 0u);
    EXPECT_FALSE(superslab->huge);
    hk_fault fault{};
    hk_holes_close(&holes, &fault);
    if (kernel_tells(superslab->base)) {
        EXPECT_NE(flags_of(superslab->base).find(" nh "), std::string::npos);
    }
}

/* Of all classes that have them, and every hundredth block stays. What lies behind a slab's last block goes with the
 * page of that. */
TEST_F(HugePages, WhatIsLeftAfterAPurgeLiesUnderLiveBlocks)
{
    const size_t page = hk_os_page_size();
    grow_large();
    std::vector<void *> dead;
    std::set<hk_superslab *> superslabs;
    std::set<uintptr_t> used; /* pages */
    size_t n = 0;
    for (unsigned size_class = 0; size_class < HK_NCLASSES; size_class++) {
        const struct hk_class &c = hk_classes[size_class];
        if (!hk_class_fills_slot(size_class))
            continue;
        hk_huge_pages_after_fork(); /* however long they take here */
        for (void *p : heap.take(size_class, 6 * c.nblocks)) {
            uintptr_t at = reinterpret_cast<uintptr_t>(p);
            superslabs.insert(hk_superslab_of(p));
            if (n++ % 100 != 0 || p == hk_slab_block(hk_slab_of(p), c.nblocks - 1)) {
                dead.push_back(p);
                continue;
            }
            blocks.push_back(p);
            for (uintptr_t first = hk_align_down(at, page); first < at + c.size; first += page)
                used.insert(first);
        }
    }
    ASSERT_GT(hk_superslab_counts.huge, superslabs.size() / 2);
    heap.give(dead);
    hk_fault fault{};
    hk_purge(HK_PURGE_ALL, 0, SIZE_MAX, &fault);
    for (const hk_superslab *superslab : superslabs) {
        EXPECT_FALSE(superslab->huge && superslab->state == HK_SUPERSLAB_CARVED);
        std::vector<bool> in_core = pages_in_core(superslab);
        for (size_t i = 0; i < in_core.size(); i++) {
            uintptr_t at = reinterpret_cast<uintptr_t>(superslab->base) + i * page;
            EXPECT_TRUE(!in_core[i] || used.count(at) != 0) << "page " << i;
        }
    }
}

TEST_F(HugePages, AreGivenUpForEmptySlots)
{
    grow_large();
    hk_superslab *superslab = begin_superslab();
    ASSERT_TRUE(superslab->huge);
    hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
    EXPECT_FALSE(superslab->huge);
    EXPECT_EQ(superslab->empty, 0u);
    EXPECT_LE(resident_pages(superslab), HK_SLOT_SIZE / hk_os_page_size()) << "the slot in use";
}

TEST_F(HugePages, ALargeBlockDoesNotInheritThem)
{
    grow_large();
    hk_superslab *superslab = begin_superslab();
    ASSERT_TRUE(superslab->huge);
    give_last(hk_classes[k1024].nblocks);
    tend_all(); /* which releases the slab that the heap has kept */
    ASSERT_EQ(superslab->state, HK_SUPERSLAB_FREE);
    EXPECT_TRUE(superslab->huge) << "the next slabs may have it as it is";
    hk_superslab *large;
    {
        HeldLock held(&hk_pool_lock);
        large = hk_superslabs_acquire(1, HK_SUPERSLAB_LARGE);
    }
    EXPECT_EQ(large, superslab) << "it has memory";
    EXPECT_FALSE(superslab->huge);
    HeldLock held(&hk_pool_lock);
    hk_superslabs_release(large, 1, true);
}

TEST_F(HugePages, APurgeOfTheWholeKeepsThemForTheNext)
{
    grow_large();
    hk_superslab *superslab = begin_superslab();
    give_last(hk_classes[k1024].nblocks);
    tend_all();
    hk_superslabs_purge(0, UINT64_MAX, SIZE_MAX);
    ASSERT_TRUE(superslab->huge);
    ASSERT_TRUE(superslab->zero);
    EXPECT_EQ(resident_pages(superslab), 0u);
    {
        WithOption never("thp", "never");
        EXPECT_FALSE(begin_superslab()->huge) << "and are taken back if they are not wanted then";
    }
}

TEST_F(HugePages, RestWhenTheyTakeLong)
{
    grow_large();
    for (int quick = 0; quick < 100; quick++)
        hk_huge_pages_took(quick % 10 == 0 ? 4 : 0); /* as a coarse clock has it */
    EXPECT_TRUE(are_wanted());
    int slow = 0;
    for (; are_wanted() && slow < 100; slow++)
        hk_huge_pages_took(6);
    EXPECT_LE(slow, 3);
    /* Then one in so many that all of them together take little longer than with small pages. */
    int tried = 0;
    for (int superslab = 0; superslab < 1000; superslab++) {
        if (are_wanted()) {
            hk_huge_pages_took(6);
            tried++;
        }
    }
    EXPECT_GE(tried, 10);
    EXPECT_LE(tried, 20);
}

} /* namespace */
