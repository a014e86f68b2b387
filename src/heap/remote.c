#include "heap/remote.h"

#include "base/trace.h"

static void hk_pending_push(struct hk_heap *heap, struct hk_slab *slab)
{
    struct hk_slab *head = atomic_load_explicit(&heap->pending, memory_order_relaxed);
    do {
        slab->pending_next = head;
    } while (!atomic_compare_exchange_weak_explicit(&heap->pending, &head, slab, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

struct hk_heap *hk_remote_hand_over(struct hk_slab *slab)
{
    for (;;) {
        struct hk_heap *owner = atomic_load_explicit(&slab->owner, memory_order_seq_cst);
        if (owner != NULL) {
            hk_pending_push(owner, slab);
            return owner;
        }
        /* Between two lives, no block is live: give the token up. If a next life has begun meanwhile and its frees saw our
         * token, their flags are in what we take, and their owner is visible now: put the flags back. */
        uint32_t flags = atomic_exchange_explicit(&slab->summary, 0, memory_order_seq_cst);
        if (atomic_load_explicit(&slab->owner, memory_order_seq_cst) == NULL)
            return NULL;
        if (atomic_fetch_or_explicit(&slab->summary, flags, memory_order_seq_cst) != 0)
            return NULL; /* somebody else holds the token now, and will see the flags */
    }
}

/* A remote free may have been the last of its slab: then the freer collects on behalf of an owner that may sleep. If the
 * owner's lock is taken, its holder or a later collect does. */
static void hk_remote_help(struct hk_heap *owner, struct hk_fault *fault)
{
    if (owner == NULL || !hk_lock_try(&owner->lock))
        return;
    hk_heap_collect(owner, fault);
    hk_lock_release(&owner->lock);
}

void hk_remote_free(struct hk_slab *slab, unsigned word, uint64_t mask, struct hk_fault *fault)
{
    /* Once the bits are set the slab may be harvested, released and begun anew: what is needed of it is read before. */
    const struct hk_class *class = hk_slab_class(slab);
    _Atomic uint64_t *remote = &hk_slab_remote_words(slab)[word];
    char *blocks = slab->blocks;
    uint32_t n = hk_count_bits64(mask);
    uint32_t count = atomic_fetch_add_explicit(&slab->remote_count, n, memory_order_relaxed) + n;
    uint64_t old = atomic_fetch_or_explicit(remote, mask, memory_order_acq_rel);
    if (HK_UNLIKELY((old & mask) != 0)) {
        unsigned index = word * HK_WORD_BITS + hk_lowest_bit64(old & mask);
        atomic_fetch_sub_explicit(&slab->remote_count, hk_count_bits64(old & mask), memory_order_relaxed);
        hk_fault_note(fault, (struct hk_fault){.kind = HK_FAULT_DOUBLE_FREE,
                                               .ptr = blocks + (size_t)index * class->size,
                                               .block_size = class->size});
    }
    if (old == 0 && atomic_fetch_or_explicit(&slab->summary, 1u << word, memory_order_seq_cst) == 0) {
        /* If the slab was adopted between the look at its owner and the push, it lies with a heap that may sleep: make that
         * one pass it on. The adopter looks too (hk_heap_adopt_from): one of the two sees the other. */
        struct hk_heap *pushed_to = hk_remote_hand_over(slab);
        if (HK_UNLIKELY(pushed_to != atomic_load_explicit(&slab->owner, memory_order_seq_cst)))
            hk_remote_help(pushed_to, fault);
    }
    /* A racy read of nfree: it decides only whether to look. */
    if (HK_UNLIKELY(count + hk_slab_nfree(slab) >= class->nblocks))
        hk_remote_help(hk_slab_owner(slab), fault);
}

/* ---- Outbox ---- */

/* What is found wrong here was so when the blocks went into the outbox. */
static void hk_outbox_evict(struct hk_heap *heap, struct hk_outbox_entry *entry, struct hk_fault *fault)
{
    struct hk_slab *slab = entry->slab;
    struct hk_fault late = HK_NO_FAULT;
    entry->slab = NULL;
    if (HK_UNLIKELY(slab->generation != entry->generation)) {
        /* The slab was released while we held blocks of it: they had been freed before. */
        hk_fault_note(&late, hk_fault_double_free(slab, entry->word * HK_WORD_BITS + hk_lowest_bit64(entry->mask)));
    } else {
        heap->counts.remote_words++;
        hk_remote_free(slab, entry->word, entry->mask, &late);
    }
    late.late = true;
    hk_fault_note(fault, late);
}

void hk_outbox_add(struct hk_heap *heap, struct hk_slab *slab, unsigned index, struct hk_fault *fault)
{
    unsigned word = index / HK_WORD_BITS;
    uint64_t bit = 1ull << (index % HK_WORD_BITS);
    uintptr_t name = (uintptr_t)slab / sizeof *slab * HK_SLAB_WORDS + word;
    struct hk_outbox_entry *entry = &heap->outbox[(name ^ (name >> 5)) % HK_OUTBOX_ENTRIES];
    heap->counts.remote_frees++;
    if (slab->class >= HK_CLASS_FIRST_MEDIUM) { /* too large to be kept from its owner */
        heap->counts.remote_words++;
        hk_remote_free(slab, word, bit, fault);
        return;
    }
    if (entry->slab != slab || entry->word != word || entry->generation != slab->generation) {
        if (entry->slab != NULL)
            hk_outbox_evict(heap, entry, fault);
        if (HK_UNLIKELY(hk_slab_is_free(slab, index))) { /* freed before, and that has been passed on already */
            hk_fault_note(fault, hk_fault_double_free(slab, index));
            return;
        }
        *entry = (struct hk_outbox_entry){.slab = slab, .mask = bit, .generation = slab->generation, .word = word};
        return;
    }
    if (HK_UNLIKELY((entry->mask & bit) != 0)) {
        hk_fault_note(fault, hk_fault_double_free(slab, index));
        return;
    }
    entry->mask |= bit;
    if (entry->mask == ~0ull)
        hk_outbox_evict(heap, entry, fault);
}

void hk_outbox_drain(struct hk_heap *heap, struct hk_fault *fault)
{
    unsigned drained = 0;
    for (unsigned i = 0; i < HK_OUTBOX_ENTRIES; i++) {
        if (heap->outbox[i].slab == NULL)
            continue;
        hk_outbox_evict(heap, &heap->outbox[i], fault);
        drained++;
    }
    if (drained != 0)
        hk_trace(HK_TRACE_DRAIN, "drain outbox", {"heap", hk_key_index(heap->key)}, {"words", drained});
}
