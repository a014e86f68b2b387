/*
 * Remote frees: outboxes, parcels, and what others do between the steps. What threads do to each other is done here
 * step by step, in the order that a test wants; at the end threads do it for themselves.
 */
#include "test_heap.h"

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace
{

using Blocks = std::vector<void *>;
using Parcels = std::vector<Blocks>;
using Heaps = std::vector<std::unique_ptr<TestHeap>>;

class Remote : public HeapTest
{
  protected:
    TestHeap owner, freer;

    static Heaps make_heaps(size_t n)
    {
        Heaps heaps;
        for (size_t i = 0; i < n; i++)
            heaps.push_back(std::make_unique<TestHeap>());
        return heaps;
    }
    static size_t length(const hk_parcel *stack)
    {
        size_t n = 0;
        for (; stack != nullptr; stack = stack->next)
            n++;
        return n;
    }
    /* In the order in which they were pushed. */
    static std::vector<const hk_parcel *> pending(TestHeap &heap)
    {
        std::vector<const hk_parcel *> parcels;
        for (const hk_parcel *parcel = heap->pending; parcel != nullptr; parcel = parcel->next)
            parcels.insert(parcels.begin(), parcel);
        return parcels;
    }
    static Parcels pending_blocks(TestHeap &heap)
    {
        Parcels found;
        for (const hk_parcel *parcel : pending(heap))
            found.emplace_back(parcel->blocks, parcel->blocks + parcel->count);
        return found;
    }
    static Blocks outbox(TestHeap &heap)
    {
        void **places = hk_outbox_of(heap.get());
        Blocks found;
        std::remove_copy(places, places + HK_OUTBOX_BLOCKS, std::back_inserter(found), nullptr);
        return found;
    }
    static size_t on_their_way(TestHeap &heap)
    {
        return heap->parcels_begun - length(heap->stock) - length(heap->returned);
    }
    static void send(TestHeap &from, const Blocks &blocks)
    {
        ASSERT_TRUE(from.post(blocks));
        EXPECT_TRUE(from.send_outbox());
    }
    static void open(TestHeap &heap) { EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_NONE); }
    static void tend()
    {
        hk_fault fault{};
        hk_heaps_tend(true, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    }
    /* As if another heap had adopted the slab just now. It has no free block, so it is in no bin. */
    static void move(hk_slab *slab, TestHeap &from, TestHeap &to)
    {
        ASSERT_EQ(hk_slab_owner(slab), from.get());
        ASSERT_EQ(slab->nfree, 0);
        hk_slab_change_owner(from.get(), slab, to.get());
    }
    static void expect_free(const Blocks &blocks, bool expected = true)
    {
        for (void *p : blocks)
            EXPECT_EQ(is_free(p), expected) << p;
    }
    static Blocks part(const Blocks &blocks, size_t begin, size_t end)
    {
        return {blocks.begin() + static_cast<ptrdiff_t>(begin), blocks.begin() + static_cast<ptrdiff_t>(end)};
    }
    static bool is_gone(const void *p) { return hk_key_kind(hk_key_of(p)) == unsigned{HK_KEY_GONE}; }
};

uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005 + 1442695040888963407;
    return *state >> 33;
}

/* ---- From the outbox to the owner ---- */

TEST_F(Remote, ABlockCountsAsLiveUntilItArrives)
{
    Blocks blocks = owner.take(k64, 10), freed = {blocks[7], blocks[1], blocks[2]};
    hk_slab *slab = hk_slab_of(blocks[0]);
    hk_heap_counts sent = freer->counts, arrived = owner->counts;
    ASSERT_TRUE(freer.post(freed));
    EXPECT_EQ(outbox(freer), freed);
    EXPECT_TRUE(pending(owner).empty()) << "nobody held a lock";
    check_everything();

    EXPECT_TRUE(freer.send_outbox());
    EXPECT_TRUE(outbox(freer).empty());
    EXPECT_EQ(pending_blocks(owner), Parcels{freed});
    EXPECT_EQ(slab->nfree, 1024 - 10);
    EXPECT_EQ(freer->counts.remote_frees - sent.remote_frees, 3u);
    EXPECT_EQ(on_their_way(freer), 1u);
    check_everything();

    open(owner);
    EXPECT_TRUE(pending(owner).empty());
    EXPECT_EQ(slab->nfree, 1024 - 7);
    expect_free(freed);
    EXPECT_EQ(owner->counts.parcels_opened - arrived.parcels_opened, 1u);
    EXPECT_EQ(owner->counts.parcel_blocks - arrived.parcel_blocks, 3u);
    EXPECT_EQ(owner->counts.parcels_forwarded, arrived.parcels_forwarded);
    EXPECT_EQ(on_their_way(freer), 0u);
    check_everything();
    EXPECT_EQ(owner.take(k64, 3), (Blocks{blocks[1], blocks[2], blocks[7]}));
    owner.give(blocks);
}

TEST_F(Remote, AFullParcelLeavesAndTheRestFollows)
{
    Blocks blocks = owner.take(k64, HK_OUTBOX_BLOCKS - 1);
    send(freer, blocks);
    EXPECT_EQ(pending_blocks(owner),
              (Parcels{part(blocks, 0, HK_PARCEL_BLOCKS), part(blocks, HK_PARCEL_BLOCKS, HK_OUTBOX_BLOCKS - 1)}));
    check_everything();
    open(owner);
    expect_free(blocks);
}

TEST_F(Remote, ParcelsComeHomeAndAreFilledAgain)
{
    unsigned begun = std::max(freer->parcels_begun, 2u);
    Blocks blocks = owner.take(k64, HK_OUTBOX_BLOCKS);
    for (int round = 0; round < 100; round++) {
        send(freer, blocks);
        EXPECT_EQ(on_their_way(freer), 2u);
        open(owner);
        EXPECT_EQ(owner.take(k64, HK_OUTBOX_BLOCKS), blocks);
    }
    EXPECT_LE(freer->parcels_begun, begun);
    owner.give(blocks);
}

/* The owner's thread may be in the middle of a slow path. */
TEST_F(Remote, SendingNeedsNotTheOwnersLock)
{
    Blocks blocks = owner.take(k64, HK_PARCELS);
    hk_lock_seize(&owner->lock); /* as its thread would: no note of the rank */
    for (void *p : blocks)
        send(freer, {p});
    EXPECT_EQ(pending(owner).size(), HK_PARCELS);
    expect_free(blocks, false);
    hk_lock_unseize(&owner->lock);
    open(owner);
    expect_free(blocks);
}

