/*
 * Which way a block takes that a thread frees and another allocated: by the outbox and a parcel, or directly, and when
 * the outbox is sent. Seen by the counters. By the hak_ names, so that the sanitizers look on; no thread works in the
 * background, so nothing arrives by itself.
 */
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "hakmem/hakmem.h"

#include "c_begin.h"
#include "front/memory.h"
#include "front/thread.h"
#include "heap/size_class.h"
#include "observe/stats.h"
#include "c_end.h"

namespace
{

using Blocks = std::vector<void *>;

hk_heap_counts counts()
{
    struct hk_stats stats;
    hk_stats_read(&stats);
    return stats.heap;
}

/* With blocks of its own for 100 bytes, and nothing in the outbox. */
void become_running()
{
    for (int i = 0; i < 200; i++)
        hak_free(hak_malloc(100));
    hk_thread_idle();
    ASSERT_NE(hk_self.heap, nullptr);
    ASSERT_EQ(hk_self.outbox_next, hk_outbox_of(hk_self.heap));
}

Blocks allocate(size_t count, size_t n)
{
    Blocks blocks(count);
    for (void *&p : blocks)
        EXPECT_NE(p = hak_malloc(n), nullptr);
    return blocks;
}

void free_all(const Blocks &blocks)
{
    for (void *p : blocks)
        hak_free(p);
}

class RemoteFrees : public testing::Test
{
  protected:
    void SetUp() override
    {
        hk_trim(HK_PURGE_ALL, 0);
        become_running();
        before = counts();
    }
    void TearDown() override
    {
        hk_trim(HK_PURGE_ALL, 0);
        struct hk_stats stats;
        hk_stats_read(&stats);
        EXPECT_EQ(stats.live_blocks, 0u);
        EXPECT_EQ(stats.heap.remote_frees, stats.heap.parcel_blocks) << "what was sent has arrived";
    }
    void in_running_thread(const std::function<void()> &body)
    {
        std::thread([&] {
            become_running();
            before = counts();
            body();
        }).join();
    }
    size_t sent() const { return counts().remote_frees - before.remote_frees; }
    size_t went_directly() const { return counts().direct_frees - before.direct_frees; }

