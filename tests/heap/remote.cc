/*
 * Remote frees: the token, the hand-over, the outbox, and what goes wrong without them. What threads do to each other is
 * done here step by step, in the order that a test wants; at the end threads do it for themselves.
 */
#include "test_heap.h"

#include <atomic>
#include <thread>

namespace
{

constexpr unsigned k64 = 3, k1024 = 31; /* classes of one slot: 16 words of 64-byte blocks; one word of 1 KiB */
constexpr unsigned kRun = 51;           /* a class of three slots, 23 blocks */

class Remote : public HeapTest
{
  protected:
    TestHeap owner, freer;

    static std::vector<hk_slab *> queue(struct hk_heap *heap)
    {
        std::vector<hk_slab *> slabs;
        for (hk_slab *slab = heap->pending; slab != nullptr; slab = slab->pending_next)
            slabs.push_back(slab);
        return slabs;
    }
    /* The first two steps of a remote free: what a freer has done that was interrupted before it queued the slab. */
    static void set_bit(hk_slab *slab, void *p)
    {
        unsigned index;
        hk_fault fault{};
        ASSERT_TRUE(hk_slab_index(slab, p, &index, &fault));
        atomic_fetch_add(&slab->remote_count, 1u);
        atomic_fetch_or(&hk_slab_remote_words(slab)[index / 64], 1ull << (index % 64));
        atomic_fetch_or(&slab->summary, 1u << (index / 64));
    }
};

/* ---- Rule 1: the summary word is the token of a queued slab ---- */

TEST_F(Remote, QueuesASlabOnceHoweverManyBlocksAreFreed)
{
    std::vector<void *> blocks = owner.take(k64, 300);
    hk_slab *slab = hk_slab_of(blocks[0]);
    for (size_t i : {0, 1, 63, 64, 130, 131, 255})
        EXPECT_EQ(free_remotely(blocks[i]).kind, HK_FAULT_NONE);
    EXPECT_EQ(queue(owner.get()), std::vector<hk_slab *>{slab});
    EXPECT_EQ(slab->summary, 0b1111u);
    EXPECT_EQ(slab->remote_count, 7u);
    EXPECT_EQ(slab->nfree, 1024u - 300u) << "the owner's bitmap is the owner's";
    check_everything();

    EXPECT_EQ(owner.collect().kind, HK_FAULT_NONE);
    EXPECT_EQ(slab->summary, 0u);
    EXPECT_EQ(slab->remote_count, 0u);
    EXPECT_EQ(slab->nfree, 1024u - 300u + 7u);
    EXPECT_TRUE(queue(owner.get()).empty());
    std::vector<void *> again = owner.take(k64, 7);
    EXPECT_EQ(again, (std::vector<void *>{blocks[0], blocks[1], blocks[63], blocks[64], blocks[130], blocks[131],
                                          blocks[255]}));
    owner.give(blocks);
}

TEST_F(Remote, DoesNotQueueASlabWhoseTokenSomebodyHolds)
{
    std::vector<void *> blocks = owner.take(k64, 300);
    hk_slab *slab = hk_slab_of(blocks[0]);
    set_bit(slab, blocks[0]); /* holds the token, and has not queued the slab yet */
    EXPECT_EQ(free_remotely(blocks[100]).kind, HK_FAULT_NONE);
    EXPECT_TRUE(queue(owner.get()).empty());
    EXPECT_EQ(owner.collect().kind, HK_FAULT_NONE);
    EXPECT_FALSE(slab->summary == 0) << "the owner may not harvest what is not queued";
    hk_remote_hand_over(slab);
    EXPECT_EQ(queue(owner.get()), std::vector<hk_slab *>{slab});
    EXPECT_EQ(owner.collect().kind, HK_FAULT_NONE);
    EXPECT_EQ(slab->nfree, 1024u - 300u + 2u);
    owner.give({blocks.begin() + 1, blocks.begin() + 100});
    owner.give({blocks.begin() + 101, blocks.end()});
}

TEST_F(Remote, HarvestsFlaggedWordsOnly)
{
    std::vector<void *> blocks = owner.take(k64, 300);
    hk_slab *slab = hk_slab_of(blocks[0]);
    free_remotely(blocks[0]);
    /* A bit whose freer has not flagged the word yet: it will find the summary zero, and queue the slab itself. */
    atomic_fetch_add(&slab->remote_count, 1u);
    atomic_fetch_or(&hk_slab_remote_words(slab)[2], 1ull << 5);
    owner.collect();
    EXPECT_EQ(hk_slab_remote_words(slab)[2], 1ull << 5);
    EXPECT_EQ(slab->nfree, 1024u - 300u + 1u);
    EXPECT_EQ(atomic_fetch_or(&slab->summary, 1u << 2), 0u);
    hk_remote_hand_over(slab);
    owner.collect();
    EXPECT_TRUE(is_free(blocks[2 * 64 + 5]));
    EXPECT_EQ(slab->remote_count, 0u);
    blocks.erase(blocks.begin() + 2 * 64 + 5);
    blocks.erase(blocks.begin());
    owner.give(blocks);
}

TEST_F(Remote, MindsNoFlagOfAnEmptyWord)
{
    std::vector<void *> blocks = owner.take(k64, 100);
    hk_slab *slab = hk_slab_of(blocks[0]);
    free_remotely(blocks[0]);
    atomic_fetch_or(&slab->summary, 0xfff0u);
    EXPECT_EQ(owner.collect().kind, HK_FAULT_NONE);
    EXPECT_EQ(slab->nfree, 1024u - 100u + 1u);
    blocks.erase(blocks.begin());
    owner.give(blocks);
}

TEST_F(Remote, PassesAQueuedSlabOnToItsPresentOwner)
{
    std::vector<void *> blocks = owner.take(k1024, 64);
    hk_slab *slab = hk_slab_of(blocks[0]);
    free_remotely(blocks[3]);
    struct hk_heap *parked = owner.park();
    void *adopted = freer.take_one(k1024); /* collects for the parked heap, and takes the slab over */
    ASSERT_EQ(hk_slab_owner(slab), freer.get());
    ASSERT_EQ(adopted, blocks[3]);
    /* A freer that saw the old owner queues the slab there only now. */
    set_bit(slab, blocks[4]);
    slab->pending_next = parked->pending;
    parked->pending = slab;
    owner.start();
    ASSERT_EQ(owner.get(), parked);
    uint64_t forwarded = parked->counts.forwarded;
    EXPECT_EQ(owner.collect().kind, HK_FAULT_NONE);
    EXPECT_EQ(parked->counts.forwarded, forwarded + 1);
    EXPECT_EQ(slab->nfree, 0) << "another's slab is not harvested";
    EXPECT_EQ(queue(freer.get()), std::vector<hk_slab *>{slab});
    EXPECT_EQ(freer.collect().kind, HK_FAULT_NONE);
    EXPECT_EQ(freer.take_one(k1024), blocks[4]);
    freer.give(blocks);
}

TEST_F(Remote, ReadsTheOwnerAfterItHasTheToken)
{
    std::vector<void *> blocks = owner.take(k1024, 64);
    hk_slab *slab = hk_slab_of(blocks[0]);
    set_bit(slab, blocks[9]);
    {
        HeldLock held(&owner->lock);
        owner.get()->classes[k1024].current = nullptr; /* the slab has no free block, and so is in no bin */
        slab->bin = HK_BIN_FULL;
        owner.get()->classes[k1024].nslabs--;
        hk_slab_set_owner(slab, freer.get());
        freer.get()->classes[k1024].nslabs++;
    }
    hk_remote_hand_over(slab);
    EXPECT_TRUE(queue(owner.get()).empty());
    EXPECT_EQ(queue(freer.get()), std::vector<hk_slab *>{slab});
    EXPECT_EQ(freer.collect().kind, HK_FAULT_NONE);
    blocks.erase(blocks.begin() + 9);
    freer.give(blocks);
}

TEST_F(Remote, ATokenOfASlabWithoutOwnerIsGivenUp)
{
    std::vector<void *> blocks = owner.take_slab(kRun);
    hk_slab *slab = hk_slab_of(blocks[0]);
    owner.give(blocks);
    ASSERT_EQ(hk_slab_owner(slab), nullptr);
    slab->summary = 1; /* what a double free that came too late leaves */
    hk_remote_hand_over(slab);
    EXPECT_EQ(slab->summary, 0u);
}

/* ---- A slab whose last block is freed remotely ---- */

TEST_F(Remote, TheLastFreeReleasesTheSlabOfASleepingOwner)
{
    std::vector<void *> blocks = owner.take_slab(kRun);
    hk_slab *slab = hk_slab_of(blocks[0]);
    uint64_t released = owner->counts.slabs_released;
    for (void *p : blocks)
        EXPECT_EQ(free_remotely(p).kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_owner(slab), nullptr);
    EXPECT_EQ(owner->counts.slabs_released, released + 1);
    EXPECT_EQ(owner->classes[kRun].nslabs, 0u);
    EXPECT_EQ(hk_key_kind(hk_key_of(blocks[0])), static_cast<unsigned>(HK_KEY_GONE));
}

TEST_F(Remote, TheLastFreeReleasesTheSlabOfAParkedHeap)
{
    std::vector<void *> blocks = owner.take_slab(kRun);
    struct hk_heap *parked = owner.park();
    for (void *p : blocks)
        freer.add_to_outbox(p);
    EXPECT_EQ(freer.drain_outbox().kind, HK_FAULT_NONE);
    EXPECT_EQ(parked->classes[kRun].nslabs, 0u);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), nullptr);
}

