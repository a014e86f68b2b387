/*
 * Surplus: what a process without threads gives back at once.
 *
 * Such a process may go to sleep with what it has just freed, and nobody is left to give it back. So when much is freed
 * and hardly anything is taken meanwhile, it goes at once, and then what is freed after it, until memory is taken
 * again. If more than half of what went is needed again soon that was a mistake, and twice as much must be freed the
 * next time: a program in short cycles makes it once (docs/decisions/008-quiet-single-thread.md).
 *
 * This is told what is live and what is idle, and says how much is to go; purge.c finds it, and calls from one thread
 * at a time, but for hk_surplus_regret and hk_surplus_regret_mappings, which any thread may call with any lock held. Its counts are hints.
 */
#ifndef HK_HEAP_SURPLUS_H
#define HK_HEAP_SURPLUS_H

#include "base/base.h"

/* A part is so large, and twice what was freed since the last. */
#define HK_SURPLUS_PART ((size_t)4 << 20)
/* So much may lie idle until the next part goes. */
#define HK_SURPLUS_REST ((size_t)1 << 20)

/* How many bytes are to go now, at least as many as were freed since this was asked before; or none. Told how many are
 * idle, and how many live blocks have. */
size_t hk_surplus_due(size_t idle, size_t live);
/* So many have gone. */
void hk_surplus_note_gone(size_t bytes);
/* None can go: nothing more is due until as much is dropped again. */
void hk_surplus_stop(void);

/* True if it is worth looking for holes in slabs that have so many idle bytes. */
bool hk_surplus_wants_holes(size_t idle);
/* True until all slabs have been looked into since dropping began. */
bool hk_surplus_has_backlog(void);
/* Of `wanted` bytes so many were found, and so many are idle still. work: slabs looked into and calls of the kernel. */
void hk_surplus_note_holes(size_t bytes, size_t wanted, size_t work, size_t idle);

/* Bytes that were purged are needed again; or were purged in vain, as what lies around them goes now as well. Returns
 * how many of them had gone as surplus, a moment ago. */
size_t hk_surplus_regret(size_t bytes, bool in_vain);
/* So many bytes of what has gone were mappings, cached ones: it cannot be told of one that is made anew whether it is
 * needed in their place, so it is taken for that. */
void hk_surplus_note_mappings(size_t bytes);
/* So many bytes are mapped anew. */
void hk_surplus_regret_mappings(size_t bytes);
/* Idle bytes have grown old: less was to be kept. */
void hk_surplus_note_old(size_t bytes);
/* Forgets all, as in the child of a fork. */
void hk_surplus_reset(void);

#endif
