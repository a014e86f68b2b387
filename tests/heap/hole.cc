/*
 * Holes: pages of a slab in use on which no block is live. They go, and nothing else does; the books say which free
 * blocks have no memory, and those are handed out last; what happens to a slab while its pages are on their way. The
 * three steps are made by hand, one thread in turn for all heaps.
 */
#include "test_heap.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "c_begin.h"
#include "heap/hole.h"
#include "heap/purge_counts.h"
#include "heap/purge.h"
#include "c_end.h"

namespace
{

size_t page_size() { return hk_os_page_size(); }

char *page_of(const void *p)
{
    return reinterpret_cast<char *>(hk_align_down(reinterpret_cast<uintptr_t>(p), page_size()));
}

/* True if the page has memory. To be asked before anybody reads it, which brings a page of zeros. */
bool is_resident(const void *p)
{
    unsigned char in_core = 0;
    EXPECT_EQ(mincore(page_of(p), page_size(), &in_core), 0);
    return (in_core & 1) != 0;
}

bool is_zero(const void *p, size_t size)
{
    const char *bytes = static_cast<const char *>(p);
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* What a live block holds: each its own. */
char pattern(const void *p) { return static_cast<char>(reinterpret_cast<uintptr_t>(p) / 16 % 251 + 1); }
void fill(void *p) { memset(p, pattern(p), hk_slab_class(hk_slab_of(p))->size); }
void fill(const std::vector<void *> &blocks)
{
    for (void *p : blocks)
        fill(p);
}
bool holds(const void *p)
{
    const char *bytes = static_cast<const char *>(p);
    size_t size = hk_slab_class(hk_slab_of(p))->size;
    return bytes[0] == pattern(p) && memcmp(bytes, bytes + 1, size - 1) == 0;
}

unsigned index_of(const void *p)
{
    hk_fault fault{};
    unsigned index = 0;
    EXPECT_TRUE(hk_slab_index(hk_slab_of(p), p, &index, &fault));
    return index;
}

/* Pages are named by their number in the slab's slots. */
char *slots_of(const hk_slab *slab) { return slab->superslab->base + slab->slot * HK_SLOT_SIZE; }
char *page_at(const hk_slab *slab, size_t page) { return slots_of(slab) + page * page_size(); }
size_t pages_of(const hk_slab *slab) { return slab->slots * (HK_SLOT_SIZE / page_size()); }
bool is_absent(const hk_slab *slab, size_t page)
{
    size_t per_slot = HK_SLOT_SIZE / page_size();
    return ((hk_slab_slots(slab)[page / per_slot].absent_pages >> (page % per_slot)) & 1) != 0;
}
size_t first_page_of(const hk_slab *slab, unsigned block)
{
    return static_cast<size_t>(static_cast<char *>(hk_slab_block(slab, block)) - slots_of(slab)) / page_size();
}
size_t last_page_of(const hk_slab *slab, unsigned block)
{
    return static_cast<size_t>(static_cast<char *>(hk_slab_block(slab, block)) + hk_slab_class(slab)->size - 1 -
                               slots_of(slab)) /
           page_size();
}

/* The first step, and what its caller does with it. */
bool open(hk_slab *slab, hk_holes *holes)
{
    struct hk_heap *owner = hk_slab_owner(slab);
    HeldLock held(&owner->lock);
    bool any = hk_holes_open(holes, slab);
    if (any)
        hk_slab_settle(owner, slab);
    check_slab(slab, true);
    return any;
}
/* The third; the slab may be released by it. */
hk_fault close(hk_holes *holes)
{
    hk_fault fault{};
    struct hk_heap *owner = hk_slab_owner(holes->slab);
    HeldLock held(&owner->lock);
    hk_holes_close(holes, &fault);
    check_holes(holes->slab, true); /* others may be out */
    hk_slab_settle(owner, holes->slab);
    return fault;
}
/* All three. Returns bytes. */
size_t give_back(hk_slab *slab)
{
    hk_holes holes;
    if (!open(slab, &holes))
        return 0;
    size_t bytes = hk_holes_purge(&holes);
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    return bytes;
}

class Hole : public HeapTest
{
  protected:
    TestHeap heap;

    using Blocks = std::vector<void *>;

    /* Blocks [from, to) of those given. */
    static Blocks part(const Blocks &blocks, size_t from, size_t to)
    {
        return {blocks.begin() + static_cast<ptrdiff_t>(from), blocks.begin() + static_cast<ptrdiff_t>(to)};
    }
    /* Blocks of `blocks` that touch pages [from, to) of their slab; and the others. */
    static std::pair<Blocks, Blocks> split_by_pages(const Blocks &blocks, size_t from, size_t to)
    {
        std::pair<Blocks, Blocks> found;
        const hk_slab *slab = hk_slab_of(blocks[0]);
        for (void *p : blocks) {
            bool touches = first_page_of(slab, index_of(p)) < to && last_page_of(slab, index_of(p)) >= from;
            (touches ? found.first : found.second).push_back(p);
        }
        return found;
    }
    void give(const Blocks &blocks) { EXPECT_EQ(heap.give(blocks).kind, HK_FAULT_NONE); }
    static void expect_content(const Blocks &blocks)
    {
        for (void *p : blocks)
            EXPECT_TRUE(holds(p)) << "block " << index_of(p);
    }
    static void expect_absent(const hk_slab *slab, const std::set<size_t> &pages)
    {
        for (size_t page = 0; page < pages_of(slab); page++)
            EXPECT_EQ(is_absent(slab, page), pages.count(page) == 1) << "page " << page;
    }
};

/* ---- Which pages go ---- */

TEST_F(Hole, PagesWithoutALiveBlockGoAndReadAsZero)
{
    Blocks blocks = heap.take_slab(k64);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    auto [freed, live] = split_by_pages(blocks, 2, 5);
    give(freed);
    EXPECT_EQ(give_back(slab), 3 * page_size());
    for (size_t page = 0; page < pages_of(slab); page++)
        EXPECT_EQ(is_resident(page_at(slab, page)), page < 2 || page >= 5) << "page " << page;
    expect_absent(slab, {2, 3, 4});
    EXPECT_TRUE(is_zero(page_at(slab, 2), 3 * page_size()));
    expect_content(live);
    check_everything();
    EXPECT_EQ(give_back(slab), 0u) << "they are gone already";
    give(live);
}

TEST_F(Hole, OneLiveBlockKeepsItsPage)
{
    Blocks blocks = heap.take_slab(k64);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    auto [freed, live] = split_by_pages(blocks, 1, 4);
    void *survivor = freed[freed.size() / 2]; /* on page 2 */
    freed.erase(freed.begin() + static_cast<ptrdiff_t>(freed.size() / 2));
    live.push_back(survivor);
    give(freed);
    EXPECT_EQ(give_back(slab), 2 * page_size());
    expect_absent(slab, {1, 3});
    EXPECT_TRUE(is_resident(survivor));
    expect_content(live);
    EXPECT_GT(hk_slab_nidle(slab), 0u) << "its neighbours have memory";
    give(live);
}

TEST_F(Hole, ASlabInFullUseHasNone)
{
    Blocks blocks = heap.take_slab(k64);
    hk_holes holes;
    EXPECT_FALSE(open(hk_slab_of(blocks[0]), &holes));
    give(blocks);
}

/* A block in a magazine counts as used: its thread may hand it out without asking. */
TEST_F(Hole, ABlockInAMagazineKeepsItsPage)
{
    Blocks blocks = heap.take_slab(k4096);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    EXPECT_EQ(heap.free(k4096, blocks[3]).kind, HK_FAULT_NONE);
    give(part(blocks, 4, 6));
    EXPECT_EQ(give_back(slab), 2 * 4096u);
    expect_absent(slab, {4, 5});
    heap.flush(k4096);
    EXPECT_EQ(give_back(slab), 4096u);
    expect_absent(slab, {3, 4, 5});
    give(part(blocks, 0, 3));
    give(part(blocks, 6, blocks.size()));
}

TEST_F(Hole, BlocksThatStraddlePagesHoldBoth)
{
    Blocks blocks = heap.take_slab(k48);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    ASSERT_NE(page_size() % 48, 0u);
    /* All on pages 2 and 3, but for the one that lies on both 2 and 1. */
    auto [freed, live] = split_by_pages(blocks, 2, 4);
    void *straddler = freed.front();
    ASSERT_EQ(first_page_of(slab, index_of(straddler)), 1u);
    ASSERT_EQ(last_page_of(slab, index_of(straddler)), 2u);
    freed.erase(freed.begin());
    live.push_back(straddler);
    give(freed);
    EXPECT_EQ(give_back(slab), page_size());
    expect_absent(slab, {3});
    expect_content(live);
    /* Now that one, too: page 2 goes, page 1 keeps the rest of it. */
    give({straddler});
    live.pop_back();
    EXPECT_EQ(give_back(slab), page_size());
    expect_absent(slab, {2, 3});
    EXPECT_TRUE(is_resident(page_at(slab, 1)));
    expect_content(live);
    EXPECT_EQ(hk_slab_nidle(slab), 0u) << "a block that is half there counts as absent";
    EXPECT_EQ(slab->nabsent, freed.size() + 1);
    /* Handed out, it brings page 2 back, and what else lies there. */
    void *p = straddler;
    while (p == straddler || hk_slab_nidle(slab) > 0)
        fill(p = heap.take_one(k48)), live.push_back(p);
    expect_absent(slab, {3});
    expect_content(live);
    check_everything();
    give(live);
}

TEST_F(Hole, ABlockOfSeveralPagesGoesAsAWhole)
{
    Blocks blocks = heap.take_slab(kRun); /* no block starts at a page but the first */
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    ASSERT_EQ(slab->slots, 3);
    /* Alone it gives the pages that it has to itself. */
    give({blocks[5]});
    size_t first = first_page_of(slab, 5), last = last_page_of(slab, 5);
    std::set<size_t> own;
    for (size_t page = first; page <= last; page++)
        if (page > last_page_of(slab, 4) && page < first_page_of(slab, 6))
            own.insert(page);
    ASSERT_GE(own.size(), 1u);
    EXPECT_EQ(give_back(slab), own.size() * page_size());
    expect_absent(slab, own);
    EXPECT_EQ(slab->nabsent, 1);
    EXPECT_EQ(hk_slab_nidle(slab), 0u);
    expect_content(part(blocks, 0, 5));
    expect_content(part(blocks, 6, blocks.size()));
    /* Handed out, it has all its pages. */
    EXPECT_EQ(heap.take_one(kRun), blocks[5]);
    expect_absent(slab, {});
    EXPECT_EQ(slab->nabsent, 0);
    EXPECT_FALSE(slab->holed);
    give(blocks);
}

TEST_F(Hole, InSlabsOfSeveralSlots)
{
    Blocks blocks = heap.take_slab(kRun);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    size_t per_slot = HK_SLOT_SIZE / page_size();
    /* All but the first and the last: so holes span all three slots. */
    give(part(blocks, 1, blocks.size() - 1));
    size_t from = last_page_of(slab, 0) + 1, to = first_page_of(slab, slab->fresh_from - 1u);
    EXPECT_EQ(give_back(slab), (to - from) * page_size());
    for (size_t page = from; page < to; page++) {
        EXPECT_TRUE(is_absent(slab, page)) << "page " << page;
        EXPECT_FALSE(is_resident(page_at(slab, page))) << "page " << page;
    }
    for (unsigned slot = 0; slot < slab->slots; slot++)
        EXPECT_NE(hk_slab_slots(slab)[slot].absent_pages, 0u) << "slot " << slot;
    EXPECT_GT(to, 2 * per_slot);
    EXPECT_EQ(slab->nabsent, blocks.size() - 2);
    expect_content({blocks.front(), blocks.back()});
    check_everything();
    std::vector<void *> again = heap.take(kRun, static_cast<unsigned>(blocks.size()) - 2);
    EXPECT_EQ(again, part(blocks, 1, blocks.size() - 1));
    for (unsigned slot = 0; slot < slab->slots; slot++)
        EXPECT_EQ(hk_slab_slots(slab)[slot].absent_pages, 0u) << "slot " << slot;
    give(blocks);
}

/* What no block has touches memory all the same if another slab had the slots before, or they were populated. */
TEST_F(Hole, WhatLiesBeforeTheFirstBlockAndBehindTheLastGoesWithThem)
{
    constexpr unsigned size_class = class_of_blocks(196672); /* three blocks in ten slots */
    Blocks blocks = heap.take_slab(size_class), more;
    while (first_page_of(hk_slab_of(blocks[0]), 0) == 0) /* colours: one slab in sixteen has no page there */
        more = std::exchange(blocks, heap.take_slab(size_class));
    hk_slab *slab = hk_slab_of(blocks[0]);
    memset(slots_of(slab), 1, slab->slots * HK_SLOT_SIZE);
    fill(blocks);
    char *start = slots_of(slab), *end = start + slab->slots * HK_SLOT_SIZE;
    char *first = page_at(slab, first_page_of(slab, 0)), *last = page_at(slab, last_page_of(slab, 2) + 1);
    auto resident = [](char *from, char *to) {
        size_t n = 0;
        for (; from < to; from += page_size())
            n += is_resident(from);
        return n;
    };
    ASSERT_LT(last, end);
    give({blocks[1]});
    EXPECT_GT(give_back(slab), 0u);
    EXPECT_EQ(resident(start, first), first_page_of(slab, 0));
    give({blocks[0]});
    EXPECT_GT(give_back(slab), 0u);
    EXPECT_EQ(resident(start, first), 0u);
    EXPECT_GT(resident(last, end), 0u);
    expect_content({blocks[2]});
    Blocks again = heap.take(size_class, 2);
    give({blocks[2]});
    EXPECT_GT(give_back(slab), 0u);
    EXPECT_EQ(resident(last, end), 0u);
    give(again);
    give(more);
}

/* ---- What was never handed out ---- */

TEST_F(Hole, PagesThatWereNeverUsedAreNotAsked)
{
    Blocks blocks = heap.take(k64, 100); /* a page and a half */
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    auto [live, freed] = split_by_pages(blocks, 0, 1);
    give(freed);
    /* The page that was begun goes, with the fresh blocks on it; those behind it are nobody's business. */
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    for (size_t page = 0; page < pages_of(slab); page++)
        EXPECT_EQ((holes.pages[0] >> page) & 1, page == 1) << "page " << page;
    EXPECT_EQ(hk_holes_purge(&holes), page_size());
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    expect_absent(slab, {1});
    EXPECT_GE(slab->nabsent, 36);
    EXPECT_EQ(hk_slab_nidle(slab), 0u);
    expect_content(live);
    check_everything();
    /* All that is handed out next is zero, the page's own and what lies behind it; and those said to be fresh are. */
    Blocks rest;
    while (rest.size() < 1024 - live.size()) {
        bool fresh = false;
        rest.push_back(heap.take_one(k64, &fresh));
        ASSERT_EQ(hk_slab_of(rest.back()), slab);
        EXPECT_TRUE(is_zero(rest.back(), 64)) << "block " << index_of(rest.back());
        EXPECT_FALSE(fresh && index_of(rest.back()) < 100);
        fill(rest.back());
    }
    expect_absent(slab, {});
    EXPECT_EQ(slab->nabsent, 0);
    expect_content(live);
    expect_content(rest);
    check_everything();
    give(live);
    give(rest);
}

/* The page has both: blocks that were handed out before, and behind them those that were not. */
TEST_F(Hole, APageThatComesBackMakesNoFreshBlockIdle)
{
    for (unsigned used : {65u, 90u, 127u}) {
        Blocks blocks = heap.take(k64, used);
        hk_slab *slab = hk_slab_of(blocks[0]);
        auto [live, freed] = split_by_pages(blocks, 0, 1);
        give(freed);
        EXPECT_EQ(give_back(slab), page_size());
        check_everything();
        while (is_absent(slab, 1)) {
            live.push_back(heap.take_one(k64));
            check_everything();
        }
        EXPECT_LT(hk_slab_nidle(slab), 64u);
        give(live);
        trim_all();
    }
}

TEST_F(Hole, WhileOpenFreshBlocksThatAreOutDoNotCountAsIdle)
{
    Blocks blocks = heap.take(k64, 70);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 64, 70)); /* page 1: six used, 58 fresh */
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    EXPECT_EQ(hk_slab_nidle(slab), 0u);
    EXPECT_EQ(heap->idle_bytes, 0u);
    hk_holes_purge(&holes);
    close(&holes);
    EXPECT_EQ(heap->idle_bytes, 0u);
    EXPECT_GE(slab->nabsent, 6);
    check_everything();
    give(part(blocks, 0, 64));
}