TEST_F(Remote, TheLastFreeDoesNotWaitForTheOwnersLock)
{
    std::vector<void *> blocks = owner.take_slab(kRun);
    hk_slab *slab = hk_slab_of(blocks[0]);
    hk_lock_seize(&owner->lock); /* as the owner would, in the middle of a slow path */
    for (void *p : blocks)
        EXPECT_EQ(free_remotely(p).kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_owner(slab), owner.get());
    hk_lock_yield(&owner->lock);
    owner.collect();
    EXPECT_EQ(hk_slab_owner(slab), nullptr) << "who holds the lock, or the next collect, releases it";
}

TEST_F(Remote, BlocksInAMagazineKeepTheirSlab)
{
    std::vector<void *> blocks = owner.take_slab(kRun);
    owner.free(kRun, blocks.back());
    blocks.pop_back();
    for (void *p : blocks)
        free_remotely(p);
    EXPECT_EQ(owner.collect().kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), owner.get());
    owner.flush(kRun);
    EXPECT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), nullptr);
}

/* ---- Rule 6: the outbox ---- */

TEST_F(Remote, OutboxCarriesNeighboursInOneWord)
{
    std::vector<void *> blocks = owner.take(k64, 128);
    hk_slab *slab = hk_slab_of(blocks[0]);
    hk_heap_counts before = freer->counts;
    for (size_t i = 0; i < 63; i++)
        EXPECT_EQ(freer.add_to_outbox(blocks[i]).kind, HK_FAULT_NONE);
    EXPECT_EQ(slab->summary, 0u) << "nothing has left";
    freer.add_to_outbox(blocks[63]);
    EXPECT_EQ(hk_slab_remote_words(slab)[0], ~0ull) << "a full word leaves";
    freer.add_to_outbox(blocks[64]);
    freer.add_to_outbox(blocks[99]);
    EXPECT_EQ(freer.drain_outbox().kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_slab_remote_words(slab)[1], 1ull | 1ull << 35);
    EXPECT_EQ(freer->counts.remote_frees - before.remote_frees, 66u);
    EXPECT_EQ(freer->counts.remote_words - before.remote_words, 2u);
    for (const hk_outbox_entry &entry : freer->outbox)
        EXPECT_EQ(entry.slab, nullptr);
    owner.collect();
    blocks.erase(blocks.begin(), blocks.begin() + 64);
    blocks.erase(blocks.begin() + 35);
    blocks.erase(blocks.begin());
    owner.give(blocks);
}

