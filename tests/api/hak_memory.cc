/*
 * The part "Memory" of the header: what hak_purge gives back at each level, what hak_thread_idle hands over, what
 * hak_prewarm makes ready, what hak_limit_set refuses, and what happens at the limits. In the core, by the hak_ names,
 * so also under the sanitizers. The coarse clock stands still, and is moved by hand.
 */
#include "../heap/invariants.h"

#include <hakmem/hakmem.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>

#include "c_begin.h"

#include "base/options.h"
#include "front/thread.h"
#include "heap/clock.h"
#include "heap/limit.h"
#include "heap/purge_counts.h"
#include "observe/stats.h"

#include "c_end.h"

namespace
{

constexpr size_t kMib = 1 << 20;
constexpr size_t kWarm = 8 * kMib; /* what HAK_PURGE_DECAY leaves of idle memory */

using Blocks = std::vector<void *>;

/* The compiler knows what the attributes of the header say, and warns of calls that are wrong on purpose. */
template <typename T> T hidden(T value)
{
    volatile T copy = value;
    return copy;
}

std::string option(const char *name)
{
    char value[64] = "?";
    hak_option_get(name, value, sizeof value);
    return value;
}

struct hk_stats stats_now()
{
    struct hk_stats stats;
    hk_stats_read(&stats);
    return stats;
}

/* Bytes with memory and no live block, of all kinds. */
size_t idle_bytes()
{
    struct hk_stats stats = stats_now();
    return stats.pool.slots_empty * HK_SLOT_SIZE + stats.superslabs.cached * HK_SUPERSLAB_SIZE +
           stats.large.cached_bytes + hk_heaps_idle_bytes();
}

/* Pages of a range that have memory. */
size_t resident_pages(const void *p, size_t size)
{
    std::vector<unsigned char> pages(size / hk_os_page_size());
    EXPECT_EQ(mincore(const_cast<void *>(p), size, pages.data()), 0);
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char c) { return c & 1; }));
}

class HakMemory : public testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        ASSERT_EQ(hak_option_set("background", "0"), 0); /* nobody purges but the tests */
        constexpr uint32_t kFuture = 1u << 30;           /* no look will find that it is later */
        if (hk_clock_now() < kFuture)
            atomic_store(&hk_clock, kFuture);
    }
    void SetUp() override { clean(); }
    void TearDown() override
    {
        EXPECT_EQ(hak_limit_set(0, 0), 0);
        clean();
    }
    static void advance_a_second()
    {
        atomic_store(&hk_clock, hk_clock_now() + HK_CLOCK_SECOND + 1);
        hk_lock_acquire(&hk_pool_lock);
        for (hk_superslab *superslab : all_superslabs())
            if (superslab->state == HK_SUPERSLAB_FREE && superslab->resident)
                superslab->freed_at_ms -= 20000;
        hk_lock_release(&hk_pool_lock);
    }
    static Blocks alloc(size_t n, size_t count)
    {
        Blocks blocks(count);
        for (void *&p : blocks) {
            p = hak_malloc(n);
            EXPECT_NE(p, nullptr);
            std::memset(p, 0x5a, n);
        }
        return blocks;
    }
    static void free(const Blocks &blocks)
    {
        for (void *p : blocks)
            hak_free(p);
    }
    /* As much memory in slots that are EMPTY but for one of each superslab, whose blocks are returned. */
    static Blocks make_idle(size_t bytes)
    {
        Blocks pins, rest;
        const void *pinned = nullptr;
        for (void *p : alloc(4000, bytes / 4096)) {
            const void *superslab = hk_superslab_of(p);
            (superslab != pinned ? pins : rest).push_back(p);
            pinned = superslab;
        }
        free(rest);
        hak_thread_idle();
        hk_fault fault{};
        hk_heaps_tend(true, &fault); /* what a heap keeps for itself is not idle yet */
        return pins;
    }

  private:
    static void clean()
    {
        hak_purge(HAK_PURGE_ALL);
        hk_purge_after_fork(); /* whether payments were worth it is forgotten */
        EXPECT_EQ(idle_bytes(), 0u);
    }
};

/* ---- hak_purge ---- */

using HakPurge = HakMemory;

