/*
 * Remote frees: frees by threads that do not own the slab.
 *
 * The protocol, for a word w of slab S owned by heap H:
 *   1. the freer raises S.remote_count, then ORs the blocks' bits into remote[w]; a bit that was set already is a
 *      double free;
 *   2. if remote[w] was zero it ORs bit w into S.summary; if summary was zero it now holds S's token;
 *   3. the holder reads S.owner (after the OR) and pushes S on that heap's pending stack;
 *   4. a thread that holds H's lock takes the whole pending stack, and for each slab still owned by H exchanges
 *      summary with zero, which ends the token, and each flagged word with zero, and merges the bits;
 *   5. a slab that meanwhile has another owner is pushed on to that one; if it has none, no block of it is live, and
 *      the token is dropped (hk_remote_hand_over).
 * A word that is non-zero is flagged, or is about to be by the freer that made it so. A flagged word may be empty: its
 * bits went with an earlier harvest.
 */
#ifndef HK_HEAP_REMOTE_H
#define HK_HEAP_REMOTE_H

#include "heap/heap.h"

/* Frees the blocks of mask in a word of a slab, by the protocol above. Waits for no lock, and may try the owner's. */
void hk_remote_free(struct hk_slab *slab, unsigned word, uint64_t mask, struct hk_fault *fault);
/* Passes a slab whose token the caller holds on to its present owner, which is returned; NULL if nobody needed it. */
struct hk_heap *hk_remote_hand_over(struct hk_slab *slab);

/* ---- The outbox of a heap; its lock is held ---- */

/* Frees a block that another heap owns: by way of the outbox, where its neighbours are likely to follow, else at once. */
void hk_outbox_add(struct hk_heap *heap, struct hk_slab *slab, unsigned index, struct hk_fault *fault);
void hk_outbox_drain(struct hk_heap *heap, struct hk_fault *fault);

#endif