TEST_F(Remote, AnEmptyOutboxSendsNothing)
{
    EXPECT_TRUE(freer.send_outbox());
    EXPECT_EQ(on_their_way(freer), 0u);
    open(owner);
}

class RemoteOwners : public Remote, public testing::WithParamInterface<size_t>
{
};

/* Each parcel leaves with blocks of one owner, and no more leave than that takes, however many owners there are. */
TEST_P(RemoteOwners, AreToldApart)
{
    Heaps owners = make_heaps(GetParam());
    std::vector<std::pair<void *, TestHeap *>> blocks;
    for (auto &heap : owners)
        for (void *p : heap->take(k64, HK_OUTBOX_BLOCKS / static_cast<unsigned>(owners.size())))
            blocks.emplace_back(p, heap.get());
    uint64_t random = GetParam();
    for (size_t i = blocks.size(); i > 1; i--)
        std::swap(blocks[i - 1], blocks[next_random(&random) % i]);
    for (auto &block : blocks)
        ASSERT_TRUE(freer.post({block.first}));

    EXPECT_TRUE(freer.send_outbox());
    check_everything();
    size_t of_owner = blocks.size() / owners.size();
    for (auto &heap : owners) {
        Parcels parcels = pending_blocks(*heap);
        EXPECT_EQ(parcels.size(), (of_owner + HK_PARCEL_BLOCKS - 1) / HK_PARCEL_BLOCKS);
        size_t arriving = 0;
        for (const Blocks &parcel : parcels) {
            arriving += parcel.size();
            for (void *p : parcel)
                EXPECT_EQ(hk_slab_owner(hk_slab_of(p)), heap->get());
        }
        EXPECT_EQ(arriving, of_owner);
        open(*heap);
    }
    for (auto &block : blocks)
        EXPECT_TRUE(is_free(block.first));
    EXPECT_EQ(on_their_way(freer), 0u);
}

INSTANTIATE_TEST_SUITE_P(Number, RemoteOwners, testing::Range(size_t{1}, size_t{21}));

/* ---- All parcels are on their way ---- */

/* One parcel is left of all. */
class RemoteExhausted : public Remote
{
  protected:
    static constexpr size_t kOwners = 5, kSent = HK_PARCELS - 1, kMore = kSent / kOwners + 1;
    Heaps owners = make_heaps(kOwners);
    Blocks blocks[kOwners];

    void SetUp() override
    {
        Remote::SetUp();
        for (size_t i = 0; i < kOwners; i++)
            blocks[i] = owners[i]->take(k64, kMore + 3);
        for (size_t i = 0; i < kSent; i++)
            send(freer, {blocks[i % kOwners][i / kOwners]});
        ASSERT_EQ(on_their_way(freer), kSent);
    }
    void send_in_vain(const Blocks &more)
    {
        ASSERT_TRUE(freer.post(more));
        EXPECT_FALSE(freer.send_outbox());
        EXPECT_EQ(on_their_way(freer), HK_PARCELS);
        check_everything();
    }
    void open_all()
    {
        for (auto &heap : owners)
            open(*heap);
    }
    void expect_all_have_arrived(const Blocks &more)
    {
        for (size_t i = 0; i < kSent; i++)
            expect_free({blocks[i % kOwners][i / kOwners]});
        expect_free(more);
        size_t nfree = 0;
        for (const Blocks &of_owner : blocks)
            nfree += hk_slab_of(of_owner[0])->nfree - (1024u - of_owner.size());
        EXPECT_EQ(nfree, kSent + more.size());
        EXPECT_EQ(on_their_way(freer), 0u);
        for (size_t i = 0; i < kOwners; i++)
            for (void *p : blocks[i])
                if (!is_free(p))
                    owners[i]->give({p});
    }
};

TEST_F(RemoteExhausted, WhatFindsNoParcelStaysInTheOutbox)
{
    size_t sent = freer->counts.remote_frees;
    Blocks one = {blocks[1][kMore], blocks[1][kMore + 1]}, rest = {blocks[2][kMore], blocks[3][kMore]};
    send_in_vain({one[0], rest[0], one[1], rest[1]});
    EXPECT_EQ(pending_blocks(*owners[1]).back(), one) << "who has a parcel goes on";
    EXPECT_EQ(outbox(freer), rest);
    EXPECT_EQ(freer->counts.remote_frees - sent, 2u);

    /* The thread goes on behind that. */
    rest.push_back(blocks[2][kMore + 1]);
    send_in_vain({rest.back()});
    EXPECT_EQ(outbox(freer), rest);

    open(*owners[0]);
    EXPECT_TRUE(freer.send_outbox());
    EXPECT_TRUE(outbox(freer).empty());
    EXPECT_EQ(pending_blocks(*owners[2]).back(), (Blocks{rest[0], rest[2]}));
    check_everything();
    open_all();
    expect_all_have_arrived({one[0], one[1], rest[0], rest[1], rest[2]});
}

TEST_F(RemoteExhausted, WhatAThreadLeavesInItsOutboxIsSentForIt)
{
    Blocks more = {blocks[1][kMore], blocks[2][kMore], blocks[3][kMore]};
    send_in_vain(more);
    freer.park();
    check_everything();
    tend(); /* in one pass: when the parcels have come home it sends once more */
    EXPECT_FALSE(is_anything_on_its_way());
    freer.start();
    expect_all_have_arrived(more);
}

TEST_F(RemoteExhausted, WhatAThreadLeavesInItsOutboxIsSentByTheNext)
{
    Blocks more = {blocks[1][kMore], blocks[2][kMore], blocks[3][kMore]};
    send_in_vain(more);
    struct hk_heap *parked = freer.park();
    open_all();
    freer.start();
    ASSERT_EQ(freer.get(), parked);
    EXPECT_TRUE(outbox(freer).empty());
    open_all();
    expect_all_have_arrived(more);
}

/* ---- Slabs that change hands on the way ---- */

