/*
 * All heaps: how threads come by one and leave it, and what passes from one heap to another.
 *
 * The heap of a thread that ended is parked, with its slabs and magazines, for the next thread. Who needs a slab
 * meanwhile may adopt one from it, or from the guests; a heap that stays parked is dissolved: its slabs become orphans,
 * to be adopted by whoever needs them. A slab changes its owner under the locks of both, of which one is only tried.
 * And heaps whose threads sleep are tended on their behalf.
 */
#ifndef HK_HEAP_HEAPS_H
#define HK_HEAP_HEAPS_H

#include "heap/heap.h"

extern struct hk_heap hk_guests;  /* serves threads that have no heap */
extern struct hk_heap hk_orphans; /* owns slabs that nobody does */

extern struct hk_lock hk_heaps_lock; /* guards the lists; a thread that exits puts its heap on the parked list */
/* All heaps, the two shared ones included; grows at the head and never shrinks. */
extern struct hk_heap *_Atomic hk_heaps;
#define HK_EACH_HEAP(heap) \
    for (struct hk_heap *heap = atomic_load_explicit(&hk_heaps, memory_order_acquire); heap != NULL; heap = heap->next)

/* A heap for a new thread: the one parked last, else a new one; state RUNNING, its tops in tops[]. NULL without memory.
 * Takes the lists' lock and the heap's. */
struct hk_heap *hk_heap_obtain(void **tops[HK_NCLASSES], void *thread);
/* True if a heap waits for a thread; may be outdated. */
bool hk_heaps_any_parked(void);
/* The thread is gone: keeps its heap, with slabs and magazines, for the next one. Takes the lists' lock and the
 * heap's. */
void hk_heap_park(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault);
/* Takes a slab with free blocks over from the guests, a parked heap or the orphans, for a heap whose lock is held; NULL
 * if none is to be had without waiting. It is the heap's then, but neither in a bin nor the one to refill from. */
struct hk_slab *hk_heap_adopt(struct hk_heap *heap, unsigned cls, struct hk_fault *fault);
/* Flushes the magazines of heaps that were parked before a time of the coarse clock, and makes orphans of their slabs.
 * No lock held. */
void hk_heaps_dissolve_parked(uint32_t parked_before, struct hk_fault *fault);
/* Gives back the pages of dissolved heaps' structures that hold nothing any more. No lock held. */
void hk_heaps_vacate(struct hk_fault *fault);
/* Sends what outboxes hold, opens what is pending, empties reserves, gives back warm slots and empty slabs: for all
 * heaps, or for those that have made no slow path since this was last called. No lock held. */
void hk_heaps_tend(bool all, struct hk_fault *fault);
/* Sum of all heaps' slow paths: stands still when the process is quiet. */
uint32_t hk_heaps_ticks(void);
/* Sum of all heaps' idle bytes. */
size_t hk_heaps_idle_bytes(void);
/* How many heaps have a thread now; may be outdated. */
size_t hk_heaps_running(void);
/* In the child of a fork, all locks held: heaps of threads that are gone are parked. */
void hk_heaps_after_fork(const void *surviving_thread);

#endif
