/*
 * Magazines: what they make room with, what a flush gives back and refuses, how they grow, what stays in reserve.
 * From one thread, which works several heaps in turn.
 */
#include "test_heap.h"

#include <chrono>

namespace
{

class Magazine : public HeapTest
{
};

/* ---- Refill and flush ---- */

TEST_F(Magazine, MakesRoomByGivingBackTheOlderHalf)
{
    TestHeap heap;
    std::vector<void *> blocks = heap.take(k64, 200);
    size_t freed = 0;
    heap.free(k64, blocks[freed++]);
    unsigned capacity = heap->classes[k64].capacity;
    ASSERT_GT(capacity, 0u);
    while (heap.in_magazine(k64) < capacity)
        heap.free(k64, blocks[freed++]);
    EXPECT_TRUE(hk_magazine_is_full(heap.tops()[k64]));
    heap.free(k64, blocks[freed++]);
    unsigned half = (capacity + 1) / 2;
    EXPECT_EQ(heap.in_magazine(k64), capacity - half + 1);
    for (size_t i = 0; i < freed; i++)
        EXPECT_EQ(is_free(blocks[i]), i < half) << i;
    EXPECT_EQ(heap.pop(k64), blocks[freed - 1]) << "the last freed is the first handed out";
    heap.free(k64, blocks[freed - 1]);
    heap.flush(k64);
    EXPECT_EQ(heap.in_magazine(k64), 0u);
    EXPECT_EQ(heap.pop(k64), nullptr);
    heap.give({blocks.begin() + static_cast<ptrdiff_t>(freed), blocks.end()});
}

/* A magazine's blocks keep their slab: what is no longer the heap's was freed twice, and is another's block now. */
TEST_F(Magazine, FlushRefusesWhatIsNoLongerItsOwn)
{
    TestHeap heap, owner;
    std::vector<void *> blocks = owner.take(k64, 2);
    void *p = blocks[0], *mine[] = {heap.take_one(k64), heap.take_one(k64)};
    heap.free(k64, mine[0]);
    heap.free(k64, p);
    heap.free(k64, mine[1]);
    hk_fault fault = heap.flush(k64);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(fault.ptr, p);
    EXPECT_EQ(fault.block_size, 64u);
    EXPECT_FALSE(is_free(p)) << "it is in use";
    EXPECT_TRUE(is_free(mine[0]));
    EXPECT_TRUE(is_free(mine[1]));
    EXPECT_EQ(heap.in_magazine(k64), 0u);
    owner.give(blocks);
}

/* The hot path looks at the lower 48 bits of an address, a flush at all. */
TEST_F(Magazine, FlushKnowsAPointerThatIsNone)
{
    TestHeap heap;
    void *p = heap.take_one(k64);
    void *tagged = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(p) | 1ull << 48);
    heap.free(k64, p);
    heap.free(k64, tagged);
    hk_fault fault = heap.flush(k64);
    EXPECT_EQ(fault.kind, HK_FAULT_FOREIGN);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(fault.ptr, tagged);
    EXPECT_TRUE(is_free(p));
}

/* The first copy lies in the half that makes room for the second, and is the last block of its slab. */
TEST_F(Magazine, ASecondFreeDoesNotOutliveTheSlab)
{
    TestHeap heap;
    std::vector<void *> first = heap.take_slab(k1024), second = heap.take_slab(k1024);
    heap.give({second.begin() + 7, second.end()}); /* so that the first slab goes when it is empty */
    heap.give({first.begin() + 1, first.end()});
    heap.free(k1024, first[0]);
    for (size_t i = 0; i < 7; i++)
        heap.free(k1024, second[i]);
    ASSERT_TRUE(hk_magazine_is_full(heap.tops()[k1024]));
    hk_fault fault = heap.free(k1024, first[0]);
    EXPECT_EQ(hk_key_kind(hk_key_of(first[0])), unsigned{HK_KEY_GONE});
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.ptr, first[0]);
    EXPECT_EQ(heap.in_magazine(k1024), 4u);
    heap.flush(k1024);
}