/* Who sends opens nothing: what it has sent to itself waits like all else. */
TEST_F(Remote, SendsToItselfWhatItHasAdoptedMeanwhile)
{
    Blocks blocks = owner.take_slab(k1024);
    hk_slab *slab = hk_slab_of(blocks[0]);
    ASSERT_TRUE(freer.post({blocks[4]}));
    free_remotely(blocks[5]);
    owner.park();
    EXPECT_EQ(freer.take_one(k1024), blocks[5]);
    ASSERT_EQ(hk_slab_owner(slab), freer.get());
    EXPECT_TRUE(freer.send_outbox());
    EXPECT_EQ(pending_blocks(freer), Parcels{{blocks[4]}});
    for (size_t i = 10; i < 30; i++)
        send(freer, {blocks[i]});
    EXPECT_EQ(pending(freer).size(), 21u);
    check_everything();
    open(freer);
    EXPECT_TRUE(is_free(blocks[4]));
    expect_free(part(blocks, 10, 30));
    for (void *p : blocks)
        if (!is_free(p))
            freer.give({p});
}

TEST_F(Remote, PassesOnWhatHasAnotherOwnerByNow)
{
    TestHeap adopter;
    Blocks blocks = owner.take_slab(k1024), freed = {blocks[3], blocks[9]};
    hk_slab *slab = hk_slab_of(blocks[0]);
    send(freer, freed);
    const hk_parcel *parcel = pending(owner)[0];
    move(slab, owner, adopter);
    hk_heap_counts before = owner->counts;
    open(owner);
    EXPECT_EQ(slab->nfree, 0) << "it is not the owner's any more";
    EXPECT_TRUE(pending(owner).empty());
    EXPECT_EQ(pending(adopter), std::vector<const hk_parcel *>{parcel});
    EXPECT_EQ(pending_blocks(adopter), Parcels{freed});
    EXPECT_EQ(owner->counts.parcels_forwarded - before.parcels_forwarded, 1u);
    EXPECT_EQ(owner->counts.parcel_blocks, before.parcel_blocks) << "no block has arrived there";
    EXPECT_EQ(on_their_way(freer), 1u);
    check_everything();
    open(adopter);
    expect_free(freed);
    EXPECT_EQ(on_their_way(freer), 0u) << "home, and not where it was passed on";
    adopter.give(part(blocks, 0, 3));
    adopter.give(part(blocks, 4, 9));
    adopter.give(part(blocks, 10, blocks.size()));
}

TEST_F(Remote, GivesEachOwnerItsPartOfAParcel)
{
    constexpr size_t kSlabs = 4;
    Heaps heaps = make_heaps(3); /* slab 0 stays the owner's */
    Blocks slabs[kSlabs], freed;
    for (Blocks &blocks : slabs)
        blocks = owner.take_slab(k1024);
    for (size_t i = 0; i < 5; i++)
        for (const Blocks &blocks : slabs)
            freed.push_back(blocks[7 * i]);
    send(freer, freed);
    for (size_t i = 1; i < kSlabs; i++)
        move(hk_slab_of(slabs[i][0]), owner, *heaps[i - 1]);

    std::vector<TestHeap *> way = {&owner, heaps[2].get(), heaps[1].get(), heaps[0].get()};
    for (size_t step = 0; step < way.size(); step++) {
        EXPECT_EQ(pending(*way[step]).size(), 1u) << "it goes to the owner of its last block";
        hk_heap_counts before = (*way[step])->counts;
        open(*way[step]);
        check_everything();
        EXPECT_EQ((*way[step])->counts.parcel_blocks - before.parcel_blocks, 5u);
        EXPECT_EQ((*way[step])->counts.parcels_forwarded - before.parcels_forwarded, step + 1 < way.size());
        EXPECT_EQ(on_their_way(freer), step + 1 < way.size());
    }
    expect_free(freed);
    for (const Blocks &blocks : slabs) {
        EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 5);
        for (void *p : blocks)
            if (!is_free(p)) {
                EXPECT_EQ(free_directly(p).kind, HK_FAULT_NONE);
            }
    }
}

TEST_F(Remote, ComesBackToAnOwnerThatHasTheSlabAgain)
{
    TestHeap adopter;
    Blocks blocks = owner.take_slab(k1024);
    hk_slab *slab = hk_slab_of(blocks[0]);
    send(freer, {blocks[0]});
    move(slab, owner, adopter);
    open(owner);
    move(slab, adopter, owner);
    open(adopter);
    EXPECT_EQ(slab->nfree, 0);
    EXPECT_EQ(pending_blocks(owner), Parcels{{blocks[0]}});
    open(owner);
    EXPECT_EQ(slab->nfree, 1);
    owner.give(part(blocks, 1, blocks.size()));
}

TEST_F(Remote, AnOutboxIsSentToWhoOwnsTheSlabsThen)
{
    Blocks blocks = owner.take_slab(kRun);
    ASSERT_TRUE(freer.post(part(blocks, 0, 5)));
    owner.park();
    dissolve_parked();
    ASSERT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), &hk_orphans);
    EXPECT_TRUE(freer.send_outbox());
    ASSERT_NE(hk_orphans.pending, nullptr);
    EXPECT_EQ(hk_orphans.pending->count, 5);
    send(freer, part(blocks, 5, blocks.size()));
    check_everything();
    EXPECT_FALSE(is_gone(blocks[0]));
    tend();
    EXPECT_TRUE(is_gone(blocks[0]));
    EXPECT_EQ(on_their_way(freer), 0u);
}

TEST_F(Remote, WhatWasSentToAHeapArrivesBeforeItsSlabsAreOrphans)
{
    Blocks blocks = owner.take_slab(kRun), live = owner.take_slab(k1024);
    send(freer, blocks);
    send(freer, {live[8]});
    owner.park();
    dissolve_parked();
    EXPECT_TRUE(is_gone(blocks[0])) << "it was empty";
    EXPECT_EQ(hk_slab_owner(hk_slab_of(live[0])), &hk_orphans);
    EXPECT_EQ(hk_slab_of(live[0])->nfree, 1);
    EXPECT_EQ(on_their_way(freer), 0u);
    EXPECT_EQ(freer.take_one(k1024), live[8]);
    freer.give(live);
}

/* ---- Into the magazines of the owner's thread ---- */

class RemoteStowed : public Remote
{
  protected:
    Blocks blocks;
    unsigned room = 0; /* in the magazine */

