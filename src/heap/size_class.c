#include "heap/size_class.h"

#define HK_LOWEST_BIT(x) ((x) & -(x))
#define HK_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HK_MAX(a, b) ((a) > (b) ? (a) : (b))

#define HK_SLAB_BYTES(slots) ((slots)*HK_SLOT_SIZE)
#define HK_NBLOCKS(size, slots) HK_MIN(HK_SLAB_BYTES(slots) / (size), HK_SLAB_BLOCKS_MAX)
#define HK_TAIL(size, slots) (HK_SLAB_BYTES(slots) - HK_NBLOCKS(size, slots) * (size))

/* Where the first block begins differs from slab to slab (docs/decisions/025): by cache lines within a page, so that no
 * slab's first blocks lie on more pages. The heads of blocks that are pages and a line apart go on where those of the
 * slab before end. Blocks larger than a slot share no pages; theirs begin some pages on as well, as far as the tail
 * reaches, and so lie in many sets of the TLB. */
#define HK_PAGES_AND_A_LINE(size) ((size) > HK_COLOUR_PAGE && (size) % HK_COLOUR_PAGE == HK_CACHE_LINE)
#define HK_COLOUR_STEP(size, slots)                                              \
    (HK_PAGES_AND_A_LINE(size) ? HK_NBLOCKS(size, slots) * (size_t)HK_CACHE_LINE \
                               : HK_MAX(HK_CACHE_LINE, HK_LOWEST_BIT(size)))
#define HK_NCOLOURS(size, slots) (HK_MIN(HK_TAIL(size, slots), HK_COLOUR_PAGE - 1) / HK_COLOUR_STEP(size, slots) + 1)
#define HK_LAST_COLOUR(size, slots) ((HK_NCOLOURS(size, slots) - 1) * HK_COLOUR_STEP(size, slots))
#define HK_COLOUR_PAGES(size, slots) \
    ((size) > HK_SLOT_SIZE ? (HK_TAIL(size, slots) - HK_LAST_COLOUR(size, slots)) / HK_COLOUR_PAGE + 1 : 1)

/* Up to 127 blocks while they are within 32 KiB, and 63 within 64 KiB; but at least as many as fit into 1 MiB, up to
 * 32; 16 up to 256 KiB, and 8 above (docs/decisions/001 and 014). */
#define HK_MAGAZINE_LEAST(size) HK_MAX(HK_MIN(32, HK_MIB / (size)), (size) <= 257 * HK_KIB ? 16 : 8)
#define HK_MAGAZINE_SMALL(size) HK_MAX((32 * HK_KIB) / (size), HK_MIN(63, (64 * HK_KIB) / (size)))
#define HK_MAGAZINE_MAX(size) HK_MIN(127, HK_MAX(HK_MAGAZINE_SMALL(size), HK_MAGAZINE_LEAST(size)))

/* x is its odd part times 2^twos. */
#define HK_TWOS(x) __builtin_ctz(x)
#define HK_ODD(x) ((uint64_t)(x) >> __builtin_ctz(x))
/* Newton's iteration for an inverse modulo 2^64: x is its own inverse modulo 8, and each step doubles the bits. */
#define HK_NEWTON(x, inverse) ((inverse) * (2 - (x) * (inverse)))
#define HK_INVERSE(x) HK_NEWTON(x, HK_NEWTON(x, HK_NEWTON(x, HK_NEWTON(x, HK_NEWTON(x, x)))))

const struct hk_class hk_classes[HK_NCLASSES] = {
#define HK_CLASS(index, block_size, nslots)                                                          \
    [index] = {.reciprocal = (((uint64_t)1 << HK_RECIPROCAL_SHIFT) + (block_size)-1) / (block_size), \
               .odd_inverse = HK_INVERSE(HK_ODD(block_size)),                                        \
               .size = (block_size),                                                                 \
               .colour_step = HK_COLOUR_STEP(block_size, nslots),                                    \
               .nblocks = HK_NBLOCKS(block_size, nslots),                                            \
               .slots = (nslots),                                                                    \
               .ncolours = HK_NCOLOURS(block_size, nslots),                                          \
               .colour_pages = HK_COLOUR_PAGES(block_size, nslots),                                  \
               .magazine_max = HK_MAGAZINE_MAX(block_size),                                          \
               .twos = HK_TWOS(block_size)},
#include "heap/size_class.def"
#undef HK_CLASS
};

