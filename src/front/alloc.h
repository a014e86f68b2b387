/*
 * The slow paths of allocation, and the operations that have no hot path. All keep errno, except that an allocation
 * that fails sets it to ENOMEM. `call` names the public function, for messages.
 */
#ifndef HK_FRONT_ALLOC_H
#define HK_FRONT_ALLOC_H

#include "heap/purge.h"

/* What malloc does when the magazine of a small size is empty, and for all larger sizes. */
void *hk_malloc_slow(size_t n);
/* What free does with a block that is not the calling thread's, when its magazine is full, and with all else. class is
 * p's key without the thread's owner key: a class only if the slab is the thread's. */
void hk_free_slow(void *p, size_t class);

/* Sets errno to ENOMEM; returns NULL. */
void *hk_no_memory(void);
/* A block for what has grown beyond HK_GROWING_MIN and is likely to grow again: a mapping if it can be, which grows
 * without copying. */
void *hk_malloc_growing(size_t n);
/* Zeroed. */
void *hk_calloc_any(size_t count, size_t n);
/* alignment is a power of two. */
void *hk_malloc_aligned(size_t alignment, size_t n);
/* In realloc.c. As realloc: NULL allocates, n == 0 frees. */
void *hk_realloc_any(void *p, size_t n, const char *call);
/* In realloc.c. True if p holds n bytes after the call, without having moved. */
bool hk_expand_block(void *p, size_t n);

/* As free. */
void hk_free_any(void *p, const char *call);
/* The same; reports a size above what may be used. */
void hk_free_with_size(void *p, size_t n, const char *call);

/* Bytes of a block that may be used; 0 for what is in no block. p may point anywhere into a block of a slab. */
size_t hk_usable(const void *p);
/* What may be used of a block that is allocated with n bytes. */
size_t hk_good(size_t n);

/* Allocates count blocks of n bytes. Returns how many; the rest of out is NULL. */
size_t hk_malloc_many(size_t n, size_t count, void **out);
/* Frees count blocks, or NULLs, of whatever sizes. */
void hk_free_many(void *const *blocks, size_t count);

/* Gives what the calling thread's magazines and outbox hold back to the slabs. */
void hk_thread_rest(void);
/* Makes n superslabs ready for blocks of a class; see hk_pool_prewarm. Populated ones stay until
 * hk_trim(HK_PURGE_ALL). */
size_t hk_prewarm_superslabs(size_t n, unsigned class, bool populate);
/* Makes memory for count blocks of n bytes ready; for how many there is. */
size_t hk_prewarm(size_t n, size_t count);
/* Gives idle memory of all threads back to the OS, and with HK_PURGE_ALL first what the caller's magazines hold; `pad`
 * bytes may stay. Returns bytes. */
size_t hk_trim(enum hk_purge_level level, size_t pad);

#endif