TEST_F(Remote, OutboxDoesNotKeepMediumBlocks)
{
    std::vector<void *> blocks = owner.take(kRun, 2);
    freer.add_to_outbox(blocks[0]);
    EXPECT_EQ(queue(owner.get()).size(), 1u);
    owner.give({blocks[1]});
}

TEST_F(Remote, OutboxEvictsWhatStandsInTheWay)
{
    /* More words than the outbox has entries: what it holds never exceeds them, and nothing is lost. */
    std::vector<std::vector<void *>> slabs;
    for (int i = 0; i < 20; i++)
        slabs.push_back(owner.take_slab(k64));
    size_t freed = 0, held = 0;
    for (unsigned word = 0; word < 16; word++)
        for (auto &blocks : slabs) {
            EXPECT_EQ(freer.add_to_outbox(blocks[word * 64 + word]).kind, HK_FAULT_NONE);
            freed++;
        }
    for (const hk_outbox_entry &entry : freer->outbox)
        held += entry.slab != nullptr ? hk_count_bits64(entry.mask) : 0;
    EXPECT_LE(held, HK_OUTBOX_ENTRIES);
    EXPECT_GT(held, 0u);
    freer.drain_outbox();
    size_t nfree = 0;
    owner.collect();
    for (auto &blocks : slabs)
        nfree += hk_slab_of(blocks[0])->nfree;
    EXPECT_EQ(nfree, freed);
    for (auto &blocks : slabs)
        for (unsigned i = 0; i < blocks.size(); i++)
            if (i / 64 != i % 64)
                owner.give({blocks[i]});
}