TEST_F(Magazine, NoticesLateWhatAFlushFinds)
{
    TestHeap heap;
    void *p = heap.take_one(k64), *q = heap.take_one(k64);
    heap.give({p});
    heap.free(k64, q);
    heap.free(k64, p);
    hk_fault fault = heap.flush(k64);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(fault.ptr, p);
    EXPECT_EQ(fault.block_size, 64u);
    EXPECT_TRUE(is_free(q));
}

/* ---- Magazines' capacities ---- */

/* Empties and fills the magazine of a class as fast as can be, until its capacity does not grow any more. */
void demand(TestHeap &heap, unsigned size_class, std::chrono::milliseconds time,
            unsigned at_once = 3 * HK_MAGAZINE_BLOCKS_MAX)
{
    std::vector<void *> blocks;
    for (auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
        for (int round = 0; round < 20; round++) {
            for (unsigned i = 0; i < at_once; i++)
                blocks.push_back(heap.alloc(size_class));
            for (void *p : blocks)
                heap.free(size_class, p);
            blocks.clear();
        }
    }
}

/* Lets the magazine of a class grow to its largest. */
void grow(TestHeap &heap, unsigned size_class)
{
    for (int i = 0; i < 50 && heap->classes[size_class].capacity < hk_classes[size_class].magazine_max; i++)
        demand(heap, size_class, std::chrono::milliseconds(20));
    ASSERT_EQ(heap->classes[size_class].capacity, hk_classes[size_class].magazine_max);
}

TEST_F(Magazine, StartSmallAndGrowWithDemand)
{
    TestHeap heap;
    void *p = heap.alloc(k64);
    unsigned first = heap->classes[k64].capacity;
    EXPECT_GE(first, 2u);
    EXPECT_LT(first, hk_classes[k64].magazine_max);
    heap.free(k64, p);
    grow(heap, k64);
    heap.flush(k64);
}

/* As if the last time that it was busy were so long ago, and the next refill or flush looked at the time. */
void rest(TestHeap &heap, uint64_t ms)
{
    heap->budget.busy_at = hk_os_now_ms() - ms;
    heap->budget.busy_step--;
    heap->budget.busy_count = 0;
}

TEST_F(Magazine, ShrinkWhenTheHeapHasNotBeenBusyForASecond)
{
    TestHeap heap;
    grow(heap, k64);
    heap.flush(k64);
    std::vector<void *> blocks = heap.take(k64, 100);
    for (void *p : blocks)
        heap.free(k64, p);
    ASSERT_EQ(heap.in_magazine(k64), 100u);
    rest(heap, 900);
    heap.give({heap.refill(k1024)});
    EXPECT_EQ(heap.in_magazine(k64), 100u) << "it was busy a moment ago";
    heap.flush(k1024);
    rest(heap, 1100);
    heap.give({heap.refill(k1024)});
    EXPECT_LE(heap.in_magazine(k64), 8u);
    for (size_t i = 0; i < blocks.size() - heap.in_magazine(k64); i++)
        EXPECT_TRUE(is_free(blocks[i])) << i;
    EXPECT_EQ(heap->classes[k64].reserve, nullptr);
    heap.flush(k1024);
    heap.flush(k64);
}

TEST_F(Magazine, LookAtTheTimeAtEachEighthRefill)
{
    TestHeap heap;
    grow(heap, k64);
    heap.flush(k64);
    rest(heap, 1100);
    heap->budget.busy_count = 1;
    for (int i = 0; i < 7; i++) {
        heap.give({heap.refill(k1024)});
        heap.flush(k1024);
        EXPECT_EQ(heap->classes[k64].capacity, hk_classes[k64].magazine_max) << i;
    }
    heap.give({heap.refill(k1024)});
    heap.flush(k1024);
    EXPECT_EQ(heap->classes[k64].capacity, 8u);
    EXPECT_EQ(heap->budget.busy_count, 1u);
}

