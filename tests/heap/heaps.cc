/*
 * All heaps: who gets whose slabs, and what becomes of a thread's when it ends.
 * Mostly from one thread, which works several heaps in turn.
 */
#include "test_heap.h"

#include <sys/mman.h>

#include <memory>
#include <thread>

#include "c_begin.h"
#include "base/os.h"
#include "observe/stats.h"
#include "c_end.h"

namespace
{

class Heaps : public HeapTest
{
};

/* ---- Parked heaps ---- */

TEST_F(Heaps, TheHeapParkedLastGoesToTheNextThread)
{
    TestHeap first, second;
    void *p = second.take_one(k64);
    second.free(k64, p);
    first.park();
    struct hk_heap *parked = second.park();
    EXPECT_EQ(parked->state, HK_HEAP_PARKED);
    EXPECT_TRUE(hk_heaps_any_parked());
    TestHeap next;
    EXPECT_EQ(next.get(), parked);
    EXPECT_EQ(next->state, HK_HEAP_RUNNING);
    EXPECT_EQ(next.pop(k64), p) << "with its magazines";
    next.give({p});
}

TEST_F(Heaps, AParkedHeapsSlabIsAdoptedAfterItsMagazineIsFlushed)
{
    TestHeap heap, other;
    std::vector<void *> blocks = other.take(k64, 100);
    for (size_t i = 0; i < 5; i++)
        other.free(k64, blocks[i]);
    struct hk_heap *parked = other.park();
    uint64_t adopted = heap->counts.slabs_adopted;
    std::vector<void *> taken = heap.take(k64, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    EXPECT_EQ(hk_slab_owner(slab), heap.get());
    EXPECT_EQ(hk_key_of(blocks[50]), heap->key | k64);
    EXPECT_EQ(heap->counts.slabs_adopted, adopted + 1);
    EXPECT_EQ(parked->classes[k64].nslabs, 0u);
    EXPECT_EQ(*parked->parked_top[k64], nullptr) << "or the blocks would be in two heaps' hands";
    for (size_t i = 0; i < 5; i++)
        EXPECT_EQ(taken[i], blocks[i]) << "what was in the magazine comes first, as the lowest";
    check_everything();
    heap.give(taken);
    heap.give({blocks.begin() + 5, blocks.end()});
}

TEST_F(Heaps, AdoptingOpensWhatWasSentToTheParkedHeap)
{
    TestHeap heap, other;
    std::vector<void *> blocks = other.take_slab(k1024);
    other.park();
    EXPECT_EQ(free_remotely(blocks[7]).kind, HK_FAULT_NONE);
    EXPECT_EQ(heap.take_one(k1024), blocks[7]);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), heap.get());
    heap.give(blocks);
}

TEST_F(Heaps, ARunningHeapsSlabsAreItsOwn)
{
    TestHeap heap, other;
    void *p = other.take_one(k64), *q = heap.take_one(k64);
    EXPECT_NE(hk_slab_of(p), hk_slab_of(q));
    EXPECT_EQ(hk_slab_owner(hk_slab_of(p)), other.get());
    other.give({p});
    heap.give({q});
}

TEST_F(Heaps, AdoptionDoesNotWaitForALock)
{
    TestHeap heap, other;
    std::vector<void *> blocks = other.take(k64, 10);
    struct hk_heap *parked = other.park();
    hk_lock_seize(&parked->lock); /* as another thread would: no note of the rank */
    void *p = heap.take_one(k64);
    hk_lock_unseize(&parked->lock);
    EXPECT_NE(hk_slab_of(p), hk_slab_of(blocks[0])) << "a new slab instead";
    heap.give({p});
    heap.give(blocks);
}

