/* Cached mappings: pieces that serve together, which place is chosen, what goes when there is no room. */
#include <gtest/gtest.h>

#include "c_begin.h"
#include "base/lock.h"
#include "base/os.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/mapping_cache.h"
#include "c_end.h"

namespace
{

constexpr size_t kPiece = 4 * HK_SLOT_SIZE;

/* The lock is held throughout, as by a caller. */
class MappingCache : public testing::TestWithParam<bool>
{
  protected:
    const bool medium = GetParam();

    void SetUp() override { hk_lock_acquire(&hk_large_lock); }
    void TearDown() override
    {
        hk_mapping_cache_purge(0, UINT64_MAX, SIZE_MAX);
        EXPECT_EQ(hk_mapping_cache_bytes(), 0u);
        EXPECT_EQ(hk_mapped_bytes(), 0u) << "each byte that was unmapped is counted";
        hk_lock_release(&hk_large_lock);
    }
    static char *map(size_t size)
    {
        hk_mapped_add(size);
        return static_cast<char *>(hk_os_map(size, HK_SLOT_SIZE));
    }
    void add(char *base, size_t size) const { hk_mapping_cache_add({base, size, false}, medium); }
    char *find(size_t size, bool growing = false) const
    {
        return hk_mapping_cache_find(size, HK_SLOT_SIZE, growing, medium);
    }
    static void unmap(char *base, size_t size)
    {
        EXPECT_TRUE(hk_os_unmap(base, size, size));
        hk_mapped_add(-size);
    }
};

std::string name_of(const testing::TestParamInfo<bool> &medium) { return medium.param ? "Medium" : "Large"; }

TEST_P(MappingCache, NeighboursServeTogether)
{
    char *p = map(3 * kPiece);
    add(p + kPiece, kPiece);
    EXPECT_EQ(find(2 * kPiece), nullptr);
    add(p + 2 * kPiece, kPiece);
    add(p, kPiece);
    EXPECT_EQ(find(3 * kPiece), p);
    EXPECT_EQ(hk_mapping_cache_room(p, medium), 3 * kPiece);
    EXPECT_EQ(hk_mapping_cache_room(p + kPiece, medium), 2 * kPiece);
    EXPECT_EQ(hk_mapping_cache_room(p + 1, medium), 0u) << "no piece begins there";
    hk_mapping mapping = {p, 0, false};
    hk_mapping_cache_give(&mapping, 2 * kPiece + HK_SLOT_SIZE, medium);
    EXPECT_EQ(mapping.size, 2 * kPiece + HK_SLOT_SIZE);
    EXPECT_EQ(hk_mapping_cache_bytes(), kPiece - HK_SLOT_SIZE) << "the rest of the last piece stays";
    EXPECT_EQ(find(HK_SLOT_SIZE), p + mapping.size);
    unmap(mapping.base, mapping.size);
}

TEST_P(MappingCache, ARestThatCouldNotBeAMappingGoesWithIt)
{
    char *p = map(kPiece);
    add(p, kPiece);
    hk_mapping mapping = {p, 0, false};
    hk_mapping_cache_give(&mapping, kPiece - HK_SLOT_SIZE + hk_os_page_size(), medium);
    EXPECT_EQ(mapping.size, hk_os_page_size() < HK_SLOT_SIZE ? kPiece : kPiece - HK_SLOT_SIZE + hk_os_page_size());
    unmap(mapping.base, mapping.size);
}

TEST_P(MappingCache, TheLeastRoomServesAndTheMostWhatGrows)
{
    char *small = map(2 * kPiece), *large = map(6 * kPiece);
    add(small + kPiece, kPiece); /* apart from whatever lies before it */
    unmap(small, kPiece);
    add(large + kPiece, 5 * kPiece);
    unmap(large, kPiece);
    EXPECT_EQ(find(kPiece), small + kPiece);
    EXPECT_EQ(find(kPiece, true), large + kPiece);
    EXPECT_EQ(find(5 * kPiece), large + kPiece);
    EXPECT_EQ(find(6 * kPiece), nullptr);
    EXPECT_EQ(hk_mapping_cache_find(kPiece, HK_SLOT_SIZE, false, !medium), nullptr) << "each kind has its own";
}

TEST_P(MappingCache, WhenItIsFullTheOldestGoes)
{
    const unsigned most = medium ? HK_CACHED_MEDIUM : HK_CACHED_LARGE;
    char *p = map(2 * (most + 1) * kPiece);
    for (unsigned i = 0; i <= most; i++)
        add(p + 2 * i * kPiece, kPiece);
    EXPECT_EQ(hk_mapping_cache_bytes(), most * kPiece);
    EXPECT_EQ(hk_mapping_cache_room(p, medium), 0u);
    EXPECT_EQ(hk_mapping_cache_room(p + 2 * kPiece, medium), kPiece);
    for (unsigned i = 0; i <= most; i++)
        unmap(p + (2 * i + 1) * kPiece, kPiece);
}

TEST_P(MappingCache, APurgeTakesTheOldestFirstAndOfTheLastWhatIsNeeded)
{
    char *p = map(5 * kPiece);
    add(p + 3 * kPiece, kPiece);
    add(p, kPiece);
    EXPECT_EQ(hk_mapping_cache_purge(0, 0, SIZE_MAX), 0u) << "none was freed so long ago";
    EXPECT_EQ(hk_mapping_cache_purge(kPiece / 2, UINT64_MAX, SIZE_MAX), kPiece + kPiece / 2);
    EXPECT_EQ(hk_mapping_cache_room(p + 3 * kPiece, medium), 0u);
    EXPECT_EQ(hk_mapping_cache_room(p, medium), kPiece / 2) << "what is left begins where it did";
    unmap(p + kPiece, 2 * kPiece);
    unmap(p + 4 * kPiece, kPiece);
}

INSTANTIATE_TEST_SUITE_P(Each, MappingCache, testing::Bool(), name_of);

} // namespace
