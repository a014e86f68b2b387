/*
 * Superslabs: 2 MiB each, the currency between hakmem and the OS, and the runs of them.
 *
 * A superslab is FREE (part of a free run), CARVED (cut into slots, which the pool manages), LARGE (part of a large
 * block), or PURGING (its memory is being given back without the lock; nobody may take it). Address space is reserved
 * without access, several superslabs at a time, and committed as it is used; a free superslab keeps its memory for a
 * while: those that do form the LRU cache, bounded by count, bytes and age.
 *
 * Invariants of free runs: neighbours in address space that are both FREE belong to the same run; the first and the
 * last superslab of a run know its length; a run is in the list of its length, those with resident memory in front.
 *
 * Everything here is guarded by hk_pool_lock, except what is constant and where it says otherwise.
 */
#ifndef HK_HEAP_SUPERSLAB_H
#define HK_HEAP_SUPERSLAB_H

#include "base/list.h"
#include "base/lock.h"
#include "heap/slab.h"

enum hk_superslab_state { HK_SUPERSLAB_FREE, HK_SUPERSLAB_CARVED, HK_SUPERSLAB_LARGE, HK_SUPERSLAB_PURGING };

struct hk_superslab {
    char *base;                       /* constant */
    struct hk_slot_table *table;      /* NULL until first carved, constant then; FREE: what it says may be lost */
    struct hk_superslab *next, *prev; /* FREE, first of its run: the list of the run's length; CARVED: the pool's bin */
    struct hk_superslab *newer, *older; /* in the LRU cache, if FREE and resident */
    uint64_t freed_at_ms;
    uint32_t run;          /* FREE, first and last of a run: its length */
    uint32_t run_resident; /* FREE, first of a run: superslabs of it with resident memory */
    uint32_t active;       /* CARVED: slots in use */
    uint32_t empty;        /* CARVED: slots EMPTY, with memory; the other free ones are UNUSED and zero. FREE: what had
                              memory, for when it is carved again, unless it loses it or is a large block's first */
    uint32_t purging;      /* CARVED: slots PURGING; if ACTIVE as well, the superslab is being prewarmed */
    uint32_t purged;       /* CARVED: UNUSED slots that had memory */
    uint32_t populated;    /* CARVED: EMPTY slots that no slab has used since the superslab was populated */
    uint8_t state;         /* enum hk_superslab_state */
    uint8_t bin;           /* CARVED: longest run of free slots, in the pool */
    bool committed;        /* readable and writable */
    bool resident;         /* FREE: may have memory */
    bool zero;             /* FREE or just acquired: reads as zeros */
    bool long_runs;        /* CARVED: for slabs of many slots alone; FREE: what it was for last */
    bool huge;             /* advised for huge pages (huge_pages.h); may be read without the lock */
    bool was_huge;         /* ever */
    bool populating;       /* CARVED: being populated; set under the lock, taken back without it */
    bool was_large;        /* a large block was here since it was last carved: of its keys only the first may be set */
};

HK_LIST(hk_superslab, struct hk_superslab) /* hk_superslab_link, hk_superslab_unlink */

extern struct hk_lock hk_pool_lock;

HK_INLINE unsigned hk_slot_number(const void *p)
{
    return (unsigned)((uintptr_t)p >> HK_SLOT_SHIFT) % HK_SLOTS_PER_SUPERSLAB;
}

/* True if a superslab that is to be carved knows nothing of slots that it had before. */
HK_INLINE bool hk_superslab_forgot_slots(const struct hk_superslab *superslab)
{
    return superslab->zero || superslab->was_large;
}

HK_INLINE bool hk_superslab_is_huge(const struct hk_superslab *superslab) { return hk_look(&superslab->huge); }

/* The slab of a pointer whose key says that it is in one of the class. */
HK_INLINE struct hk_slab *hk_slab_at(const void *p, const struct hk_class *cls)
{
    struct hk_slot_table *table = hk_superslab_at(p)->table;
    unsigned slot = hk_slot_number(p);
    return &table->slabs[cls->slots == 1 ? slot : slot - hk_slot_head(&table->slots[slot])];
}