TEST_F(Heaps, DissolvingReleasesWhatIsEmptyAndOrphansTheRest)
{
    TestHeap heap, other;
    void *live = other.take_one(k1024), *cached = other.take_one(k64), *run = other.take_one(kRun);
    other.free(k64, cached);
    struct hk_heap *parked = other.park();
    uint64_t orphaned = parked->counts.slabs_orphaned;
    dissolve_parked();
    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        EXPECT_EQ(parked->classes[i].nslabs, 0u) << "class " << i;
        EXPECT_EQ(parked->classes[i].capacity, 0u) << "class " << i;
    }
    EXPECT_EQ(parked->budget.bytes, 0u);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(live)), &hk_orphans);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(run)), &hk_orphans);
    EXPECT_EQ(hk_key_kind(hk_key_of(cached)), static_cast<unsigned>(HK_KEY_GONE)) << "was empty but for the magazine";
    EXPECT_GE(parked->counts.slabs_orphaned, orphaned + 2);
    check_everything();

    EXPECT_NE(heap.take_one(k1024), nullptr);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(live)), heap.get()) << "adopted from the orphans";
    heap.give({live, static_cast<char *>(live) + 1024});
    EXPECT_EQ(free_remotely(run).kind, HK_FAULT_NONE);
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_key_kind(hk_key_of(run)), static_cast<unsigned>(HK_KEY_GONE)) << "an orphan's last block has come";
}

TEST_F(Heaps, DissolvingWaitsForTheOrphansWithNoOtherLock)
{
    TestHeap other;
    void *live = other.take_one(k1024);
    struct hk_heap *parked = other.park();
    hk_lock_acquire(&hk_orphans.lock);
    std::thread dissolver([] { dissolve_parked(); });
    while (atomic_load(&hk_orphans.lock.word) != 2)
        std::this_thread::yield();
    EXPECT_TRUE(hk_lock_try(&parked->lock)) << "who waits holds none";
    EXPECT_EQ(hk_slab_owner(hk_slab_of(live)), parked);
    EXPECT_EQ(parked->classes[k1024].nslabs, 1u);
    hk_lock_release(&parked->lock);
    hk_lock_release(&hk_orphans.lock);
    dissolver.join();
    EXPECT_EQ(hk_slab_owner(hk_slab_of(live)), &hk_orphans);
    EXPECT_EQ(hk_orphans.classes[k1024].nslabs, 1u);
    check_everything();
    EXPECT_EQ(free_remotely(live).kind, HK_FAULT_NONE);
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(hk_orphans.classes[k1024].nslabs, 0u);
}

TEST_F(Heaps, DissolvingDoesNotMindHowManySlabsThereAre)
{
    constexpr unsigned kSlabs = 700, kClass = class_of_blocks(7232);
    TestHeap other, heap;
    std::vector<std::vector<void *>> slabs;
    for (unsigned i = 0; i < kSlabs; i++)
        slabs.push_back(other.take_slab(kClass));
    for (const auto &blocks : slabs)
        other.give({blocks[1]});
    struct hk_heap *parked = other.park();
    dissolve_parked();
    EXPECT_EQ(parked->classes[kClass].nslabs, 0u);
    EXPECT_EQ(hk_orphans.classes[kClass].nslabs, kSlabs);
    check_everything();
    for (auto &blocks : slabs) {
        blocks.erase(blocks.begin() + 1);
        EXPECT_EQ(heap.give(blocks).kind, HK_FAULT_NONE);
    }
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(hk_orphans.classes[kClass].nslabs, 0u);
}

/* ---- Vacant heaps ---- */

TEST_F(Heaps, ADissolvedHeapsStructureGoesBackAndServesTheNextThread)
{
    TestHeap owner, other;
    void *theirs = owner.take_one(k1024), *cached = other.take_one(k64);
    other.free(k64, cached);
    ASSERT_TRUE(other.post({theirs})); /* so that it has begun a parcel */
    other.send_outbox();
    struct hk_heap *heap = other.park();
    vacate();
    EXPECT_FALSE(heap->vacant) << "it is not dissolved";
    dissolve_parked();
    vacate();
    EXPECT_FALSE(heap->vacant) << "its parcel is on its way";
    EXPECT_GT(heap->parcels_begun, 0u);
    tend_all();
    vacate();
    EXPECT_TRUE(heap->vacant);
    EXPECT_EQ(heap->parcels_begun, 0u);
    hk_stats stats;
    hk_stats_read(&stats);
    for (const void *p : {static_cast<void *>(&heap->classes[HK_NCLASSES - 1]),
                          static_cast<void *>(hk_magazine_of(heap, HK_NCLASSES / 2))}) {
        uintptr_t page = hk_align_down(reinterpret_cast<uintptr_t>(p), hk_os_page_size());
        unsigned char in_core = 1;
        EXPECT_EQ(mincore(reinterpret_cast<void *>(page), 1, &in_core), 0);
        EXPECT_EQ(in_core & 1, 0) << "statistics have no need to look";
    }
    check_everything();

    TestHeap next;
    ASSERT_EQ(next.get(), heap);
    EXPECT_FALSE(heap->vacant);
    void *p = next.take_one(k64), *q = owner.take_one(k64);
    next.free(k64, p);
    EXPECT_EQ(next.pop(k64), p);
    ASSERT_TRUE(next.post({q}));
    next.send_outbox();
    tend_all();
    check_everything();
    next.give({p});
}