/* ---- Handing out ---- */

TEST_F(Hole, BlocksWithMemoryComeFirstThenFreshOnesAbsentOnesLast)
{
    Blocks blocks = heap.take(k64, 900);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 0, 128));   /* pages 0 and 1 */
    give(part(blocks, 300, 310)); /* idle: their page stays */
    EXPECT_EQ(give_back(slab), 2 * page_size());
    EXPECT_EQ(hk_slab_nidle(slab), 10u);
    EXPECT_EQ(slab->nabsent, 128);
    Blocks taken;
    auto take_and_expect = [&](unsigned from, unsigned to) {
        for (unsigned i = from; i < to; i++) {
            void *p = heap.take_one(k64);
            ASSERT_EQ(index_of(p), i);
            taken.push_back(p);
        }
    };
    take_and_expect(300, 310);
    EXPECT_EQ(slab->nabsent, 128);
    take_and_expect(900, 1024);
    EXPECT_EQ(slab->nabsent, 128);
    EXPECT_EQ(slab->nfree, 128);
    take_and_expect(0, 1);
    EXPECT_EQ(slab->nabsent, 64) << "its page is back";
    EXPECT_EQ(hk_slab_nidle(slab), 63u);
    take_and_expect(1, 128);
    EXPECT_EQ(slab->nabsent, 0);
    EXPECT_FALSE(slab->holed);
    give(taken);
    give(part(blocks, 128, 300));
    give(part(blocks, 310, 900));
}

