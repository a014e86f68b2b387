/*
 * The life of threads, seen from inside (src/front/thread.h): guests, heaps, parking, what remains after the thread's
 * destructor has run, and fork. By the hak_ names, so that the sanitizers look on.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "check.h"
#include "hakmem/hakmem.h"
#include "lifecycle_view.h"

namespace
{

/* Enough requests of one size that the thread has a heap of its own. */
void become_running()
{
    for (size_t i = 0; i < view_guest_allocs() + 100; i++)
        hak_free(hak_malloc(100));
    ASSERT_NE(view_my_heap(), nullptr);
}

void in_thread(const std::function<void()> &body) { std::thread(body).join(); }

/* ---- First calls ---- */

void use_and_free(void *p, size_t n)
{
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 16, 0u);
    EXPECT_GE(hak_usable_size(p), n);
    memset(p, 0x5a, n);
    hak_free(p);
}

TEST(FirstCallOfAThread, MayBeAnyFunction)
{
    void *from_main[3];
    for (void *&p : from_main)
        p = hak_malloc(48);
    const std::function<void()> calls[] = {
        [] { hak_free(nullptr); },
        [] { EXPECT_EQ(hak_usable_size(nullptr), 0u); },
        [] { use_and_free(hak_malloc(0), 0); },
        [] { use_and_free(hak_malloc(5u << 20), 5u << 20); },
        [] { use_and_free(hak_calloc(10, 100), 1000); },
        [] { use_and_free(hak_realloc(nullptr, 300), 300); },
        [] { use_and_free(hak_aligned_alloc(4096, 100), 100); },
        [] {
            void *block[40];
            ASSERT_EQ(hak_malloc_batch(64, 40, block), 40u);
            hak_free_batch(block, 40);
        },
        [&] { hak_free(from_main[0]); },
        [&] { use_and_free(hak_realloc(from_main[1], 5000), 5000); },
        [&] { hak_free_batch(&from_main[2], 1); },
    };
    for (const auto &call : calls)
        in_thread([&] {
            call();
            for (int i = 0; i < 200; i++)
                use_and_free(hak_malloc(static_cast<size_t>(i) * 50), static_cast<size_t>(i) * 50);
        });
}

/* ---- Guests and heaps ---- */

/* In a thread for which no parked heap is left: each thread that finds one keeps it while the next one tries. */
void in_thread_without_parked_heaps(const std::function<void()> &body)
{
    in_thread([&] {
        EXPECT_EQ(view_my_heap(), nullptr);
        for (int i = 0; i < 6; i++)
            hak_free(hak_malloc(100));
        if (view_my_heap() != nullptr)
            in_thread_without_parked_heaps(body);
        else
            body();
    });
}

TEST(Thread, IsAGuestUntilAHeapPays)
{
    in_thread_without_parked_heaps([] {
        hak_free(hak_malloc(100));
        EXPECT_EQ(view_my_heap(), nullptr);
        become_running();
        EXPECT_TRUE(view_is_running(view_my_heap()));
    });
}

TEST(Thread, SoonTakesAParkedHeap)
{
    in_thread(become_running);
    in_thread([] {
        for (int i = 0; i < 6; i++)
            hak_free(hak_malloc(100));
        ASSERT_NE(view_my_heap(), nullptr);
        EXPECT_TRUE(view_is_running(view_my_heap()));
    });
}

TEST(Thread, ThatEndsLeavesItsHeapToTheNextOne)
{
    struct hk_heap *heap = nullptr;
    void *block = nullptr;
    in_thread([&] {
        become_running();
        heap = view_my_heap();
        block = hak_malloc(100);
    });
    EXPECT_TRUE(view_is_parked(heap));
    in_thread([&] {
        become_running();
        EXPECT_EQ(view_my_heap(), heap);
        hak_free(block); /* local to this thread now */
    });
}

