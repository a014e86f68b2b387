/*
 * Purging: what goes back to the OS, and when.
 *
 * Memory is idle when it has pages and no live block: EMPTY slots, cached superslabs and mappings, and pages of slabs
 * in use on which no block is live. What has lain idle for a second goes back, so that a program that uses the same
 * memory in a cycle does not fault it in again. While the process is at work a warm budget stays; a quiet process keeps
 * nothing. And before the heap grows, idle memory goes that is more than a twentieth of what is in use: fragmentation
 * does not add up to a peak.
 *
 * In a process with threads the maintenance thread calls hk_purge (front/maintenance.c); in one without, slow paths do
 * a bounded part of it when they look at the clock, and when much is dropped at once (surplus.h).
 */
#ifndef HK_HEAP_PURGE_H
#define HK_HEAP_PURGE_H

#include "heap/heap.h"

enum hk_purge_level {
    HK_PURGE_DECAY, /* what has lain idle for a second, but for the warm budget */
    HK_PURGE_QUIET, /* what has lain idle for a second */
    HK_PURGE_STILL, /* what is idle, but for what was prewarmed: nobody has done anything for a second */
    HK_PURGE_ALL,   /* what is idle */
};

/* Held while blocks are out of the bitmaps of a slab whose heap is not locked. */
extern struct hk_lock hk_purge_lock;

/* Gives idle memory of the whole process back: `most` bytes, or as much more as the last mapping or slab is large, and
 * all but `pad` bytes. Returns bytes. No lock held. A `most` other than SIZE_MAX is for hk_purge_tick alone: such
 * passes go on where the last one ended. */
size_t hk_purge(enum hk_purge_level level, size_t pad, size_t most, struct hk_fault *fault);

/* Unless payments rest (payment.h), purges about as much idle memory as has been begun without memory, `grown` bytes:
 * for slabs of a heap whose lock is held; or for large blocks, with what others of these have left first. Waits for no
 * heap's lock. */
void hk_purge_pay(size_t grown, struct hk_heap *heap);
void hk_purge_pay_large(size_t grown);
/* Whether growth is to pay now: hk_payment_demand, after ending a rest that the process has outgrown. */
bool hk_purge_demand_payment(void);

/* For slow paths, now and then, no lock held: looks at the clock. alone: nobody else purges, so the caller does a
 * bounded part if a quarter of a second has passed. only: the heap, or the guests', of a process's only thread, which
 * gives back what it has dropped; else NULL. */
void hk_purge_tick(bool alone, struct hk_heap *only, struct hk_fault *fault);

/* Forgets what was learned: a fork's child has its own idle memory to learn about. May interrupt all else. */
void hk_purge_forget(void);
/* The same, and ends what another thread was at. In the child of a fork; and between tests. */
void hk_purge_after_fork(void);

#endif