/* One each of all large classes would be 7 MiB that nobody else can reach. */
TEST_F(Magazine, HoldLargeBlocksOnlyWhileTheHeapIsBusy)
{
    constexpr unsigned kLarge = class_of_blocks(229440), kSmaller = class_of_blocks(41024);
    ASSERT_GT(hk_classes[kLarge].size, 200u << 10);
    ASSERT_LT(hk_classes[kSmaller].size, 128u << 10);
    TestHeap heap;
    rest(heap, 1100);
    void *p = heap.alloc(kLarge), *q = heap.alloc(kSmaller);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(heap->classes[kLarge].capacity, 0u);
    EXPECT_EQ(heap.free(kLarge, p).kind, HK_FAULT_NONE);
    EXPECT_EQ(heap->classes[kLarge].nslabs, 0u) << "it went to its slab, and that to the pool";
    heap.free(kSmaller, q);
    EXPECT_EQ(heap.in_magazine(kSmaller), 1u);
    demand(heap, kLarge, std::chrono::milliseconds(20));
    EXPECT_GE(heap->classes[kLarge].capacity, 1u);
    EXPECT_GE(heap.in_magazine(kLarge), 1u);
    rest(heap, 1100);
    heap.give({heap.refill(kSmaller + 1)});
    EXPECT_EQ(heap->classes[kLarge].capacity, 0u);
    EXPECT_EQ(heap->classes[kLarge].nslabs, 0u);
    heap.flush(kSmaller);
    heap.flush(kSmaller + 1);
}

/* The first copy went to the slab, and the second comes when the magazine begins. */
TEST_F(Magazine, ADoubleFreeInARowIsFoundWhereTheMagazineBegins)
{
    constexpr unsigned kLarge = class_of_blocks(229440);
    TestHeap heap;
    rest(heap, 1100);
    void *neighbour = heap.take_one(kLarge), *p = heap.take_one(kLarge);
    ASSERT_EQ(hk_slab_of(p), hk_slab_of(neighbour));
    ASSERT_EQ(heap.free(kLarge, p).kind, HK_FAULT_NONE);
    ASSERT_EQ(heap->classes[kLarge].capacity, 0u);
    hk_fault fault{};
    do { /* until the clock does not step meanwhile */
        heap->budget.busy_step = hk_os_now_ms();
        heap->budget.busy_count = 127;
        fault = heap.free(kLarge, p);
        EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    } while (heap->classes[kLarge].capacity == 0);
    EXPECT_EQ(fault.ptr, p);
    EXPECT_EQ(heap.in_magazine(kLarge), 0u);
    heap.flush(kLarge);
    heap.give({neighbour});
}

/* One that was halved, down to less than it began with, goes back to that and no further. */
TEST_F(Magazine, GrowOnlyWhileTheHeapIsBusy)
{
    TestHeap heap;
    heap.give({heap.refill(k64)});
    heap.flush(k64);
    unsigned first = heap->classes[k64].capacity;
    heap->classes[k64].capacity = static_cast<uint8_t>(first - 1);
    heap.tops()[k64] = hk_magazine_bottom(heap.get(), k64);
    *heap.tops()[k64] = nullptr;
    for (int i = 0; i < 200; i++) {
        heap->budget.busy_count = 0;
        heap.give({heap.refill(k64)});
        heap.flush(k64);
    }
    EXPECT_EQ(heap->classes[k64].capacity, first);
}

/* A step that the whole budget cannot pay for would only take from the others. */
TEST_F(Magazine, GrowAsFarAsTheBudgetGoes)
{
    constexpr unsigned kLargest = HK_CLASS_FIRST_ALIGNED - 1;
    TestHeap heap;
    demand(heap, kLargest, std::chrono::milliseconds(50), 6); /* whose slabs do not make the budget larger */
    EXPECT_EQ(heap->classes[kLargest].capacity, 1 + hk_option(thread_budget) / hk_classes[kLargest].size);
    EXPECT_LT(heap->classes[kLargest].capacity, hk_classes[kLargest].magazine_max);
    heap.flush(kLargest);
}

