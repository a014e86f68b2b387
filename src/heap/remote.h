/*
 * Remote frees: frees by threads that do not own the slab.
 *
 * The protocol:
 *   1. a thread puts the blocks of others into its heap's outbox, an array of addresses, without any lock: only the
 *      thread stores into a place, and only once until it has sent the outbox, or taken the place back, with the lock;
 *   2. who holds the heap's lock sends what the outbox holds: a parcel for each owner, each pushed on the pending
 *      stack of the heap that owns its last block;
 *   3. who holds that heap's lock takes the whole stack, and gives the blocks of each parcel to the heap's magazines,
 *      if it is their thread, or to their slabs. Those whose slab has another owner by now stay in the parcel, which
 *      is passed on to one of these;
 *   4. an empty parcel returns to the heap that sent it.
 * Until step 3 the blocks count as live, so their slabs cannot be released, whoever owns them. Parcels are pushed under
 * the lock of some heap, so none is on its way while fork holds all of them. A heap has a fixed number of parcels: when
 * all are in use, blocks go to their owners one at a time, under the owner's lock.
 */
#ifndef HK_HEAP_REMOTE_H
#define HK_HEAP_REMOTE_H

#include "heap/heap.h"

/* What a block of a class takes of an outbox's bytes. */
HK_INLINE uint32_t hk_outbox_bytes(unsigned cls)
{
    return (uint32_t)hk_max(hk_classes[cls].size, HK_OUTBOX_BYTES_LEAST);
}

/* An empty parcel of a thread's heap, whose lock is held; NULL if all are in use. */
struct hk_parcel *hk_parcel_obtain(struct hk_heap *heap);
/* Takes one back that was not sent. */
void hk_parcel_keep(struct hk_heap *heap, struct hk_parcel *parcel);
/* Forgets the parcels of a thread's heap, whose lock is held, that were ever used; false if some are on their way. */
bool hk_parcels_forget(struct hk_heap *heap);
/* False if all parcels of a thread's heap are in use. */
bool hk_parcels_at_hand(const struct hk_heap *heap);

/* Sends what the outbox of a thread's heap holds; false if there were too few parcels, and something stays. */
bool hk_outbox_send(struct hk_heap *heap, struct hk_fault *fault);

/* Counts the blocks by class that have been freed and lie in a heap's outbox, or in parcels pending for it. */
void hk_remote_count(struct hk_heap *heap, size_t blocks[HK_NCLASSES]);

/* True if others have sent something; without the lock, it may be outdated. */
HK_INLINE bool hk_parcels_are_pending(const struct hk_heap *heap) { return hk_get(&heap->pending) != NULL; }
/* Takes what others sent, as hk_magazine_accept does: into the heap's magazines, if its thread passes their tops, or
 * into the slabs. Releases slabs that became wholly free. */
void hk_parcels_open(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault);

#endif
