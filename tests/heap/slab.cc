/*
 * Slabs: bitmaps, indices, keys, for every class, at made-up addresses. No memory stands behind the blocks, so whatever
 * touched one would crash.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "c_begin.h"
#include "heap/heap.h"
#include "heap/slab.h"
#include "heap/superslab.h"
#include "c_end.h"
#include "slab_blocks.h"

namespace
{

char *const kBase = reinterpret_cast<char *>(0x123456600000); /* a multiple of 2 MiB, which the kernel gives nobody */

struct hk_slot_table table __attribute__((aligned(4096)));
struct hk_superslab superslab;
struct hk_heap owner, other;

/* Before all tests, the slot table and the keys of one superslab. */
class MadeUpSuperslab : public testing::Environment
{
    void SetUp() override
    {
        owner.key = 77u << HK_KEY_SHIFT;
        other.key = 78u << HK_KEY_SHIFT;
        superslab.base = kBase;
        superslab.table = &table;
        ASSERT_TRUE(hk_window_prepare(kBase, HK_SUPERSLAB_SIZE));
        hk_window_set_superslab(kBase, &superslab);
        for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++) {
            table.slabs[i].slot = static_cast<uint8_t>(i);
            table.slabs[i].superslab = &superslab;
        }
    }
};
testing::Environment *const kEnvironment = testing::AddGlobalTestEnvironment(new MadeUpSuperslab);

/* Once for each class. */
class Slab : public testing::TestWithParam<unsigned>
{
  protected:
    const hk_class &c = hk_classes[GetParam()];
    /* The last place at which the slab fits: its colour is not zero, if the class has any. */
    hk_slab *slab = &table.slabs[HK_SLOTS_PER_SUPERSLAB - c.slots];
    char *slots = kBase + (HK_SLOTS_PER_SUPERSLAB - c.slots) * HK_SLOT_SIZE;

    void set_touched(size_t bytes)
    {
        for (unsigned i = 0; i < c.slots; i++) {
            hk_slab_slots(slab)[i].touched = static_cast<uint32_t>(std::min(bytes, HK_SLOT_SIZE));
            bytes -= hk_slab_slots(slab)[i].touched;
        }
    }
    size_t touched() const
    {
        size_t end = 0;
        for (unsigned i = 0; i < c.slots; i++)
            if (hk_slab_slots(slab)[i].touched != 0)
                end = i * HK_SLOT_SIZE + hk_slab_slots(slab)[i].touched;
        return end;
    }
    void init()
    {
        set_touched(0);
        hk_slab_init(slab, GetParam(), &owner);
    }
    std::vector<void *> take(unsigned want)
    {
        std::vector<void *> blocks = take_blocks(slab, want);
        hk_slab_check(slab);
        return blocks;
    }
    unsigned put(const std::vector<void *> &blocks)
    {
        unsigned n = hk_slab_put(slab, &c, blocks.data(), static_cast<unsigned>(blocks.size()));
        hk_slab_check(slab);
        return n;
    }
    hk_fault index_fault(const void *p)
    {
        hk_fault fault{};
        unsigned index;
        EXPECT_FALSE(hk_slab_index(slab, p, &index, &fault));
        return fault;
    }
    /* Indices around the boundaries of bitmap words, and the last ones. */
    std::vector<unsigned> interesting() const
    {
        std::vector<unsigned> found;
        for (unsigned i = 0; i < c.nblocks; i++)
            if (i % 64 <= 1 || i % 64 >= 62 || i + 2 >= c.nblocks)
                found.push_back(i);
        return found;
    }
};

TEST_P(Slab, BeginsWithAllBlocksFree)
{
    init();
    hk_slab_check(slab);
    EXPECT_EQ(slab->nfree, c.nblocks);
    EXPECT_TRUE(hk_slab_is_empty(slab));
    EXPECT_EQ(hk_slab_owner(slab), &owner);
    for (unsigned i = 0; i < c.nblocks; i++)
        ASSERT_TRUE(hk_slab_is_free(slab, i)) << i;
    uint64_t *words = slab->free;
    EXPECT_EQ(words == &slab->free_word, c.nblocks <= 64) << "a bitmap of one word is in the descriptor's first line";
    EXPECT_EQ(words == slab->free_words, c.nblocks > 64 && c.nblocks <= HK_SLAB_WORDS_NEAR * HK_WORD_BITS)
        << "a short one in the second";
    if (c.nblocks % 64 != 0) {
        EXPECT_EQ(words[c.nblocks / 64] >> (c.nblocks % 64), 0u) << "bits behind the last block";
    }
    for (unsigned i = 0; i < c.slots; i++) {
        EXPECT_EQ(hk_key_of(slots + i * HK_SLOT_SIZE), owner.key | GetParam());
        EXPECT_EQ(hk_slab_of(slots + i * HK_SLOT_SIZE + 12345), slab);
    }
}

