/* Size classes: exhaustively over all sizes, all alignments and all blocks. */
#include <gtest/gtest.h>

#include "c_begin.h"
#include "heap/heap.h"
#include "c_end.h"

namespace
{

constexpr unsigned kFirstMedium = HK_CLASS_FIRST_MEDIUM, kFirstAligned = HK_CLASS_FIRST_ALIGNED;

/* What the blocks of a class are all aligned to: the first lies at a slot's start or a multiple of colour_step
 * behind. */
size_t natural_alignment(const hk_class &c)
{
    size_t lowest = c.size & -c.size;
    return lowest < HK_SLOT_SIZE ? lowest : HK_SLOT_SIZE;
}

TEST(SizeClasses, GrowWithinTheirKind)
{
    for (unsigned i = 1; i < HK_NCLASSES; i++) {
        if (i != kFirstAligned) {
            EXPECT_GT(hk_classes[i].size, hk_classes[i - 1].size) << "class " << i;
        }
    }
    EXPECT_EQ(hk_classes[0].size, static_cast<uint32_t>(HK_MIN_ALIGN));
    EXPECT_EQ(hk_classes[kFirstMedium - 1].size, HK_SMALL_MAX);
    EXPECT_EQ(hk_classes[kFirstAligned - 1].size, HK_MEDIUM_MAX);
    EXPECT_EQ(hk_classes[kFirstAligned].size, HK_ALIGNED_CLASS_MIN);
}

TEST(SizeClasses, ServeEverySizeWithTheSmallestThatFits)
{
    unsigned expected = 0, wrong = 0;
    for (size_t n = 0; n <= HK_MEDIUM_MAX; n++) {
        while (hk_classes[expected].size < n)
            expected++;
        if (hk_class_of(n) != expected && ++wrong < 10)
            ADD_FAILURE() << n << " bytes: class " << hk_class_of(n) << ", not " << expected;
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(expected, kFirstAligned - 1);
}

/* The smallest of the classes [first, end) that holds n bytes and is aligned; end if none is. */
unsigned smallest_aligned(unsigned first, unsigned end, size_t n, size_t alignment)
{
    while (first < end && (hk_classes[first].size < n || natural_alignment(hk_classes[first]) < alignment))
        first++;
    return first;
}

TEST(SizeClasses, ServeEverySizeAtEveryAlignment)
{
    unsigned wrong = 0;
    for (size_t alignment = 1; alignment <= 4 * HK_CLASS_ALIGN_MAX; alignment *= 2) {
        size_t answered_to = 0; /* the last size for which `expected` holds */
        unsigned expected = 0;
        for (size_t n = 0; n <= HK_MEDIUM_MAX + 1; n++) {
            if (n == 0 || n > answered_to) {
                if (alignment > HK_CLASS_ALIGN_MAX)
                    expected = HK_NCLASSES;
                else if (n <= HK_SMALL_MAX && alignment <= HK_SMALL_MAX)
                    expected = smallest_aligned(0, kFirstMedium, n, alignment);
                else if (alignment <= HK_MEDIUM_PAD && n > HK_SMALL_MAX && n <= HK_MEDIUM_MAX)
                    expected = smallest_aligned(kFirstMedium, kFirstAligned, n, alignment);
                else
                    expected = smallest_aligned(kFirstAligned, HK_NCLASSES, n, alignment);
                answered_to = expected == HK_NCLASSES ? SIZE_MAX : hk_classes[expected].size;
            }
            unsigned got = hk_class_of_aligned(n, alignment);
            if (got != expected && ++wrong < 10)
                ADD_FAILURE() << n << " bytes at " << alignment << ": class " << got << ", not " << expected;
        }
    }
    EXPECT_EQ(wrong, 0u);
}

TEST(SizeClasses, HaveSlabsThatHoldTheirBlocks)
{
    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        const hk_class &c = hk_classes[i];
        SCOPED_TRACE(testing::Message() << "class " << i << ", " << c.size << " bytes");
        size_t blocks = static_cast<size_t>(c.nblocks) * c.size;
        ASSERT_GE(c.ncolours, 1u);
        ASSERT_GE(c.colour_pages, 1u);
        size_t last_colour = (c.ncolours - 1u) * static_cast<size_t>(c.colour_step);
        size_t last_page = (c.colour_pages - 1u) * 4 * HK_KIB;
        EXPECT_LE(last_page + last_colour + blocks, c.slots * HK_SLOT_SIZE) << "the last block with the last colour";
        EXPECT_LT(last_colour, 4096u) << "colours stay within a page";
        if (c.size <= HK_SLOT_SIZE) {
            EXPECT_EQ(c.colour_pages, 1u) << "those that share pages use no more of them";
        }
        EXPECT_LT(last_page + last_colour, HK_SLOT_SIZE) << "the first block begins in the first slot";
        EXPECT_LE(c.nblocks, HK_SLAB_BLOCKS_MAX);
        EXPECT_TRUE(c.nblocks == HK_SLAB_BLOCKS_MAX || blocks + c.size > c.slots * HK_SLOT_SIZE) << "one more fits";
        EXPECT_EQ(c.colour_step % natural_alignment(c), 0u) << "colours keep the alignment";
        EXPECT_EQ(c.size % HK_MIN_ALIGN, 0u);
        EXPECT_GE(c.magazine_max, 4u);
        EXPECT_LE(c.magazine_max, HK_MAGAZINE_BLOCKS_MAX);
    }
}

TEST(SizeClasses, GiveTheBlockOfEveryOffset)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        const hk_class &c = hk_classes[i];
        for (uint32_t block = 0; block < c.nblocks; block++) {
            uint64_t start = static_cast<uint64_t>(block) * c.size;
            for (uint64_t offset : {start, start + 1, start + c.size / 2, start + c.size - 1})
                if (hk_class_index(&c, offset) != block && ++wrong < 10)
                    ADD_FAILURE() << "class " << i << ": offset " << offset << " is in block " << block << ", not "
                                  << hk_class_index(&c, offset);
        }
    }
    EXPECT_EQ(wrong, 0u);
}

