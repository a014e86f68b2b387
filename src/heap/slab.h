/*
 * Slabs: a slot, or a run of slots, cut into blocks of one size class. All that is known of the blocks is kept here, in
 * the slot table of the superslab; the blocks themselves are never read or written.
 *
 * Invariants, while the slab's heap lock is held:
 *   nfree is the number of bits set in the free bitmap, and bit w of nonempty says whether word w of it is non-zero;
 *   a block is live (or in some thread's magazine or reserve, or on its way here in an outbox or a parcel) when its bit
 *   is clear;
 *   blocks [fresh_from, nblocks) were never handed out, and their memory is zero and may not exist yet;
 *   nabsent is the number of free blocks whose memory was given back (hole.h). The other free blocks are idle.
 */
#ifndef HK_HEAP_SLAB_H
#define HK_HEAP_SLAB_H

#include "base/fault.h"
#include "base/list.h"
#include "heap/window.h"

struct hk_heap;

#define HK_SLAB_WORDS (HK_SLAB_BLOCKS_MAX / HK_WORD_BITS)
#define HK_SLAB_WORDS_NEAR 6u /* of these, how many have room in the descriptor */
_Static_assert(HK_SLAB_WORDS == 32, "nonempty is a 32-bit mask of words");

struct hk_slab {
    /* Line one: all that blocks that come and go touch. Guarded by the owner's heap lock; next and prev by the pool's
     * while the slot is EMPTY. */
    struct hk_slab *next, *prev; /* in a bin of the owner, or in the pool's list of EMPTY runs */
    char *blocks;                /* the first block; constant from slab_init to release */
    uint64_t *free; /* the free bitmap: free_word, free_words or the table's, by its length; constant likewise */
    uint64_t free_word;
    uint32_t nonempty;
    uint32_t used_at; /* coarse clock, when blocks last came or went, or a slot that had no slab became EMPTY;
                         0 when all holes since have been found. May be read without the lock */
    uint16_t nfree;   /* may be read without the lock, to decide whether to look closer */
    uint16_t fresh_from;
    uint16_t nabsent;
    uint16_t idle_counted; /* how many of the idle blocks are in the owner's idle_bytes */
    uint16_t settle_at;    /* the number of free blocks at which the slab changes its bin, or is released */
    uint8_t bin;           /* enum hk_bin, in heap.h */
    bool holed;            /* some page may be absent */
    uint8_t opened;        /* how many threads are giving pages of it back; the free blocks on these are out (hole.h) */
    uint8_t cls;           /* this and slots: constant from slab_init to release, then the pool's */
    uint8_t slots;
    uint8_t slot; /* of the superslab; constant */

    /* Line two. */
    HK_CACHE_ALIGNED struct hk_superslab *superslab; /* constant */
    /* NULL while the slot is not ACTIVE. Written under the lock of the owner, and of the next one; read by anyone. */
    struct hk_heap *_Atomic owner;
    uint64_t free_words[HK_SLAB_WORDS_NEAR];
};

HK_LIST(hk_slab, struct hk_slab) /* hk_slab_link, hk_slab_unlink */

/* What is known of each slot of a slab, close together: long slabs have many. */
struct hk_slot {
    uint32_t touched;      /* while no slab is here: bytes of the slot, from its start, that may have been written to */
    uint16_t absent_pages; /* pages of a slab that it gave back, by the OS's page size (hole.h) */
    uint8_t head;          /* distance to the first slot of the slab, or of the EMPTY run; may be read without a lock */
    uint8_t user;          /* who took the slot last, as hk_slot_user says; by the pool's lock */
};

HK_INLINE unsigned hk_slot_head(const struct hk_slot *slot) { return hk_look(&slot->head); }

/* Makes n slots belong together. */
HK_INLINE void hk_slots_join(struct hk_slot *slots, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        hk_set_visibly(&slots[i].head, (uint8_t)i);
}

/* One for each superslab that has been cut into slots; it becomes zero, page by page, when the superslab loses its
 * memory. The bitmaps are for slabs with more blocks than the descriptor has room for. */
struct hk_slot_table {
    struct hk_slot slots[HK_SLOTS_PER_SUPERSLAB];
    struct hk_slab slabs[HK_SLOTS_PER_SUPERSLAB];
    uint64_t free[HK_SLOTS_PER_SUPERSLAB][HK_SLAB_WORDS];
};

_Static_assert(offsetof(struct hk_slab, superslab) == HK_CACHE_LINE, "what blocks touch fills one cache line");
_Static_assert(sizeof(struct hk_slab) == 2 * HK_CACHE_LINE, "a slab's descriptor is two cache lines");