    void SetUp() override
    {
        Remote::SetUp();
        blocks = owner.take(k64, 20);
        owner.free(k64, blocks.back());
        owner.flush(k64);
        blocks.pop_back();
        room = owner->classes[k64].capacity;
        ASSERT_GE(room, 4u);
        ASSERT_LT(room, blocks.size() - 4);
    }
};

TEST_F(RemoteStowed, BlocksAreHandedOutAgainWithoutTheirSlab)
{
    hk_heap_counts before = owner->counts;
    send(freer, {blocks[2], blocks[0], blocks[1]});
    EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
    EXPECT_EQ(owner.in_magazine(k64), 3u);
    expect_free(blocks, false);
    EXPECT_EQ(owner.held(k64), 3u);
    EXPECT_EQ(owner->counts.parcel_blocks - before.parcel_blocks, 3u);
    EXPECT_EQ(owner->counts.parcels_forwarded, before.parcels_forwarded);
    EXPECT_EQ(on_their_way(freer), 0u);
    check_everything();
    for (size_t i : {1, 0, 2})
        EXPECT_EQ(owner.pop(k64), blocks[i]);
    owner.give(blocks);
}

/* No magazine may be said to hold more than it can, or statistics show cached what is live. */
TEST_F(RemoteStowed, TheCountOfHeldBlocksIsRight)
{
    for (int round = 0; round < 200; round++) {
        send(freer, {blocks[0], blocks[1]});
        EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
        EXPECT_EQ(owner.in_magazine(k64), 2u);
        EXPECT_EQ(owner.held(k64), 2u) << "round " << round;
        EXPECT_EQ(owner.pop(k64), blocks[1]);
        EXPECT_EQ(owner.pop(k64), blocks[0]);
    }
    owner.give(blocks);
}

TEST_F(RemoteStowed, AFullMagazineMakesRoom)
{
    uint32_t exchanges = owner->budget.exchanges;
    send(freer, part(blocks, 0, room + 1));
    EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
    EXPECT_EQ(owner->budget.exchanges, exchanges) << "or what others free would make a rare class a guest for ever";
    size_t given = (room + 1) / 2;
    EXPECT_EQ(owner.in_magazine(k64), room + 1 - given);
    EXPECT_EQ(owner.held(k64), room + 1 - given);
    expect_free(part(blocks, 0, given));
    expect_free(part(blocks, given, room + 1), false);
    check_everything();
    for (size_t i = room + 1; i > given; i--)
        EXPECT_EQ(owner.pop(k64), blocks[i - 1]);
    owner.give(part(blocks, given, blocks.size()));
}

TEST_F(RemoteStowed, WhatHasNoMagazineGoesToTheSlab)
{
    Blocks others = owner.take(k1024, 2);
    ASSERT_EQ(owner->classes[k1024].capacity, 0u);
    send(freer, {blocks[0], others[0], others[1], blocks[1]});
    EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
    EXPECT_EQ(owner.in_magazine(k64), 2u);
    EXPECT_EQ(owner->classes[k1024].capacity, 0u);
    expect_free(others);
    check_everything();
    owner.flush(k64);
    owner.give(part(blocks, 2, blocks.size()));
}

TEST_F(RemoteStowed, OnlyTheThreadItselfTouchesItsMagazines)
{
    send(freer, {blocks[0]});
    tend();
    EXPECT_EQ(owner.in_magazine(k64), 0u);
    expect_free({blocks[0]});
    send(freer, {blocks[1]});
    EXPECT_EQ(free_directly(blocks[2]).kind, HK_FAULT_NONE);
    EXPECT_EQ(owner.in_magazine(k64), 0u);
    expect_free(part(blocks, 1, 3));
    owner.give(part(blocks, 3, blocks.size()));
}

TEST_F(RemoteStowed, WhatIsAnothersGoesOn)
{
    TestHeap adopter;
    Blocks moved = owner.take_slab(k1024);
    owner.free(k1024, moved[0]); /* so that there is a magazine */
    ASSERT_EQ(owner.pop(k1024), moved[0]);
    send(freer, {moved[5], blocks[0], moved[6]});
    move(hk_slab_of(moved[0]), owner, adopter);
    EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
    EXPECT_EQ(owner.in_magazine(k1024), 0u);
    EXPECT_EQ(owner.pop(k64), blocks[0]);
    EXPECT_EQ(pending_blocks(adopter), (Parcels{{moved[5], moved[6]}}));
    open(adopter);
    adopter.give(part(moved, 0, 5));
    adopter.give(part(moved, 7, moved.size()));
    owner.give(blocks);
}

TEST_F(RemoteStowed, ADoubleFreeIsFoundWhenTheMagazineIsFlushed)
{
    send(freer, {blocks[0], blocks[1], blocks[0]});
    EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
    hk_fault fault = owner.flush(k64);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.ptr, blocks[0]);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 1024 - 19 + 2);
    owner.give(part(blocks, 2, blocks.size()));
}

TEST_F(RemoteStowed, ADoubleFreeInARowIsFoundAtOnce)
{
    send(freer, {blocks[0], blocks[0], blocks[1]});
    hk_fault fault = owner.stow_parcels();
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.ptr, blocks[0]);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(owner.in_magazine(k64), 2u);
    EXPECT_EQ(owner.flush(k64).kind, HK_FAULT_NONE);
    owner.give(part(blocks, 2, blocks.size()));
}

/* A magazine of one block is full when the second free comes, and must not make room for it. */
TEST_F(RemoteStowed, ADoubleFreeInARowIsFoundAtOnceInAMagazineOfOneBlock)
{
    for (unsigned c : {class_of_blocks(49216), class_of_blocks(131136)}) {
        void *p = owner.take_one(c), *other = owner.take_one(c);
        owner.free(c, p); /* so that there is a magazine */
        ASSERT_EQ(owner->classes[c].capacity, 1);
        ASSERT_EQ(owner.pop(c), p);
        send(freer, {p, p});
        hk_fault fault = owner.stow_parcels();
        EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
        EXPECT_EQ(fault.ptr, p);
        EXPECT_EQ(owner.in_magazine(c), 1u);
        EXPECT_FALSE(is_free(p));
        EXPECT_EQ(hk_key_of(p), owner->key | c);
        EXPECT_EQ(owner.pop(c), p);
        owner.give({p, other});
    }
    owner.give(blocks);
}