TEST(SizeClasses, DivideExactlyOrSayTheyCannot)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        const hk_class &c = hk_classes[i];
        for (uint64_t block = 0; block < c.nblocks; block++) {
            uint64_t start = block * c.size;
            wrong += hk_class_quotient(&c, start) != block;
            for (uint64_t inside : {uint64_t{1}, uint64_t{8}, uint64_t{16}, uint64_t{c.size} / 2, c.size - uint64_t{1}})
                wrong += inside < c.size && hk_class_quotient(&c, start + inside) < c.nblocks;
        }
        for (uint64_t before = 1; before <= HK_SLOT_SIZE; before++)
            wrong += hk_class_quotient(&c, -before) < c.nblocks;
        for (uint64_t far = c.nblocks * uint64_t{c.size}; far < UINT64_MAX / 3; far *= 3)
            wrong += hk_class_quotient(&c, far) < c.nblocks;
    }
    EXPECT_EQ(wrong, 0u);
}

TEST(SizeClasses, WasteLittle)
{
    const struct {
        size_t first, last;
        double most; /* of the bytes asked for */
    } bands[] = {{1, HK_SMALL_MAX, 0.05}, {129, HK_SMALL_MAX, 0.05}, {HK_SMALL_MAX + 1, HK_MIB, 0.09}};
    for (const auto &band : bands) {
        size_t asked = 0, wasted = 0;
        for (size_t n = band.first; n <= band.last; n++) {
            asked += n;
            wasted += hk_classes[hk_class_of(n)].size - n;
        }
        EXPECT_LE(static_cast<double>(wasted), band.most * static_cast<double>(asked))
            << band.first << " to " << band.last << " bytes";
    }
}

} // namespace
