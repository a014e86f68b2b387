#include "heap/hole.h"

#include <string.h>

#include "base/os.h"
#include "heap/huge_pages.h"
#include "heap/purge_counts.h"
#include "heap/regret.h"

/* Blocks lo to hi of a slab, both included; none if lo > hi. */
struct hk_block_range {
    unsigned lo, hi;
};

static unsigned hk_page_shift(void) { return hk_lowest_bit64(hk_os_page_size()); }

static unsigned hk_pages_per_slot_shift(void) { return HK_SLOT_SHIFT - hk_page_shift(); }

static uint16_t *hk_absent_pages(struct hk_slab *slab, unsigned page)
{
    return &hk_slab_slots(slab)[page >> hk_pages_per_slot_shift()].absent_pages;
}

static uint16_t hk_page_bit(unsigned page)
{
    return (uint16_t)(1u << (page & hk_low_mask32(hk_pages_per_slot_shift())));
}

static bool hk_page_is_absent(struct hk_slab *slab, unsigned page)
{
    return (*hk_absent_pages(slab, page) & hk_page_bit(page)) != 0;
}

/* The first absent page from page to last; last + 1 if there is none. */
static unsigned hk_next_absent_page(struct hk_slab *slab, unsigned page, unsigned last)
{
    unsigned in_slot = hk_low_mask32(hk_pages_per_slot_shift());
    for (; page <= last; page = (page | in_slot) + 1) {
        unsigned absent = *hk_absent_pages(slab, page) & ~(hk_page_bit(page) - 1u);
        if (absent != 0)
            return (unsigned)hk_min((page & ~in_slot) + hk_lowest_bit32(absent), last + 1u);
    }
    return last + 1;
}

/* Where the slab's first block starts in its first slot. */
static size_t hk_first_offset(const struct hk_slab *slab) { return (uintptr_t)slab->blocks & (HK_SLOT_SIZE - 1); }

static struct hk_block_range hk_blocks_on_page(const struct hk_slab *slab, unsigned page)
{
    const struct hk_class *cls = hk_slab_class(slab);
    size_t first = hk_first_offset(slab);
    size_t begin = (size_t)page << hk_page_shift();
    size_t end = begin + hk_os_page_size();
    if (end <= first || begin >= first + (size_t)cls->nblocks * cls->size)
        return (struct hk_block_range){1, 0};
    unsigned hi = hk_class_index(cls, end - 1 - first);
    return (struct hk_block_range){begin <= first ? 0 : hk_class_index(cls, begin - first),
                                   (unsigned)hk_min(hi, cls->nblocks - 1u)};
}

static unsigned hk_first_page_of(const struct hk_slab *slab, unsigned block)
{
    return (unsigned)((hk_first_offset(slab) + (size_t)block * hk_slab_class(slab)->size) >> hk_page_shift());
}

static unsigned hk_last_page_of(const struct hk_slab *slab, unsigned block)
{
    return (unsigned)((hk_first_offset(slab) + (size_t)(block + 1) * hk_slab_class(slab)->size - 1) >> hk_page_shift());
}

/* The blocks of a range that lie in word w, as bits of that word. */
static uint64_t hk_range_in_word(struct hk_block_range range, unsigned w)
{
    return hk_word_mask64(w, range.lo, range.hi + 1);
}

/* The blocks of word w that touch an absent page. */
static uint64_t hk_absent_in_word(struct hk_slab *slab, unsigned w)
{
    unsigned first = w * HK_WORD_BITS, nblocks = hk_slab_class(slab)->nblocks;
    unsigned last_page = hk_last_page_of(slab, (unsigned)hk_min(first + HK_WORD_BITS - 1, nblocks - 1));
    unsigned page = hk_next_absent_page(slab, hk_first_page_of(slab, first), last_page);
    uint64_t absent = 0;
    for (; page <= last_page; page = hk_next_absent_page(slab, page + 1, last_page))
        absent |= hk_range_in_word(hk_blocks_on_page(slab, page), w);
    return absent;
}

unsigned hk_holes_count_absent(struct hk_slab *slab)
{
    const uint64_t *free = slab->free;
    unsigned n = 0;
    for (uint32_t words = slab->nonempty; words != 0; words &= words - 1) {
        unsigned w = hk_lowest_bit32(words);
        n += hk_count_bits64(free[w] & hk_absent_in_word(slab, w));
    }
    return n;
}

/* ---- Giving pages back ---- */

static bool hk_range_is_free(struct hk_slab *slab, struct hk_block_range range)
{
    const uint64_t *free = slab->free;
    for (unsigned w = range.lo / HK_WORD_BITS; w <= range.hi / HK_WORD_BITS; w++) {
        uint64_t mask = hk_range_in_word(range, w);
        if ((free[w] & mask) != mask)
            return false;
    }
    return true;
}

/* How many pages, from the slab's start, may have memory: what was never handed out has none. */
static unsigned hk_pages_used(const struct hk_slab *slab)
{
    return slab->fresh_from == 0 ? 0 : hk_last_page_of(slab, slab->fresh_from - 1u) + 1;
}

static unsigned hk_last_block_of(const struct hk_holes *holes)
{
    unsigned w = HK_SLAB_WORDS - 1;
    while (holes->blocks[w] == 0)
        w--;
    return w * HK_WORD_BITS + hk_highest_bit64(holes->blocks[w]);
}