TEST_F(Hole, AnotherSlabsIdleBlocksComeBeforeAbsentOnes)
{
    Blocks first = heap.take_slab(k4096), second = heap.take_slab(k4096);
    give(part(first, 0, 4));
    EXPECT_EQ(give_back(hk_slab_of(first[0])), 4 * 4096u);
    EXPECT_EQ(hk_slab_of(first[0])->bin, HK_BIN_UNBACKED);
    give(part(second, 0, 12)); /* much emptier */
    check_everything();
    EXPECT_EQ(heap.take(k4096, 12), part(second, 0, 12));
    EXPECT_EQ(heap.take(k4096, 4), part(first, 0, 4)) << "before a new slab is begun";
    give(first);
    give(second);
}

TEST_F(Hole, HandingOutBringsThePageBackInTheBooksAndOnlyThat)
{
    Blocks blocks = heap.take_slab(k64);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 64, 192)); /* pages 1 and 2 */
    give_back(slab);
    size_t returned = hk_purge_counts.hole_bytes_returned;
    void *p = heap.take_one(k64);
    EXPECT_EQ(p, blocks[64]);
    EXPECT_TRUE(is_zero(p, 64));
    expect_absent(slab, {2});
    EXPECT_EQ(hk_purge_counts.hole_bytes_returned, returned + page_size());
    EXPECT_EQ(hk_slab_nidle(slab), 63u);
    fill(p);
    EXPECT_TRUE(is_resident(page_at(slab, 1)));
    EXPECT_FALSE(is_resident(page_at(slab, 2)));
    /* A block that comes back to a page with memory is idle; the page can go again. */
    give({p});
    EXPECT_EQ(hk_slab_nidle(slab), 64u);
    EXPECT_EQ(give_back(slab), page_size());
    EXPECT_FALSE(is_resident(page_at(slab, 1)));
    EXPECT_EQ(slab->nabsent, 128);
    expect_content(part(blocks, 0, 64));
    expect_content(part(blocks, 192, 1024));
    give(part(blocks, 0, 64));
    give(part(blocks, 192, 1024));
}