TEST_F(HakPurge, WhatWasJustFreedStaysButAtAll)
{
    Blocks pins = make_idle(20 * kMib);
    const size_t idle = idle_bytes();
    EXPECT_GT(idle, 18 * kMib);
    EXPECT_EQ(hak_purge(HAK_PURGE_DECAY), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_QUIET), 0u);
    EXPECT_EQ(idle_bytes(), idle);
    EXPECT_EQ(hak_purge(HAK_PURGE_ALL), idle);
    EXPECT_EQ(idle_bytes(), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_ALL), 0u);
    free(pins);
}

TEST_F(HakPurge, AfterASecondDecayLeavesTheWarmBudgetAndQuietNothing)
{
    Blocks pins = make_idle(30 * kMib);
    const size_t idle = idle_bytes();
    advance_a_second();
    const size_t decayed = hak_purge(HAK_PURGE_DECAY), left = idle_bytes();
    EXPECT_EQ(idle - left, decayed);
    EXPECT_GE(left, kWarm - HK_SUPERSLAB_SIZE);
    EXPECT_LE(left, kWarm + HK_SUPERSLAB_SIZE);
    EXPECT_EQ(hak_purge(HAK_PURGE_DECAY), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_QUIET), left);
    EXPECT_EQ(idle_bytes(), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_QUIET), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_ALL), 0u);
    free(pins);
}

/* With the memory, which a purge by time keeps the address space of: commit charge and RLIMIT_AS count that. */
TEST_F(HakPurge, GivesAddressSpaceBackAtAll)
{
    Blocks blocks = alloc(1000, 20 * kMib / 1000), large = alloc(3 * kMib, 4);
    const size_t before = atomic_load(&hk_os_counts.bytes_committed);
    free(blocks), free(large);
    hak_thread_idle();
    advance_a_second();
    hak_purge(HAK_PURGE_QUIET);
    EXPECT_GT(hk_superslab_counts.free, 0u);
    EXPECT_EQ(atomic_load(&hk_os_counts.bytes_committed), before);
    hak_purge(HAK_PURGE_ALL);
    EXPECT_EQ(hk_superslab_counts.free, 0u);
    EXPECT_LE(atomic_load(&hk_os_counts.bytes_committed), before - 30 * kMib);
}

/* Nobody has looked at the time meanwhile. */
TEST_F(HakPurge, KnowsThatTheProcessHasSlept)
{
    atomic_store(&hk_clock, 1u); /* other tests have moved it on */
    hk_clock_look();
    Blocks pins = make_idle(20 * kMib);
    const size_t idle = idle_bytes();
    std::this_thread::sleep_for(std::chrono::milliseconds(1600));
    EXPECT_EQ(hak_purge(HAK_PURGE_QUIET), idle);
    free(pins);
}

TEST_F(HakPurge, TakesHolesAndLargeBlocksToo)
{
    Blocks mapping = alloc(70 * kMib, 1), blocks = alloc(1000, 5000), live, rest;
    for (size_t i = 0; i < blocks.size(); i++)
        (i % 100 == 0 ? live : rest).push_back(blocks[i]);
    free(alloc(3 * kMib, 2)), free(mapping), free(rest);
    hak_thread_idle();
    advance_a_second();
    const size_t quiet = hak_purge(HAK_PURGE_QUIET), all = hak_purge(HAK_PURGE_ALL);
    EXPECT_GE(quiet, 4 * HK_SUPERSLAB_SIZE + 3 * kMib);
    EXPECT_GE(quiet + all, 4 * HK_SUPERSLAB_SIZE + 3 * kMib + 70 * kMib) << "a mapping is not older for our clock";
    EXPECT_EQ(hak_purge(HAK_PURGE_ALL), 0u);
    for (void *p : live)
        for (size_t i = 0; i < 1000; i++)
            ASSERT_EQ(static_cast<char *>(p)[i], 0x5a) << "what lives is as it was";
    free(live);
}

TEST_F(HakPurge, WhatItGaveBackHasNoMemoryAndIsThereAgain)
{
    Blocks pins = make_idle(4 * kMib);
    const char *base = hk_superslab_of(pins[0])->base;
    [[maybe_unused]] const size_t before = resident_pages(base, HK_SUPERSLAB_SIZE);
    EXPECT_GT(hak_purge(HAK_PURGE_ALL), 3 * kMib);
#if !defined(__aarch64__) /* which the tests see through qemu-user: that keeps what was given back */
    EXPECT_GT(before, HK_SUPERSLAB_SIZE / hk_os_page_size() / 2);
    EXPECT_LE(resident_pages(base, HK_SUPERSLAB_SIZE), HK_SLOT_SIZE / hk_os_page_size());
#endif
    free(pins);
    free(alloc(4000, 1000));
}