TEST_P(Slab, LiesInItsSlotsAndIsAligned)
{
    init();
    EXPECT_GE(slab->blocks, slots);
    EXPECT_LE(static_cast<char *>(hk_slab_block(slab, c.nblocks - 1u)) + c.size, slots + c.slots * HK_SLOT_SIZE);
    size_t alignment = std::min<size_t>(c.size & -c.size, HK_SLOT_SIZE);
    for (unsigned i : interesting())
        EXPECT_EQ(reinterpret_cast<uintptr_t>(hk_slab_block(slab, i)) % alignment, 0u) << i;
}

/* So that the heads of equal blocks lie in many sets of the caches. */
TEST_P(Slab, HasAnotherColourThanThoseBeforeIt)
{
    std::set<ptrdiff_t> starts, pages;
    std::set<uintptr_t> lines;
    unsigned number = 0;
    for (unsigned first = 0; first + c.slots <= HK_SLOTS_PER_SUPERSLAB; first += c.slots, number++) {
        hk_slab *next = &table.slabs[first];
        hk_slab_init(next, GetParam(), &owner);
        ptrdiff_t start = next->blocks - (kBase + first * HK_SLOT_SIZE);
        starts.insert(start);
        pages.insert(start / 4096);
        for (unsigned i = 0; i < c.nblocks; i++)
            lines.insert(reinterpret_cast<uintptr_t>(hk_slab_block(next, i)) / HK_CACHE_LINE % 64);
    }
    EXPECT_EQ(starts.size(), std::min<size_t>(number, std::lcm(c.ncolours, c.colour_pages)));
    EXPECT_EQ(pages.size(), std::min<size_t>(number, c.colour_pages));
    if (c.size > 4096 && c.size % 4096 == HK_CACHE_LINE) {
        EXPECT_GE(lines.size(), std::min(number * c.nblocks, 64u) * 9 / 10);
    }
}

TEST_P(Slab, TakesLowestAddressesFirst)
{
    init();
    unsigned next = 0;
    for (unsigned want = 1; next < c.nblocks; want = want % 97 + 1) {
        std::vector<void *> blocks = take(want);
        ASSERT_EQ(blocks.size(), std::min<size_t>(want, c.nblocks - next));
        for (void *p : blocks) {
            unsigned index;
            hk_fault fault{};
            ASSERT_EQ(p, hk_slab_block(slab, next));
            ASSERT_TRUE(hk_slab_index(slab, p, &index, &fault));
            ASSERT_EQ(index, next);
            ASSERT_FALSE(hk_slab_is_free(slab, next));
            next++;
        }
        EXPECT_EQ(slab->nfree, c.nblocks - next);
        EXPECT_EQ(slab->fresh_from, next);
    }
    EXPECT_EQ(slab->nonempty, 0u);
    EXPECT_TRUE(take(1).empty());
}

TEST_P(Slab, GivesBackExactlyWhatWasPut)
{
    init();
    take(c.nblocks);
    std::vector<unsigned> indices = interesting();
    for (unsigned i : indices) {
        ASSERT_TRUE(put_block(slab, i)) << i;
        hk_slab_check(slab);
        ASSERT_FALSE(put_block(slab, i)) << i << " twice";
        hk_slab_check(slab);
    }
    EXPECT_EQ(slab->nfree, indices.size());
    std::vector<void *> again = take(HK_SLAB_BLOCKS_MAX);
    ASSERT_EQ(again.size(), indices.size());
    for (size_t i = 0; i < again.size(); i++)
        EXPECT_EQ(again[i], hk_slab_block(slab, indices[i]));
}

TEST_P(Slab, PutsBlocksInAnyOrder)
{
    std::mt19937 random(1);
    for (const char *order : {"up", "down", "shuffled", "every third"}) {
        init();
        std::vector<void *> blocks = take(c.nblocks);
        if (order[0] == 'd')
            std::reverse(blocks.begin(), blocks.end());
        if (order[0] == 's')
            std::shuffle(blocks.begin(), blocks.end(), random);
        if (order[0] == 'e')
            for (size_t i = 0; i < blocks.size(); i++)
                blocks.erase(blocks.begin() + i + 1, blocks.begin() + std::min(i + 3, blocks.size()));
        EXPECT_EQ(put(blocks), blocks.size()) << order;
        EXPECT_EQ(put(blocks), 0u) << order << ", twice";
        std::sort(blocks.begin(), blocks.end());
        EXPECT_EQ(take(c.nblocks), blocks) << order;
    }
}

