/*
 * Size classes: which block size serves a request, and how a slab of a class is laid out.
 * All tables are constant, so that the first malloc of a process needs nothing to have run before it.
 */
#ifndef HK_HEAP_SIZE_CLASS_H
#define HK_HEAP_SIZE_CLASS_H

#include "base/bits.h"

#define HK_SMALL_MAX ((size_t)4096) /* the hot path looks the class of such sizes up in a table */
#define HK_MEDIUM_PAD 64u           /* on top of the nominal sizes of medium classes */
#define HK_MEDIUM_MAX (((size_t)1 << 20) + HK_MEDIUM_PAD)
#define HK_NCLASSES 90u
#define HK_CLASS_FIRST_MEDIUM 48u
#define HK_CLASS_FIRST_ALIGNED 82u
#define HK_ALIGNED_CLASS_MIN ((size_t)8 << 10) /* block size of the first aligned class */
#define HK_CLASS_ALIGN_MAX HK_SLOT_SIZE        /* slabs start at slots, so no class is aligned beyond that */

/* The bound that sizes the bitmaps: a slab of 16-byte blocks uses half its slot. */
#define HK_SLAB_BLOCKS_MAX 2048u

#define HK_RECIPROCAL_SHIFT 44

/* Where blocks start differs by cache lines within this, and by multiples of it: the page of most machines. */
#define HK_COLOUR_PAGE (4 * HK_KIB)

struct hk_class {
    uint64_t reciprocal;  /* ceil(2^44 / size): exact for offsets within a slab, see hk_class_index */
    uint64_t odd_inverse; /* of the size's odd part, modulo 2^64: see hk_class_quotient */
    uint32_t size;        /* of a block, in bytes */
    uint32_t colour_step; /* from one colour to the next, in bytes: keeps the size's natural alignment */
    uint16_t nblocks;     /* of a slab */
    uint8_t slots;        /* of a slab */
    uint8_t ncolours;     /* >= 1: places in a page where the first block may start */
    uint8_t colour_pages; /* >= 1: HK_COLOUR_PAGEs in which it may start */
    uint8_t magazine_max; /* blocks that a magazine of the class may hold */
    uint8_t twos;         /* the size is its odd part times 2^twos */
};

extern const struct hk_class hk_classes[HK_NCLASSES];

/* Class of a small size by (n + 15) / 16. */
extern const uint8_t hk_class_table[HK_SMALL_MAX / HK_MIN_ALIGN + 1];

HK_INLINE unsigned hk_class_of_small(size_t n) { return hk_class_table[(n + HK_MIN_ALIGN - 1) / HK_MIN_ALIGN]; }

/* Class of a medium size by its nominal size, in units of the least step between classes. */
#define HK_MEDIUM_STEP_SHIFT 9
extern const uint8_t hk_class_table_medium[(HK_MEDIUM_MAX - HK_MEDIUM_PAD) >> HK_MEDIUM_STEP_SHIFT];

/* n in (HK_SMALL_MAX, HK_MEDIUM_MAX]. */
HK_INLINE unsigned hk_class_of_medium(size_t n)
{
    return hk_class_table_medium[(n - 1 - HK_MEDIUM_PAD) >> HK_MEDIUM_STEP_SHIFT];
}

/* n <= HK_MEDIUM_MAX. */
HK_INLINE unsigned hk_class_of(size_t n) { return n <= HK_SMALL_MAX ? hk_class_of_small(n) : hk_class_of_medium(n); }

/* What hk_class_of_aligned says where n or the alignment is above HK_SMALL_MAX. */
unsigned hk_class_of_aligned_large(size_t n, size_t alignment);
/* The smallest class whose blocks hold n bytes and are all aligned; HK_NCLASSES if there is none.
 * alignment is a power of two. Small sizes are eight to a doubling: a multiple of an alignment is one of them, or lies
 * where all of them are multiples of that alignment. */
HK_INLINE unsigned hk_class_of_aligned(size_t n, size_t alignment)
{
    if (HK_LIKELY(n <= HK_SMALL_MAX && alignment <= HK_SMALL_MAX))
        return hk_class_of_small(hk_align_up(n + (n == 0), alignment));
    return hk_class_of_aligned_large(n, alignment);
}

/* The block in which an offset from the first block lies. With e = reciprocal * size - 2^44 < size the quotient is
 * exact while offset * e < 2^44; an offset is below 2^21, a size at most HK_MEDIUM_MAX. */
HK_INLINE uint32_t hk_class_index(const struct hk_class *cls, uint64_t offset)
{
    return (uint32_t)((offset * cls->reciprocal) >> HK_RECIPROCAL_SHIFT);
}

/* offset / size, if the size divides it; else more than any offset / size. Dividing by an odd number is multiplying by
 * its inverse; if it does not divide the offset, or the offset has bits below the size's lowest, upper bits of the
 * result are set (H. S. Warren, Hacker's Delight, 10-17: test for zero remainder after division by a constant). */
HK_INLINE uint64_t hk_class_quotient(const struct hk_class *cls, uint64_t offset)
{
    return hk_rotate_right64(offset * cls->odd_inverse, cls->twos);
}

#endif