TEST_F(HakPurge, KeepsErrno)
{
    for (auto level : {HAK_PURGE_DECAY, HAK_PURGE_QUIET, HAK_PURGE_ALL}) {
        Blocks pins = make_idle(4 * kMib);
        advance_a_second();
        errno = EILSEQ;
        hak_purge(level);
        EXPECT_EQ(errno, EILSEQ);
        free(pins);
    }
}

/* ---- hak_thread_idle ---- */

using HakThreadIdle = HakMemory;

size_t cached_blocks()
{
    size_t n = 0;
    struct hk_stats stats = stats_now();
    for (const hk_class_stats &c : stats.classes)
        n += c.cached - c.sent;
    return n;
}

TEST_F(HakThreadIdle, GivesTheMagazinesBack)
{
    for (int round = 0; round < 3; round++) {
        for (size_t n : {16, 100, 1000, 4000, 20000, 100000})
            free(alloc(n, 100));
        EXPECT_GT(cached_blocks(), 0u);
        errno = EILSEQ;
        hak_thread_idle();
        EXPECT_EQ(errno, EILSEQ);
        EXPECT_EQ(cached_blocks(), 0u);
        EXPECT_EQ(hk_self.heap->warm.n, 0);
        hak_thread_idle();
        hak_purge(HAK_PURGE_ALL);
        EXPECT_EQ(stats_now().live_blocks, 0u);
    }
}

/* What a sleeping thread's magazines hold nobody else can reach: unless it said that it would sleep. */
TEST_F(HakThreadIdle, LetsOthersGiveItsMemoryBack)
{
    for (bool idle : {false, true}) {
        std::promise<void> sleeps, wake;
        std::thread thread([&] {
            for (size_t n : {1000, 4000, 20000, 100000})
                free(alloc(n, 100));
            if (idle)
                hak_thread_idle();
            sleeps.set_value();
            wake.get_future().wait();
            Blocks again = alloc(1000, 100);
            free(again);
        });
        sleeps.get_future().wait();
        hak_purge(HAK_PURGE_ALL);
        const struct hk_stats stats = stats_now();
        if (idle)
            EXPECT_EQ(stats.pool.slots_active, 0u) << "all slabs are gone";
        else
            EXPECT_GT(stats.pool.slots_active, 0u) << "the test shows nothing";
        wake.set_value();
        thread.join();
    }
}

/* What it freed of another thread's arrives there, when that thread comes by. */
TEST_F(HakThreadIdle, LetsRemoteFreesLeave)
{
    Blocks blocks = alloc(64, 2000), freed, others;
    for (size_t i = 0; i < blocks.size(); i++)
        (i % 64 == 0 ? freed : others).push_back(blocks[i]);
    std::promise<void> sleeps, wake;
    std::thread thread([&] {
        free(alloc(64, 100)); /* it has a heap of its own */
        free(freed);
        hak_thread_idle();
        sleeps.set_value();
        wake.get_future().wait();
    });
    sleeps.get_future().wait();
    void *p = nullptr;
    EXPECT_EQ(hak_malloc_batch(2000, 1, &p), 1u);
    hak_free_batch(&p, 1);
    hak_thread_idle(); /* what magazines hold is known when they are flushed */
    EXPECT_EQ(stats_now().live_blocks, others.size());
    wake.set_value();
    thread.join();
    free(others);
}

TEST_F(HakThreadIdle, MayBeAThreadsFirstCallAndItsLast)
{
    std::thread([] { hak_thread_idle(); }).join();
    std::thread([] {
        hak_thread_idle();
        free(alloc(100, 2)); /* a guest */
        hak_thread_idle();
        free(alloc(100, 100));
        hak_thread_idle();
    }).join();
    hak_purge(HAK_PURGE_ALL);
    EXPECT_EQ(stats_now().live_blocks, 0u);
}

/* ---- hak_prewarm ---- */

using HakPrewarm = HakMemory;