/* Rows go by the word, wherever they begin and end; what only looks like one goes block by block. */
TEST_P(Slab, PutsRows)
{
    for (unsigned first : {0u, 1u, 5u, 57u, 63u, 64u, 100u, 127u})
        for (unsigned n : {HK_ROW_MIN - 1, HK_ROW_MIN, 63u, 64u, 65u, 127u, 128u, 190u}) {
            if (first + n > c.nblocks)
                continue;
            init();
            std::vector<void *> all = take(c.nblocks), row(all.begin() + first, all.begin() + first + n);
            std::vector<void *> down(row.rbegin(), row.rend());
            ASSERT_EQ(put(first % 2 == 0 ? row : down), n) << first << ", " << n;
            EXPECT_EQ(put(row), 0u) << "a second time";
            EXPECT_EQ(put(down), 0u);
            ASSERT_EQ(take(c.nblocks), row) << first << ", " << n;
            std::swap(row[1], row[n - 2]);
            EXPECT_EQ(put(row), n) << "the ends of a row";
            EXPECT_EQ(slab->nfree, n);
            take(c.nblocks);
            std::swap(row[1], row[n - 2]);
            ASSERT_TRUE(put_block(slab, first + n / 2));
            EXPECT_EQ(put(row), n / 2) << "one of them is free";
            EXPECT_EQ(slab->nfree, n / 2 + 1);
            take(c.nblocks);
            row[n / 2] = static_cast<char *>(row[n / 2]) + 1;
            EXPECT_EQ(put(row), n / 2) << "one of them is none";
        }
    if (c.nblocks < HK_ROW_MIN)
        return;
    init();
    std::vector<void *> last = take(c.nblocks);
    last.erase(last.begin(), last.end() - HK_ROW_MIN / 2);
    while (last.size() < HK_ROW_MIN)
        last.push_back(static_cast<char *>(last.back()) + c.size);
    EXPECT_EQ(put(last), HK_ROW_MIN / 2) << "beyond the last block";
}

TEST_P(Slab, PutsNoneFromWhatIsNoBlockInUseOn)
{
    init();
    std::vector<void *> all = take(c.nblocks);
    if (c.nblocks < 4)
        return;
    ASSERT_TRUE(put_block(slab, 2));
    EXPECT_EQ(put({all[0], all[1], all[2], all[3]}), 2u) << "up to a block that is free";
    EXPECT_EQ(put({all[2], all[3]}), 0u);
    EXPECT_EQ(put({all[3], all[2]}), 1u);
    EXPECT_EQ(slab->nfree, 4u);
    take(4);
    EXPECT_EQ(put({all[1], all[1], all[2]}), 1u) << "once";
    void *behind = slab->blocks + static_cast<size_t>(c.nblocks) * c.size;
    EXPECT_EQ(put({all.back(), behind}), 1u) << "behind the last block there is none";
    EXPECT_EQ(put({behind, all.back()}), 0u);
    EXPECT_EQ(put({all[0], slab->blocks - c.size}), 1u) << "before the first there is none";
    EXPECT_EQ(put({all[2], static_cast<char *>(all[3]) + 1}), 1u) << "nor between two";
    EXPECT_EQ(slab->nfree, 4u);
    hk_slab_check(slab);
}

TEST_P(Slab, PutsWordsAndSaysWhichWereFree)
{
    init();
    take(c.nblocks);
    for (unsigned w = 0; w < hk_slab_nwords(slab); w++) {
        uint64_t all = hk_low_mask64(c.nblocks - w * 64u), odd = all & 0xaaaaaaaaaaaaaaaa;
        unsigned before = slab->nfree;
        EXPECT_EQ(hk_slab_put_word(slab, w, 0), 0u);
        EXPECT_EQ(hk_slab_put_word(slab, w, odd), 0u);
        hk_slab_check(slab);
        EXPECT_EQ(hk_slab_put_word(slab, w, all), odd) << "of word " << w;
        hk_slab_check(slab);
        EXPECT_EQ(slab->nfree - before, hk_count_bits64(all));
    }
    EXPECT_TRUE(hk_slab_is_empty(slab));
}

TEST_P(Slab, KnowsTheBlocksThatWereNeverHandedOut)
{
    init();
    EXPECT_EQ(slab->fresh_from, 0);
    EXPECT_EQ(hk_slab_nidle(slab), 0u);
    if (c.nblocks < 4)
        return;
    take(3);
    EXPECT_EQ(hk_slab_nidle(slab), 0u);
    put_block(slab, 0);
    put_block(slab, 2);
    EXPECT_NE(hk_slab_nidle(slab), 0u);
    EXPECT_EQ(slab->fresh_from, 3) << "blocks that came back were handed out";
    take(2);
    EXPECT_EQ(slab->fresh_from, 3);
    take(1);
    EXPECT_EQ(slab->fresh_from, 4);
}