TEST_F(Hole, ABatchStopsWhereMemoryEnds)
{
    Blocks blocks = heap.take_slab(k4096);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give({blocks[2], blocks[3]});
    give_back(slab);
    give({blocks[7], blocks[9]});
    {
        HeldLock held(&heap->lock);
        EXPECT_EQ(take_blocks(slab, 16), (std::vector<void *>{blocks[7], blocks[9]}));
        EXPECT_EQ(take_blocks(slab, 16), (std::vector<void *>{blocks[2], blocks[3]}));
        EXPECT_TRUE(take_blocks(slab, 16).empty());
        hk_slab_settle(heap.get(), slab);
    }
    give(blocks);
}

/* ---- While the pages are on their way ---- */

TEST_F(Hole, NobodyGetsABlockThatIsOut)
{
    Blocks blocks = heap.take_slab(k64);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 0, 64));
    give(part(blocks, 100, 103));
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    Blocks taken = heap.take(k64, 10);
    EXPECT_EQ(part(taken, 0, 3), part(blocks, 100, 103));
    for (size_t i = 3; i < taken.size(); i++)
        EXPECT_NE(hk_slab_of(taken[i]), slab) << "of another slab, since this one has no more";
    fill(taken);
    EXPECT_EQ(hk_holes_purge(&holes), page_size());
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    EXPECT_EQ(slab->nfree, 64);
    EXPECT_EQ(slab->nabsent, 64);
    expect_content(taken);
    expect_content(part(blocks, 64, 1024));
    check_everything();
    give(taken);
    give(part(blocks, 64, 100));
    give(part(blocks, 103, 1024));
}