    hk_heap_counts before{};
};

TEST_F(RemoteFrees, TravelInParcels)
{
    Blocks blocks = allocate(300, 100);
    in_running_thread([&] {
        free_all(blocks);
        EXPECT_GE(sent(), 2u * HK_OUTBOX_BLOCKS);
        EXPECT_LT(sent(), 300u) << "the last ones are in the outbox";
    });
    EXPECT_EQ(sent(), 300u);
    EXPECT_EQ(went_directly(), 0u);
    hk_trim(HK_PURGE_ALL, 0);
    size_t parcels = counts().parcels_opened - before.parcels_opened;
    EXPECT_GE(parcels, 300u / HK_PARCEL_BLOCKS);
    EXPECT_LE(parcels, 12u);
}

TEST_F(RemoteFrees, LeaveWhenTheyAreManyBytes)
{
    constexpr size_t kSize = 20 << 10, kMost = HK_OUTBOX_BYTES / kSize;
    Blocks blocks = allocate(kMost + 1, kSize);
    in_running_thread([&] {
        for (size_t i = 0; i < kMost; i++)
            hak_free(blocks[i]);
        EXPECT_EQ(sent(), 0u);
        hak_free(blocks[kMost]);
        EXPECT_EQ(sent(), kMost);
        EXPECT_EQ(went_directly(), 0u);
    });
}

TEST_F(RemoteFrees, GoDirectlyIfTheOutboxCannotHoldTheBlock)
{
    Blocks blocks = allocate(3, HK_OUTBOX_BYTES + 1);
    in_running_thread([&] {
        free_all(blocks);
        EXPECT_EQ(sent(), 0u);
        EXPECT_EQ(went_directly(), 3u);
    });
}

TEST_F(RemoteFrees, OfAGuestGoDirectly)
{
    Blocks blocks = allocate(5, 100);
    std::thread([&] { free_all(blocks); }).join();
    EXPECT_EQ(sent(), 0u);
    EXPECT_EQ(went_directly(), 5u);
}

TEST_F(RemoteFrees, GoDirectlyWhenAllParcelsAreOnTheirWay)
{
    /* Each send takes a parcel to the one owner, which sleeps. Maintenance may open them, but not each time. */
    constexpr size_t kSize = 20 << 10, kBlocks = (HK_PARCELS + 2) * (HK_OUTBOX_BYTES / kSize);
    Blocks blocks = allocate(10 * kBlocks, kSize);
    in_running_thread([&] {
        for (size_t i = 0; i < blocks.size(); i++) {
            hak_free(blocks[i]);
            if (went_directly() != 0) {
                EXPECT_GE(i, kBlocks - 2 * (HK_OUTBOX_BYTES / kSize));
                blocks.erase(blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(i) + 1);
                break;
            }
        }
        EXPECT_GT(went_directly(), 0u);
        /* It opened what was waiting there: the parcels are back. */
        size_t direct = went_directly();
        for (size_t i = 0; i < kBlocks / 2; i++)
            hak_free(blocks[i]);
        EXPECT_EQ(went_directly(), direct);
        blocks.erase(blocks.begin(), blocks.begin() + kBlocks / 2);
    });
    free_all(blocks);
}

/* What is left when parcels run out may have been freed twice, and its slots may hold other blocks by then. */
TEST_F(RemoteFrees, ThatAreLeftNeverFillMoreThanTheOutbox)
{
    free_all(allocate(200, 300)); /* so that this class has a slab of its own, too */
    int round = 0;
    for (hk_key kind : {hk_key{HK_CLASS_FIRST_ALIGNED - 1}, hk_key{HK_KEY_GONE}, hk_key{HK_KEY_LARGE}}) {
        Blocks sent_first = allocate(HK_PARCEL_BLOCKS, 100), left = allocate(19, 300);
        _Atomic hk_key *key = hk_key_at(left[0]);
        const hk_key true_key = *key, id = true_key & ~hk_key{0xff};
        in_running_thread([&] {
            free_all(sent_first);
            free_all(left);
            struct hk_heap *heap = hk_self.heap;
            hk_lock_acquire(&heap->lock);
            hk_parcel *stock = heap->stock, *returned = heap->returned; /* but for one parcel, all are on their way */
            unsigned begun = heap->parcels_begun;
            static hk_parcel spare[3]; /* they stay with the heap */
            hk_parcel *one = &spare[round++];
            one->home = heap;
            heap->stock = one;
            heap->returned = nullptr;
            heap->parcels_begun = HK_PARCELS;
            *key = id | kind;
            hk_fault fault{};
            hk_thread_send(&fault);
            *key = true_key;
            EXPECT_EQ(hk_self.outbox_next - hk_outbox_of(heap), static_cast<ptrdiff_t>(left.size()));
            EXPECT_LE(hk_self.outbox_room, HK_OUTBOX_BYTES - left.size() * HK_OUTBOX_BYTES_LEAST);
            EXPECT_EQ(heap->stock, nullptr);
            heap->stock = stock;
            heap->returned = returned;
            heap->parcels_begun = begun;
            hk_lock_release(&heap->lock);
            hk_thread_idle();
        });
    }
}

TEST_F(RemoteFrees, DoNotWaitForEver)
{
    Blocks blocks = allocate(3, 100);
    in_running_thread([&] {
        free_all(blocks);
        EXPECT_EQ(sent(), 0u);
        EXPECT_EQ(hk_outbox_of(hk_self.heap)[0], blocks[0]);
        uint32_t ticks = hk_self.heap->tick;
        free_all(allocate(20000, 100));
        ASSERT_GE(hk_self.heap->tick - ticks, 256u);
        EXPECT_EQ(sent(), 3u);
    });
}

/* As refills and flushes do, which a thread that others feed may need none of. */
TEST_F(RemoteFrees, LookAfterTheMagazinesOfTheirThread)
{
    Blocks blocks = allocate(2 * HK_OUTBOX_BLOCKS, 100);
    in_running_thread([&] {
        struct hk_heap *heap = hk_self.heap;
        const struct hk_heap_class *own = &heap->classes[hk_class_of(64)];
        for (int rounds = 0; own->capacity < 64 && rounds < 1000; rounds++)
            free_all(allocate(2000, 64));
        ASSERT_GE(own->capacity, 64u);
        heap->budget.busy_at -= 1100;
        heap->budget.busy_step--;
        heap->budget.tended_at--;
        size_t flushes = counts().flushes;
        free_all(blocks);
        EXPECT_GT(counts().flushes, flushes);
        EXPECT_LE(own->capacity, 8u);
        EXPECT_EQ(own->reserve, nullptr);
    });
}

TEST_F(RemoteFrees, AreSentByAThreadThatComesToRest)
{
    Blocks blocks = allocate(6, 100);
    in_running_thread([&] {
        free_all({blocks.begin(), blocks.begin() + 3});
        hk_thread_idle();
        EXPECT_EQ(sent(), 3u);
        free_all({blocks.begin() + 3, blocks.end()}); /* and the outbox is used again from its start */
        EXPECT_EQ(hk_self.outbox_next - hk_outbox_of(hk_self.heap), 3);
        hk_thread_idle();
        EXPECT_EQ(sent(), 6u);
        EXPECT_EQ(hk_self.outbox_next, hk_outbox_of(hk_self.heap));
    });
}

TEST_F(RemoteFrees, OfABatchTakeTheSameWay)
{
    Blocks blocks = allocate(100, 100);
    in_running_thread([&] {
        Blocks own = allocate(20, 100), mixed = blocks;
        for (size_t i = 0; i < own.size(); i++)
            mixed.insert(mixed.begin() + static_cast<ptrdiff_t>(5 * i), own[i]);
        hak_free_batch(mixed.data(), mixed.size());
        hk_thread_idle();
        EXPECT_EQ(sent(), 100u);
        EXPECT_EQ(went_directly(), 0u);
    });
}

/* They come back on the owner's next slow path, and into its magazine. */
TEST_F(RemoteFrees, AreHandedOutAgainByTheOwner)
{
    std::vector<Blocks> rounds;
    rounds.push_back(allocate(500, 100));
    size_t slabs = counts().slabs_opened;
    for (int round = 0; round < 20; round++) {
        in_running_thread([&] { free_all(rounds.back()); });
        rounds.push_back(allocate(500, 100));
    }
    EXPECT_LE(counts().slabs_opened - slabs, 20u + 2u) << "one for each thread, and hardly more for the owner";
    free_all(rounds.back());
}

} // namespace
