/*
 * The hot path: malloc and free of blocks that the calling thread's magazines hold or take. Inlined into every public
 * function that wants it; everything else is a call of alloc.h. No lock, no atomic read-modify-write, no division, no
 * call, and no block is touched. A golden test holds the instructions.
 */
#ifndef HK_FRONT_HOT_PATH_H
#define HK_FRONT_HOT_PATH_H

#include "front/alloc.h"
#include "front/thread.h"
#include "heap/magazine.h"

/* Pops a block of a class; NULL if the magazine is empty. */
HK_INLINE void *hk_magazine_pop(unsigned cls)
{
    void **below = hk_self.top[cls] - 1; /* first, so that p can be loaded over the top's register */
    void *p = below[1];
    if (HK_LIKELY(p != NULL))
        hk_self.top[cls] = below;
    return p;
}

/* Pops a block of at least n bytes; NULL if these are more than a small block has, or the magazine is empty. */
HK_INLINE void *hk_small_pop(size_t n)
{
    return HK_LIKELY(n <= HK_SMALL_MAX) ? hk_magazine_pop(hk_class_of_small(n)) : NULL;
}

HK_INLINE void *hk_malloc_hot(size_t n)
{
    void *p = hk_small_pop(n);
    return HK_LIKELY(p != NULL) ? p : hk_malloc_slow(n);
}

HK_INLINE void hk_free_hot(void *p)
{
    size_t cls = hk_key_of(p) ^ hk_self.owner_key;
    if (HK_LIKELY(cls < HK_NCLASSES)) { /* the slab is mine */
        void **top = hk_self.top[cls];
        if (HK_LIKELY(*top != p && !hk_magazine_is_full(top))) {
            top[1] = p;
            hk_self.top[cls] = top + 1;
            return;
        }
    }
    hk_free_slow(p, cls);
}

#endif