TEST_F(Hole, BlocksComeBackMeanwhile)
{
    Blocks blocks = heap.take_slab(k64);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 0, 64));
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    give(part(blocks, 64, 256));
    EXPECT_EQ(free_remotely(blocks[256]).kind, HK_FAULT_NONE);
    EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_nidle(slab), 193u);
    hk_holes_purge(&holes);
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    expect_absent(slab, {0});
    EXPECT_EQ(slab->nfree, 257);
    EXPECT_EQ(hk_slab_nidle(slab), 193u);
    EXPECT_EQ(give_back(slab), 3 * page_size());
    check_everything();
    give(part(blocks, 257, 1024));
}

TEST_F(Hole, ASlabIsNotReleasedUntilItsBlocksAreBack)
{
    Blocks blocks = heap.take_slab(kRun);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 5, 10));
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    give(part(blocks, 0, 5));
    EXPECT_EQ(free_remotely(part(blocks, 10, blocks.size())).kind, HK_FAULT_NONE);
    EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_NONE);
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_owner(slab), heap.get()) << "all is free, and some of it out";
    EXPECT_EQ(heap->classes[kRun].nslabs, 1u);
    EXPECT_GT(hk_holes_purge(&holes), 0u);
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_owner(slab), nullptr) << "released when they came back";
    EXPECT_EQ(heap->classes[kRun].nslabs, 0u);
    check_everything();
    /* The next slab there knows nothing of it. */
    Blocks again = heap.take_slab(kRun);
    ASSERT_EQ(hk_slab_of(again[0]), slab);
    expect_absent(slab, {});
    give(again);
}

TEST_F(Hole, TheKernelMayRefuse)
{
    Blocks blocks = heap.take_slab(k4096);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    /* Locked memory cannot be given back. Not by the C library: a sanitizer's does nothing. */
    if (syscall(SYS_mlock, blocks[4], page_size()) != 0)
        GTEST_SKIP() << "this process may not lock memory";
    give(part(blocks, 4, 5));
    give(part(blocks, 8, 10));
    EXPECT_EQ(give_back(slab), 2 * 4096u) << "what it does not refuse goes";
    expect_absent(slab, {8, 9});
    EXPECT_EQ(slab->nabsent, 2);
    EXPECT_EQ(hk_slab_nidle(slab), 1u) << "the block is idle as before";
    check_everything();
    EXPECT_EQ(syscall(SYS_munlock, blocks[4], page_size()), 0);
    EXPECT_EQ(give_back(slab), 4096u);
    expect_absent(slab, {4, 8, 9});
    give(part(blocks, 0, 4));
    give(part(blocks, 5, 8));
    give(part(blocks, 10, blocks.size()));
}