/* The slab in whose slots p lies, for a pointer that may be anything. NULL if it has no key of a slab, or a stale one
 * that has outlived its superslab. */
HK_INLINE struct hk_slab *hk_slab_of(const void *p)
{
    hk_key key = hk_key_of_any(p);
    if (!hk_key_is_slabs(key))
        return NULL;
    const struct hk_superslab *superslab = hk_superslab_at(p);
    return superslab != NULL && superslab->table != NULL ? hk_slab_at(p, &hk_classes[hk_key_kind(key)]) : NULL;
}

/* Asks how much address space there may be, before a sandbox refuses the call. The first reservation asks, too. */
void hk_superslabs_read_limit(void);
/* The first of n adjacent superslabs, committed, in state `state`; NULL without memory. Lock held. */
struct hk_superslab *hk_superslabs_acquire(size_t n, enum hk_superslab_state state);
/* Takes the n superslabs after a run of `have` that starts at first, if they are free. Lock held. */
bool hk_superslabs_extend(struct hk_superslab *first, size_t have, size_t n);
/* Gives n superslabs back. resident: they may have memory; otherwise they read as zeros. Lock held. */
void hk_superslabs_release(struct hk_superslab *first, size_t n, bool resident);
/* The superslab n places further on. */
HK_INLINE struct hk_superslab *hk_superslab_next(const struct hk_superslab *superslab, size_t n)
{
    return hk_superslab_of(superslab->base + n * HK_SUPERSLAB_SIZE);
}

/* Purges cached superslabs, oldest first: `most` at most, until `keep` are left, and only those that were freed before
 * a time of hk_os_now_ms. Returns bytes. Takes the lock, and drops it for madvise. */
size_t hk_superslabs_purge(size_t keep, uint64_t freed_before_ms, size_t most);
/* How many may be cached now: at first few, then as many as were wanted again; and how many the options allow at
 * most. */
size_t hk_superslabs_max_cached(void);
size_t hk_superslabs_most_cached(void);
/* Unmaps free runs, unless too many pieces were left, and what is reserved beyond: gives address space and commit charge
 * back. scarce: they have run out, so that no more will be reserved than is needed. True if something went. Lock not
 * held. */
bool hk_superslabs_unmap_free(bool scarce);

/* Prewarming: of slots and superslabs that lie idle as many bytes stay as were made ready at a time, and as are being
 * made ready, until they are forgotten; within the options' bound. No lock is needed. */
void hk_prewarmed_begin(size_t bytes);
void hk_prewarmed_end(size_t bytes, size_t done);
void hk_prewarmed_forget(void);
size_t hk_prewarmed_bytes(void);

/* In the child of a fork: what another thread was purging is free again. Lock held. */
void hk_superslabs_after_fork(void);

struct hk_superslab_counts {
    size_t reserved; /* superslabs of address space */
    size_t carved, large, free, cached;
    size_t huge, were_huge; /* advised for huge pages now, or ever */
    size_t cached_peak, purged, unmapped;
};
extern struct hk_superslab_counts hk_superslab_counts; /* guarded by hk_pool_lock */

/* Bytes of cached superslabs, and of those of large blocks; without the lock they may be outdated. */
HK_INLINE size_t hk_cached_bytes(void) { return hk_look(&hk_superslab_counts.cached) * HK_SUPERSLAB_SIZE; }
HK_INLINE size_t hk_large_run_bytes(void) { return hk_look(&hk_superslab_counts.large) * HK_SUPERSLAB_SIZE; }
/* True if more are cached than the options allow; takes no lock, may be outdated. */
HK_INLINE bool hk_superslabs_are_too_many(void)
{
    size_t cached = hk_look(&hk_superslab_counts.cached);
    return HK_UNLIKELY(cached != 0) && cached > hk_superslabs_max_cached();
}

#endif