TEST_F(RemoteStowed, ASecondFreeDoesNotOutliveTheSlab)
{
    Blocks first = owner.take_slab(k1024), second = owner.take_slab(k1024);
    owner.free(k1024, second[0]);
    ASSERT_EQ(owner.pop(k1024), second[0]);
    ASSERT_EQ(owner->classes[k1024].capacity, 8);
    owner.give(part(second, 8, second.size())); /* so that the first slab goes when it is empty */
    owner.give(part(first, 1, first.size()));
    Blocks sent = part(second, 0, 7);
    sent.insert(sent.begin(), first[0]);
    sent.push_back(first[0]);
    send(freer, sent);
    hk_fault fault = owner.stow_parcels();
    EXPECT_TRUE(is_gone(first[0])) << "with the older half of the magazine";
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.ptr, first[0]);
    EXPECT_EQ(owner.in_magazine(k1024), 4u);
    EXPECT_EQ(owner.pop(k1024), second[6]);
    owner.give(part(second, 6, 8));
    owner.flush(k1024);
    owner.give(blocks);
}

TEST_F(RemoteStowed, AWrongPointerIsFoundWhenTheMagazineIsFlushed)
{
    void *inside = static_cast<char *>(blocks[9]) + 16;
    send(freer, {blocks[0], inside, blocks[1]});
    EXPECT_EQ(owner.stow_parcels().kind, HK_FAULT_NONE);
    hk_fault fault = owner.flush(k64);
    EXPECT_EQ(fault.kind, HK_FAULT_INSIDE);
    EXPECT_EQ(fault.ptr, inside);
    EXPECT_TRUE(fault.late);
    expect_free(part(blocks, 0, 2));
    owner.give(part(blocks, 2, blocks.size()));
}

/* ---- A slab whose last block is on its way ---- */

TEST_F(Remote, ASlabIsReleasedWhenItsLastBlockArrives)
{
    Blocks blocks = owner.take_slab(kRun);
    size_t released = owner->counts.slabs_released;
    owner.give(part(blocks, 0, 11));
    ASSERT_TRUE(freer.post(part(blocks, 11, blocks.size())));
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), owner.get());
    EXPECT_TRUE(freer.send_outbox());
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), owner.get());
    open(owner);
    EXPECT_TRUE(is_gone(blocks[0]));
    EXPECT_EQ(owner->counts.slabs_released, released + 1);
    EXPECT_EQ(owner->classes[kRun].nslabs, 0u);
}

TEST_F(Remote, ASlabOfAParkedHeapIsReleasedByWhoTendsIt)
{
    Blocks blocks = owner.take_slab(kRun);
    struct hk_heap *parked = owner.park();
    send(freer, blocks);
    EXPECT_EQ(parked->classes[kRun].nslabs, 1u);
    tend();
    EXPECT_EQ(parked->classes[kRun].nslabs, 0u);
    EXPECT_TRUE(is_gone(blocks[0]));
}

TEST_F(Remote, BlocksInAMagazineKeepTheirSlab)
{
    Blocks blocks = owner.take_slab(kRun);
    owner.free(kRun, blocks.back());
    blocks.pop_back();
    free_remotely(blocks);
    open(owner);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), owner.get());
    owner.flush(kRun);
    EXPECT_TRUE(is_gone(blocks[0]));
}

/* ---- On behalf of others ---- */

TEST_F(Remote, OutboxIsSentWhenItsThreadEnds)
{
    Blocks blocks = owner.take(k64, 10);
    ASSERT_TRUE(freer.post({blocks[4]}));
    freer.park();
    EXPECT_EQ(pending_blocks(owner), Parcels{{blocks[4]}});
    open(owner);
    EXPECT_TRUE(is_free(blocks[4]));
    blocks.erase(blocks.begin() + 4);
    owner.give(blocks);
}

TEST_F(Remote, OutboxOfASleepingThreadIsSentForIt)
{
    Blocks blocks = owner.take(k64, 10);
    ASSERT_TRUE(freer.post({blocks[4], blocks[5]}));
    tend();
    expect_free({blocks[4], blocks[5]});
    EXPECT_TRUE(outbox(freer).empty());
    /* Its thread does not know, and goes on behind. */
    ASSERT_TRUE(freer.post({blocks[6]}));
    EXPECT_EQ(hk_outbox_of(freer.get())[2], blocks[6]);
    tend();
    expect_free({blocks[6]});
    send(freer, {blocks[7]});
    ASSERT_TRUE(freer.post({blocks[8]}));
    EXPECT_EQ(hk_outbox_of(freer.get())[0], blocks[8]) << "what was sent is known to be empty";
    tend();
    owner.give(part(blocks, 0, 4));
    owner.give({blocks[9]});
}

TEST_F(Remote, AHeapThatIsTendedGetsWhatAllOthersHaveInTheirOutboxes)
{
    Heaps heaps = make_heaps(4);
    std::vector<Blocks> blocks;
    for (auto &heap : heaps)
        blocks.push_back(heap->take(k64, 8));
    for (size_t i = 0; i < heaps.size(); i++)
        for (size_t j = 0; j < heaps.size(); j++)
            if (i != j) {
                ASSERT_TRUE(heaps[i]->post({blocks[j][i]}));
            }
    tend();
    for (size_t i = 0; i < heaps.size(); i++)
        for (size_t j = 0; j < heaps.size(); j++)
            EXPECT_EQ(is_free(blocks[j][i]), i != j);
    for (size_t i = 0; i < heaps.size(); i++)
        for (void *p : blocks[i])
            if (!is_free(p))
                heaps[i]->give({p});
}

/* ---- Wrong frees: found late, and without harm to others ---- */

void expect_late(const hk_fault &fault, hk_fault_kind kind, const void *p)
{
    EXPECT_EQ(fault.kind, kind);
    EXPECT_EQ(fault.ptr, p);
    EXPECT_TRUE(fault.late);
}

TEST_F(Remote, DoubleFreeWithinAnOutbox)
{
    Blocks blocks = owner.take(k64, 10);
    ASSERT_TRUE(freer.post({blocks[0], blocks[1], blocks[2], blocks[1], blocks[3]}));
    EXPECT_TRUE(freer.send_outbox());
    hk_fault fault = owner.open_parcels();
    expect_late(fault, HK_FAULT_DOUBLE_FREE, blocks[1]);
    EXPECT_EQ(fault.block_size, 64u);
    expect_free(part(blocks, 0, 4));
    EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 1024 - 6) << "free once";
    owner.give(part(blocks, 4, 10));
}