/* Two may be at it: who pays for growth does not wait for the other. */
TEST_F(Hole, TwoGiveBackPagesOfOneSlabAtATime)
{
    Blocks blocks = heap.take_slab(k48);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    auto [first, others] = split_by_pages(blocks, 2, 4);
    give(first);
    hk_holes outer;
    ASSERT_TRUE(open(slab, &outer));
    auto [second, live] = split_by_pages(others, 4, 6); /* but for what straddles pages 3 and 4, which is out */
    give(second);
    EXPECT_EQ(give_back(slab), page_size());
    expect_absent(slab, {5});
    EXPECT_EQ(hk_holes_purge(&outer), 2 * page_size());
    EXPECT_EQ(close(&outer).kind, HK_FAULT_NONE);
    expect_absent(slab, {2, 3, 5});
    EXPECT_EQ(give_back(slab), page_size());
    expect_absent(slab, {2, 3, 4, 5});
    expect_content(live);
    check_everything();
    give(live);
}

TEST_F(Hole, ASlabIsNotReleasedThoughItsBlocksAreFreedTwiceMeanwhile)
{
    Blocks blocks = heap.take_slab(k64);
    Blocks kept = heap.take_slab(k64);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(kept, 0, 1)); /* so that the other is not the last slab of its class with free blocks */
    auto [on_pages, others] = split_by_pages(blocks, 2, 3);
    give(on_pages);
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    EXPECT_EQ(heap.give(on_pages).kind, HK_FAULT_NONE) << "nobody can know yet";
    give(others);
    EXPECT_EQ(hk_slab_owner(slab), heap.get()) << "blocks of it are out";
    hk_holes_purge(&holes);
    hk_fault fault = close(&holes);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(hk_slab_owner(slab), nullptr) << "now it may go";
    check_everything();
    give(part(kept, 1, kept.size()));
}

TEST_F(Hole, ADoubleFreeMeanwhileIsNoticed)
{
    Blocks blocks = heap.take_slab(k64);
    hk_slab *slab = hk_slab_of(blocks[0]);
    for (bool remotely : {false, true}) {
        give(part(blocks, 0, 64));
        hk_holes holes;
        ASSERT_TRUE(open(slab, &holes));
        if (remotely) {
            EXPECT_EQ(free_remotely(blocks[17]).kind, HK_FAULT_NONE) << "nobody can know yet";
            EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_NONE);
        } else {
            EXPECT_EQ(heap.give({blocks[17]}).kind, HK_FAULT_NONE) << "nobody can know yet";
        }
        hk_holes_purge(&holes);
        hk_fault fault = close(&holes);
        EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
        EXPECT_EQ(fault.ptr, blocks[17]);
        EXPECT_EQ(fault.block_size, 64u);
        EXPECT_TRUE(fault.late);
        EXPECT_EQ(slab->nfree, 64) << "free once";
        check_everything();
        EXPECT_EQ(heap.take(k64, 64), part(blocks, 0, 64));
    }
    give(blocks);
}

TEST_F(Hole, ADoubleFreeThatArrivesLaterIsNoticedToo)
{
    Blocks blocks = heap.take_slab(k64);
    hk_slab *slab = hk_slab_of(blocks[0]);
    give(part(blocks, 0, 64));
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    EXPECT_EQ(free_remotely(blocks[17]).kind, HK_FAULT_NONE);
    hk_holes_purge(&holes);
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(slab->nfree, 64);
    give(part(blocks, 64, 1024));
}

/* ---- Owners that change meanwhile ---- */

TEST_F(Hole, TheSlabIsAdoptedMeanwhile)
{
    TestHeap other;
    Blocks blocks = other.take_slab(k64);
    fill(blocks);
    hk_slab *slab = hk_slab_of(blocks[0]);
    other.give(part(blocks, 0, 128));
    other.give({blocks[500]});
    hk_holes holes;
    ASSERT_TRUE(open(slab, &holes));
    other.park();
    void *p = heap.take_one(k64);
    ASSERT_EQ(p, blocks[500]);
    ASSERT_EQ(hk_slab_owner(slab), heap.get());
    fill(p);
    EXPECT_EQ(hk_holes_purge(&holes), 2 * page_size());
    EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
    expect_absent(slab, {0, 1});
    EXPECT_EQ(slab->nabsent, 128);
    expect_content(part(blocks, 128, 1024));
    check_everything();
    EXPECT_EQ(heap.take(k64, 128), part(blocks, 0, 128));
    give(blocks);
}

