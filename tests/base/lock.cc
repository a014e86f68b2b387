/* Locks: mutual exclusion, try, waking of sleepers, ranks, and what fork does to them. */
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "c_begin.h"
#include "base/lock.h"
#include "c_end.h"

namespace
{

using namespace std::chrono_literals;

TEST(Lock, OneThreadAtATime)
{
    static hk_lock lock = HK_LOCK_INIT(HK_RANK_HEAP);
    constexpr int kThreads = 4, kRounds = 200000 / HK_TEST_SLOWDOWN;
    static long count, inside; /* guarded by the lock and nothing else */
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++)
        threads.emplace_back([] {
            for (int i = 0; i < kRounds; i++) {
                if (i % 3 == 0) {
                    while (!hk_lock_try(&lock))
                        std::this_thread::yield();
                } else {
                    hk_lock_acquire(&lock);
                }
                ASSERT_EQ(++inside, 1);
                count++;
                inside--;
                hk_lock_release(&lock);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(count, long{kThreads} * kRounds);
    EXPECT_EQ(lock.word, 0u);
}

TEST(Lock, TryFailsWhileItIsHeld)
{
    hk_lock lock;
    hk_lock_init(&lock, HK_RANK_POOL);
    hk_lock_acquire(&lock);
    EXPECT_TRUE(hk_lock_held_by_me(&lock));
    std::thread([&lock] {
        EXPECT_FALSE(hk_lock_try(&lock));
        EXPECT_FALSE(hk_lock_held_by_me(&lock));
    }).join();
    hk_lock_release(&lock);
    EXPECT_FALSE(hk_lock_held_by_me(&lock));
    std::thread([&lock] {
        EXPECT_TRUE(hk_lock_try(&lock));
        hk_lock_release(&lock);
    }).join();
}

TEST(Lock, WakesThreadsThatSleep)
{
    static hk_lock lock = HK_LOCK_INIT(HK_RANK_HEAP);
    static std::atomic<int> got{0};
    hk_lock_acquire(&lock);
    std::vector<std::thread> threads;
    for (int t = 0; t < 5; t++)
        threads.emplace_back([] {
            hk_lock_acquire(&lock);
            got++;
            hk_lock_release(&lock);
        });
    std::this_thread::sleep_for(50ms); /* they have spun and sleep now */
    EXPECT_EQ(got, 0);
    hk_lock_release(&lock);
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(got, 5);
}

TEST(Lock, RanksMayBeTakenUpwardsAndTriedInAnyOrder)
{
    hk_lock heaps, heap, other, pool;
    hk_lock_init(&heaps, HK_RANK_HEAPS);
    hk_lock_init(&heap, HK_RANK_HEAP);
    hk_lock_init(&other, HK_RANK_HEAP);
    hk_lock_init(&pool, HK_RANK_POOL);
    hk_lock_acquire(&heaps);
    hk_lock_acquire(&heap);
    EXPECT_TRUE(hk_lock_try(&other)) << "a second heap's lock may be tried";
    hk_lock_acquire(&pool);
    hk_lock_release(&heap); /* in any order */
    hk_lock_release(&other);
    hk_lock_release(&pool);
    hk_lock_release(&heaps);
    hk_lock_acquire(&pool);
    EXPECT_TRUE(hk_lock_try(&heaps));
    hk_lock_release(&heaps);
    hk_lock_release(&pool);
}

/* Rule 5: never wait for a second heap lock while holding one. */
TEST(LockDeathTest, ASecondHeapsLockIsNotWaitedFor)
{
    hk_lock heap, other, heaps;
    hk_lock_init(&heap, HK_RANK_HEAP);
    hk_lock_init(&other, HK_RANK_HEAP);
    hk_lock_init(&heaps, HK_RANK_HEAPS);
    EXPECT_EXIT((hk_lock_acquire(&heap), hk_lock_acquire(&other)), testing::KilledBySignal(SIGABRT), "internal error");
    EXPECT_EXIT((hk_lock_acquire(&heap), hk_lock_acquire(&heaps)), testing::KilledBySignal(SIGABRT), "internal error");
    EXPECT_EXIT((hk_lock_acquire(&heap), hk_lock_acquire(&heap)), testing::KilledBySignal(SIGABRT), "internal error");
}

TEST(LockDeathTest, OnlyTheHolderReleases)
{
    hk_lock lock;
    hk_lock_init(&lock, HK_RANK_HEAP);
    EXPECT_EXIT(hk_lock_release(&lock), testing::KilledBySignal(SIGABRT), "does not hold it");
}

TEST(Lock, ForkTakesAllAndWorksOnAsIfThereWereNone)
{
    hk_lock first, second;
    hk_lock_init(&first, HK_RANK_HEAP);
    hk_lock_init(&second, HK_RANK_HEAP);
    hk_lock_seize(&first);
    hk_lock_seize(&second);
    hk_lock_bypass = true;
    hk_lock_acquire(&second);
    hk_lock_acquire(&first);
    EXPECT_TRUE(hk_lock_try(&first));
    EXPECT_TRUE(hk_lock_held_by_me(&first));
    hk_lock_release(&first);
    std::thread([&first] { EXPECT_FALSE(hk_lock_try(&first)) << "to others it is held"; }).join();
    hk_lock_bypass = false;
    hk_lock_unseize(&second);
    hk_lock_unseize(&first);
    EXPECT_TRUE(hk_lock_try(&first));
    hk_lock_release(&first);
}

} // namespace
