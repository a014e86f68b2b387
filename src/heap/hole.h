/*
 * Holes: pages of a slab in use on which no block is live, and whose memory is given back.
 *
 * A page is absent from when its memory went until a block on it is handed out. Invariants, under the owner's heap
 * lock: every block that touches an absent page is free, and was handed out before (or counts as if it had been);
 * nabsent counts these blocks.
 *
 * A page goes in three steps, so that the kernel is not called with the lock held: the free blocks that touch it leave
 * the free bitmap (hk_holes_open; nobody can take them, and the slab is not released), the memory is given back
 * (hk_holes_purge), the blocks come back (hk_holes_close). The slab may change its owner in between.
 */
#ifndef HK_HEAP_HOLE_H
#define HK_HEAP_HOLE_H

#include "heap/slab.h"

struct hk_holes {
    struct hk_slab *slab;
    uint16_t pages[HK_SLOTS_PER_SUPERSLAB]; /* by slot of the slab: those to give back */
    uint64_t blocks[HK_SLAB_WORDS];         /* out of the free bitmap meanwhile */
};

/* Takes the free blocks off the pages on which no block is live; false if there is no such page with memory. */
bool hk_holes_open(struct hk_holes *holes, struct hk_slab *slab);
/* Gives the pages back; returns bytes. Needs no lock, since nobody else touches the blocks; takes the pool's if they
 * are part of a huge page. */
size_t hk_holes_purge(struct hk_holes *holes);
/* Puts the blocks back. */
void hk_holes_close(struct hk_holes *holes, struct hk_fault *fault);

/* hk_slab_take for a slab that has absent pages: blocks with memory first, others only if there is none. */
unsigned hk_holes_take(struct hk_slab *slab, void **end, unsigned want);

/* Bytes of the slab's absent pages. */
size_t hk_holes_bytes(const struct hk_slab *slab);
/* The free blocks that touch an absent page, counted anew. */
unsigned hk_holes_count_absent(struct hk_slab *slab);

#endif