bool hk_holes_open(struct hk_holes *holes, struct hk_slab *slab)
{
    memset(holes, 0, sizeof *holes);
    holes->slab = slab;
    bool any = false;
    unsigned pages = hk_pages_used(slab);
    for (unsigned page = 0; page < pages; page++) {
        struct hk_block_range range = hk_blocks_on_page(slab, page);
        if (range.lo > range.hi || hk_page_is_absent(slab, page) || !hk_range_is_free(slab, range))
            continue;
        any = true;
        holes->pages[page >> hk_pages_per_slot_shift()] |= hk_page_bit(page);
        for (unsigned w = range.lo / HK_WORD_BITS; w <= range.hi / HK_WORD_BITS; w++)
            holes->blocks[w] |= hk_range_in_word(range, w);
    }
    if (!any)
        return false;
    /* A block that was never handed out but begins on one of these pages counts as if it had been. */
    unsigned last = hk_last_block_of(holes);
    if (last >= slab->fresh_from)
        slab->fresh_from = (uint16_t)(last + 1);
    slab->opened++;
    for (unsigned w = 0; w < hk_slab_nwords(slab); w++)
        if (holes->blocks[w] != 0)
            hk_slab_withdraw_word(slab, w, holes->blocks[w]);
    slab->nabsent = (uint16_t)hk_holes_count_absent(slab);
    return true;
}

size_t hk_holes_purge(struct hk_holes *holes)
{
    const struct hk_slab *slab = holes->slab;
    char *start = slab->blocks - hk_first_offset(slab);
    unsigned per_slot = hk_pages_per_slot_shift();
    unsigned pages = (unsigned)slab->slots << per_slot;
    unsigned first = hk_first_page_of(slab, 0);
    unsigned last = hk_last_page_of(slab, hk_slab_class(slab)->nblocks - 1u);
    size_t bytes = 0;
    hk_huge_pages_end_unlocked(slab->superslab);
    for (unsigned page = 0; page < pages;) {
        unsigned end = page;
        while (end < pages && (holes->pages[end >> per_slot] & hk_page_bit(end)) != 0)
            end++;
        if (end == page) {
            page++;
            continue;
        }
        size_t size = (size_t)(end - page) << hk_page_shift();
        /* What lies before the first block or behind the last has memory if the superslab was populated, or another
         * slab had the slots before; it goes with the page of that block. */
        unsigned from = page == first ? 0 : page, to = end == last + 1 ? pages : end;
        if (hk_os_purge(start + ((size_t)from << hk_page_shift()), (size_t)(to - from) << hk_page_shift())) {
            bytes += size;
            page = end;
        } else {
            for (; page < end; page++)
                holes->pages[page >> per_slot] &= (uint16_t)~hk_page_bit(page);
        }
    }
    return bytes;
}

void hk_holes_close(struct hk_holes *holes, struct hk_fault *fault)
{
    struct hk_slab *slab = holes->slab;
    slab->opened--;
    for (unsigned slot = 0; slot < slab->slots; slot++) {
        hk_slab_slots(slab)[slot].absent_pages |= holes->pages[slot];
        slab->holed |= holes->pages[slot] != 0;
    }
    for (unsigned w = 0; w < hk_slab_nwords(slab); w++) {
        uint64_t twice = holes->blocks[w] == 0 ? 0 : hk_slab_put_word(slab, w, holes->blocks[w]);
        if (HK_UNLIKELY(twice != 0)) /* freed a second time while they were out */
            hk_fault_note_late(fault, hk_slab_double_free(slab, w * HK_WORD_BITS + hk_lowest_bit64(twice)));
    }
    slab->nabsent = (uint16_t)hk_holes_count_absent(slab);
}

size_t hk_holes_bytes(const struct hk_slab *slab)
{
    size_t pages = 0;
    for (unsigned slot = 0; slot < slab->slots; slot++)
        pages += hk_count_bits32(hk_slab_slots(slab)[slot].absent_pages);
    return pages * hk_os_page_size();
}

/* ---- Handing blocks out ---- */

/* A block has just left the free bitmap: its pages have memory from now on, and so may its neighbours. */
static void hk_block_return(struct hk_slab *slab, unsigned block)
{
    unsigned returned = 0;
    for (unsigned page = hk_first_page_of(slab, block); page <= hk_last_page_of(slab, block); page++) {
        returned += hk_page_is_absent(slab, page);
        *hk_absent_pages(slab, page) &= (uint16_t)~hk_page_bit(page);
    }
    if (returned == 0)
        return;
    slab->nabsent = (uint16_t)hk_holes_count_absent(slab);
    hk_add(&hk_purge_counts.hole_bytes_returned, returned * hk_os_page_size());
    hk_regret(returned * hk_os_page_size());
}

unsigned hk_holes_take(struct hk_slab *slab, void **end, unsigned want)
{
    bool any_present = slab->nfree != slab->nabsent;
    unsigned got = 0;
    for (uint32_t words = slab->nonempty; words != 0 && got < want; words &= words - 1) {
        unsigned w = hk_lowest_bit32(words), past = 0;
        uint64_t bits = slab->free[w], taken = 0;
        if (any_present)
            bits &= ~hk_absent_in_word(slab, w);
        for (; bits != 0 && got < want; bits &= bits - 1) {
            unsigned block = w * HK_WORD_BITS + hk_lowest_bit64(bits);
            end[-1 - (ptrdiff_t)got++] = hk_slab_block(slab, block);
            taken |= bits & -bits;
            past = block + 1;
        }
        hk_slab_withdraw_word(slab, w, taken);
        if (past > slab->fresh_from)
            slab->fresh_from = (uint16_t)past;
        if (!any_present)
            for (; taken != 0; taken &= taken - 1)
                hk_block_return(slab, w * HK_WORD_BITS + hk_lowest_bit64(taken));
    }
    bool holed = false;
    for (unsigned slot = 0; slot < slab->slots; slot++)
        holed |= hk_slab_slots(slab)[slot].absent_pages != 0;
    slab->holed = holed;
    return got;
}
