/*
 * Magazines, their cold side: how they are filled and emptied, how large they may grow, and what a thread keeps in
 * reserve. The hot path is front/hot_path.h.
 *
 * A magazine that is empty is refilled to half its capacity, and one that is full gives away its older half. The blocks
 * come from the slabs and go there; or, for a small class whose magazine has grown to its largest, first from and to
 * its reserve, some parcels of the heap, which costs no work on bitmaps. A magazine is in its thread's hands while the
 * heap is RUNNING, whoever holds the lock; a reserve is guarded by the lock, so others empty it when the thread sleeps.
 *
 * The caller holds the heap's lock; tops are the magazines' tops by class.
 */
#ifndef HK_HEAP_MAGAZINE_H
#define HK_HEAP_MAGAZINE_H

#include "heap/clock.h"
#include "heap/heap.h"

/* Where the top of a magazine without capacity points: it is both empty and full. */
extern void *const hk_no_magazine[HK_MAGAZINE_WORDS];
#define HK_NO_MAGAZINE ((void **)&hk_no_magazine[HK_MAGAZINE_WORDS - 1])

HK_INLINE void **hk_magazine_of(struct hk_heap *heap, unsigned cls)
{
    return ((struct hk_thread_heap *)(void *)heap)->magazines[cls];
}
HK_INLINE void **hk_magazine_bottom(struct hk_heap *heap, unsigned cls)
{
    return hk_magazine_of(heap, cls) + (HK_MAGAZINE_BLOCKS_MAX - heap->classes[cls].capacity);
}
HK_INLINE bool hk_magazine_is_full(void **top) { return ((uintptr_t)(top + 1) & (HK_MAGAZINE_BYTES - 1)) == 0; }

/* Counts what the magazines hold, for statistics. */
void hk_magazines_count(struct hk_heap *heap, void **tops[HK_NCLASSES]);
/* The slow path is taken to allocate a block of a class. */
void hk_magazine_note_alloc(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES]);
/* Fills an empty magazine, if it has any capacity, and returns a block; NULL without memory. May take capacity from
 * other magazines, and reserves. */
void *hk_magazine_refill(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault);
/* Returns a block of the next larger class, if that has one with memory and this one, of medium blocks, would have to
 * take memory that it never used; else NULL. */
void *hk_magazine_borrow(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault);
/* Puts a block that the thread frees into its magazine, or to its slab if that has no capacity; a magazine that is full
 * first gives its older half to its reserve or to the slabs. */
void hk_magazine_free(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], void *p, struct hk_fault *fault);
/* Accepts those of n blocks that the heap owns: into its magazines, if tops is not NULL and the class has one, where
 * they wait to be handed out again; else into their slabs. Moves the others to the front of `blocks`, and returns their
 * number. */
unsigned hk_magazine_accept(struct hk_heap *heap, void **blocks, unsigned n, void **tops[HK_NCLASSES],
                            struct hk_fault *fault);
/* Shrinks the magazines of a heap that has not been busy for a second. Refills and flushes do it first. */
void hk_magazines_tend(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault);
/* True if the coarse clock has moved since hk_magazines_tend: for slow paths that are neither refill nor flush. */
HK_INLINE bool hk_magazines_are_due(const struct hk_heap *heap) { return heap->budget.tended_at != hk_clock_now(); }
/* Empties a magazine and its reserve into the slabs. */
void hk_magazine_flush(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault);
/* Empties a magazine and its reserve, and leaves it without capacity. */
void hk_magazine_close(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault);
/* Gives up the blocks in a magazine, which count as live for ever, and its capacity. Its reserve stays. */
void hk_magazine_abandon(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES]);
/* Gives what is in reserve to the slabs. */
void hk_reserve_empty(struct hk_heap *heap, unsigned cls, struct hk_fault *fault);

#endif
