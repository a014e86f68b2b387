/* Where realloc puts a block that grows, and what it does when there is no memory for a mapping. */
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/resource.h>
#include <vector>

#include "hakmem/hakmem.h"

#include "c_begin.h"
#include "base/os.h"
#include "heap/large.h"
#include "heap/window.h"
#include "c_end.h"

namespace
{

bool is_large(const void *p) { return hk_key_kind(hk_key_of(p)) == HK_KEY_LARGE; }

/* A word in each 4 KiB says where it lies. */
void fill(char *p, size_t n)
{
    for (size_t i = 0; i + sizeof i <= n; i += 4096)
        std::memcpy(p + i, &i, sizeof i);
}

bool holds(const char *p, size_t n)
{
    for (size_t i = 0, got; i + sizeof i <= n; i += 4096) {
        std::memcpy(&got, p + i, sizeof got);
        if (got != i)
            return false;
    }
    return true;
}

TEST(Realloc, WhatGrowsBecomesAMapping)
{
    auto *p = static_cast<char *>(hak_malloc(1000));
    size_t old = 0;
    for (size_t n = 1000; n < 8 * HK_MIB; old = n, n += n / 3) {
        p = static_cast<char *>(hak_realloc(p, n));
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(holds(p, old)) << n;
        EXPECT_GE(hak_usable_size(p), n);
        fill(p, n);
        EXPECT_EQ(is_large(p), n > HK_GROWING_MIN) << n;
    }
    for (size_t n = old; n > 100; n -= n / 2) {
        p = static_cast<char *>(hak_realloc(p, n));
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(holds(p, n)) << n;
    }
    EXPECT_FALSE(is_large(p));
    hak_free(p);
}

TEST(Realloc, WhatDoesNotGrowDoesNot)
{
    void *p = hak_malloc(300000);
    EXPECT_FALSE(is_large(p));
    void *q = hak_realloc(p, 200000);
    EXPECT_EQ(q, p);
    q = hak_realloc(q, 140000);
    EXPECT_FALSE(is_large(q)) << "though it moves";
    hak_free(q);
}

TEST(Realloc, WhatShrinksGoesToAClass)
{
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    void *run = hak_realloc(hak_malloc(5 * HK_MIB), 300000);
    EXPECT_FALSE(is_large(run)) << "or it would keep a superslab";
    hak_free(run);
    void *large = hak_realloc(hak_realloc(hak_malloc(HK_MIB), 8 * HK_MIB), 300000);
    EXPECT_FALSE(is_large(large)) << "or it would keep part of a huge page";
    hak_free(large);
    auto *p = static_cast<char *>(hak_realloc(hak_malloc(100000), 800000));
    fill(p, 800000);
    auto *q = static_cast<char *>(hak_realloc(p, 300000));
    EXPECT_EQ(q, p) << "a medium one is cut";
    EXPECT_LT(hak_usable_size(q), 400000u);
    EXPECT_TRUE(holds(q, 300000));
    q = static_cast<char *>(hak_realloc(q, 100000));
    EXPECT_FALSE(is_large(q));
    EXPECT_TRUE(holds(q, 100000));
    hak_free(q);
}

/* There are only so many mappings, and fewer for smaller blocks. */
TEST(Realloc, WhatGrowsWithManyOthersGrowsInAClass)
{
    std::vector<char *> blocks;
    while (hk_large_takes_medium(200000)) {
        blocks.push_back(static_cast<char *>(hak_realloc(hak_malloc(100000), 200000)));
        ASSERT_TRUE(is_large(blocks.back()));
    }
    auto *p = static_cast<char *>(hak_realloc(hak_malloc(100000), 200000));
    EXPECT_FALSE(is_large(p));
    fill(p, 200000);
    blocks.push_back(static_cast<char *>(hak_realloc(p, 500000)));
    EXPECT_TRUE(is_large(blocks.back()));
    EXPECT_TRUE(holds(blocks.back(), 200000));
    for (char *each : blocks)
        hak_free(each);
}

/* What lies idle is given back for the copy, which has no room all the same; but the pages may move then. */
TEST(Realloc, WhatHasNoRoomForACopyMovesWhenIdleMemoryIsGone)
{
    auto *p = static_cast<char *>(hak_malloc(70 * HK_MIB));
    fill(p, 70 * HK_MIB);
    std::vector<void *> small(30000);
    for (void *&each : small)
        each = hak_malloc(1000);
    for (size_t i = 0; i < small.size(); i++)
        if (i % 3000 != 0)
            hak_free(small[i]);
    ASSERT_EQ(hak_limit_set(0, 100 * HK_MIB), 0);
    errno = 0;
    auto *q = static_cast<char *>(hak_realloc(p, 88 * HK_MIB));
    EXPECT_EQ(errno, 0) << "it has not failed";
    EXPECT_EQ(hak_limit_set(0, 0), 0);
    ASSERT_NE(q, nullptr);
    EXPECT_TRUE(holds(q, 70 * HK_MIB));
    hak_free(q);
    for (size_t i = 0; i < small.size(); i += 3000)
        hak_free(small[i]);
}

/* There is no memory for a smaller block, and none is needed. */
TEST(Realloc, WhatShrinksStaysWhereItIsWithoutMemory)
{
    for (size_t size : {size_t{5000}, size_t{1000000}, 10 * HK_MIB}) {
        auto *p = static_cast<char *>(hak_malloc(size));
        fill(p, size);
        size_t less = size / 3 + 7;
        ASSERT_EQ(hak_limit_set(0, 1), 0);
        std::vector<void *> taken; /* what of the smaller size is at hand */
        while (void *q = hak_malloc(less))
            taken.push_back(q);
        errno = 0;
        auto *q = static_cast<char *>(hak_realloc(p, less));
        EXPECT_EQ(errno, 0) << "it has not failed";
        EXPECT_EQ(hak_limit_set(0, 0), 0);
        ASSERT_EQ(q, p);
        EXPECT_TRUE(holds(q, less));
        hak_free(q);
        for (void *each : taken)
            hak_free(each);
    }
}

#if !defined(__aarch64__) /* which the tests see through qemu-user: that enforces no RLIMIT_AS */
TEST(Realloc, WhatGetsNoMappingGrowsInAClass)
{
    hak_free(hak_malloc(300000)); /* one is at hand */
    auto *p = static_cast<char *>(hak_malloc(100000));
    fill(p, 100000);
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    rlimit full{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &full), 0);
    const rlimit none{1, full.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    errno = 0;
    auto *q = static_cast<char *>(hak_realloc(p, 300000));
    EXPECT_EQ(errno, 0) << "it has not failed";
    ASSERT_EQ(setrlimit(RLIMIT_AS, &full), 0);
    ASSERT_NE(q, nullptr);
    EXPECT_FALSE(is_large(q));
    EXPECT_TRUE(holds(q, 100000));
    hak_free(q);
}
#endif

} // namespace