TEST(Thread, ThatWaitsForAHeapLearnsWhatBecameOfItsSlabsMeanwhile)
{
    std::vector<void *> blocks(50);
    in_thread([&] {
        become_running();
        for (void *&p : blocks)
            p = hak_malloc(100);
    });
    view_lock_list_of_heaps();
    std::thread thread([&] {
        for (void *p : blocks) /* one of these calls takes the heap over in which they lie, and waits for the lock */
            hak_free(p);
        EXPECT_NE(view_my_heap(), nullptr);
    });
    while (!view_is_waited_for_list_of_heaps())
        std::this_thread::yield();
    EXPECT_TRUE(view_dissolve_parked_heaps());
    view_unlock_list_of_heaps();
    thread.join();
    EXPECT_TRUE(view_dissolve_parked_heaps()) << "what was in magazines was the heap's";
}

TEST(Thread, ThatIsReplacedAThousandTimesNeedsNoMoreHeaps)
{
    constexpr int kThreads = 1000 / HK_TEST_SLOWDOWN, kBlocks = 100;
    std::vector<void *> left(kBlocks, nullptr);
    size_t early = 0;
    for (int i = 0; i < kThreads; i++) {
        if (i == 10)
            early = view_heaps();
        in_thread([&] {
            become_running();
            for (int j = 0; j < kBlocks; j++) {
                hak_free(left[static_cast<size_t>(j)]);
                left[static_cast<size_t>(j)] = hak_malloc(static_cast<size_t>(20 * j));
                memset(left[static_cast<size_t>(j)], j, static_cast<size_t>(20 * j));
            }
        });
    }
    EXPECT_EQ(view_heaps(), early);
    for (void *p : left)
        hak_free(p);
}

/* ---- After the thread's destructor ---- */

pthread_key_t late_key;
std::atomic<int> late_destructors_run{0};

/* Sets its key again once, and so runs after the destructors of all keys have run. */
void late_destructor(void *value)
{
    static thread_local bool again;
    if (!again) {
        again = true;
        pthread_setspecific(late_key, value);
        return;
    }
    EXPECT_TRUE(view_i_have_exited());
    EXPECT_EQ(view_my_heap(), nullptr);
    void *block[200];
    for (size_t i = 0; i < 200; i++) {
        block[i] = hak_malloc(30 * i);
        ASSERT_NE(block[i], nullptr);
        memset(block[i], 1, 30 * i);
    }
    for (void *p : block)
        hak_free(p);
    hak_free(value);
    EXPECT_TRUE(view_i_have_exited()) << "a thread that has exited must not get a heap again";
    EXPECT_EQ(view_my_heap(), nullptr);
    late_destructors_run++;
}

TEST(Thread, IsAGuestAgainAfterItsDestructor)
{
    constexpr int kThreads = 800 / HK_TEST_SLOWDOWN;
    ASSERT_EQ(pthread_key_create(&late_key, late_destructor), 0);
    size_t early = 0;
    for (int i = 0; i < kThreads; i++) {
        if (i == 10)
            early = view_heaps();
        in_thread([] {
            become_running();
            pthread_setspecific(late_key, hak_malloc(500));
        });
    }
    EXPECT_EQ(late_destructors_run, kThreads);
    EXPECT_EQ(view_heaps(), early);
    pthread_key_delete(late_key);
}

/* ---- Many threads at once ---- */

TEST(Threads, ThatOverlapHandTheirBlocksOn)
{
    constexpr size_t kThreads = 8, kSlots = 256;
    constexpr int kSteps = 40000 / HK_TEST_SLOWDOWN;
    static std::atomic<void *> slots[kSlots];
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; t++)
        threads.emplace_back([t] {
            uint64_t random = t;
            for (int i = 0; i < kSteps; i++) {
                /* A block holds its size and, from there on, a pattern. */
                size_t n = sizeof(size_t) + hk_random_size(&random, i % 64 == 0 ? 18 : 11);
                auto *mine = static_cast<size_t *>(hak_malloc(n));
                ASSERT_NE(mine, nullptr);
                *mine = n;
                hk_fill(mine + 1, n - sizeof *mine, n);
                void *got = slots[hk_random_below(&random, kSlots)].exchange(mine);
                if (got == nullptr)
                    continue;
                auto *theirs = static_cast<size_t *>(got);
                size_t length = *theirs - sizeof *theirs;
                HK_CHECK_CONTENT(theirs + 1, length, length, *theirs);
                hak_free(theirs);
            }
        });
    for (std::thread &t : threads)
        t.join();
    for (auto &slot : slots)
        hak_free(slot.exchange(nullptr));
}

