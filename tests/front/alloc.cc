/*
 * Where malloc finds a block when the magazine of its class has none: among free blocks of the next larger class, and
 * among those that the thread freed while the class was the guests'. By the hak_ names, so that the sanitizers look on;
 * no thread works in the background.
 */
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hakmem/hakmem.h"

#include "c_begin.h"
#include "front/alloc.h"
#include "front/memory.h"
#include "front/thread.h"
#include "heap/heaps.h"
#include "heap/size_class.h"
#include "observe/stats.h"
#include "c_end.h"

namespace
{

constexpr size_t kBorrower = 16000, kLender = 20000;

hk_heap_counts counts()
{
    struct hk_stats stats;
    hk_stats_read(&stats);
    return stats.heap;
}

size_t borrowed() { return counts().borrowed_blocks; }

void free_all(const std::vector<void *> &blocks)
{
    for (void *p : blocks)
        hak_free(p);
}

class Alloc : public testing::Test
{
  protected:
    void SetUp() override
    {
        for (int i = 0; i < 200; i++) /* a heap and a slab of its own */
            hak_free(hak_malloc(kLender));
        ASSERT_NE(hk_self.heap, nullptr);
        hk_trim(HK_PURGE_ALL, 0);
        std::vector<void *> freed;
        for (int i = 0; i < 2 * kFree; i++) {
            std::vector<void *> &blocks = i % 2 == 0 ? freed : kept; /* so that no slab is released */
            blocks.push_back(hak_malloc(kLender));
            std::memset(blocks.back(), 0x5a, kLender);
        }
        free_all(freed); /* some are in the magazine, the others in their slabs */
    }
    void TearDown() override
    {
        free_all(kept);
        hk_trim(HK_PURGE_ALL, 0);
        struct hk_stats stats;
        hk_stats_read(&stats);
        EXPECT_EQ(stats.live_blocks, 0u);
    }

    /* Nothing is in the outbox, and nothing will be sent soon. */
    static void begin_with_empty_outbox()
    {
        hk_trim(HK_PURGE_ALL, 0);
        ASSERT_EQ(hk_self.outbox_room, HK_OUTBOX_BYTES);
        hk_self.heap->tick = 1;
    }

    static constexpr int kFree = 20;
    std::vector<void *> kept;
};

TEST_F(Alloc, BorrowsBlocksOfTheNextLargerClass)
{
    size_t before = borrowed();
    std::vector<void *> blocks;
    for (int i = 0; i < kFree; i++)
        blocks.push_back(hak_malloc(kBorrower));
    EXPECT_EQ(borrowed() - before, size_t{kFree});
    for (void *p : blocks) {
        EXPECT_EQ(hak_usable_size(p), hak_good_size(kLender));
        EXPECT_EQ(hak_realloc(p, kBorrower), p);
        EXPECT_EQ(hak_realloc(p, kLender), p);
    }
    free_all(blocks);
}

TEST_F(Alloc, BorrowedBlocksOfCallocAreZero)
{
    size_t before = borrowed();
    auto *bytes = static_cast<unsigned char *>(hak_calloc(1, kBorrower));
    EXPECT_EQ(borrowed() - before, 1u);
    for (size_t i = 0; i < kBorrower; i++)
        ASSERT_EQ(bytes[i], 0u) << i;
    hak_free(bytes);
}

TEST_F(Alloc, BorrowsNothingForWhatIsToBeAligned)
{
    size_t before = borrowed();
    std::vector<void *> blocks;
    for (int i = 0; i < kFree; i++) {
        void *p = hak_aligned_alloc(64, kBorrower);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
        blocks.push_back(p);
    }
    EXPECT_EQ(borrowed(), before);
    free_all(blocks);
}

/* A block of a class without slabs of its own is the guests', and lies in the outbox when it is freed. Each test has a
 * class to itself, which the others have not made one with slabs. */
TEST_F(Alloc, TakesBackWhatItFreedAsAGuest)
{
    constexpr size_t kOther = 1000;
    begin_with_empty_outbox();
    size_t single = counts().single_blocks;
    void *first = hak_malloc(kOther), *second = hak_malloc(kOther);
    EXPECT_EQ(counts().single_blocks - single, 2u);
    ASSERT_EQ(hk_block_owner(first, nullptr), &hk_guests);
    hak_free(first);
    hak_free(second);
    EXPECT_EQ(hk_self.outbox_next[-1], second);
    EXPECT_EQ(hak_malloc(kOther), second) << "the youngest";
    EXPECT_EQ(hk_self.outbox_next[-1], first);
    hak_free(second);
    void *other = hak_malloc(2 * kOther);
    EXPECT_NE(other, first) << "a block of another class";
    hak_free(other);
    EXPECT_EQ(hak_malloc(kOther), second) << "from the middle";
    EXPECT_EQ(hak_malloc(kOther), first);
    EXPECT_EQ(counts().single_blocks - single, 3u);
    free_all({first, second});
}

TEST_F(Alloc, TakesBackWhatIsTheGuestsOnly)
{
    constexpr size_t kOther = 1200;
    begin_with_empty_outbox();
    void *others = nullptr;
    std::thread([&] {
        for (int i = 0; i < 200; i++)
            hak_free(hak_malloc(kOther));
        others = hak_malloc(kOther); /* of a slab of its own */
    }).join();
    ASSERT_NE(hk_block_owner(others, nullptr), &hk_guests);
    hak_free(others);
    EXPECT_EQ(hk_self.outbox_next[-1], others);
    void *p = hak_malloc(kOther);
    EXPECT_NE(p, others);
    hak_free(p);
}

/* While parcels are on their way to the guests, nobody knows what was freed before. */
TEST_F(Alloc, TakesNothingBackThatMayHaveBeenFreedTwice)
{
    constexpr size_t kOther = 1500;
    begin_with_empty_outbox();
    void *first = hak_malloc(kOther), *second = hak_malloc(kOther);
    hak_free(first);
    hk_fault fault{};
    hk_lock_acquire(&hk_self.heap->lock);
    hk_thread_send(&fault);
    hk_lock_release(&hk_self.heap->lock);
    ASSERT_NE(hk_guests.pending, nullptr);
    hak_free(second);
    void *p = hak_malloc(kOther);
    EXPECT_EQ(p, first) << "by the guests, who have got it now";
    EXPECT_EQ(hk_self.outbox_next[-1], second);
    EXPECT_EQ(hak_malloc(kOther), second);
    free_all({first, second});
}

TEST_F(Alloc, FindsWhatWasFreedTwiceAndIsTakenBack)
{
    constexpr size_t kOther = 1700;
    begin_with_empty_outbox();
    ASSERT_EQ(hak_option_set("on_error", "warn"), 0);
    void *first = hak_malloc(kOther), *second = hak_malloc(kOther);
    free_all({first, second, first});
    testing::internal::CaptureStderr();
    EXPECT_EQ(hak_malloc(kOther), first);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("free("), std::string::npos) << said;
    EXPECT_NE(said.find("double free"), std::string::npos) << said;
    EXPECT_NE(said.find("noticed late"), std::string::npos) << said;
    EXPECT_EQ(hak_malloc(kOther), second);
    void *p = hak_malloc(kOther);
    EXPECT_NE(p, first);
    free_all({first, second, p});
    ASSERT_EQ(hak_option_set("on_error", "abort"), 0);
}