#define HK_CLASS(index, block_size, nslots)                                                              \
    _Static_assert((nslots) >= 1 && (nslots) <= HK_SLOTS_PER_SUPERSLAB, "a slab lies in one superslab"); \
    _Static_assert(HK_NBLOCKS(block_size, nslots) >= 1, "a slab holds a block");                         \
    _Static_assert((block_size) % HK_MIN_ALIGN == 0, "blocks are aligned");
#include "heap/size_class.def"
#undef HK_CLASS

/* The class of size 16 i, from the layout of the small classes: 16-byte steps, then eight to a doubling. */
#define HK_STEPS(s, doubling, first) ((first) + ((s) - (1u << (doubling)) - 1) / (1u << ((doubling)-3)))
#define HK_SMALL_AT(i)                         \
    ((i) == 0     ? 0                          \
     : (i) <= 8   ? (i)-1                      \
     : (i) <= 16  ? HK_STEPS(16 * (i), 7, 8)   \
     : (i) <= 32  ? HK_STEPS(16 * (i), 8, 16)  \
     : (i) <= 64  ? HK_STEPS(16 * (i), 9, 24)  \
     : (i) <= 128 ? HK_STEPS(16 * (i), 10, 32) \
                  : HK_STEPS(16 * (i), 11, 40))
#define HK_4(at, i) at(i), at((i) + 1), at((i) + 2), at((i) + 3)
#define HK_16(at, i) HK_4(at, i), HK_4(at, (i) + 4), HK_4(at, (i) + 8), HK_4(at, (i) + 12)
#define HK_64(at, i) HK_16(at, i), HK_16(at, (i) + 16), HK_16(at, (i) + 32), HK_16(at, (i) + 48)
#define HK_256(at, i) HK_64(at, i), HK_64(at, (i) + 64), HK_64(at, (i) + 128), HK_64(at, (i) + 192)

const uint8_t hk_class_table[HK_SMALL_MAX / HK_MIN_ALIGN + 1] = {HK_256(HK_SMALL_AT, 0u), HK_SMALL_AT(256u)};

/* The class of nominal sizes from i half KiB on, from the layout of the medium classes: 4 and 4.5 KiB, then four to a
 * doubling. */
#define HK_QUARTERS(i, doubling) (HK_CLASS_FIRST_MEDIUM + 2 + ((doubling)-3) * 4 + (((i) >> ((doubling)-2)) & 3))
#define HK_MEDIUM_AT(i)                       \
    ((i) < 8      ? HK_CLASS_FIRST_MEDIUM     \
     : (i) < 9    ? HK_CLASS_FIRST_MEDIUM + 1 \
     : (i) < 16   ? HK_QUARTERS(i, 3)         \
     : (i) < 32   ? HK_QUARTERS(i, 4)         \
     : (i) < 64   ? HK_QUARTERS(i, 5)         \
     : (i) < 128  ? HK_QUARTERS(i, 6)         \
     : (i) < 256  ? HK_QUARTERS(i, 7)         \
     : (i) < 512  ? HK_QUARTERS(i, 8)         \
     : (i) < 1024 ? HK_QUARTERS(i, 9)         \
                  : HK_QUARTERS(i, 10))
#define HK_1024(at, i) HK_256(at, i), HK_256(at, (i) + 256), HK_256(at, (i) + 512), HK_256(at, (i) + 768)

const uint8_t hk_class_table_medium[(HK_MEDIUM_MAX - HK_MEDIUM_PAD) >> HK_MEDIUM_STEP_SHIFT] = {
    HK_1024(HK_MEDIUM_AT, 0u), HK_1024(HK_MEDIUM_AT, 1024u)};

unsigned hk_class_of_aligned_large(size_t n, size_t alignment)
{
    if (alignment > HK_CLASS_ALIGN_MAX || n > HK_MEDIUM_MAX)
        return HK_NCLASSES;
    if (alignment <= HK_MEDIUM_PAD)
        return hk_class_of_medium(n); /* medium sizes are multiples of their pad */
    size_t size = hk_max(n, alignment);
    if (size > hk_classes[HK_NCLASSES - 1].size)
        return HK_NCLASSES;
    if (size <= HK_ALIGNED_CLASS_MIN)
        return HK_CLASS_FIRST_ALIGNED;
    return HK_CLASS_FIRST_ALIGNED + hk_highest_bit64(size - 1) + 1 - hk_highest_bit64(HK_ALIGNED_CLASS_MIN);
}