TEST_F(HakPrewarm, HasMemoryForSoManyBlocksReady)
{
    for (size_t n : {size_t{1}, size_t{64}, size_t{1000}, size_t{4096}, size_t{5000}, size_t{100000}, kMib}) {
        SCOPED_TRACE(n);
        const size_t count = 5 * kMib / n;
        const unsigned slots = hk_classes[hk_class_of(n)].slots, used = HK_SLOTS_PER_SUPERSLAB / slots * slots;
        const size_t used_bytes = used * HK_SLOT_SIZE; /* of a superslab, by slabs of the class */
        errno = EILSEQ;
        EXPECT_EQ(hak_prewarm(n, count), count);
        EXPECT_EQ(errno, EILSEQ);
        size_t ready = 0;
        for (const hk_superslab *superslab : all_superslabs()) {
            if (superslab->state != HK_SUPERSLAB_FREE || !superslab->resident)
                continue;
            ready++;
            EXPECT_EQ(superslab->empty, hk_low_mask32(used));
            for (unsigned i = 0; i < used; i++)
                EXPECT_EQ(superslab->table->slabs[i - superslab->table->slots[i].head].cls, hk_class_of(n))
                    << "slots are those of the class";
#if !defined(__aarch64__) /* qemu-user takes the advice and does nothing */
            EXPECT_EQ(resident_pages(superslab->base, HK_SUPERSLAB_SIZE), used_bytes / hk_os_page_size());
#endif
        }
        EXPECT_EQ(ready, stats_now().superslabs.cached);
        EXPECT_GE(ready * used_bytes, count * hak_good_size(n));
        EXPECT_LE(ready * used_bytes, 2 * count * hak_good_size(n) + HK_SUPERSLAB_SIZE);
        EXPECT_EQ(hak_purge(HAK_PURGE_ALL), ready * used_bytes);
    }
}

TEST_F(HakPrewarm, StaysUntilAllIsPurgedAndNoLonger)
{
    ASSERT_GT(hak_prewarm(1000, 5000), 0u);
    const size_t ready = idle_bytes();
    EXPECT_GT(ready, 4 * kMib);
    advance_a_second();
    EXPECT_EQ(hak_purge(HAK_PURGE_QUIET), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_ALL), ready);
    Blocks pins = make_idle(20 * kMib);
    advance_a_second();
    hak_purge(HAK_PURGE_QUIET);
    EXPECT_EQ(idle_bytes(), 0u);
    free(pins);
}

TEST_F(HakPrewarm, NothingIsNothing)
{
    const size_t mapped = stats_now().mapped;
    for (size_t n : {size_t{0}, size_t{100}, kMib})
        EXPECT_EQ(hak_prewarm(n, 0), 0u);
    for (size_t n : {2 * kMib, 100 * kMib, size_t{PTRDIFF_MAX}, SIZE_MAX})
        EXPECT_EQ(hak_prewarm(n, 10), 0u) << n << " bytes are too many";
    for (size_t n : {size_t{16}, size_t{1000}, kMib})
        EXPECT_EQ(hak_prewarm(n, SIZE_MAX), 0u) << "no such product";
    EXPECT_EQ(stats_now().mapped, mapped);
    EXPECT_EQ(idle_bytes(), 0u);
}

TEST_F(HakPrewarm, StaysWhateverItsAgeUntilAllIsPurged)
{
    const size_t count = 20 * kMib / 1024;
    ASSERT_EQ(hak_prewarm(1000, count), count);
    const size_t ready = stats_now().superslabs.cached;
    ASSERT_GE(ready, 10u) << "more than the warm budget";
    advance_a_second();
    EXPECT_EQ(hak_purge(HAK_PURGE_DECAY), 0u);
    EXPECT_EQ(hak_purge(HAK_PURGE_QUIET), 0u);
    EXPECT_EQ(stats_now().superslabs.cached, ready);
    EXPECT_EQ(hak_purge(HAK_PURGE_ALL), ready * HK_SUPERSLAB_SIZE);
    EXPECT_EQ(stats_now().superslabs.cached, 0u);
}

TEST_F(HakPrewarm, WhatIsReadyAlreadyCounts)
{
    const size_t count = 20 * kMib / 1024;
    ASSERT_EQ(hak_prewarm(1000, count), count);
    const size_t ready = idle_bytes();
    for (int again = 0; again < 10; again++)
        EXPECT_EQ(hak_prewarm(1000, count), count);
    EXPECT_EQ(idle_bytes(), ready);
    free(alloc(1000, 10 * count));
    advance_a_second();
    hak_purge(HAK_PURGE_QUIET);
    EXPECT_LE(idle_bytes(), ready + HK_SUPERSLAB_SIZE) << "nothing else stays";
}

