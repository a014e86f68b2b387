/*
 * The shared pool: the slots of carved superslabs, shared by all heaps and all classes.
 *
 * A slot is UNUSED (untouched: zero, no memory), ACTIVE (part of a slab, or in a heap's warm pool), EMPTY (was used,
 * its memory is still there, its class remembered) or PURGING. Acquiring a slot goes through three stages: an EMPTY
 * one, of those that the heap gave back itself before others, and of the same class; an UNUSED one in the superslab
 * whose longest run of free slots is the shortest; a superslab from the LRU cache or the OS. A run of slots comes from
 * the LRU cache before it comes from UNUSED slots. Long runs, for slabs of the largest classes, have superslabs in
 * which others take no slots (docs/decisions/019-long-runs.md). A superslab none of whose slots is ACTIVE any more goes
 * back (superslab.h).
 */
#ifndef HK_HEAP_POOL_H
#define HK_HEAP_POOL_H

#include "heap/superslab.h"

/* Acquires one slot for the heap with this key, preferably one that the class used last; if other threads want the
 * pool's lock at the same time, up to `want` slots, all but the first of which were EMPTY. Returns how many. Adds to
 * *grown the bytes of those that have memory which nobody has used yet (huge_pages.h). Takes the pool's lock. */
unsigned hk_pool_acquire_slots(hk_key key, unsigned cls, struct hk_slab **out, unsigned want, size_t *grown);
/* Acquires the run of slots that a slab of the class needs; its first one, or NULL. *grown and the lock as above. */
struct hk_slab *hk_pool_acquire_run(hk_key key, unsigned cls, size_t *grown);
/* Superslabs to be made ready for a class. */
struct hk_prewarm {
    size_t superslabs;
    unsigned cls;
};
/* Makes superslabs ready, `most` at most for all wishes together: in the LRU cache if they are populated (their pages
 * faulted in), their slots as if last used by the class. Returns how many there was memory for, the first wish served
 * first. Takes the pool's lock, and drops it meanwhile. */
size_t hk_pool_prewarm(const struct hk_prewarm *wishes, unsigned nwishes, size_t most, bool populate);
/* Gives back the slots of a slab after hk_slab_fini. Takes the lock. */
void hk_pool_release_run(struct hk_slab *slab, unsigned nslots);
/* Gives back n warm slots, the last of which will be the first to serve again. Takes the lock. */
void hk_pool_release_slots(struct hk_slab *const *slots, unsigned n);
/* Gives the memory of slots back that have been EMPTY since before a time of the coarse clock: about `most` bytes at
 * most, and until `keep` bytes are left EMPTY. Returns bytes. Takes the pool's lock, and drops it for madvise. */
size_t hk_pool_purge(uint32_t empty_before, size_t keep, size_t most);
/* The same, as a payment for growth: of slots that have been EMPTY for any length of time. Those that were populated
 * for growth, and are not used yet, neither go nor count as EMPTY. */
size_t hk_pool_pay(size_t keep, size_t most);

/* The slabs of a superslab that have an owner. Returns how many. The pool's lock is held. */
unsigned hk_superslab_slabs(struct hk_superslab *superslab, struct hk_slab *out[HK_SLOTS_PER_SUPERSLAB]);
/* Those of the next superslab that has any; 0 at the end. They may change at any time: the caller takes their owner's
 * lock and looks again. Takes the pool's lock. */
unsigned hk_pool_next_slabs(struct hk_superslab_cursor *cursor, struct hk_slab *out[HK_SLOTS_PER_SUPERSLAB]);

/* In the child of a fork: slots that another thread was purging are EMPTY again, and what it was prewarming is free.
 * Lock held. */
void hk_pool_after_fork(void);

struct hk_pool_counts {
#define HK_POOL_COUNTER(name, doc) size_t name;
#include "base/stats.def"
#undef HK_POOL_COUNTER
    size_t slots_active, slots_empty;
    size_t slots_populated; /* of the EMPTY ones: populated, and not used yet */
};
extern struct hk_pool_counts hk_pool_counts; /* guarded by hk_pool_lock */

/* Bytes of slots; without the lock they may be outdated. */
HK_INLINE size_t hk_active_bytes(void) { return hk_look(&hk_pool_counts.slots_active) * HK_SLOT_SIZE; }
HK_INLINE size_t hk_empty_bytes(void) { return hk_look(&hk_pool_counts.slots_empty) * HK_SLOT_SIZE; }

#endif
