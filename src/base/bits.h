/* Bit operations on words and on bitmaps of words. */
#ifndef HK_BASE_BITS_H
#define HK_BASE_BITS_H

#include "base/base.h"

#define HK_WORD_BITS 64

HK_INLINE unsigned hk_lowest_bit64(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
HK_INLINE unsigned hk_lowest_bit32(uint32_t x) { return (unsigned)__builtin_ctz(x); }
HK_INLINE unsigned hk_highest_bit64(uint64_t x) { return 63u - (unsigned)__builtin_clzll(x); }
HK_INLINE unsigned hk_count_bits64(uint64_t x) { return (unsigned)__builtin_popcountll(x); }
HK_INLINE unsigned hk_count_bits32(uint32_t x) { return (unsigned)__builtin_popcount(x); }

HK_INLINE uint64_t hk_rotate_right64(uint64_t x, unsigned n) { return x >> n | x << (-n & 63); }

/* A mask of the n lowest bits, n in [0, 64]. */
HK_INLINE uint64_t hk_low_mask64(unsigned n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }
HK_INLINE uint32_t hk_low_mask32(unsigned n) { return n >= 32 ? ~0u : (1u << n) - 1; }

/* Those bits of [begin, end) of a bitmap that lie in word w, as a mask of that word. */
HK_INLINE uint64_t hk_word_mask64(unsigned w, unsigned begin, unsigned end)
{
    unsigned first = w * HK_WORD_BITS;
    return end <= first ? 0 : hk_low_mask64(end - first) & ~hk_low_mask64(begin <= first ? 0 : begin - first);
}

/* The length of the run of set bits of x that starts at bit `first`, which is set. */
HK_INLINE unsigned hk_run_length32(uint32_t x, unsigned first) { return hk_lowest_bit64(~((uint64_t)x >> first)); }

/* The positions at which a run of n set bits starts in x, n in [1, 32]. */
HK_INLINE uint32_t hk_runs32(uint32_t x, unsigned n)
{
    /* After each step bit i says that `have` bits from i on are set. */
    unsigned have = 1;
    while (x != 0 && have < n) {
        unsigned step = (unsigned)hk_min(n - have, have);
        x &= x >> step;
        have += step;
    }
    return x;
}

#endif