/* ---- Fork ---- */

#ifndef __SANITIZE_THREAD__ /* which does not know what to make of a fork among threads */
TEST(Fork, AmongThreadsGivesAHeapThatWorks)
{
    constexpr int kForks = 200 / HK_TEST_SLOWDOWN;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    std::atomic<void *> shared[64] = {};
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&, t] {
            uint64_t random = static_cast<uint64_t>(t);
            while (!stop)
                hak_free(shared[hk_random_below(&random, 64)].exchange(hak_malloc(hk_random_size(&random, 14))));
        });
    std::vector<void *> mine;
    for (size_t i = 0; i < 200; i++) {
        mine.push_back(hak_malloc(i * 37));
        memset(mine.back(), static_cast<int>(i), i * 37);
    }
    for (int i = 0; i < kForks; i++) {
        pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            hk_watchdog(30);
            for (size_t j = 0; j < mine.size(); j++) {
                auto *bytes = static_cast<unsigned char *>(mine[j]);
                HK_CHECK(j == 0 || bytes[j * 36] == static_cast<unsigned char>(j), "content of block %zu", j);
                hak_free(mine[j]);
            }
            for (size_t j = 0; j < 500; j++)
                hak_free(hak_malloc(j * 11));
            _exit(0);
        }
        int status = hk_wait(child);
        ASSERT_EQ(status, 0) << "fork " << i;
    }
    stop = true;
    for (std::thread &t : threads)
        t.join();
    for (auto &p : shared)
        hak_free(p);
    for (void *p : mine)
        hak_free(p);
}

struct hk_heap *made_during_fork;
bool locked_during_fork;

/* Else a thread that walks all heaps would enter it while the forking one, for which locks do nothing, works on it. */
TEST(Fork, HoldsTheLockOfAHeapThatAHandlerMakes)
{
    in_thread_without_parked_heaps([] {
        view_during_fork = [] {
            become_running();
            made_during_fork = view_my_heap();
            locked_during_fork = view_is_locked(made_during_fork);
        };
        pid_t child = fork();
        view_during_fork = nullptr;
        ASSERT_GE(child, 0);
        if (child == 0) {
            hk_watchdog(30);
            HK_CHECK(!view_is_locked(made_during_fork), "the lock of a heap that was made before a fork");
            for (size_t i = 0; i < 500; i++)
                hak_free(hak_malloc(i * 11));
            _exit(0);
        }
        EXPECT_EQ(hk_wait(child), 0);
        EXPECT_TRUE(locked_during_fork);
        EXPECT_EQ(view_my_heap(), made_during_fork);
        EXPECT_FALSE(view_is_locked(made_during_fork));
        hak_free(hak_malloc(100));
    });
}

TEST(Fork, ParksTheHeapsOfThreadsThatAreGone)
{
    std::atomic<int> step{0};
    struct hk_heap *heap = nullptr;
    void *block = nullptr;
    std::thread other([&] {
        become_running();
        heap = view_my_heap();
        block = hak_malloc(100);
        step = 1;
        while (step == 1)
            std::this_thread::yield();
    });
    while (step == 0)
        std::this_thread::yield();
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        hk_watchdog(30);
        HK_CHECK(view_is_parked(heap), "heap of a thread that the child does not have");
        hak_free(block);
        _exit(0);
    }
    EXPECT_EQ(hk_wait(child), 0);
    EXPECT_TRUE(view_is_running(heap));
    step = 2;
    other.join();
    hak_free(block);
}
#endif

} // namespace