TEST_F(Heaps, AVacantHeapHasNoWarmSlots)
{
    TestHeap heap;
    heap.give(heap.take_slab(k64));
    heap.give(heap.take_slab(k1024));
    {
        HeldLock held(&heap->lock);
        hk_heap_release_empty(heap.get(), k64);
        hk_heap_release_empty(heap.get(), k1024);
    }
    ASSERT_GT(heap->warm.n, 0);
    struct hk_heap *parked = heap.park();
    dissolve_parked();
    hk_fault fault{};
    hk_heaps_tend(false, &fault); /* passes it by: it has moved */
    vacate();
    EXPECT_TRUE(parked->vacant);
    EXPECT_EQ(parked->warm.n, 0);
    check_everything();
}

TEST_F(Heaps, WhatIsSentToAVacantHeapArrives)
{
    TestHeap owner, sender;
    void *p = owner.take_one(k1024);
    struct hk_heap *vacant = owner.park();
    ASSERT_TRUE(sender.post({p}));
    sender.send_outbox(); /* before its slab becomes an orphan */
    struct hk_parcel *parcel = vacant->pending;
    vacant->pending = nullptr; /* as if it had been pushed a little later */
    dissolve_parked();
    vacate();
    EXPECT_TRUE(vacant->vacant);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(p)), &hk_orphans);
    vacant->pending = parcel;
    tend_all();
    EXPECT_EQ(vacant->pending, nullptr);
    EXPECT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_GONE)) << "it was the orphan's last block";
    check_everything();
}

/* ---- Heaps whose thread is gone without notice ---- */

struct Others {
    struct hk_heap *heap;
    void **tops[HK_NCLASSES];
};

TEST_F(Heaps, AHeapOfAThreadThatNeverParkedItIsFoundAgain)
{
    void **tops[HK_NCLASSES], **tops_again[HK_NCLASSES];
    int thread;
    struct hk_heap *lost = hk_heap_obtain(tops, &thread);
    ASSERT_NE(lost, nullptr);
    /* Parked heaps are taken first: it is looked for before a new heap would be made. */
    std::vector<std::unique_ptr<Others>> others;
    while (hk_heaps_any_parked()) {
        others.push_back(std::make_unique<Others>());
        others.back()->heap = hk_heap_obtain(others.back()->tops, others.back().get());
    }
    struct hk_heap *again = hk_heap_obtain(tops_again, &thread);
    EXPECT_EQ(again, lost);
    EXPECT_EQ(again->state, HK_HEAP_RUNNING);
    hk_fault fault{};
    hk_heap_park(again, tops_again, &fault);
    for (auto &other : others)
        hk_heap_park(other->heap, other->tops, &fault);
}

TEST_F(Heaps, AfterAForkParksAllButTheSurvivors)
{
    TestHeap survivor, gone;
    void *mine = survivor.take_one(k64), *theirs = gone.take_one(k64), *cached = gone.take_one(k64);
    survivor.free(k64, mine);
    gone.free(k64, cached);
    hk_lock_bypass = true; /* the child's handler holds all locks */
    hk_heaps_after_fork(survivor.get()->thread);
    hk_lock_bypass = false;
    EXPECT_EQ(survivor->state, HK_HEAP_RUNNING);
    EXPECT_EQ(survivor.pop(k64), mine);
    EXPECT_EQ(gone->state, HK_HEAP_PARKED);
    EXPECT_EQ(gone->thread, nullptr);
    for (unsigned i = 0; i < HK_NCLASSES; i++)
        EXPECT_EQ(*gone->parked_top[i], nullptr) << "class " << i;
    EXPECT_FALSE(is_free(cached)) << "what was in magazines is given up";
    check_everything();
    survivor.give({mine, theirs, cached});
    /* The test's own heap is parked already: take it over in its name, so that it can be parked at the end. */
    gone.start();
}

} // namespace