HK_INLINE const struct hk_class *hk_slab_class(const struct hk_slab *slab) { return &hk_classes[slab->cls]; }

HK_INLINE struct hk_slot_table *hk_slab_table(const struct hk_slab *slab)
{
    const struct hk_slab *slabs = slab - slab->slot;
    return (struct hk_slot_table *)((uintptr_t)slabs - offsetof(struct hk_slot_table, slabs));
}

/* The slots of a slab, from its first one on. */
HK_INLINE struct hk_slot *hk_slab_slots(const struct hk_slab *slab) { return &hk_slab_table(slab)->slots[slab->slot]; }

/* False if the slot is further back in a slab of several. */
HK_INLINE bool hk_slab_is_first(const struct hk_slab *slab) { return hk_slot_head(hk_slab_slots(slab)) == 0; }

HK_INLINE unsigned hk_slab_nwords(const struct hk_slab *slab)
{
    return (unsigned)hk_div_up(hk_slab_class(slab)->nblocks, HK_WORD_BITS);
}

HK_INLINE unsigned hk_slab_nfree(const struct hk_slab *slab) { return hk_look(&slab->nfree); }

HK_INLINE struct hk_heap *hk_slab_owner(const struct hk_slab *slab)
{
    return atomic_load_explicit(&slab->owner, memory_order_acquire);
}

HK_INLINE void *hk_slab_block(const struct hk_slab *slab, unsigned index)
{
    return slab->blocks + (size_t)index * hk_slab_class(slab)->size;
}

/* Free blocks that have memory: handed out before, and not given back since. */
HK_INLINE unsigned hk_slab_nidle(const struct hk_slab *slab)
{
    return slab->nfree - slab->nabsent - (hk_slab_class(slab)->nblocks - slab->fresh_from);
}

HK_INLINE struct hk_fault hk_slab_double_free(const struct hk_slab *slab, unsigned index)
{
    return hk_fault_freed_twice(hk_slab_block(slab, index), hk_slab_class(slab)->size);
}

/* Never while blocks are out: these are not free, but may be freed a second time meanwhile. */
HK_INLINE bool hk_slab_is_empty(const struct hk_slab *slab)
{
    return slab->nfree == hk_slab_class(slab)->nblocks && slab->opened == 0;
}

/* What is wrong with a pointer that is not the start of a block of the slab. */
struct hk_fault hk_slab_fault(const struct hk_slab *slab, const void *p);
/* The index of the block that starts at p in a slab of a class; false if none does. */
HK_INLINE bool hk_slab_find(const struct hk_slab *slab, const struct hk_class *cls, const void *p, unsigned *index)
{
    uint64_t quotient = hk_class_quotient(cls, (uint64_t)((const char *)p - slab->blocks));
    *index = (unsigned)quotient;
    return quotient < cls->nblocks;
}
/* The same; if none does, fault says what p is. */
HK_INLINE bool hk_slab_index(const struct hk_slab *slab, const void *p, unsigned *index, struct hk_fault *fault)
{
    if (HK_LIKELY(hk_slab_find(slab, hk_slab_class(slab), p, index)))
        return true;
    hk_fault_note(fault, hk_slab_fault(slab, p));
    return false;
}

/* The end of what may have been written to in slots without a slab, in bytes from the first one's start. */
size_t hk_slots_touched(const struct hk_slot *slots, unsigned nslots);
/* Notes that the first `touched` bytes of slots without a slab may have been written to. */
void hk_slots_set_touched(struct hk_slot *slots, unsigned nslots, size_t touched);
/* True if slabs of the class leave enough of their slots unused to be worth giving back (hk_slab_trim_tail). */
bool hk_class_has_tail(unsigned cls);
/* True if slabs of the class are one slot, and use most of it. */
HK_INLINE bool hk_class_fills_slot(unsigned cls) { return hk_classes[cls].slots == 1 && !hk_class_has_tail(cls); }
/* Gives back the part of the slots that an earlier slab has touched and one of this class never will, unless it is part
 * of a huge page. To be called before hk_slab_init. */
void hk_slab_trim_tail(struct hk_slab *slab, unsigned cls);
/* Starts the life of a slab of a class in the ACTIVE slots that begin at slab, on behalf of owner: all blocks free,
 * keys written. What earlier slabs have not touched of the slots is fresh. The caller holds the owner's heap lock. */
void hk_slab_init(struct hk_slab *slab, unsigned cls, struct hk_heap *owner);
/* Ends the life of a slab none of whose blocks is live. Keys become GONE, the owner NULL; the slots note how much of
 * them was touched. */
