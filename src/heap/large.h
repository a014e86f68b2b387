/*
 * Large blocks: above 1 MiB, or aligned beyond a slot; and those above 128 KiB that realloc has made grow.
 *
 * A block of up to 64 MiB is a run of superslabs; a larger one, and one that realloc makes grow, is a mapping of its
 * own, which grows without copying: into what is cached behind it, into the stretch of address space that it lies in
 * (stretch.h), or by moving its pages. Each has a record; the key of the slot in which the block starts holds the
 * record's index. A block's record belongs to whoever owns the block; only the key is contended, by a double free, and
 * is taken with one compare-and-exchange. The key goes before the memory does, and comes back if the kernel refuses.
 */
#ifndef HK_HEAP_LARGE_H
#define HK_HEAP_LARGE_H

#include "heap/superslab.h"

#define HK_LARGE_RUN_MAX ((size_t)64 << 20)
/* What realloc makes grow beyond this becomes a mapping: a medium one up to HK_MEDIUM_MAX. */
#define HK_GROWING_MIN ((size_t)128 << 10)

enum hk_large_kind { HK_LARGE_ANY, HK_LARGE_MAPPING };

/* n bytes at a multiple of alignment, all zero if so wished. HK_LARGE_MAPPING asks for a mapping whatever the size.
 * NULL without memory. No lock held but a heap's. */
void *hk_large_alloc(size_t n, size_t alignment, enum hk_large_kind kind, bool zero);
/* True if the mappings for blocks of up to HK_MEDIUM_MAX are few enough for another, of n bytes. */
bool hk_large_takes_medium(size_t n);
/* Frees the block at p, which had a LARGE key. False, with a fault, if somebody was faster, or p points into it. */
bool hk_large_free(void *p, struct hk_fault *fault);
/* The usable size of the block at p, which had a LARGE key; 0 if p points into one, or another thread has freed it. */
size_t hk_large_usable(const void *p);
/* What is wrong with p then. */
struct hk_fault hk_large_fault(const void *p);
/* Whether the block at p is to stay a large one when realloc makes it hold n bytes, rather than go to a size class. */
bool hk_large_stays(const void *p, size_t n);
/* Makes the block that starts at p hold n bytes without moving it; false if it cannot, or none does. */
bool hk_large_resize(void *p, size_t n);
/* Makes the block at p, a mapping, hold n bytes, moving it without copying; NULL if it is none or there is no room. */
void *hk_large_remap(void *p, size_t n);
/* Unmaps cached mappings, oldest first, and of the last one what is needed, until `keep` bytes are left or `most` have
 * gone, and only those that were freed before a time of hk_os_now_ms. Returns bytes. */
size_t hk_large_purge(size_t keep, uint64_t freed_before_ms, size_t most);

struct hk_large_counts {
    size_t runs, mappings;           /* live blocks of each kind */
    size_t medium;                   /* mappings among them for blocks of at most HK_MEDIUM_MAX */
    size_t run_bytes, mapping_bytes; /* of runs what the program may use: the rest of them has mostly no memory */
    size_t allocs, frees, remaps, cache_hits, cached_bytes;
};
/* Allocations and frees so far; read without the lock. */
uint32_t hk_large_calls(void);
/* In the child of a fork: what other threads were mapping does not count. Lock held. */
void hk_large_after_fork(void);
/* A consistent copy. */
struct hk_large_counts hk_large_read_counts(void);

extern struct hk_lock hk_large_lock;

#endif