TEST_F(HakPrewarm, IsBoundedAsTheCacheIs)
{
    ASSERT_EQ(hak_option_set("superslab_max_memory_mb", "10"), 0);
    EXPECT_LT(hak_prewarm(1000, 100 * kMib / 1024), 11 * kMib / 1024);
    EXPECT_EQ(stats_now().superslabs.cached, 5u);
    EXPECT_LT(hak_prewarm(64, size_t{1} << 45), 11 * kMib / 64);
    EXPECT_EQ(stats_now().superslabs.cached, 5u);
    ASSERT_EQ(hak_option_set("superslab_max_memory_mb", "512"), 0);
}

TEST_F(HakPrewarm, KeepsNoHoles)
{
    const size_t count = 40 * kMib / 1024;
    ASSERT_EQ(hak_prewarm(1000, count), count);
    Blocks blocks = alloc(1000, 2 * count), pins;
    for (size_t i = 0; i < blocks.size(); i += 20) {
        pins.push_back(blocks[i]);
        blocks[i] = nullptr;
    }
    free(blocks);
    hak_thread_idle();
    advance_a_second();
    hak_purge(HAK_PURGE_QUIET);
    EXPECT_LE(idle_bytes(), pins.size() * 3 * 1024 + kMib) << "four blocks lie on a page";
    free(pins);
}

TEST_F(HakPrewarm, WhatIsTakenFromItComesBackToIt)
{
    const size_t count = 20 * kMib / 1024;
    ASSERT_EQ(hak_prewarm(1000, count), count);
    const size_t ready = stats_now().superslabs.cached;
    free(alloc(1000, count / 2));
    hak_purge(HAK_PURGE_QUIET);
    advance_a_second();
    hak_purge(HAK_PURGE_QUIET);
    EXPECT_GE(idle_bytes(), (ready - 1) * HK_SUPERSLAB_SIZE);
}

/* ---- hak_limit_set ---- */

using HakLimit = HakMemory;

TEST_F(HakLimit, TakesPairsInOrder)
{
    const struct {
        size_t soft, hard;
    } good[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {kMib, 5 * kMib}, {PTRDIFF_MAX, 0}, {PTRDIFF_MAX, PTRDIFF_MAX}};
    for (const auto &pair : good) {
        errno = EILSEQ;
        EXPECT_EQ(hak_limit_set(pair.soft, pair.hard), 0) << pair.soft << ", " << pair.hard;
        EXPECT_EQ(errno, EILSEQ);
        EXPECT_EQ(option("limit_soft"), std::to_string(pair.soft));
        EXPECT_EQ(option("limit_hard"), std::to_string(pair.hard));
    }
    ASSERT_EQ(hak_limit_set(kMib, 2 * kMib), 0);
    constexpr size_t too_large = size_t{PTRDIFF_MAX} + 1;
    const struct {
        size_t soft, hard;
    } bad[] = {{2, 1},        {kMib, kMib - 1}, {too_large, 0}, {0, too_large}, {SIZE_MAX, SIZE_MAX},
               {SIZE_MAX, 0}, {1, SIZE_MAX}};
    for (const auto &pair : bad) {
        errno = 0;
        EXPECT_EQ(hak_limit_set(pair.soft, pair.hard), -1) << pair.soft << ", " << pair.hard;
        EXPECT_EQ(errno, EINVAL);
        EXPECT_EQ(option("limit_soft"), std::to_string(kMib)) << "nothing has changed";
        EXPECT_EQ(option("limit_hard"), std::to_string(2 * kMib));
    }
}

/* Blocks until there are no more; each holds its own address. */
Blocks alloc_all(size_t n)
{
    constexpr size_t kMore = 512 * kMib; /* than any limit here */
    Blocks blocks;
    errno = 0;
    for (void *p; (p = hak_malloc(n)) != nullptr && blocks.size() * n < kMore; blocks.push_back(p))
        *static_cast<void **>(p) = p;
    EXPECT_EQ(errno, ENOMEM) << n;
    return blocks;
}

void check_own_address(const Blocks &blocks)
{
    for (void *p : blocks)
        ASSERT_EQ(*static_cast<void **>(p), p);
}