TEST_F(Remote, DoubleFreeInTwoParcels)
{
    Blocks blocks = owner.take(k64, 10);
    send(freer, {blocks[0], blocks[1]});
    EXPECT_EQ(free_remotely({blocks[2], blocks[1], blocks[3]}).kind, HK_FAULT_NONE) << "nobody can know yet";
    expect_late(owner.open_parcels(), HK_FAULT_DOUBLE_FREE, blocks[1]);
    expect_free(part(blocks, 0, 4));
    EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 1024 - 6);
    EXPECT_EQ(on_their_way(freer), 0u);
    owner.give(part(blocks, 4, 10));
}

TEST_F(Remote, DoubleFreeByTheOwnerAndAnother)
{
    Blocks blocks = owner.take(k64, 10);
    send(freer, {blocks[0], blocks[1], blocks[2]});
    EXPECT_EQ(owner.give({blocks[1]}).kind, HK_FAULT_NONE) << "nobody can know yet";
    expect_late(owner.open_parcels(), HK_FAULT_DOUBLE_FREE, blocks[1]);
    EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 1024 - 7);
    owner.give(part(blocks, 3, 10));
}

TEST_F(Remote, DoubleFreeOfABlockThatIsFreeAlready)
{
    Blocks blocks = owner.take(k64, 10);
    owner.give({blocks[1]});
    send(freer, {blocks[0], blocks[1], blocks[2]});
    expect_late(owner.open_parcels(), HK_FAULT_DOUBLE_FREE, blocks[1]);
    expect_free(part(blocks, 0, 3));
    owner.give(part(blocks, 3, 10));
}

TEST_F(Remote, DoubleFreeThatWasPassedOn)
{
    TestHeap adopter;
    Blocks blocks = owner.take_slab(k1024);
    ASSERT_TRUE(freer.post({blocks[5], blocks[5], blocks[6]}));
    EXPECT_TRUE(freer.send_outbox());
    move(hk_slab_of(blocks[0]), owner, adopter);
    open(owner);
    expect_late(adopter.open_parcels(), HK_FAULT_DOUBLE_FREE, blocks[5]);
    EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 2);
    adopter.give(part(blocks, 0, 5));
    adopter.give(part(blocks, 7, blocks.size()));
}

/* The slab went when its last block was freed: the second free of one of them finds no owner. */
TEST_F(Remote, DoubleFreeOfABlockWhoseSlabIsGoneWhenItIsSent)
{
    Blocks blocks = owner.take_slab(kRun), others = owner.take(k64, 3);
    ASSERT_TRUE(freer.post({others[0], blocks[7], others[1]}));
    owner.give(blocks);
    ASSERT_TRUE(is_gone(blocks[7]));
    hk_fault fault{};
    EXPECT_TRUE(freer.send_outbox(&fault));
    expect_late(fault, HK_FAULT_DOUBLE_FREE, blocks[7]);
    EXPECT_EQ(fault.block_size, hk_classes[kRun].size);
    EXPECT_EQ(on_their_way(freer), 1u) << "the others' alone";
    open(owner);
    expect_free({others[0], others[1]});
    owner.give({others[2]});
}

/* The keys are read first: a slab that is released just then has no owner. */
TEST_F(Remote, DoubleFreeOfABlockWhoseSlabGoesWhenItIsSent)
{
    Blocks blocks = owner.take(k64, 2);
    hk_slab *slab = hk_slab_of(blocks[0]);
    hk_fault fault{};
    ASSERT_TRUE(freer.post({blocks[0]}));
    atomic_store(&slab->owner, nullptr);
    EXPECT_TRUE(freer.send_outbox(&fault));
    atomic_store(&slab->owner, owner.get());
    expect_late(fault, HK_FAULT_DOUBLE_FREE, blocks[0]);
    EXPECT_EQ(fault.block_size, 64u);
    EXPECT_EQ(on_their_way(freer), 0u);
    owner.give(blocks);
}

TEST_F(Remote, DoubleFreeOfABlockWhoseSlabIsGoneWhenItArrives)
{
    Blocks blocks = owner.take_slab(kRun), others = owner.take(k64, 3);
    send(freer, {others[0], blocks[7], others[1]});
    owner.give(blocks);
    ASSERT_TRUE(is_gone(blocks[7]));
    hk_fault fault = owner.open_parcels();
    expect_late(fault, HK_FAULT_DOUBLE_FREE, blocks[7]);
    EXPECT_EQ(fault.block_size, hk_classes[kRun].size);
    EXPECT_EQ(on_their_way(freer), 0u);
    expect_free({others[0], others[1]});
    owner.give({others[2]});
}

/* What lies there now is another slab's, perhaps of another class and owner. */
TEST_F(Remote, DoubleFreeOfABlockInWhosePlaceIsAnotherSlab)
{
    Blocks blocks = owner.take_slab(kRun);
    hk_slab *slab = hk_slab_of(blocks[0]);
    send(freer, {blocks[7], blocks[8]});
    owner.give(blocks);
    TestHeap next;
    Blocks again = next.take(kRun, 8); /* block 7 among them: nobody can tell that it is not meant */
    ASSERT_EQ(hk_slab_of(again[7]), slab);
    ASSERT_EQ(again[7], blocks[7]);
    open(owner);
    EXPECT_EQ(pending_blocks(next), (Parcels{{blocks[7], blocks[8]}}));
    expect_late(next.open_parcels(), HK_FAULT_DOUBLE_FREE, blocks[8]);
    EXPECT_TRUE(is_free(blocks[7]));
    again.pop_back();
    next.give(again);
}

class RemoteWrong : public Remote, public testing::WithParamInterface<const char *>
{
  protected:
    Blocks blocks;
    int local = 0;