TEST_F(Alloc, ReallocRefusesWhatWasJustPutIntoTheOutbox)
{
    constexpr size_t kOther = 2300;
    begin_with_empty_outbox();
    ASSERT_EQ(hak_option_set("on_error", "warn"), 0);
    void *p = hak_malloc(kOther);
    hak_free(p);
    testing::internal::CaptureStderr();
    EXPECT_EQ(hak_realloc(p, kOther), nullptr);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("use after free"), std::string::npos) << said;
    ASSERT_EQ(hak_option_set("on_error", "abort"), 0);
}

TEST_F(Alloc, TakesNoWrongPointerBack)
{
    constexpr size_t kOther = 2000;
    begin_with_empty_outbox();
    ASSERT_EQ(hak_option_set("on_error", "warn"), 0);
    testing::internal::CaptureStderr();
    auto *block = static_cast<char *>(hak_malloc(kOther));
    hak_free(block + 24);
    void *p = hak_malloc(kOther);
    EXPECT_NE(p, block + 24);
    free_all({block, p});
    hk_trim(HK_PURGE_ALL, 0);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("inside"), std::string::npos);
    ASSERT_EQ(hak_option_set("on_error", "abort"), 0);
}

/* Each free is to be checked then, and no magazine is used. */
/* Nothing is given up for what cannot be had. */
TEST_F(Alloc, GivesNothingUpForWhatIsTooLargeForAnyProcess)
{
    hak_free(hak_malloc(3 << 20));
    const size_t cached = hk_superslab_counts.cached;
    ASSERT_GT(cached, 0u);
    for (size_t n : {(size_t{1} << 48) + 1, size_t{1} << 60, size_t{PTRDIFF_MAX}}) {
        errno = 0;
        EXPECT_EQ(hak_malloc(n), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(hak_aligned_alloc(size_t{1} << 20, n), nullptr);
        EXPECT_EQ(hak_calloc(1, n), nullptr);
    }
    EXPECT_EQ(hk_superslab_counts.cached, cached);
}

TEST(AllocChecked, BorrowsNothing)
{
    ASSERT_EQ(hak_option_set("checked", "1"), 0);
    size_t before = borrowed();
    std::thread([] {
        std::vector<void *> freed, kept;
        for (int i = 0; i < 200; i++)
            (i % 2 == 0 ? freed : kept).push_back(hak_malloc(kLender));
        ASSERT_EQ(hk_self.owner_key, HK_KEY_NOBODY);
        free_all(freed);
        for (int i = 0; i < 50; i++)
            kept.push_back(hak_malloc(kBorrower));
        free_all(kept);
    }).join();
    EXPECT_EQ(borrowed(), before);
    ASSERT_EQ(hak_option_set("checked", "0"), 0);
}

} // namespace
