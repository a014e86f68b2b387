/*
 * Surplus: what a process without threads gives back at once.
 *
 * Such a process may go to sleep with what it has just freed, and nobody is left to give it back. So when much is freed
 * and hardly anything is taken meanwhile, it goes at once, and then what is freed after it, until memory is taken
 * again. If more than half of what went is needed again soon that was a mistake, and twice as much must be freed the
 * next time: a program in short cycles makes it once (docs/decisions/008-quiet-single-thread.md).
 *
 * This module is told what is live and what is idle, and says how much is to go; purge.c finds it. One thread calls at
 * a time, except for the functions named regret, which any thread may call with any lock held; its counts are hints.
 */
#ifndef HK_HEAP_SURPLUS_H
#define HK_HEAP_SURPLUS_H

#include "base/base.h"

/* How much goes at a time, on top of twice what was freed since the last time. */
#define HK_SURPLUS_PART ((size_t)4 << 20)
/* How much may lie idle before the next part goes. */
#define HK_SURPLUS_REST ((size_t)1 << 20)

/* How many bytes are to go now: none, or at least as many as were freed since this was asked before. idle: bytes that
 * are idle; live: bytes of live blocks. */
size_t hk_surplus_due(size_t idle, size_t live);
/* Notes bytes that have gone. */
void hk_surplus_note_gone(size_t bytes);
/* Notes that nothing can go: nothing more is due until as much is dropped again. */
void hk_surplus_stop(void);

/* True if it is worth looking for holes in slabs, which have `idle` idle bytes. */
bool hk_surplus_wants_holes(size_t idle);
/* True until all slabs have been looked into since dropping began. */
bool hk_surplus_has_backlog(void);
/* Notes that of `wanted` bytes of holes `bytes` were found, and that `idle` bytes in slabs are still idle. work: slabs
 * looked into and calls of the kernel. */
void hk_surplus_note_holes(size_t bytes, size_t wanted, size_t work, size_t idle);

/* Notes that bytes which were purged are needed again; or (in_vain) that purging them gained nothing, as what lies
 * around them goes now as well. Returns how many of them had gone as surplus, a moment ago. */
size_t hk_surplus_regret(size_t bytes, bool in_vain);
/* Notes how many of the bytes that have gone were cached mappings. */
void hk_surplus_note_mappings(size_t bytes);
/* Notes that bytes are mapped anew for which such mappings might have served. */
void hk_surplus_regret_mappings(size_t bytes);
/* Notes that idle bytes have grown old: less should have been kept. */
void hk_surplus_note_old(size_t bytes);
/* Forgets all, as in the child of a fork. */
void hk_surplus_reset(void);

#endif