void hk_slab_fini(struct hk_slab *slab);
/* Writes the owner into the slab and into the keys of its slots. */
void hk_slab_set_owner(struct hk_slab *slab, struct hk_heap *owner);

/* Takes up to want free blocks, those with the lowest addresses, and stores them below end, the lowest next to it.
 * Returns how many. */
unsigned hk_slab_take(struct hk_slab *slab, void **end, unsigned want);
HK_INLINE void hk_slab_set_nfree(struct hk_slab *slab, unsigned nfree)
{
    hk_set_visibly(&slab->nfree, (uint16_t)nfree);
}
/* A row: blocks that are neighbours in memory, in the order of their addresses or in the reverse. Fewer than this many
 * are not worth a look. */
#define HK_ROW_MIN 8u
/* The lowest of n blocks if they are a row; else NULL, which mostly the first and the last of them tell. */
HK_INLINE char *hk_row_start(void *const *blocks, unsigned n, size_t size)
{
    uintptr_t first = (uintptr_t)blocks[0], last = (uintptr_t)blocks[n - 1], length = (n - 1) * size;
    if (last - first != length && first - last != length)
        return NULL;
    uintptr_t step = last > first ? size : -size, strays = 0;
    for (unsigned i = 1; i < n; i++)
        strays |= ((uintptr_t)blocks[i] - (uintptr_t)blocks[i - 1]) ^ step;
    return strays != 0 ? NULL : (char *)(last > first ? blocks[0] : blocks[n - 1]);
}
/* Marks the row of n blocks that starts at p free. False, with none of them marked, if they are not all blocks of the
 * slab in use. */
bool hk_slab_put_row(struct hk_slab *slab, const struct hk_class *cls, const char *p, unsigned n);
/* Marks the first of n blocks free, and those after it as long as they are blocks of the slab in use. Returns how
 * many. */
HK_INLINE unsigned hk_slab_put(struct hk_slab *slab, const struct hk_class *cls, void *const *blocks, unsigned n)
{
    if (n >= HK_ROW_MIN) {
        const char *row = hk_row_start(blocks, n, cls->size);
        if (row != NULL && hk_slab_put_row(slab, cls, row, n))
            return n;
    }
    uint64_t *free = slab->free;
    uint32_t nonempty = slab->nonempty;
    void *const *next = blocks;
    for (; next < blocks + n; next++) {
        unsigned index;
        if (HK_UNLIKELY(!hk_slab_find(slab, cls, *next, &index)))
            break;
        uint64_t *at = &free[index / HK_WORD_BITS];
        uint64_t word = *at;
        if (HK_UNLIKELY((word >> (index % HK_WORD_BITS)) & 1))
            break;
        hk_set_visibly(at, word | 1ull << (index % HK_WORD_BITS));
        nonempty |= 1u << (index / HK_WORD_BITS);
    }
    slab->nonempty = nonempty;
    hk_slab_set_nfree(slab, slab->nfree + (unsigned)(next - blocks));
    return (unsigned)(next - blocks);
}
/* Marks the blocks of mask in a word free; returns those that were free already. */
uint64_t hk_slab_put_word(struct hk_slab *slab, unsigned word, uint64_t mask);
/* Takes the blocks of mask, all of them free, out of a word. */
void hk_slab_withdraw_word(struct hk_slab *slab, unsigned word, uint64_t mask);
/* True if a block is marked free in a bitmap. */
HK_INLINE bool hk_bitmap_says_free(const uint64_t *free, unsigned index)
{
    uint64_t word = hk_look(&free[index / HK_WORD_BITS]);
    return (word >> (index % HK_WORD_BITS)) & 1;
}
/* True if the block is marked free. */
HK_INLINE bool hk_slab_is_free(struct hk_slab *slab, unsigned index) { return hk_bitmap_says_free(slab->free, index); }
/* True if a block starts at p, in a slab of the class, that is not marked free. */
HK_INLINE bool hk_slab_uses(struct hk_slab *slab, const struct hk_class *cls, const void *p)
{
    /* The bitmap first: if the table goes meanwhile, no block is found afterwards. NULL: it had gone, and no slab was here
     * then. */
    const uint64_t *free = __atomic_load_n(&slab->free, __ATOMIC_ACQUIRE);
    unsigned index;
    return free != NULL && hk_slab_find(slab, cls, p, &index) && !hk_bitmap_says_free(free, index);
}

/* Walks the invariants; for debug builds. */
void hk_slab_check(struct hk_slab *slab);

#endif