TEST_F(Remote, OutboxIsDrainedWhenItsThreadEnds)
{
    std::vector<void *> blocks = owner.take(k64, 10);
    freer.add_to_outbox(blocks[4]);
    EXPECT_FALSE(is_free(blocks[4]));
    freer.park();
    EXPECT_TRUE(is_free(blocks[4]));
    owner.collect();
    blocks.erase(blocks.begin() + 4);
    owner.give(blocks);
}

TEST_F(Remote, OutboxOfASleepingThreadIsDrainedForIt)
{
    std::vector<void *> blocks = owner.take(k64, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    freer.add_to_outbox(blocks[4]);
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    EXPECT_EQ(slab->nfree, 1024u - 9u);
    blocks.erase(blocks.begin() + 4);
    owner.give(blocks);
}

TEST_F(Remote, OutboxEntriesSurviveAChangeOfOwner)
{
    std::vector<void *> blocks = owner.take_slab(k1024);
    freer.add_to_outbox(blocks[4]);
    free_remotely(blocks[5]);
    owner.park();
    EXPECT_EQ(freer.take_one(k1024), blocks[5]); /* the slab is the freer's now */
    ASSERT_EQ(hk_slab_owner(hk_slab_of(blocks[0])), freer.get());
    EXPECT_EQ(freer.drain_outbox().kind, HK_FAULT_NONE);
    EXPECT_EQ(freer.collect().kind, HK_FAULT_NONE);
    EXPECT_TRUE(is_free(blocks[4]));
    blocks.erase(blocks.begin() + 4);
    freer.give(blocks);
}

/* ---- Double frees ---- */

TEST_F(Remote, DoubleFreeInTheOutbox)
{
    std::vector<void *> blocks = owner.take(k64, 10);
    freer.add_to_outbox(blocks[1]);
    freer.add_to_outbox(blocks[2]);
    hk_fault fault = freer.add_to_outbox(blocks[1]);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.ptr, blocks[1]);
    EXPECT_EQ(fault.block_size, 64u);
    EXPECT_FALSE(fault.late);
    EXPECT_EQ(freer.drain_outbox().kind, HK_FAULT_NONE);
    owner.collect();
    owner.give({blocks[0], blocks[3], blocks[4], blocks[5], blocks[6], blocks[7], blocks[8], blocks[9]});
}

TEST_F(Remote, DoubleFreeOfABlockThatIsFreeAlready)
{
    std::vector<void *> blocks = owner.take(k64, 10);
    owner.give({blocks[1]});
    EXPECT_EQ(freer.add_to_outbox(blocks[1]).kind, HK_FAULT_DOUBLE_FREE) << "freed by its owner";
    free_remotely(blocks[2]);
    EXPECT_EQ(freer.add_to_outbox(blocks[2]).kind, HK_FAULT_DOUBLE_FREE) << "freed remotely, not collected yet";
    for (const hk_outbox_entry &entry : freer->outbox)
        EXPECT_EQ(entry.slab, nullptr);
    owner.collect();
    blocks.erase(blocks.begin() + 1, blocks.begin() + 3);
    owner.give(blocks);
}

TEST_F(Remote, DoubleFreeByTheRemoteBit)
{
    std::vector<void *> blocks = owner.take(k64, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    free_remotely(blocks[1]);
    hk_fault fault = free_remotely(blocks[1]);
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.ptr, blocks[1]);
    EXPECT_EQ(slab->remote_count, 1u) << "counted once";
    owner.collect();
    EXPECT_EQ(slab->nfree, 1024u - 9u);
    blocks.erase(blocks.begin() + 1);
    owner.give(blocks);
}

