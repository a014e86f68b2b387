// The hak_ functions, all of the header, in the core linked under these names alone: so also under the sanitizers.
#include <gtest/gtest.h>

#include <hakmem/hakmem.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace
{

constexpr size_t KIB = size_t{1} << 10, MIB = size_t{1} << 20;
constexpr size_t too_large = size_t{PTRDIFF_MAX} + 1;

// Sizes around every boundary that a size class may have, up to large blocks.
std::vector<size_t> sizes()
{
    std::vector<size_t> result;
    for (size_t n = 0; n <= 300; n++)
        result.push_back(n);
    for (size_t power = 256; power <= 4 * MIB; power *= 2)
        for (size_t eighth = 0; eighth < 8; eighth++)
            for (size_t d = 0; d <= 2; d++)
                result.push_back(power + eighth * (power / 8) + d - 1);
    for (size_t n : {10 * MIB, 64 * MIB, 64 * MIB + 1, 100 * MIB})
        result.push_back(n);
    return result;
}

// The compiler knows what the attributes of the header say, and warns of calls that are wrong on purpose.
template <typename T> T hidden(T value)
{
    volatile T copy = value;
    return copy;
}

void fill(void *p, size_t from, size_t to, unsigned seed)
{
    for (size_t i = from; i < to; i++)
        static_cast<unsigned char *>(p)[i] = static_cast<unsigned char>((i * 131 + i / 251 + seed) & 0xff);
}

bool holds(const void *p, size_t from, size_t to, unsigned seed)
{
    for (size_t i = from; i < to; i++)
        if (static_cast<const unsigned char *>(p)[i] != static_cast<unsigned char>((i * 131 + i / 251 + seed) & 0xff))
            return false;
    return true;
}

bool is_zero(const void *p, size_t from, size_t to)
{
    return std::all_of(static_cast<const char *>(p) + from, static_cast<const char *>(p) + to,
                       [](char c) { return c == 0; });
}

bool is_aligned(const void *p, size_t alignment) { return reinterpret_cast<uintptr_t>(p) % alignment == 0; }

std::string option(const char *name)
{
    char value[256];
    int length = hak_option_get(name, value, sizeof value);
    return length < 0 ? "?" : std::string(value, static_cast<size_t>(length));
}

// ---- The C library's allocations, by name ----

TEST(HakMalloc, GivesWritableBlocks)
{
    for (size_t n : sizes()) {
        void *p = hak_malloc(n), *q = hak_malloc(n);
        ASSERT_NE(p, nullptr) << n;
        ASSERT_NE(q, nullptr) << n;
        EXPECT_NE(p, q);
        EXPECT_TRUE(is_aligned(p, 16)) << n;
        ASSERT_GE(hak_usable_size(p), n);
        size_t usable = std::min(hak_usable_size(p), 300 * KIB);
        fill(p, 0, usable, 1), fill(q, 0, usable, 2);
        EXPECT_TRUE(holds(p, 0, usable, 1) && holds(q, 0, usable, 2)) << n;
        hak_free(p), hak_free(q);
    }
}

TEST(HakMalloc, FailsAbovePtrdiffMax)
{
    void *kept = hak_malloc(10);
    for (size_t n : {too_large, SIZE_MAX - 100, SIZE_MAX, size_t{PTRDIFF_MAX}}) {
        n = hidden(n);
        errno = 0;
        EXPECT_EQ(hak_malloc(n), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(hak_calloc(1, n), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(hak_realloc(kept, n), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(hak_aligned_alloc(64, n), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(hak_realloc_zero(kept, 10, n), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        size_t usable = 1;
        errno = 0;
        EXPECT_EQ(hak_malloc_usable(n, &usable), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(usable, 0u);
        EXPECT_EQ(hak_malloc_usable(n, nullptr), nullptr);
    }
    hak_free(kept);
}

TEST(HakCalloc, ZeroesAndChecksTheProduct)
{
    for (int round = 0; round < 2; round++) {
        for (size_t n : sizes()) {
            if (n > 4 * MIB)
                continue;
            void *p = hak_calloc(n, 1);
            ASSERT_NE(p, nullptr);
            EXPECT_TRUE(is_zero(p, 0, n)) << n;
            std::memset(p, 0xff, hak_usable_size(p));
            hak_free(p);
        }
    }
    errno = 0;
    EXPECT_EQ(hak_calloc(hidden(size_t{1} << 33), hidden(size_t{1} << 33)), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    void *p = hak_calloc(0, 100), *q = hak_calloc(hidden(SIZE_MAX), 0);
    EXPECT_TRUE(p != nullptr && q != nullptr && p != q);
    hak_free(p), hak_free(q);
}

TEST(HakRealloc, KeepsTheContent)
{
    for (size_t from : sizes()) {
        for (size_t to : {from / 3 + 1, from + 1, 2 * from + 100}) {
            if (from > 4 * MIB || (from > 8 * KIB && from % 2 == 0))
                continue;
            void *p = hak_malloc(from);
            ASSERT_NE(p, nullptr);
            fill(p, 0, from, 3);
            p = hak_realloc(p, to);
            ASSERT_NE(p, nullptr);
            EXPECT_TRUE(holds(p, 0, std::min(from, to), 3)) << from << " to " << to;
            EXPECT_GE(hak_usable_size(p), to);
            hak_free(p);
        }
    }
}

TEST(HakRealloc, NullAllocatesAndZeroFrees)
{
    void *p = hak_realloc(nullptr, 100);
    ASSERT_NE(p, nullptr);
    errno = EILSEQ;
    EXPECT_EQ(hak_realloc(p, 0), nullptr);
    EXPECT_EQ(errno, EILSEQ);
    p = hak_realloc(nullptr, 0);
    EXPECT_NE(p, nullptr);
    hak_free(p);
}

TEST(HakAlignedAlloc, TakesPowersOfTwo)
{
    for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 2) {
        for (size_t n : {size_t{0}, size_t{1}, size_t{100}, 5 * KIB, 100 * KIB, 3 * MIB}) {
            void *p = hak_aligned_alloc(alignment, n);
            ASSERT_NE(p, nullptr) << alignment << ", " << n;
            EXPECT_TRUE(is_aligned(p, std::max<size_t>(alignment, 16))) << alignment << ", " << n;
            EXPECT_GE(hak_usable_size(p), n);
            fill(p, 0, n, 4);
            EXPECT_TRUE(holds(p, 0, n, 4));
            hak_free(p);
        }
    }
    for (size_t alignment : {size_t{0}, size_t{3}, size_t{24}, size_t{4097}, SIZE_MAX}) {
        errno = 0;
        EXPECT_EQ(hak_aligned_alloc(hidden(alignment), 100), nullptr) << alignment;
        EXPECT_EQ(errno, EINVAL) << alignment;
    }
}

TEST(HakFree, KeepsErrno)
{
    hak_free(nullptr);
    for (size_t n : sizes()) {
        void *p = hak_malloc(n), *q = hak_malloc(n), *r = hak_aligned_alloc(64, n), *s = hak_malloc(n);
        errno = EILSEQ;
        hak_free(p);
        hak_free_sized(q, n);
        hak_free_aligned_sized(r, 64, n);
        hak_free_batch(&s, 1);
        EXPECT_EQ(errno, EILSEQ) << n;
    }
    hak_free_sized(nullptr, 100);
    hak_free_aligned_sized(nullptr, 64, 100);
}

TEST(HakUsableSize, OfNullIsZero) { EXPECT_EQ(hak_usable_size(hidden<void *>(nullptr)), 0u); }

// ---- Sizes ----

TEST(HakGoodSize, IsWhatARequestGetsAtLeast)
{
    size_t last = 0;
    for (size_t n : sizes()) {
        size_t good = hak_good_size(n), usable = 0;
        EXPECT_GE(good, n);
        void *p = hak_malloc_usable(n, &usable);
        ASSERT_NE(p, nullptr);
        EXPECT_GE(usable, good) << n;
        EXPECT_LE(usable, hak_good_size(good + 1)) << n << ": what is free of the next larger size may serve it";
        EXPECT_EQ(hak_usable_size(p), usable) << n;
        hak_free(p);
        last = std::max(last, good);
    }
    EXPECT_GE(last, 100 * MIB);
}

// Who asks for what he was told is told the same: else rounding up by it would end nowhere.
TEST(HakGoodSize, IsItsOwnGoodSize)
{
    for (size_t n : sizes())
        ASSERT_EQ(hak_good_size(hak_good_size(n)), hak_good_size(n)) << n;
}

TEST(HakGoodSize, Grows)
{
    for (size_t n = 1; n < 20 * MIB; n = n < 10000 ? n + 1 : n + n / 1000)
        ASSERT_LE(hak_good_size(n - 1), hak_good_size(n)) << n;
}

TEST(HakGoodSize, OfTheImpossibleIsItself)
{
    for (size_t n : {size_t{1} << 48, (size_t{1} << 50) + 1, too_large, SIZE_MAX - 4096, SIZE_MAX - 1, SIZE_MAX})
        EXPECT_EQ(hak_good_size(n), n);
}

TEST(HakMallocUsable, NeedsNoPlaceForTheSize)
{
    void *p = hak_malloc_usable(100, nullptr);
    ASSERT_NE(p, nullptr);
    EXPECT_GE(hak_usable_size(p), 100u);
    hak_free(p);
}

// ---- realloc_zero, expand ----

TEST(HakReallocZero, ZeroesWhatIsNew)
{
    for (size_t from : sizes()) {
        for (size_t to : {from, from + 1, from + from / 8 + 20, 2 * from + 100}) {
            if (to == 0 || from > 4 * MIB || (from > 8 * KIB && from % 2 == 0))
                continue;
            // All that the block has is dirty, also beyond what the caller uses of it.
            void *p = hak_malloc(from);
            ASSERT_NE(p, nullptr);
            std::memset(p, 0xff, hak_usable_size(p));
            fill(p, 0, from, 5);
            p = hak_realloc_zero(p, from, to);
            ASSERT_NE(p, nullptr);
            EXPECT_TRUE(holds(p, 0, from, 5)) << from << " to " << to;
            EXPECT_TRUE(is_zero(p, from, to)) << from << " to " << to;
            hak_free(p);
        }
    }
}

TEST(HakReallocZero, UsesLessThanTheBlock)
{
    void *p = hak_malloc(1000);
    std::memset(p, 0xff, hak_usable_size(p));
    fill(p, 0, 10, 6);
    p = hak_realloc_zero(p, 10, 900);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(holds(p, 0, 10, 6) && is_zero(p, 10, 900));
    p = hak_realloc_zero(p, 10, 500 * KIB);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(holds(p, 0, 10, 6) && is_zero(p, 10, 500 * KIB));
    hak_free(p);
}

TEST(HakReallocZero, ShrinksAndFreesAndAllocates)
{
    for (int round = 0; round < 100; round++) {
        void *p = hak_realloc_zero(nullptr, 0, 1000);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_zero(p, 0, 1000));
        fill(p, 0, 1000, 7);
        p = hak_realloc_zero(p, 1000, 100);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(holds(p, 0, 100, 7));
        // Grown again, what was cut off is not there any more.
        p = hak_realloc_zero(p, 100, 1000);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(holds(p, 0, 100, 7) && is_zero(p, 100, 1000));
        std::memset(p, 0xff, hak_usable_size(p));
        EXPECT_EQ(hak_realloc_zero(p, 1000, 0), nullptr);
    }
}

TEST(HakReallocZero, AppendsToALargeBlock)
{
    void *p = nullptr;
    size_t used = 0;
    for (size_t n = 4 * KIB; n < 40 * MIB; n += n / 2) {
        p = hak_realloc_zero(p, used, n);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(holds(p, 0, used, 8) && is_zero(p, used, n)) << n;
        fill(p, 0, n, 8);
        used = n;
    }
    hak_free(p);
}

TEST(HakExpand, SucceedsWithinTheBlock)
{
    for (size_t n : sizes()) {
        void *p = hak_malloc(n);
        ASSERT_NE(p, nullptr);
        size_t usable = hak_usable_size(p);
        for (size_t to : {size_t{0}, n / 2, n, usable})
            EXPECT_TRUE(hak_expand(p, to)) << n << " to " << to;
        EXPECT_EQ(hak_usable_size(p), usable) << "expand is not to shrink";
        hak_free(p);
    }
}

TEST(HakExpand, FailsAndKeepsErrno)
{
    for (size_t n : {size_t{1}, size_t{64}, size_t{1000}, 20 * KIB, 200 * KIB}) {
        void *p = hak_malloc(n);
        ASSERT_NE(p, nullptr);
        size_t usable = hak_usable_size(p);
        fill(p, 0, n, 9);
        errno = EILSEQ;
        for (size_t to : {4 * usable + 4 * MIB, size_t{PTRDIFF_MAX}, too_large, SIZE_MAX})
            EXPECT_FALSE(hak_expand(p, to)) << n << " to " << to;
        EXPECT_EQ(errno, EILSEQ);
        EXPECT_EQ(hak_usable_size(p), usable);
        EXPECT_TRUE(holds(p, 0, n, 9));
        hak_free(p);
    }
    EXPECT_FALSE(hak_expand(nullptr, 1));
}

// Or it would take the rest of the block away.
TEST(HakExpand, SaysNoOfAPointerIntoALargeBlock)
{
    for (size_t n : {32 * MIB, 100 * MIB}) {
        char *p = static_cast<char *>(hak_malloc(n));
        ASSERT_NE(p, nullptr);
        size_t usable = hak_usable_size(p);
        for (size_t to : {size_t{1}, 3 * MIB, 2 * n})
            EXPECT_FALSE(hak_expand(p + 64, to)) << n << " to " << to;
        EXPECT_EQ(hak_usable_size(p), usable);
        hak_free(p);
    }
}

// Whatever the answer is for a large block, it is true.
TEST(HakExpand, TellsTheTruthOfLargeBlocks)
{
    for (size_t n : {3 * MIB, 10 * MIB, 100 * MIB}) {
        void *p = hak_malloc(n);
        ASSERT_NE(p, nullptr);
        fill(p, 0, 1000, 10);
        fill(static_cast<char *>(p) + n - 1000, 0, 1000, 11);
        size_t before = hak_usable_size(p);
        for (size_t to = before + 1; to < 2 * n; to += n / 4) {
            size_t usable = hak_usable_size(p);
            if (hak_expand(p, to)) {
                EXPECT_GE(hak_usable_size(p), to);
                std::memset(static_cast<char *>(p) + usable, 0x55, hak_usable_size(p) - usable);
            } else {
                EXPECT_EQ(hak_usable_size(p), usable);
            }
        }
        EXPECT_TRUE(holds(p, 0, 1000, 10));
        EXPECT_TRUE(holds(static_cast<char *>(p) + n - 1000, 0, 1000, 11));
        hak_free(p);
    }
}

// ---- Batches ----

TEST(HakMallocBatch, GivesBlocksLikeAnyOther)
{
    for (size_t n :
         {size_t{0}, size_t{1}, size_t{16}, size_t{100}, size_t{1000}, 4 * KIB, 5 * KIB, 100 * KIB, 3 * MIB}) {
        for (size_t count : {size_t{1}, size_t{2}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}}) {
            if (n * count > 300 * MIB)
                continue;
            std::vector<void *> blocks(count + 1, nullptr);
            errno = EILSEQ;
            ASSERT_EQ(hak_malloc_batch(n, count, blocks.data()), count) << n;
            EXPECT_EQ(errno, EILSEQ);
            EXPECT_EQ(blocks[count], nullptr) << "more than asked";
            EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), count + 1);
            const size_t checked = std::min(n, 64 * KIB);
            for (size_t i = 0; i < count; i++) {
                EXPECT_TRUE(is_aligned(blocks[i], 16));
                EXPECT_GE(hak_usable_size(blocks[i]), n);
                fill(blocks[i], 0, checked, static_cast<unsigned>(i));
            }
            for (size_t i = 0; i < count; i++) {
                ASSERT_TRUE(holds(blocks[i], 0, checked, static_cast<unsigned>(i))) << n << ", block " << i;
                if (i % 3 == 0)
                    hak_free(blocks[i]);
                else if (i % 3 == 1)
                    hak_free_sized(blocks[i], n);
                else
                    hak_free_batch(&blocks[i], 1);
            }
        }
    }
}

TEST(HakMallocBatch, OfNoneDoesNothing)
{
    void *untouched = &untouched;
    errno = EILSEQ;
    EXPECT_EQ(hak_malloc_batch(100, 0, &untouched), 0u);
    EXPECT_EQ(hak_malloc_batch(100, 0, nullptr), 0u);
    EXPECT_EQ(hak_malloc_batch(hidden(too_large), 0, nullptr), 0u);
    EXPECT_EQ(untouched, &untouched);
    EXPECT_EQ(errno, EILSEQ);
}

TEST(HakMallocBatch, OfTheImpossibleIsEnomem)
{
    void *blocks[4] = {};
    for (size_t n : {too_large, SIZE_MAX, size_t{PTRDIFF_MAX}}) {
        errno = 0;
        EXPECT_EQ(hak_malloc_batch(hidden(n), 4, blocks), 0u);
        EXPECT_EQ(errno, ENOMEM);
    }
}

TEST(HakFreeBatch, SkipsNullsAndTakesEverything)
{
    hak_free_batch(nullptr, 0);
    void *const nulls[] = {nullptr, nullptr, nullptr};
    errno = EILSEQ;
    hak_free_batch(nulls, 3);
    EXPECT_EQ(errno, EILSEQ);

    for (int round = 0; round < 20; round++) {
        std::vector<void *> blocks;
        for (size_t n : sizes()) {
            if (n > 10 * MIB)
                continue;
            blocks.push_back(hak_malloc(n));
            blocks.push_back(nullptr);
            blocks.push_back(hak_aligned_alloc(size_t{1} << (n % 15), n));
            blocks.push_back(hak_realloc_zero(hak_calloc(1, n), n, n + 1));
        }
        for (size_t i = 0; i < blocks.size(); i++)
            std::swap(blocks[i], blocks[i * 7919 % blocks.size()]);
        const std::vector<void *> before = blocks;
        hak_free_batch(blocks.data(), blocks.size());
        EXPECT_EQ(blocks, before) << "the caller's array is not ours";
    }
}

TEST(HakFreeBatch, TakesBlocksOfOtherThreads)
{
    std::vector<void *> blocks(20000);
    std::thread([&] { ASSERT_EQ(hak_malloc_batch(100, 10000, blocks.data()), 10000u); }).join();
    ASSERT_EQ(hak_malloc_batch(100, 10000, blocks.data() + 10000), 10000u);
    for (size_t i = 0; i < blocks.size(); i += 2)
        std::swap(blocks[i], blocks[blocks.size() - 1 - i]);
    std::thread other([&] { hak_free_batch(blocks.data(), 10000); });
    hak_free_batch(blocks.data() + 10000, 10000);
    other.join();
    ASSERT_EQ(hak_malloc_batch(100, blocks.size(), blocks.data()), blocks.size());
    EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), blocks.size());
    hak_free_batch(blocks.data(), blocks.size());
}

// ---- The library itself ----

TEST(HakVersion, IsThatOfTheHeader)
{
    const std::string expected = std::to_string(HAK_VERSION_MAJOR) + "." + std::to_string(HAK_VERSION_MINOR) + "." +
                                 std::to_string(HAK_VERSION_PATCH);
    EXPECT_EQ(hak_version(), expected);
    EXPECT_EQ(hak_version(), hak_version());
}

TEST(HakOptionGet, WritesWhatFits)
{
    char buf[16];
    EXPECT_EQ(hak_option_get("on_error", buf, sizeof buf), 5);
    EXPECT_STREQ(buf, "abort");
    EXPECT_EQ(hak_option_get("on_error", buf, 6), 5);
    EXPECT_STREQ(buf, "abort");
    // Too small: the length says so, and nothing is written behind the end.
    std::memset(buf, '#', sizeof buf);
    EXPECT_EQ(hak_option_get("on_error", buf, 5), 5);
    EXPECT_EQ(buf[5], '#');
    EXPECT_EQ(hak_option_get("on_error", buf, 1), 5);
    EXPECT_EQ(hak_option_get("on_error", nullptr, 0), 5);
}

TEST(HakOptionGet, RefusesNull)
{
    char buf[16];
    errno = 0;
    EXPECT_EQ(hak_option_get(nullptr, buf, sizeof buf), -1);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(hak_option_get("on_error", nullptr, 10), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST(HakOptionGet, UnknownNames)
{
    char buf[16] = "untouched";
    for (const char *name : {"no_such_option", "", "ON_ERROR", "HAKMEM_ON_ERROR", "on_error "}) {
        errno = 0;
        EXPECT_EQ(hak_option_get(name, buf, sizeof buf), -1) << name;
        EXPECT_EQ(errno, ENOENT) << name;
        errno = 0;
        EXPECT_EQ(hak_option_set(name, "abort"), -1) << name;
        EXPECT_EQ(errno, ENOENT) << name;
    }
    EXPECT_STREQ(buf, "untouched");
}

TEST(HakOptionGet, KnowsEveryOptionOfTheTable)
{
    for (const char *name : {
#define HK_OPTION(name, ...) #name,
#include "base/options.def"
#undef HK_OPTION
         })
        EXPECT_NE(option(name), "?") << name;
}

TEST(HakOptionSet, ChangesTheValue)
{
    for (const char *word : {"warn", "ignore", "abort"}) {
        errno = EILSEQ;
        EXPECT_EQ(hak_option_set("on_error", word), 0);
        EXPECT_EQ(errno, EILSEQ);
        EXPECT_EQ(option("on_error"), word);
    }
}

TEST(HakOptionSet, RefusesBadValues)
{
    for (const char *value : {"", "Abort", "abort ", "0", "aborted"}) {
        errno = 0;
        EXPECT_EQ(hak_option_set("on_error", value), -1) << value;
        EXPECT_EQ(errno, EINVAL) << value;
        EXPECT_EQ(option("on_error"), "abort");
    }
    // Read once, at start.
    errno = 0;
    EXPECT_EQ(hak_option_set("help", "1"), -1);
    EXPECT_EQ(errno, EPERM);
}

// ---- Errors, by these names ----

#if !defined(__SANITIZE_THREAD__) // its runtime does not survive the fork of a death test with threads
TEST(HakErrorsDeathTest, DoubleFree)
{
    void *p = hak_malloc(64);
    const auto twice = [p] { hak_free(p), hak_free(hidden(p)); };
    const auto and_realloc = [p] { hak_free(p), std::ignore = hak_realloc(hidden(p), 1000); };
    EXPECT_DEATH(twice(),
                 "hakmem: (hak_)?free\\(0x[0-9a-f]+\\): double free: a block of 64 bytes that is free already");
    EXPECT_DEATH(and_realloc(),
                 "hakmem: (hak_)?realloc\\(0x[0-9a-f]+\\): use after free: a block of 64 bytes that is free already");
    hak_free(p);
}

TEST(HakErrorsDeathTest, ForeignPointer)
{
    int local = 0;
    void *p = hidden<void *>(&local);
    EXPECT_DEATH(hak_free(p), "hakmem: (hak_)?free\\(0x[0-9a-f]+\\): invalid pointer: not memory of hakmem");
    EXPECT_DEATH(hak_free_batch(&p, 1),
                 "hakmem: (hak_)?free.*\\(0x[0-9a-f]+\\): invalid pointer: not memory of hakmem");
    EXPECT_DEATH(std::ignore = hak_realloc_zero(p, 0, 100),
                 "hakmem: (hak_)?realloc.*\\(0x[0-9a-f]+\\): invalid pointer: not memory of hakmem");
}

TEST(HakErrorsDeathTest, WrongSize)
{
    void *p = hak_malloc(64);
    EXPECT_DEATH(hak_free_sized(p, 100),
                 "hakmem: (hak_)?free_sized\\(0x[0-9a-f]+, 100\\): wrong size: the block has 64 usable bytes");
    EXPECT_DEATH(
        hak_free_aligned_sized(p, 16, 100),
        "hakmem: (hak_)?free_aligned_sized\\(0x[0-9a-f]+, (16, )?100\\): wrong size: the block has 64 usable bytes");
    hak_free(p);
}

[[noreturn]] void free_twice_and_leave(const char *on_error)
{
    void *p = hak_malloc(64);
    hak_option_set("on_error", on_error);
    hak_free(p);
    hak_free(hidden(p));
    _exit(3);
}

TEST(HakErrorsDeathTest, OptionSaysWhatHappens)
{
    EXPECT_EXIT(free_twice_and_leave("warn"), ::testing::ExitedWithCode(3), "double free");
    EXPECT_EXIT(free_twice_and_leave("ignore"), ::testing::ExitedWithCode(3), "^$");
}
#endif

} // namespace
