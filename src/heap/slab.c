#include "heap/slab.h"

#include "base/os.h"
#include "heap/heap.h"
#include "heap/hole.h"
#include "heap/superslab.h"

HK_COLD struct hk_fault hk_slab_fault(const struct hk_slab *slab, const void *p)
{
    const struct hk_class *cls = hk_slab_class(slab);
    ptrdiff_t offset = (const char *)p - slab->blocks;
    if (offset < 0 || (size_t)offset >= (size_t)cls->nblocks * cls->size)
        return (struct hk_fault){.kind = HK_FAULT_FOREIGN, .ptr = p};
    return (struct hk_fault){.kind = HK_FAULT_INSIDE,
                             .ptr = p,
                             .block = hk_slab_block(slab, hk_class_index(cls, (uint64_t)offset)),
                             .block_size = cls->size};
}

static char *hk_slab_first_slot(const struct hk_slab *slab)
{
    return slab->superslab->base + slab->slot * HK_SLOT_SIZE;
}

static void hk_slab_write_keys(struct hk_slab *slab, hk_key key)
{
    _Atomic hk_key *keys = hk_key_at(hk_slab_first_slot(slab));
    for (unsigned i = 0; i < slab->slots; i++)
        hk_set(&keys[i], key);
    atomic_thread_fence(memory_order_release);
}

void hk_slab_set_owner(struct hk_slab *slab, struct hk_heap *owner)
{
    /* The keys first: with the owner goes the right to write them. */
    hk_slab_write_keys(slab, owner->key | slab->cls);
    atomic_store_explicit(&slab->owner, owner, memory_order_seq_cst);
}

size_t hk_slots_touched(const struct hk_slot *slots, unsigned nslots)
{
    for (unsigned i = nslots; i-- > 0;)
        if (slots[i].touched != 0)
            return i * HK_SLOT_SIZE + slots[i].touched;
    return 0;
}

void hk_slots_set_touched(struct hk_slot *slots, unsigned nslots, size_t touched)
{
    for (unsigned i = 0; i < nslots; i++) {
        size_t of_slot = hk_min(touched, HK_SLOT_SIZE);
        slots[i].touched = (uint32_t)of_slot;
        touched -= of_slot;
    }
}

/* Nothing from `end` on is touched any more. */
static void hk_slots_limit_touched(struct hk_slot *slots, unsigned nslots, size_t end)
{
    for (unsigned i = 0; i < nslots; i++) {
        size_t of_slot = hk_min(end, HK_SLOT_SIZE);
        slots[i].touched = (uint32_t)hk_min(slots[i].touched, of_slot);
        end -= of_slot;
    }
}

/* Slabs that are neighbours in memory have successive colours. */
static size_t hk_colour_offset(struct hk_slab *slab, const struct hk_class *cls)
{
    uint32_t number = (uint32_t)((uintptr_t)hk_slab_first_slot(slab) >> HK_SLOT_SHIFT) / cls->slots;
    size_t page = number % cls->colour_pages, colour = number % cls->ncolours;
    return page * HK_COLOUR_PAGE + colour * cls->colour_step;
}

/* A tail that an earlier slab has touched, and this one never will, is given back if it is at least this part of the
 * slots. */
#define HK_TAIL_PART 4u

bool hk_class_has_tail(unsigned class_number)
{
    const struct hk_class *cls = &hk_classes[class_number];
    size_t slots = cls->slots * HK_SLOT_SIZE;
    return slots - (size_t)cls->nblocks * cls->size >= slots / HK_TAIL_PART;
}

void hk_slab_trim_tail(struct hk_slab *slab, unsigned class_number)
{
    const struct hk_class *cls = &hk_classes[class_number];
    size_t end = hk_colour_offset(slab, cls) + (size_t)cls->nblocks * cls->size;
    end = hk_align_up(end, hk_os_page_size());
    struct hk_slot *slots = hk_slab_slots(slab);
    size_t touched = hk_slots_touched(slots, cls->slots);
    if (touched > end && touched - end >= cls->slots * HK_SLOT_SIZE / HK_TAIL_PART &&
        !hk_superslab_is_huge(slab->superslab) &&
        hk_os_purge(hk_slab_first_slot(slab) + end, cls->slots * HK_SLOT_SIZE - end))
        hk_slots_limit_touched(slots, cls->slots, end);
}

static uint64_t *hk_slab_bitmap(struct hk_slab *slab, const struct hk_class *cls)
{
    return cls->nblocks <= HK_WORD_BITS                        ? &slab->free_word
           : cls->nblocks <= HK_SLAB_WORDS_NEAR * HK_WORD_BITS ? slab->free_words
                                                               : hk_slab_table(slab)->free[slab->slot];
}

void hk_slab_init(struct hk_slab *slab, unsigned class_number, struct hk_heap *owner)
{
    const struct hk_class *cls = &hk_classes[class_number];
    size_t start = hk_colour_offset(slab, cls);
    slab->blocks = hk_slab_first_slot(slab) + start;
    slab->cls = (uint8_t)class_number;
    slab->slots = cls->slots;
    struct hk_slot *slots = hk_slab_slots(slab);
    hk_slots_join(slots, cls->slots);
    slab->settle_at = 0; /* until it is in a bin */
    slab->nabsent = slab->idle_counted = 0;
    slab->next = slab->prev = NULL;
    hk_slab_set_nfree(slab, cls->nblocks);
    size_t touched = hk_slots_touched(slots, cls->slots);
    size_t fresh_from = touched <= start ? 0 : hk_div_up(touched - start, cls->size);
    slab->fresh_from = (uint16_t)hk_min(fresh_from, cls->nblocks);
    uint64_t *free = slab->free = hk_slab_bitmap(slab, cls);
    unsigned words = hk_slab_nwords(slab);
    for (unsigned w = 0; w < words; w++)
        hk_set_visibly(&free[w], hk_low_mask64(cls->nblocks - w * HK_WORD_BITS));
    slab->nonempty = hk_low_mask32(words);
    hk_slab_set_owner(slab, owner);
}