/* A thread with much memory may keep more for itself: a quarter of what its slabs come to, four budgets at most. */
TEST_F(Magazine, GrowWithTheSlabsOfTheirHeap)
{
    constexpr unsigned k128k = class_of_blocks(128 * 1024 + HK_MEDIUM_PAD);
    constexpr unsigned kAtOnce = 24; /* less than 4 MiB of slabs */
    struct {
        const char *budget;
        unsigned mib_of_others, blocks_beyond_the_first;
    } cases[] = {{"1M", 0, 7}, {"1M", 6, 15}, {"128K", 0, 3}, {"128K", 64, 3}};
    for (const auto &c : cases) {
        WithOption budget("thread_budget", c.budget);
        TestHeap heap;
        std::vector<void *> others = heap.take(k1024, c.mib_of_others << 10);
        demand(heap, k128k, std::chrono::milliseconds(50), kAtOnce);
        EXPECT_EQ(heap->classes[k128k].capacity, 1 + c.blocks_beyond_the_first)
            << c.budget << ", " << c.mib_of_others << " MiB";
        heap.close(k128k);
        heap.give(others);
    }
}

TEST_F(Magazine, StayWithinTheirBounds)
{
    WithOption blocks("magazine_blocks", "20"), budget("thread_budget", "16K"); /* and four times that */
    TestHeap heap;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned size_class : {1u, k64, 7u, 15u, 23u, k1024, 39u, 47u, 52u, kRun, 60u}) {
            demand(heap, size_class, std::chrono::milliseconds(10));
            EXPECT_LE(heap->budget.bytes, size_t{64} << 10);
            for (unsigned i = 0; i < HK_NCLASSES; i++)
                EXPECT_LE(heap->classes[i].capacity, 20u) << "class " << i;
        }
    }
    for (unsigned i = 0; i < HK_NCLASSES; i++)
        heap.flush(i);
}

/* ---- Borrowing ---- */

class Borrowing : public HeapTest
{
  protected:
    static constexpr unsigned kBorrower = HK_CLASS_FIRST_MEDIUM + 2, kLender = kBorrower + 1;