    void SetUp() override
    {
        Remote::SetUp();
        blocks = owner.take(k64, 10);
    }
    std::pair<void *, hk_fault_kind> wrong()
    {
        std::string_view what = GetParam();
        auto *block = static_cast<char *>(blocks[9]);
        if (what == "Inside")
            return {block + 16, HK_FAULT_INSIDE};
        if (what == "Odd")
            return {block + 1, HK_FAULT_INSIDE};
        if (what == "OfTheStack")
            return {&local, HK_FAULT_FOREIGN};
        if (what == "ANumber")
            return {reinterpret_cast<void *>(16), HK_FAULT_FOREIGN};
        EXPECT_EQ(what, "Tagged");
        return {reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(block) | 1ull << 60), HK_FAULT_FOREIGN};
    }
    /* Sends and opens; what was noted, by whichever of the two. */
    hk_fault free_by_parcel(const Blocks &freed)
    {
        hk_fault fault{};
        EXPECT_TRUE(freer.post(freed));
        EXPECT_TRUE(freer.send_outbox(&fault));
        hk_fault_note(&fault, owner.open_parcels());
        EXPECT_EQ(on_their_way(freer), 0u);
        return fault;
    }
};

TEST_P(RemoteWrong, PointerHarmsNobody)
{
    auto [p, kind] = wrong();
    for (Blocks freed : {Blocks{p}, Blocks{p, blocks[0], blocks[1]}, Blocks{blocks[0], p, blocks[1]},
                         Blocks{blocks[0], blocks[1], p}, Blocks{p, p, blocks[0], p, blocks[1], p, p}}) {
        expect_late(free_by_parcel(freed), kind, p);
        bool with_blocks = freed.size() > 1;
        expect_free({blocks[0], blocks[1]}, with_blocks);
        EXPECT_FALSE(is_free(blocks[9])) << "the block that it points into";
        if (with_blocks) {
            ASSERT_EQ(owner.take(k64, 2), part(blocks, 0, 2));
        }
        check_everything();
    }
    owner.give(blocks);
}

TEST_P(RemoteWrong, PointerIsFoundWhereAParcelIsPassedOn)
{
    auto [p, kind] = wrong();
    TestHeap adopter;
    Blocks moved = owner.take_slab(k1024);
    hk_fault fault{};
    ASSERT_TRUE(freer.post({moved[0], p, moved[1], blocks[0]}));
    EXPECT_TRUE(freer.send_outbox(&fault));
    move(hk_slab_of(moved[0]), owner, adopter);
    hk_fault_note(&fault, owner.open_parcels());
    hk_fault_note(&fault, adopter.open_parcels());
    expect_late(fault, kind, p);
    EXPECT_EQ(on_their_way(freer), 0u);
    expect_free({moved[0], moved[1], blocks[0]});
    check_everything();
    adopter.give(part(moved, 2, moved.size()));
    owner.give(part(blocks, 1, blocks.size()));
}

INSTANTIATE_TEST_SUITE_P(Kind, RemoteWrong, testing::Values("Inside", "Odd", "OfTheStack", "ANumber", "Tagged"),
                         [](const auto &test) { return std::string(test.param); });

/* A slab's class may leave a tail in which no block is: 23 blocks in three slots do. */
TEST_F(Remote, APointerBehindTheLastBlockOfASlabIsFound)
{
    Blocks blocks = owner.take_slab(kRun);
    void *behind = static_cast<char *>(blocks.back()) + hk_classes[kRun].size;
    ASSERT_EQ(hk_slab_of(behind), hk_slab_of(blocks[0]));
    ASSERT_TRUE(freer.post({blocks[0], behind}));
    EXPECT_TRUE(freer.send_outbox());
    expect_late(owner.open_parcels(), HK_FAULT_FOREIGN, behind);
    EXPECT_TRUE(is_free(blocks[0]));
    owner.give(part(blocks, 1, blocks.size()));
}

/* ---- After a fork ---- */

TEST_F(Remote, AForksChildHasWhatWasOnItsWay)
{
    TestHeap survivor;
    Blocks mine = survivor.take(k64, 10), theirs = owner.take(k64, 10);
    ASSERT_TRUE(freer.post({mine[0], theirs[0]}));
    EXPECT_TRUE(freer.send_outbox());
    ASSERT_TRUE(freer.post({mine[1], theirs[1]})); /* the child does not have this thread */
    send(survivor, {theirs[2]});
    ASSERT_TRUE(survivor.post({theirs[3]}));

    hk_lock_bypass = true; /* the child's handler holds all locks */
    hk_heaps_after_fork(survivor->thread);
    hk_lock_bypass = false;
    EXPECT_EQ(freer->state, HK_HEAP_PARKED);
    check_everything();
    EXPECT_EQ(pending_blocks(survivor), Parcels{{mine[0]}});
    EXPECT_EQ(pending_blocks(owner), (Parcels{{theirs[0]}, {theirs[2]}}));
    EXPECT_EQ(outbox(freer), Blocks{}) << "what is in the outboxes of others is given up";
    EXPECT_EQ(outbox(survivor), Blocks{theirs[3]});

    open(survivor);
    expect_free({mine[0]});
    tend();
    expect_free({theirs[0], theirs[2], theirs[3]});
    expect_free({mine[1], theirs[1]}, false);
    check_everything();
    survivor.give(part(mine, 1, 10));
    survivor.give({theirs[1]});
    survivor.give(part(theirs, 4, 10));
    /* Their own heaps are parked already: each takes one of them over, so that it can be parked at the end. */
    owner.start();
    freer.start();
    check_everything();
}

/* ---- At random ---- */

TEST_F(Remote, StaysInOrderWhateverHappens)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        uint64_t random = seed;
        auto below = [&random](size_t n) { return static_cast<size_t>(next_random(&random) % n); };
        Heaps heaps = make_heaps(5);
        Blocks live;
        auto free_some = [&](size_t n) {
            for (; n > 0 && !live.empty(); n--) {
                std::swap(live[below(live.size())], live.back());
                TestHeap &by = *heaps[below(heaps.size())];
                hk_fault fault = below(8) == 0 ? free_remotely(live.back()) : by.free_to_other(live.back());
                ASSERT_EQ(fault.kind, HK_FAULT_NONE);
                live.pop_back();
            }
        };
        for (int step = 0; step < 4000 / HK_TEST_SLOWDOWN; step++) {
            TestHeap &heap = *heaps[below(heaps.size())];
            size_t what = below(100);
            if (what < 25 && live.size() < 3000) {
                for (void *p : heap.take(below(2) == 0 ? k1024 : kRun, static_cast<unsigned>(1 + below(80)))) {
                    ASSERT_EQ(std::count(live.begin(), live.end(), p), 0) << "handed out twice";
                    live.push_back(p);
                }
            } else if (what < 65) {
                free_some(1 + below(60));
            } else if (what < 75) {
                EXPECT_EQ(heap.open_parcels().kind, HK_FAULT_NONE);
            } else if (what < 80) {
                heap.send_outbox();
            } else if (what < 94) {
                std::vector<hk_slab *> slabs = all_slabs();
                hk_slab *slab = slabs.empty() ? nullptr : slabs[below(slabs.size())];
                for (auto &from : heaps)
                    if (slab != nullptr && slab->nfree == 0 && hk_slab_owner(slab) == from->get() &&
                        from->get() != heap.get()) {
                        move(slab, *from, heap);
                        break;
                    }
            } else if (what < 97) {
                heap.park();
                if (below(2) == 0)
                    dissolve_parked();
                heap.start();
            } else if (what == 97) {
                tend();
            }
            if (step % 20 == 0)
                check_everything();
            if (HasFailure())
                return;
        }
        free_some(live.size());
        trim_all();
        EXPECT_TRUE(all_slabs().empty());
        for (auto &heap : heaps)
            EXPECT_EQ(on_their_way(*heap), 0u);
    }
}