void hk_slab_fini(struct hk_slab *slab)
{
    hk_assert(hk_slab_is_empty(slab));
    size_t start = (size_t)(slab->blocks - hk_slab_first_slot(slab));
    size_t touched = slab->fresh_from == 0 ? 0 : start + (size_t)slab->fresh_from * hk_slab_class(slab)->size;
    struct hk_slot *slots = hk_slab_slots(slab);
    size_t before = hk_slots_touched(slots, slab->slots);
    hk_slots_set_touched(slots, slab->slots, hk_max(touched, before));
    for (unsigned i = 0; slab->holed && i < slab->slots; i++)
        slots[i].absent_pages = 0;
    slab->holed = false;
    hk_slab_write_keys(slab, ((hk_key)slab->cls << HK_KEY_SHIFT) | HK_KEY_GONE);
    atomic_store_explicit(&slab->owner, NULL, memory_order_seq_cst);
}

/* True if the set bits of a word are one row, as those of memory that was never used or was freed in order. */
static bool hk_word_is_row(uint64_t bits, unsigned lowest)
{
    uint64_t behind = bits + (bits & -bits); /* the bit behind the lowest run; no other is left of one run */
    return (bits & behind) == 0 && bits >> lowest >= (1u << HK_ROW_MIN) - 1;
}

/* Stores n blocks that lie next to each other, from p on, below end, the lowest next to it. Returns the end of what is
 * stored. */
static void **hk_row_store(void **end, char *p, size_t size, unsigned n)
{
    for (; n > 0; n--, p += size)
        *--end = p;
    return end;
}

/* Sets a word of the free bitmap, and what nonempty says of it. */
static void hk_slab_set_word(struct hk_slab *slab, unsigned w, uint64_t word)
{
    hk_set_visibly(&slab->free[w], word);
    slab->nonempty = (slab->nonempty & ~(1u << w)) | (uint32_t)(word != 0) << w;
}

unsigned hk_slab_take(struct hk_slab *slab, void **end, unsigned want)
{
    if (HK_UNLIKELY(slab->holed))
        return hk_holes_take(slab, end, want);
    const size_t size = hk_slab_class(slab)->size;
    void **next = end;
    void **last = end - want;
    unsigned past = 0;
    while (next > last && slab->nonempty != 0) {
        unsigned w = hk_lowest_bit32(slab->nonempty);
        uint64_t bits = slab->free[w];
        char *base = slab->blocks + (size_t)w * HK_WORD_BITS * size;
        unsigned bit = hk_lowest_bit64(bits);
        if (hk_word_is_row(bits, bit)) {
            unsigned n = (unsigned)hk_min(hk_highest_bit64(bits) - bit + 1, (size_t)(next - last));
            next = hk_row_store(next, base + bit * size, size, n);
            bit += n - 1;
            bits &= ~hk_low_mask64(bit + 1);
        } else {
            do {
                bit = hk_lowest_bit64(bits);
                bits &= bits - 1;
                *--next = base + bit * size;
            } while (next > last && bits != 0);
        }
        past = w * HK_WORD_BITS + bit + 1;
        hk_slab_set_word(slab, w, bits);
    }
    unsigned got = (unsigned)(end - next);
    hk_slab_set_nfree(slab, slab->nfree - got);
    if (past > slab->fresh_from)
        slab->fresh_from = (uint16_t)past;
    return got;
}

bool hk_slab_put_row(struct hk_slab *slab, const struct hk_class *cls, const char *p, unsigned n)
{
    unsigned first;
    if (!hk_slab_find(slab, cls, p, &first) || first + n > cls->nblocks)
        return false;
    unsigned end = first + n;
    for (unsigned w = first / HK_WORD_BITS; w * HK_WORD_BITS < end; w++)
        if (HK_UNLIKELY((slab->free[w] & hk_word_mask64(w, first, end)) != 0))
            return false;
    for (unsigned w = first / HK_WORD_BITS; w * HK_WORD_BITS < end; w++)
        hk_slab_put_word(slab, w, hk_word_mask64(w, first, end));
    return true;
}

uint64_t hk_slab_put_word(struct hk_slab *slab, unsigned word, uint64_t mask)
{
    uint64_t twice = slab->free[word] & mask;
    hk_slab_set_word(slab, word, slab->free[word] | mask);
    hk_slab_set_nfree(slab, slab->nfree + hk_count_bits64(mask & ~twice));
    return twice;
}

void hk_slab_withdraw_word(struct hk_slab *slab, unsigned word, uint64_t mask)
{
    hk_assert((slab->free[word] & mask) == mask);
    hk_slab_set_word(slab, word, slab->free[word] & ~mask);
    hk_slab_set_nfree(slab, slab->nfree - hk_count_bits64(mask));
}

void hk_slab_check(struct hk_slab *slab)
{
    const uint64_t *free = slab->free;
    unsigned nfree = 0;
    for (unsigned w = 0; w < hk_slab_nwords(slab); w++) {
        hk_assert((free[w] != 0) == ((slab->nonempty >> w) & 1));
        nfree += hk_count_bits64(free[w]);
    }
    hk_assert(nfree == slab->nfree);
    hk_assert(hk_holes_count_absent(slab) == slab->nabsent);
    (void)nfree;
}