TEST_F(Remote, DoubleFreeByOwnerAndAnotherIsNoticedByTheHarvest)
{
    std::vector<void *> blocks = owner.take(k64, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    free_remotely(blocks[1]);
    EXPECT_EQ(owner.give({blocks[1]}).kind, HK_FAULT_NONE) << "nobody can know yet";
    hk_fault fault = owner.collect();
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(fault.ptr, blocks[1]);
    EXPECT_EQ(slab->nfree, 1024u - 9u) << "free once";
    EXPECT_EQ(slab->remote_count, 0u);
    blocks.erase(blocks.begin() + 1);
    owner.give(blocks);
}

TEST_F(Remote, AnEntryOfASlabsEarlierLifeIsDroppedLoudly)
{
    std::vector<void *> blocks = owner.take_slab(kRun);
    hk_slab *slab = hk_slab_of(blocks[0]);
    /* As the outbox of a small class would hold it. */
    freer->outbox[0] = hk_outbox_entry{.slab = slab, .mask = 1ull << 7, .generation = slab->generation, .word = 0};
    owner.give(blocks); /* among them block 7, a second time: the slab is released */
    ASSERT_EQ(hk_slab_owner(slab), nullptr);
    std::vector<void *> again = owner.take_slab(kRun); /* and begun anew */
    ASSERT_EQ(hk_slab_of(again[0]), slab);
    hk_fault fault = freer.drain_outbox();
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_TRUE(fault.late);
    EXPECT_EQ(fault.ptr, blocks[7]);
    EXPECT_EQ(slab->summary, 0u) << "the new life's block is not freed by it";
    EXPECT_FALSE(is_free(again[7]));
    owner.give(again);
}

/* ---- Rule 7: after a fork ---- */

TEST_F(Remote, AForksChildQueuesWhatWasOnItsWay)
{
    std::vector<void *> blocks = owner.take(k64, 300), others = freer.take(k1024, 10);
    hk_slab *slab = hk_slab_of(blocks[0]);
    /* A freer that the child does not have had set its bit, but not the flag; another had the token and did not queue. */
    atomic_fetch_or(&hk_slab_remote_words(slab)[1], 1ull);
    set_bit(hk_slab_of(others[0]), others[3]);
    hk_lock_bypass = true;
    hk_heaps_after_fork(owner->thread);
    hk_lock_bypass = false;
    EXPECT_EQ(queue(owner.get()), std::vector<hk_slab *>{slab});
    EXPECT_EQ(slab->summary, 0b10u);
    EXPECT_EQ(queue(freer.get()), std::vector<hk_slab *>{hk_slab_of(others[3])});
    check_everything();
    owner.collect();
    freer.collect();
    EXPECT_TRUE(is_free(blocks[64]));
    EXPECT_TRUE(is_free(others[3]));
    slab->remote_count = 0; /* the freer had not counted its block */
    blocks.erase(blocks.begin() + 64);
    others.erase(others.begin() + 3);
    owner.give(blocks);
    freer.give(others);
    freer.start(); /* its heap was parked */
}

/* ---- Threads ---- */

TEST_F(Remote, ThreadsFreeEachOthersBlocksAndNothingIsLost)
{
    constexpr size_t kThreads = 4, kMailboxes = 64;
    constexpr int kSteps = 60000 / HK_TEST_SLOWDOWN;
    static std::atomic<void *> mailboxes[kMailboxes];
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; t++)
        threads.emplace_back([t] {
            TestHeap heap;
            uint64_t random = t + 1;
            for (int i = 0; i < kSteps; i++) {
                random = random * 6364136223846793005 + 1442695040888963407;
                unsigned size_class = (random >> 40) % 16 == 0 ? kRun : (random >> 40) % 2 == 0 ? k64 : k1024;
                void *p = mailboxes[(random >> 33) % kMailboxes].exchange(heap.take_one(size_class));
                if (p == nullptr)
                    continue;
                hk_slab *slab = hk_slab_of(p);
                hk_fault fault = hk_slab_owner(slab) == heap.get() ? heap.give({p})
                                 : (random >> 50) % 4 == 0         ? free_remotely(p)
                                                                   : heap.add_to_outbox(p);
                ASSERT_EQ(fault.kind, HK_FAULT_NONE);
                if (i % 64 == 0) {
                    ASSERT_EQ(heap.collect().kind, HK_FAULT_NONE);
                }
                if (i % 5000 == 4999) {
                    heap.park();
                    heap.start();
                }
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (auto &mailbox : mailboxes)
        if (void *p = mailbox.exchange(nullptr)) {
            EXPECT_EQ(free_remotely(p).kind, HK_FAULT_NONE);
        }
}

} // namespace