    void *borrow(unsigned size_class)
    {
        hk_fault fault{};
        HeldLock held(&heap->lock);
        void *p = hk_magazine_borrow(heap.get(), size_class, heap.tops(), &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        return p;
    }

    TestHeap heap;
};

TEST_F(Borrowing, TakesWhatTheNextLargerClassHasFree)
{
    size_t borrowed = heap->counts.borrowed_blocks;
    EXPECT_EQ(borrow(kBorrower), nullptr) << "that has no slab";
    std::vector<void *> lent = heap.take(kLender, 3);
    EXPECT_EQ(borrow(kBorrower), nullptr) << "what that has was never used, and has no memory either";
    heap.free(kLender, lent[1]);
    ASSERT_EQ(heap.in_magazine(kLender), 1u);
    EXPECT_EQ(borrow(kBorrower - 1), nullptr) << "only the next one lends";
    EXPECT_EQ(borrow(kBorrower), lent[1]);
    EXPECT_EQ(heap.in_magazine(kLender), 0u);
    EXPECT_EQ(borrow(kBorrower), nullptr);
    heap.give({lent[0], lent[2]});
    EXPECT_EQ(borrow(kBorrower), lent[0]) << "from a slab, by its magazine";
    EXPECT_EQ(borrow(kBorrower), lent[2]);
    EXPECT_EQ(heap->counts.borrowed_blocks - borrowed, 3u);
    heap.give(lent);
}

TEST_F(Borrowing, IsForClassesThatHaveOnlyWhatWasNeverUsed)
{
    std::vector<void *> lent = heap.take(kLender, 1), own = heap.take(kBorrower, 2);
    heap.give(lent);
    EXPECT_EQ(borrow(kBorrower), lent[0]);
    heap.give(lent);
    heap.give({own[0]});
    EXPECT_EQ(borrow(kBorrower), nullptr) << "a block of its slab is idle";
    heap.free(kBorrower, heap.take_one(kBorrower));
    EXPECT_EQ(borrow(kBorrower), nullptr) << "its magazine has a block";
    EXPECT_EQ(heap.pop(kBorrower), own[0]);
    EXPECT_EQ(borrow(kBorrower), lent[0]);
    heap.give(own);
    heap.give(lent);
}

/* A slow path for each costs more than their memory is worth. */
TEST_F(Borrowing, IsNotForSmallBlocks)
{
    for (unsigned size_class = 0; size_class < HK_CLASS_FIRST_MEDIUM; size_class++) {
        heap.give({heap.take_one(size_class + 1)});
        EXPECT_EQ(borrow(size_class), nullptr);
        hk_heap_release_empty(heap.get(), size_class + 1);
    }
}

/* What follows the largest class that any request may have is for those that are aligned. */
TEST_F(Borrowing, TakesNothingOfAlignedClasses)
{
    heap.give({heap.take_one(HK_CLASS_FIRST_ALIGNED)});
    EXPECT_EQ(borrow(HK_CLASS_FIRST_ALIGNED - 1), nullptr);
    EXPECT_EQ(borrow(HK_NCLASSES - 1), nullptr) << "nothing follows";
}

TEST_F(Borrowing, TakesSoMuchOfAMillisecondAndNoMore)
{
    std::vector<void *> lent = heap.take(kLender, 1);
    heap.give(lent);
    for (uint64_t ms : {1u, 3u, 4u, 1000u}) {
        uint64_t last = hk_os_now_ms() - ms;
        heap->budget.may_borrow = 0;
        heap->budget.busy_at = heap->budget.busy_step = last;
        EXPECT_EQ(borrow(kBorrower), lent[0]);
        EXPECT_EQ(heap->budget.may_borrow, std::min<uint64_t>(heap->budget.busy_step - last, 4) * 1024 - 1);
        heap.give(lent);
    }
    for (bool stepped = true; stepped;) {
        uint64_t step = heap->budget.busy_step = hk_os_now_ms();
        heap->budget.may_borrow = 0;
        void *p = borrow(kBorrower);
        stepped = hk_os_now_ms() != step;
        EXPECT_TRUE(p == nullptr || stepped);
        if (p != nullptr)
            heap.give({p});
    }
}

/* The only block that could be lent lies in a magazine that the heap gives up, as it was not busy. */
TEST_F(Borrowing, BeginsNothingForTheLender)
{
    constexpr unsigned kLarge = class_of_blocks(256 * 1024 + HK_MEDIUM_PAD);
    ASSERT_EQ(heap->classes[kLarge].capacity, 0u);
    heap->budget.busy_count = 1000; /* else it has no magazine */
    heap->budget.busy_step = hk_os_now_ms();
    heap.give({heap.refill(kLarge)});
    if (heap->classes[kLarge].capacity == 0)
        GTEST_SKIP() << "the clock moved";
    heap.flush(kLarge);
    heap.free(kLarge, heap.take_one(kLarge));
    ASSERT_EQ(heap.in_magazine(kLarge), 1u);
    heap->budget.may_borrow = 0;
    heap->budget.busy_step = heap->budget.busy_at = 0;
    hk_heap_counts before = heap->counts;
    EXPECT_EQ(borrow(kLarge - 1), nullptr);
    EXPECT_EQ(heap->counts.slabs_opened, before.slabs_opened);
    EXPECT_EQ(heap->counts.borrowed_blocks, before.borrowed_blocks);
}

/* ---- Reserves ---- */

class Reserve : public Magazine
{
  protected:
    /* The magazine is at its largest, and empty as its reserve. */
    void prepare(unsigned size_class)
    {
        grow(heap, size_class);
        heap.flush(size_class);
        ASSERT_EQ(heap->classes[size_class].reserve, nullptr);
    }
    std::vector<void *> free_all(unsigned size_class, std::vector<void *> blocks)
    {
        for (void *p : blocks)
            EXPECT_EQ(heap.free(size_class, p).kind, HK_FAULT_NONE);
        return blocks;
    }
    size_t in_reserve(unsigned size_class)
    {
        size_t n = 0;
        for (hk_parcel *parcel = heap->classes[size_class].reserve; parcel != nullptr; parcel = parcel->next)
            n += parcel->count;
        return n;
    }

