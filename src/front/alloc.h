/*
 * The slow paths of allocation, and the operations that have no hot path. All keep errno, except that an allocation
 * that fails sets it to ENOMEM. `call` names the public function, for messages.
 */
#ifndef HK_FRONT_ALLOC_H
#define HK_FRONT_ALLOC_H

#include "base/fault.h"

/* What malloc does when the magazine of a small size is empty, and for all larger sizes. */
void *hk_malloc_slow(size_t n);
/* What free does when the block is not the calling thread's, when its magazine is full, and in all other cases. cls is
 * p's key XOR the thread's owner key: a size class only if the slab is the thread's. */
void hk_free_slow(void *p, size_t cls);

/* Sets errno to ENOMEM; returns NULL. */
void *hk_no_memory(void);
/* A block for what has grown beyond HK_GROWING_MIN and is likely to grow again: a mapping if it can be, which grows
 * without copying. */
void *hk_malloc_growing(size_t n);
/* Zeroed. */
void *hk_calloc_any(size_t count, size_t n);
/* alignment is a power of two. */
void *hk_malloc_aligned(size_t alignment, size_t n);
/* The same; an alignment that is not a power of two is not supported (C17 7.22.3.1), and errno EINVAL. */
void *hk_aligned_alloc(size_t alignment, size_t n);
/* As free; a size above the block's usable size is reported. */
void hk_free_sized(void *p, size_t n, const char *call);

/* The usable size of a block; 0 if p points neither into a slab nor to the start of a large block. Where in a slab p
 * points, and whether a block starts there, is not checked. */
size_t hk_usable_size(const void *p);
/* What may be used of a block that is allocated with n bytes. */
size_t hk_good_size(size_t n);

/* Allocates count blocks of n bytes. Returns how many; the rest of out is NULL. */
size_t hk_malloc_batch(size_t n, size_t count, void **out);
/* Frees count blocks, or NULLs, of whatever sizes. */
void hk_free_batch(void *const *blocks, size_t count);

#endif