TEST_F(Hole, TheSlabIsOrphanedMeanwhile)
{
    for (bool last : {false, true}) {
        TestHeap other;
        Blocks blocks = other.take_slab(k64);
        fill(blocks);
        hk_slab *slab = hk_slab_of(blocks[0]);
        other.give(part(blocks, 0, 128));
        hk_holes holes;
        ASSERT_TRUE(open(slab, &holes));
        other.park();
        dissolve_parked();
        hk_fault fault{};
        ASSERT_EQ(hk_slab_owner(slab), &hk_orphans);
        if (last) {
            EXPECT_EQ(free_remotely(part(blocks, 128, blocks.size())).kind, HK_FAULT_NONE);
        }
        EXPECT_EQ(hk_holes_purge(&holes), 2 * page_size());
        EXPECT_EQ(close(&holes).kind, HK_FAULT_NONE);
        check_everything();
        if (!last) {
            expect_absent(slab, {0, 1});
            expect_content(part(blocks, 128, 1024));
            Blocks adopted = heap.take(k64, 128);
            EXPECT_EQ(adopted, part(blocks, 0, 128));
            give(blocks);
        } else {
            hk_heaps_tend(true, &fault);
            EXPECT_EQ(hk_slab_owner(slab), nullptr) << "of nobody, and empty";
        }
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    }
}

/* ---- At random, against a model that knows no bitmaps ---- */

class HoleModel : public HeapTest, public testing::WithParamInterface<unsigned>
{
  protected:
    static constexpr size_t kMostOut = 2; /* at a time */

    enum State { FREE, LIVE, OUT };

    const hk_class &c = hk_classes[GetParam()];
    TestHeap heap;
    hk_slab *slab = nullptr;
    uint64_t random = 0;

    struct Out {
        hk_holes holes;
        std::set<size_t> pages;
        std::set<unsigned> blocks;
        bool purged = false;
    };
    std::vector<State> blocks;
    std::vector<bool> touched; /* blocks ever handed out */
    std::vector<bool> absent;  /* pages */
    std::vector<Out> out;
    unsigned fresh_from = 0, live = 0;

    uint64_t below(uint64_t n)
    {
        random = random * 6364136223846793005 + 1442695040888963407;
        return (random >> 33) % n;
    }
    bool has_memory(unsigned i)
    {
        for (size_t page = first_page_of(slab, i); page <= last_page_of(slab, i); page++)
            if (absent[page])
                return false;
        return true;
    }
    bool is_absent_block(unsigned i) { return blocks[i] == FREE && i < fresh_from && !has_memory(i); }