TEST_F(HakLimit, AtTheHardLimitThereIsEnomemAndTheProgramGoesOn)
{
    const struct {
        size_t n, room;
    } cases[] = {{64, 8 * kMib},      {1000, 16 * kMib},     {5000, 16 * kMib},
                 {100000, 16 * kMib}, {3 * kMib, 40 * kMib}, {70 * kMib, 220 * kMib}};
    for (const auto &c : cases) {
        SCOPED_TRACE(c.n);
        const size_t hard = hk_limit_in_use() + c.room;
        ASSERT_EQ(hak_limit_set(0, hard), 0);
        Blocks blocks = alloc_all(c.n);
        EXPECT_GE(blocks.size() * c.n, c.room / 2) << "most of what the limit allows can be had";
        EXPECT_LE(hk_limit_in_use(), hard);
        /* Half of them go, and about as many can be had again, and again no more. */
        Blocks half(blocks.begin() + static_cast<ptrdiff_t>(blocks.size() / 2), blocks.end());
        blocks.resize(blocks.size() / 2);
        free(half);
        Blocks again = alloc_all(c.n);
        EXPECT_GE(again.size() + 1, half.size() / 2);
        EXPECT_LE(hk_limit_in_use(), hard);
        check_own_address(blocks), check_own_address(again);
        free(again);
        /* Without the limit there is more. */
        ASSERT_EQ(hak_limit_set(0, 0), 0);
        Blocks more = alloc(c.n, half.size() + 3);
        free(more), free(blocks);
        hak_purge(HAK_PURGE_ALL);
    }
}

