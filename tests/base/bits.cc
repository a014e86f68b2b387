/* Bit operations, against the obvious. */
#include <gtest/gtest.h>

#include "c_begin.h"
#include "base/bits.h"
#include "c_end.h"

namespace
{

TEST(Bits, LowestHighestAndCount)
{
    for (unsigned i = 0; i < 64; i++)
        for (unsigned j = i; j < 64; j++) {
            uint64_t x = 1ull << i | 1ull << j;
            EXPECT_EQ(hk_lowest_bit64(x), i);
            EXPECT_EQ(hk_highest_bit64(x), j);
            EXPECT_EQ(hk_count_bits64(x), i == j ? 1u : 2u);
            if (j < 32) {
                EXPECT_EQ(hk_lowest_bit32(static_cast<uint32_t>(x)), i);
                EXPECT_EQ(hk_count_bits32(static_cast<uint32_t>(x)), i == j ? 1u : 2u);
            }
        }
    EXPECT_EQ(hk_count_bits64(0), 0u);
    EXPECT_EQ(hk_count_bits64(~0ull), 64u);
}

TEST(Bits, LowMasks)
{
    uint64_t mask = 0;
    for (unsigned n = 0; n <= 64; n++) {
        EXPECT_EQ(hk_low_mask64(n), mask) << n;
        EXPECT_EQ(hk_low_mask32(n), static_cast<uint32_t>(mask)) << n;
        mask = mask << 1 | 1;
    }
    EXPECT_EQ(hk_low_mask64(1000), ~0ull);
    for (unsigned begin = 0; begin < 200; begin++)
        for (unsigned end = 0; end < 200; end++)
            for (unsigned w = 0; w < 4; w++) {
                uint64_t bits = 0;
                for (unsigned i = begin; i < end; i++)
                    bits |= i / 64 == w ? 1ull << i % 64 : 0;
                ASSERT_EQ(hk_word_mask64(w, begin, end), bits) << w << ": " << begin << ", " << end;
            }
}

bool run_starts(uint32_t x, unsigned at, unsigned n)
{
    for (unsigned i = at; i < at + n; i++)
        if (i >= 32 || ((x >> i) & 1) == 0)
            return false;
    return true;
}

/* All patterns of 16 bits, at both ends of the word, and all lengths. */
TEST(Bits, RunsStartWhereNBitsAreSet)
{
    unsigned wrong = 0;
    for (uint32_t pattern = 0; pattern < 1u << 16; pattern += HK_TEST_SLOWDOWN)
        for (uint32_t x : {pattern, pattern << 16, pattern | ~0u << 16})
            for (unsigned n = 1; n <= 32; n++) {
                uint32_t expected = 0;
                for (unsigned at = 0; at + n <= 32; at++)
                    expected |= static_cast<uint32_t>(run_starts(x, at, n)) << at;
                if (hk_runs32(x, n) != expected && ++wrong < 10)
                    ADD_FAILURE() << std::hex << x << " has runs of " << std::dec << n << " at " << std::hex << expected
                                  << ", not " << hk_runs32(x, n);
            }
    EXPECT_EQ(wrong, 0u);
}

TEST(Bits, Rounding)
{
    for (size_t alignment : {1, 2, 16, 64, 4096, 65536})
        for (size_t n = 0; n < 3 * alignment; n += alignment < 8 ? 1 : alignment / 8)
            EXPECT_EQ(hk_align_up(n, alignment), (n + alignment - 1) / alignment * alignment);
    for (size_t n = 0; n < 5000; n++)
        EXPECT_EQ(hk_is_power_of_two(n), n != 0 && hk_count_bits64(n) == 1);
    EXPECT_TRUE(hk_is_power_of_two(size_t{1} << 63));
    EXPECT_FALSE(hk_is_power_of_two(SIZE_MAX));
}

} // namespace