/* ---- Threads ---- */

/* One thread stores into its outbox all the time, and others empty it for it. */
TEST_F(Remote, AThreadGoesOnWhileItsOutboxIsEmptied)
{
    constexpr size_t kSlabs = 64 / HK_TEST_SLOWDOWN + 4;
    Blocks live, freed;
    for (size_t i = 0; i < kSlabs; i++) {
        Blocks blocks = owner.take_slab(k64);
        live.push_back(blocks.back()); /* keeps the slab */
        freed.insert(freed.end(), blocks.begin(), blocks.end() - 1);
    }
    std::atomic<bool> done{false};
    std::vector<std::thread> tenders;
    for (int i = 0; i < 2; i++)
        tenders.emplace_back([&done] {
            while (!done)
                tend();
        });
    std::thread thread([&freed] {
        TestHeap heap;
        for (void *p : freed)
            ASSERT_EQ(heap.free_to_other(p).kind, HK_FAULT_NONE);
    });
    thread.join();
    done = true;
    for (std::thread &tender : tenders)
        tender.join();
    tend_all();
    for (void *p : live)
        EXPECT_EQ(hk_slab_of(p)->nfree, 1023);
    owner.give(live);
}

/* As many as can be push at once, and the owner takes what is there. */
TEST_F(Remote, SendersMeetOnOneStack)
{
    constexpr size_t kSenders = 3, kSlabs = 36 / HK_TEST_SLOWDOWN + 3;
    std::vector<Blocks> slabs;
    for (size_t i = 0; i < kSlabs; i++)
        slabs.push_back(owner.take_slab(k64));
    std::atomic<size_t> done{0};
    std::vector<std::thread> senders;
    for (size_t t = 0; t < kSenders; t++)
        senders.emplace_back([&, t] {
            TestHeap heap;
            for (size_t i = t; i < kSlabs; i += kSenders)
                for (size_t j = 1; j < slabs[i].size(); j++) { /* the first keeps the slab */
                    ASSERT_EQ(heap.free_to_other(slabs[i][j]).kind, HK_FAULT_NONE);
                    heap.send_outbox();
                }
            done++;
        });
    while (done < kSenders)
        open(owner);
    for (std::thread &sender : senders)
        sender.join();
    tend_all();
    for (const Blocks &blocks : slabs) {
        EXPECT_EQ(hk_slab_of(blocks[0])->nfree, 1023);
        owner.give({blocks[0]});
    }
}

/* Each block says at its start that it is in use: nobody gets one that somebody has. */
void *alloc_stamped(TestHeap &heap, unsigned size_class)
{
    void *p = heap.alloc(size_class);
    EXPECT_NE(p, nullptr);
    EXPECT_NE(*static_cast<void **>(p), p) << "it is in use";
    return *static_cast<void **>(p) = p;
}

hk_fault free_stamped(TestHeap &heap, void *p)
{
    EXPECT_EQ(*static_cast<void **>(p), p) << "it has been freed";
    *static_cast<void **>(p) = nullptr;
    unsigned size_class = hk_slab_of(p)->cls;
    return hk_slab_owner(hk_slab_of(p)) == heap.get() ? heap.free(size_class, p) : heap.free_to_other(p);
}

class RemoteThreads : public Remote, public testing::WithParamInterface<uint64_t>
{
};

TEST_P(RemoteThreads, FreeEachOthersBlocksAndNothingIsLost)
{
    constexpr size_t kThreads = 4, kMailboxes = 256;
    constexpr int kSteps = 60000 / HK_TEST_SLOWDOWN;
    static std::atomic<void *> mailboxes[kMailboxes];
    std::vector<std::thread> threads;
    std::atomic<bool> done{false};
    for (size_t t = 0; t < kThreads; t++)
        threads.emplace_back([t] {
            TestHeap heap;
            uint64_t random = GetParam() * kThreads + t;
            for (int i = 0; i < kSteps; i++) {
                next_random(&random);
                size_t pick = (random >> 40) % 16;
                void *mine = alloc_stamped(heap, pick == 0 ? kRun : pick % 2 == 0 ? k64 : k1024);
                if (void *p = mailboxes[(random >> 33) % kMailboxes].exchange(mine)) {
                    ASSERT_EQ(free_stamped(heap, p).kind, HK_FAULT_NONE);
                }
                if (i % 64 == 0) {
                    ASSERT_EQ(heap.stow_parcels().kind, HK_FAULT_NONE);
                }
                if (i % 5000 == 4999) {
                    heap.park();
                    heap.start();
                }
            }
        });
    std::thread maintenance([&done] {
        for (int i = 0; !done; i++) {
            tend();
            if (i % 4 == 0)
                dissolve_parked();
            std::this_thread::yield();
        }
    });
    for (std::thread &thread : threads)
        thread.join();
    done = true;
    maintenance.join();
    for (auto &mailbox : mailboxes)
        if (void *p = mailbox.exchange(nullptr)) {
            EXPECT_EQ(free_stamped(freer, p).kind, HK_FAULT_NONE);
        }
    EXPECT_TRUE(freer.send_outbox());
}

INSTANTIATE_TEST_SUITE_P(Seed, RemoteThreads, testing::Range(uint64_t{1}, uint64_t{4}));

} // namespace