    TestHeap heap;
};

TEST_F(Reserve, KeepsWhatAFullMagazineGivesAway)
{
    prepare(k64);
    hk_heap_counts before = heap->counts;
    std::vector<void *> blocks = heap.take(k64, 500);
    free_all(k64, blocks);
    EXPECT_EQ(in_reserve(k64) + heap.in_magazine(k64), 500u);
    EXPECT_EQ(heap->counts.reserved_blocks - before.reserved_blocks, in_reserve(k64));
    for (void *p : blocks)
        EXPECT_FALSE(is_free(p)) << "it is the thread's";
    for (size_t i = 500; i-- > 0;)
        EXPECT_EQ(heap.alloc(k64), blocks[i]) << "the last freed is the first handed out";
    EXPECT_EQ(heap->counts.flushed_blocks, before.flushed_blocks);
    EXPECT_EQ(heap->counts.refills, before.refills);
    EXPECT_EQ(heap->classes[k64].reserve, nullptr);
    EXPECT_EQ(heap->parcels_reserved, 0u);
    heap.give(blocks);
}

TEST_F(Reserve, IsForMagazinesThatHaveGrownToTheirLargest)
{
    heap.close(k64);
    free_all(k64, heap.take(k64, 500));
    EXPECT_LT(heap->classes[k64].capacity, hk_classes[k64].magazine_max);
    EXPECT_EQ(heap->classes[k64].reserve, nullptr);
    heap.flush(k64);
}

TEST_F(Reserve, IsNotForThreadsThatAreToKeepLess)
{
    WithOption few("magazine_blocks", "4");
    heap.close(k64);
    demand(heap, k64, std::chrono::milliseconds(20));
    EXPECT_EQ(heap->classes[k64].capacity, 4u);
    free_all(k64, heap.take(k64, 500));
    EXPECT_EQ(heap->classes[k64].reserve, nullptr);
    heap.flush(k64);
}

TEST_F(Reserve, IsNotForMediumBlocks)
{
    prepare(kRun);
    free_all(kRun, heap.take(kRun, 60));
    EXPECT_EQ(heap->classes[kRun].reserve, nullptr);
    heap.flush(kRun);
}

TEST_F(Reserve, ReservesShareSoManyParcels)
{
    prepare(k64);
    prepare(k1024);
    free_all(k64, heap.take(k64, 500));
    free_all(k1024, heap.take(k1024, 2000));
    EXPECT_EQ(heap->parcels_reserved, HK_RESERVE_PARCELS);
    EXPECT_EQ(in_reserve(k1024) % ((hk_classes[k1024].magazine_max + 1u) / 2), 0u);
    EXPECT_GT(in_reserve(k64), 0u);
    heap.flush(k64);
    heap.flush(k1024);
    EXPECT_EQ(heap->parcels_reserved, 0u);
}

TEST_F(Reserve, CountsTowardsTheBudget)
{
    prepare(k1024);
    size_t before = heap->budget.bytes;
    WithOption budget("thread_budget", std::to_string(before + 100 * 1024).c_str());
    free_all(k1024, heap.take(k1024, 500));
    EXPECT_GT(in_reserve(k1024), 0u);
    EXPECT_LE(in_reserve(k1024), 100u);
    EXPECT_EQ(heap->budget.bytes, before + in_reserve(k1024) * 1024);
    heap.flush(k1024);
    EXPECT_EQ(heap->budget.bytes, before);
}

TEST_F(Reserve, GrowsWithTheSlabsOfItsHeap)
{
    prepare(k1024);
    size_t before = heap->budget.bytes;
    WithOption budget("thread_budget", std::to_string(before).c_str());
    free_all(k1024, heap.take(k1024, 500));
    EXPECT_EQ(in_reserve(k1024), 0u);
    heap.flush(k1024);
    std::vector<void *> others = heap.take(k1024, static_cast<unsigned>(4 * before / 1024 + 800));
    free_all(k1024, heap.take(k1024, 500));
    EXPECT_GT(in_reserve(k1024), 100u);
    EXPECT_LE(heap->budget.bytes, heap->slab_bytes / 4);
    heap.flush(k1024);
    heap.give(others);
}

TEST_F(Reserve, MakesWayForMagazinesThatGrow)
{
    prepare(k1024);
    WithOption budget("thread_budget", std::to_string(heap->budget.bytes + 64 * 1024).c_str());
    free_all(k1024, heap.take(k1024, 500));
    ASSERT_GT(in_reserve(k1024), 32u);
    demand(heap, k64, std::chrono::milliseconds(20));
    EXPECT_EQ(heap->classes[k64].capacity, hk_classes[k64].magazine_max);
    heap.flush(k64);
    heap.flush(k1024);
}

/* Its thread need do nothing: the reserve is guarded by the heap's lock. */
TEST_F(Reserve, OfAHeapThatStandsStillGoesToTheSlabs)
{
    prepare(k64);
    std::vector<void *> blocks = free_all(k64, heap.take(k64, 500));
    size_t reserved = in_reserve(k64);
    ASSERT_GT(reserved, 0u);
    hk_fault fault{};
    heap->tick++;
    hk_heaps_tend(false, &fault);
    EXPECT_EQ(in_reserve(k64), reserved) << "it has been at work since the last time";
    hk_heaps_tend(false, &fault);
    EXPECT_EQ(in_reserve(k64), 0u);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    for (size_t i = 0; i < blocks.size(); i++)
        EXPECT_EQ(is_free(blocks[i]), i < reserved) << i;
    heap.flush(k64);
}

TEST_F(Reserve, ADoubleFreeIsFoundWhenItIsGivenToTheSlabs)
{
    prepare(k64);
    std::vector<void *> blocks = heap.take(k64, 300);
    for (size_t i : {size_t{0}, size_t{100}, size_t{0}})
        heap.free(k64, blocks[i]);
    free_all(k64, {blocks.begin() + 1, blocks.begin() + 100});
    free_all(k64, {blocks.begin() + 101, blocks.end()});
    ASSERT_GT(in_reserve(k64), 3u);
    hk_fault fault = heap.flush(k64);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(fault.ptr, blocks[0]);
    for (void *p : blocks)
        EXPECT_TRUE(is_free(p));
}

/* A fork's child gives up what is in the magazines of threads that are gone; reserves it finds as they are. */
TEST_F(Reserve, OutlivesAFork)
{
    prepare(k64);
    std::vector<void *> blocks = free_all(k64, heap.take(k64, 300));
    auto reserved = static_cast<ptrdiff_t>(in_reserve(k64));
    ASSERT_GT(reserved, 0);
    TestHeap survivor;
    hk_lock_bypass = true; /* the child's handler holds all locks */
    hk_heaps_after_fork(survivor.get()->thread);
    hk_lock_bypass = false;
    check_everything();
    heap.start(); /* which was parked last */
    EXPECT_EQ(heap->budget.bytes, static_cast<size_t>(reserved) * 64);
    for (ptrdiff_t i = reserved; i-- > 0;)
        EXPECT_EQ(heap.alloc(k64), blocks[static_cast<size_t>(i)]);
    heap.give(blocks);
}

/* Its magazines may be gone before its reserve is, in a fork's child. */
TEST_F(Reserve, OfAParkedHeapIsFlushedBeforeASlabIsAdoptedOrOrphaned)
{
    for (bool adopt : {true, false}) {
        SCOPED_TRACE(adopt);
        TestHeap adopter;
        prepare(k64);
        std::vector<void *> blocks = heap.take(k64, 300), kept = heap.take(k64, 1);
        free_all(k64, blocks);
        size_t reserved = in_reserve(k64);
        ASSERT_GT(reserved, 0u);
        hk_slab *slab = hk_slab_of(blocks[0]);
        {
            HeldLock held(&heap->lock);
            hk_magazine_abandon(heap.get(), k64, heap.tops());
        }
        struct hk_heap *parked = heap.park();
        if (adopt) {
            std::vector<void *> adopted = adopter.take(k64, 1);
            EXPECT_EQ(hk_slab_owner(slab), adopter.get());
            adopter.give(adopted);
        } else {
            hk_fault fault{};
            hk_heaps_dissolve_parked(UINT32_MAX, &fault);
            EXPECT_EQ(hk_slab_owner(slab), &hk_orphans);
        }
        EXPECT_EQ(parked->parcels_reserved, 0u);
        check_everything();
        for (size_t i = 0; i < blocks.size(); i++)
            EXPECT_EQ(is_free(blocks[i]), i < reserved) << i;
        heap.start();
        heap.give({blocks.begin() + static_cast<ptrdiff_t>(reserved), blocks.end()});
        heap.give(kept);
    }
}

} // namespace
