/*
 * Huge pages for superslabs (option thp).
 *
 * With thp=auto a heap that is large, dense and still growing takes the superslabs that it grows by with huge pages,
 * and populates each as a whole: one fault instead of 512, and one entry of the TLB. Slabs of one slot ask for another
 * superslab only when all slots are in use, so that it will be full soon.
 *
 * A superslab loses its advice before a part of it is purged, or a large block takes it: else the kernel would fill the
 * holes again, and the parts of the block that nobody touches. One that is purged as a whole keeps it.
 *
 * What a huge page costs is for the kernel and the host to say, which may have to move memory, or to find it first. So
 * populating is timed: when it takes long, the next superslabs do without.
 */
#ifndef HK_HEAP_HUGE_PAGES_H
#define HK_HEAP_HUGE_PAGES_H

#include "heap/superslab.h"

/* Advises a superslab that has no memory, if the heap should grow by huge pages now; false if not. The pool's lock is
 * held. */
bool hk_huge_pages_begin(struct hk_superslab *superslab);
/* Faults in the memory of a superslab whose advice has begun. The caller has an ACTIVE slot of it, and holds its
 * heap's lock, but not the pool's. */
void hk_huge_pages_populate(struct hk_superslab *superslab);
/* Notes how long that took. */
void hk_huge_pages_took(uint64_t ms);
/* Takes the advice back, if a superslab has it. The pool's lock is held. */
void hk_huge_pages_end(struct hk_superslab *superslab);
/* The same for a caller that does not hold the pool's lock: takes it if the superslab has the advice. */
void hk_huge_pages_end_unlocked(struct hk_superslab *superslab);
/* A superslab was unmapped. The pool's lock is held. */
void hk_huge_pages_forget(struct hk_superslab *superslab);

/* In the child of a fork; and between tests. */
void hk_huge_pages_after_fork(void);

#endif