TEST_F(HakLimit, AtTheHardLimitEveryCallFailsAsItShould)
{
    void *small = hak_malloc(1000), *large = hak_malloc(3 * kMib);
    std::memset(small, 0x11, 1000), std::memset(large, 0x22, 3 * kMib);
    ASSERT_EQ(hak_limit_set(0, 1), 0); /* below what is in use already */
    const auto fails = [](const void *p) {
        EXPECT_EQ(p, nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
    };
    errno = 0;
    fails(hak_malloc(5 * kMib));
    fails(hak_malloc(80 * kMib));
    fails(hak_malloc(300000));
    fails(hak_calloc(1000, 5000));
    fails(hak_aligned_alloc(4 * kMib, 100));
    fails(hak_realloc(small, 2 * kMib));
    fails(hak_realloc(large, 9 * kMib));
    fails(hak_realloc(large, 100 * kMib));
    fails(hak_realloc(nullptr, 9 * kMib));
    fails(hak_realloc_zero(small, 1000, 2 * kMib));
    fails(hak_realloc_zero(large, 3 * kMib, 9 * kMib));
    size_t usable = 1;
    fails(hak_malloc_usable(5 * kMib, &usable));
    EXPECT_EQ(usable, 0u);
    void *out[10] = {};
    EXPECT_EQ(hak_malloc_batch(300000, 10, out), 0u);
    EXPECT_EQ(errno, ENOMEM);
    errno = EILSEQ;
    EXPECT_FALSE(hak_expand(large, 9 * kMib));
    hak_free(hak_realloc(nullptr, 0));
    ASSERT_EQ(hak_limit_set(0, 0), 0);
    for (size_t i = 0; i < 1000; i++)
        ASSERT_EQ(static_cast<char *>(small)[i], 0x11);
    for (size_t i = 0; i < 3 * kMib; i++)
        ASSERT_EQ(static_cast<char *>(large)[i], 0x22);
    hak_free(small), hak_free(large);
}

TEST_F(HakLimit, WhatIsIdleIsGivenBackBeforeABlockIsRefused)
{
    Blocks pins = make_idle(20 * kMib); /* slots that a large block has no use for */
    const size_t idle = idle_bytes(), purged = stats_now().pool.slots_purged;
    ASSERT_GT(idle, 18 * kMib);
    ASSERT_EQ(hak_limit_set(0, hk_limit_in_use() + 2 * kMib), 0);
    void *p = hak_malloc(18 * kMib);
    EXPECT_NE(p, nullptr) << "there is room for it, when what lies idle has gone";
    EXPECT_GE((stats_now().pool.slots_purged - purged) * HK_SLOT_SIZE, 16 * kMib);
    errno = 0;
    EXPECT_EQ(hak_malloc(18 * kMib), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    hak_free(p), free(pins);
}

TEST_F(HakLimit, ThreadsStopAtTheHardLimitTogether)
{
    for (size_t n : {size_t{500}, size_t{20000}, 3 * kMib}) {
        SCOPED_TRACE(n);
        const size_t hard = hk_limit_in_use() + 24 * kMib;
        ASSERT_EQ(hak_limit_set(0, hard), 0);
        std::vector<Blocks> blocks(4);
        std::vector<std::thread> threads;
        for (Blocks &mine : blocks)
            threads.emplace_back([&mine, n] { mine = alloc_all(n); });
        for (std::thread &thread : threads)
            thread.join();
        EXPECT_LE(hk_limit_in_use(), hard);
        size_t bytes = 0;
        for (Blocks &mine : blocks) {
            check_own_address(mine);
            bytes += mine.size() * n;
            free(mine);
        }
        EXPECT_GE(bytes, 12 * kMib);
        ASSERT_EQ(hak_limit_set(0, 0), 0);
        hak_purge(HAK_PURGE_ALL);
    }
}

/* Allocates and frees blocks of one size after another, but for some that keep the memory of each from going back as a
 * whole. Returns the most that was in use. */
size_t peak_of_rounds()
{
    size_t peak = 0;
    Blocks pins;
    for (size_t n : {64, 5000, 1000, 20000, 300, 9000, 3000, 50000}) {
        Blocks blocks;
        for (size_t bytes = 0; bytes < 4 * kMib; bytes += n)
            blocks.push_back(hak_malloc(n));
        peak = std::max(peak, hk_limit_in_use());
        for (size_t i = 0; i < blocks.size(); i++)
            if (i % std::max<size_t>(kMib / n, 1) == 0)
                pins.push_back(blocks[i]);
            else
                hak_free(blocks[i]);
        void *large = hak_malloc(5 * kMib);
        peak = std::max(peak, hk_limit_in_use());
        hak_free(large);
    }
    for (void *p : pins)
        hak_free(p);
    return peak;
}

TEST_F(HakLimit, AboveTheSoftLimitIdleMemoryGoesFirst)
{
    const auto passes = [] { return atomic_load(&hk_purge_counts.purge_passes); };
    const size_t in_use = hk_limit_in_use(), passes_before = passes();
    const size_t peak = peak_of_rounds() - in_use;
    EXPECT_EQ(passes(), passes_before) << "the clock stands still";
    hak_purge(HAK_PURGE_ALL);

    const size_t soft = hk_limit_in_use() + 6 * kMib, before = passes(), purged = stats_now().pool.slots_purged;
    ASSERT_EQ(hak_limit_set(soft, 0), 0);
    const size_t peak_above_soft = peak_of_rounds() - in_use;
    EXPECT_LT(peak_above_soft, peak - 2 * kMib);
    EXPECT_GE(passes() - before, 3u);
    EXPECT_GE(stats_now().pool.slots_purged - purged, 3 * kMib / HK_SLOT_SIZE);
}

/* Slabs that are in use, but idle for the most part, and small blocks alone that need more. */
TEST_F(HakLimit, AboveTheSoftLimitHolesGoAtOnce)
{
    Blocks live, rest;
    const Blocks blocks = alloc(1000, 10000);
    for (size_t i = 0; i < blocks.size(); i++)
        (i % 50 == 0 ? live : rest).push_back(blocks[i]);
    free(rest);
    hak_thread_idle();
    ASSERT_GE(hk_heaps_idle_bytes(), 7 * kMib);
    const size_t passes = atomic_load(&hk_purge_counts.purge_passes);
    ASSERT_EQ(hak_limit_set(hk_limit_in_use(), 0), 0);
    Blocks more = alloc(4000, 2 * kMib / 4096);
    EXPECT_GE(atomic_load(&hk_purge_counts.purge_passes) - passes, 3u);
    EXPECT_LE(hk_heaps_idle_bytes(), kMib);
    free(live), free(more);
}

TEST_F(HakLimit, TheSoftLimitRefusesNothing)
{
    ASSERT_EQ(hak_limit_set(1, 0), 0);
    errno = EILSEQ;
    Blocks small = alloc(1000, 10000), large = alloc(5 * kMib, 4), mapping = alloc(70 * kMib, 1);
    EXPECT_EQ(errno, EILSEQ);
    EXPECT_GE(hk_limit_in_use(), 100 * kMib);
    free(small), free(large), free(mapping);
    /* With both, it is the hard one that does. */
    ASSERT_EQ(hak_limit_set(kMib, hk_limit_in_use() + 30 * kMib), 0);
    Blocks blocks = alloc_all(2 * kMib);
    EXPECT_GE(blocks.size(), 10u);
    free(blocks);
}

} // namespace