/* What a slab leaves in its slots is not zero for the next, of whatever class: its blocks are fresh from there on. */
TEST_P(Slab, LeavesItsSlotsWithWhatItTouched)
{
    for (unsigned n : {0u, 1u, c.nblocks / 2u, unsigned{c.nblocks}}) {
        init();
        std::vector<void *> blocks = take(n);
        size_t end = n == 0 ? 0 : static_cast<char *>(blocks.back()) + c.size - slots;
        for (unsigned i = 0; i < n; i++)
            put_block(slab, i);
        hk_slab_fini(slab);
        EXPECT_EQ(touched(), end);
        hk_slab_init(slab, GetParam(), &owner);
        EXPECT_EQ(slab->fresh_from, n);
        hk_slab_fini(slab);
        EXPECT_EQ(touched(), end) << "a slab that hands out nothing changes nothing";
    }
    for (size_t before : {size_t{1}, size_t{4096}, HK_SLOT_SIZE, c.slots * HK_SLOT_SIZE}) {
        set_touched(before);
        hk_slab_init(slab, GetParam(), &owner);
        for (unsigned i : interesting()) {
            size_t start = static_cast<char *>(hk_slab_block(slab, i)) - slots;
            EXPECT_EQ(i >= slab->fresh_from, start >= before) << "block " << i << ", " << before << " bytes touched";
        }
        hk_slab_fini(slab);
        EXPECT_GE(touched(), before) << "a slab that touches less leaves what was touched before it";
    }
}

TEST_P(Slab, TakesAPointerForABlockOnlyAtItsStart)
{
    init();
    for (unsigned i : interesting()) {
        auto *block = static_cast<char *>(hk_slab_block(slab, i));
        for (size_t offset : {size_t{1}, size_t{8}, size_t{c.size} / 2, size_t{c.size} - 1}) {
            hk_fault fault = index_fault(block + offset);
            ASSERT_EQ(fault.kind, HK_FAULT_INSIDE) << i << " + " << offset;
            EXPECT_EQ(fault.ptr, block + offset);
            EXPECT_EQ(fault.block, block);
            EXPECT_EQ(fault.block_size, c.size);
        }
    }
    char *end = slab->blocks + static_cast<size_t>(c.nblocks) * c.size;
    for (const char *p : {slab->blocks - 1, slab->blocks - 16, end, end + 16})
        EXPECT_EQ(index_fault(p).kind, HK_FAULT_FOREIGN) << p - slab->blocks;
}

TEST_P(Slab, ChangesOwnersWithItsKeys)
{
    init();
    hk_slab_set_owner(slab, &other);
    EXPECT_EQ(hk_slab_owner(slab), &other);
    for (unsigned i = 0; i < c.slots; i++)
        EXPECT_EQ(hk_key_of(slots + i * HK_SLOT_SIZE), other.key | GetParam());
}

TEST_P(Slab, LeavesAKeyThatSaysWhatWasThere)
{
    init();
    take(1);
    put_block(slab, 0);
    hk_slab_fini(slab);
    EXPECT_EQ(hk_slab_owner(slab), nullptr);
    for (unsigned i = 0; i < c.slots; i++) {
        hk_key key = hk_key_of(slots + i * HK_SLOT_SIZE);
        EXPECT_EQ(hk_key_kind(key), static_cast<unsigned>(HK_KEY_GONE));
        EXPECT_EQ(hk_key_index(key), GetParam());
    }
    hk_slab *found;
    hk_fault fault{};
    EXPECT_FALSE(hk_slab_of_or_fault(slots, &found, &fault));
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.block_size, c.size);
}

INSTANTIATE_TEST_SUITE_P(Class, Slab, testing::Range(0u, HK_NCLASSES));

TEST(Slabs, OfTwoSlotsDoNotShareBitmaps)
{
    hk_slab *first = &table.slabs[0], *second = &table.slabs[1];
    hk_slab_init(first, 1, &owner);
    hk_slab_init(second, 1, &other);
    EXPECT_EQ(take_blocks(first, HK_SLAB_BLOCKS_MAX).size(), hk_classes[1].nblocks);
    EXPECT_EQ(second->nfree, hk_classes[1].nblocks);
    hk_slab_check(second);
    EXPECT_EQ(hk_slab_of(kBase + HK_SLOT_SIZE - 1), first);
    EXPECT_EQ(hk_slab_of(kBase + HK_SLOT_SIZE), second);
}

} // namespace