    void compare()
    {
        unsigned nfree = 0, nabsent = 0, nidle = 0;
        for (unsigned i = 0; i < c.nblocks; i++) {
            ASSERT_EQ(hk_slab_is_free(slab, i), blocks[i] == FREE) << "block " << i;
            nfree += blocks[i] == FREE;
            nabsent += is_absent_block(i);
            nidle += blocks[i] == FREE && i < fresh_from && has_memory(i);
        }
        ASSERT_EQ(slab->nfree, nfree);
        ASSERT_EQ(slab->fresh_from, fresh_from);
        ASSERT_EQ(slab->nabsent, nabsent);
        ASSERT_EQ(hk_slab_nidle(slab), nidle);
        ASSERT_EQ(heap->idle_bytes, size_t{nidle} * c.size);
        for (size_t page = 0; page < absent.size(); page++)
            ASSERT_EQ(is_absent(slab, page), absent[page]) << "page " << page;
        check_slab(slab, !out.empty());
    }
    void hand_out(unsigned i)
    {
        void *p = hk_slab_block(slab, i);
        if (!touched[i]) {
            ASSERT_TRUE(is_zero(p, c.size)) << "block " << i << " was never handed out, and is not zero";
        }
        blocks[i] = LIVE;
        touched[i] = true;
        live++;
        fresh_from = std::max(fresh_from, i + 1);
        for (size_t page = first_page_of(slab, i); page <= last_page_of(slab, i); page++)
            absent[page] = false;
        fill(p);
    }
    /* Those that have memory or never had any, lowest first; only if there is none of them those without. */
    void take(unsigned want)
    {
        std::vector<unsigned> with, without;
        for (unsigned i = 0; i < c.nblocks; i++)
            if (blocks[i] == FREE)
                (is_absent_block(i) ? without : with).push_back(i);
        std::vector<unsigned> &expected = with.empty() ? without : with;
        expected.resize(std::min<size_t>(expected.size(), want));
        std::vector<void *> got;
        {
            HeldLock held(&heap->lock);
            got = take_blocks(slab, want);
            hk_slab_settle(heap.get(), slab);
        }
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); i++)
            ASSERT_EQ(index_of(got[i]), expected[i]);
        for (unsigned i : expected)
            hand_out(i);
    }
    /* Frees a run of blocks, but never the last that lives: the slab would be released. */
    void free_some(unsigned from, unsigned n)
    {
        HeldLock held(&heap->lock);
        for (unsigned i = from; i < c.nblocks && i < from + n; i++) {
            if (blocks[i] != LIVE || live == 1)
                continue;
            ASSERT_TRUE(holds(hk_slab_block(slab, i))) << "block " << i;
            ASSERT_TRUE(put_block(slab, i));
            blocks[i] = FREE;
            live--;
        }
        hk_slab_settle(heap.get(), slab);
    }
    bool all_free(const std::vector<unsigned> &those)
    {
        return std::all_of(those.begin(), those.end(), [&](unsigned i) { return blocks[i] == FREE; });
    }
    void open_holes()
    {
        Out o;
        size_t used_pages = fresh_from == 0 ? 0 : last_page_of(slab, fresh_from - 1) + 1;
        std::vector<std::vector<unsigned>> on_page(used_pages);
        for (unsigned i = 0; i < c.nblocks; i++)
            for (size_t page = first_page_of(slab, i); page <= last_page_of(slab, i) && page < used_pages; page++)
                on_page[page].push_back(i);
        for (size_t page = 0; page < used_pages; page++)
            if (!on_page[page].empty() && !absent[page] && all_free(on_page[page])) {
                o.pages.insert(page);
                o.blocks.insert(on_page[page].begin(), on_page[page].end());
            }
        ASSERT_EQ(open(slab, &o.holes), !o.pages.empty());
        for (unsigned i : o.blocks)
            blocks[i] = OUT;
        /* Fresh blocks that are out need not be fresh when they come back. */
        for (; fresh_from < slab->fresh_from; fresh_from++)
            ASSERT_EQ(blocks[fresh_from], OUT);
        if (!o.pages.empty())
            out.push_back(o);
    }
    void purge_holes(Out &o)
    {
        if (o.purged)
            return;
        o.purged = true;
        ASSERT_EQ(hk_holes_purge(&o.holes), o.pages.size() * page_size());
        for (size_t page : o.pages)
            ASSERT_FALSE(is_resident(page_at(slab, page))) << "page " << page;
    }
    void close_holes(size_t at)
    {
        purge_holes(out[at]);
        Out o = out[at];
        out.erase(out.begin() + static_cast<ptrdiff_t>(at));
        ASSERT_EQ(close(&o.holes).kind, HK_FAULT_NONE);
        for (unsigned i : o.blocks)
            blocks[i] = FREE;
        for (size_t page : o.pages)
            absent[page] = true;
    }
    void step()
    {
        switch (below(8)) {
        case 0:
        case 1: return take(1);
        case 2: return take(1 + static_cast<unsigned>(below(c.nblocks)));
        case 3: return free_some(static_cast<unsigned>(below(c.nblocks)), 1);
        case 4:
        case 5: /* whole pages of small blocks */
            return free_some(static_cast<unsigned>(below(c.nblocks)),
                             1 + static_cast<unsigned>(below(2 + 3 * page_size() / c.size)));
        case 6:
            if (out.size() < kMostOut)
                return open_holes();
            return purge_holes(out[below(out.size())]);
        default:
            if (!out.empty())
                close_holes(below(out.size()));
        }
    }
    void run(uint64_t seed, int steps)
    {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        random = seed;
        void *first = heap.take_one(GetParam());
        slab = hk_slab_of(first);
        blocks.assign(c.nblocks, FREE);
        touched.assign(c.nblocks, false);
        absent.assign(pages_of(slab), false);
        fresh_from = live = 0;
        ASSERT_EQ(index_of(first), 0u);
        hand_out(0);
        for (int i = 0; i < steps; i++) {
            SCOPED_TRACE(testing::Message() << "step " << i);
            step();
            if (HasFatalFailure())
                return;
            compare();
            if (HasFatalFailure())
                return;
        }
        while (!out.empty())
            close_holes(0);
        compare();
        for (unsigned i = 0; i < c.nblocks; i++)
            if (blocks[i] == LIVE) {
                EXPECT_TRUE(holds(hk_slab_block(slab, i))) << "block " << i;
                EXPECT_EQ(heap.give({hk_slab_block(slab, i)}).kind, HK_FAULT_NONE);
            }
    }
};

TEST_P(HoleModel, AgreesWithTheSlab)
{
    int steps = std::max(60, 300 / HK_TEST_SLOWDOWN);
    for (uint64_t seed = 1; seed <= 8; seed++) {
        run(seed * 1000 + GetParam(), steps);
        if (HasFatalFailure())
            return;
        trim_all(); /* so that the next slab is fresh */
    }
}

/* Sizes that divide pages and that do not, of one block on many pages and of many on one, in one slot and in many. */
INSTANTIATE_TEST_SUITE_P(Class, HoleModel,
                         testing::Values(0u, 1u, k48, k64, 5u, 12u, 15u, 20u, 31u, 32u, 38u, 44u, k4096, 48u, 49u, 52u,
                                         kRun, 57u, 62u, 65u, 72u, 76u, 81u, 82u, 83u, 85u, 89u));

} // namespace
