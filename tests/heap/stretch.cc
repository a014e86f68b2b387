/* Stretches: mappings that grow lie apart, with room behind, and in nobody's way. */
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <vector>

#include "c_begin.h"
#include "base/os.h"
#include "heap/size_class.h"
#include "heap/stretch.h"
#include "c_end.h"

namespace
{

constexpr size_t kHugePage = 2 * HK_MIB;

class Stretch : public testing::TestWithParam<bool>
{
  protected:
    const bool medium = GetParam();
    const size_t most = medium ? HK_MIB : 64 * HK_MIB;
    const size_t page = hk_os_page_size();

    char *map(size_t size, size_t alignment) const
    {
        char *p = static_cast<char *>(hk_stretch_map(size, alignment, medium));
        EXPECT_NE(p, nullptr);
        return p;
    }
    char *map(size_t size) const { return map(size, page); }
};

std::string name_of(const testing::TestParamInfo<bool> &medium) { return medium.param ? "Medium" : "Large"; }

TEST_P(Stretch, MappingsGrowSideBySide)
{
    std::vector<char *> live;
    for (int i = 0; i < 40; i++) {
        live.push_back(map(HK_MIB / 4));
        live.back()[0] = static_cast<char>(i);
    }
    for (char *p : live)
        EXPECT_TRUE(hk_os_resize_in_place(p, HK_MIB / 4, most));
    for (size_t i = 0; i < live.size(); i++) {
        EXPECT_EQ(live[i][0], static_cast<char>(i));
        EXPECT_EQ(live[i][most - 1], 0);
        EXPECT_TRUE(hk_os_unmap(live[i], most, most));
    }
}

/* So that they do not all meet in one set of a TLB. */
TEST_P(Stretch, HeadsDifferInTheirLowerBits)
{
    char *p = map(page), *q = map(page);
    const uintptr_t unit = medium ? HK_SLOT_SIZE : kHugePage;
    EXPECT_EQ(static_cast<uintptr_t>(q - p) / unit % 2, 1u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % unit, 0u);
    hk_os_unmap(p, page, page);
    hk_os_unmap(q, page, page);
}

TEST_P(Stretch, WhatLiesThereStays)
{
    char *p = map(page), *q = map(page);
    ASSERT_GT(q, p);
    char *next = q + (q - p);
    void *theirs = mmap(next, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(theirs, next);
    *next = 1;
    char *r = map(4 * page);
    EXPECT_TRUE(r + 4 * page <= next || r >= next + page);
    r[4 * page - 1] = 2;
    EXPECT_EQ(*next, 1);
    munmap(theirs, page);
    for (char *each : {p, q})
        hk_os_unmap(each, page, page);
    hk_os_unmap(r, 4 * page, 4 * page);
}

TEST_P(Stretch, MappingsAreAligned)
{
    for (size_t alignment = page; alignment <= 512 * HK_MIB; alignment *= 2) {
        char *p = map(page, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u) << alignment;
        hk_os_unmap(p, page, page);
    }
}

TEST_P(Stretch, EachHasItsTurnAgain)
{
    char *first = map(page);
    hk_os_unmap(first, page, page);
    int turns = 0;
    for (char *p = nullptr; p != first && turns < 1000; turns++) {
        p = map(page);
        hk_os_unmap(p, page, page);
    }
    EXPECT_GE(turns, 64);
    EXPECT_LT(turns, 1000);
}

INSTANTIATE_TEST_SUITE_P(, Stretch, testing::Bool(), name_of);

} // namespace
