#include "heap/large.h"

#include <string.h>

#include "base/options.h"
#include "base/os.h"
#include "heap/limit.h"
#include "heap/mapping_cache.h"
#include "heap/meta.h"
#include "heap/purge.h"
#include "heap/stretch.h"
#include "heap/surplus.h"
#include "heap/zero.h"

struct hk_lock hk_large_lock = HK_LOCK_INIT(HK_RANK_LARGE);

/* From this size on a mapping that grows is advised for huge pages, as a whole: part of it would split it. One that
 * lies where no huge page can begin, and grows into what is cached, does without. */
#define HK_HUGE_MIN ((size_t)4 << 20)

struct hk_large {
    char *start;    /* of what the program has */
    size_t usable;  /* from there on */
    char *base;     /* first byte of the run or mapping */
    size_t size;    /* of the run or mapping */
    uint32_t index; /* constant */
    bool mapping;
    bool medium; /* a mapping of at most HK_MEDIUM_MAX */
    bool huge;   /* advised, as a whole */
    struct hk_large *next_free;
};

/* Records come in chunks, so that an index leads to one without a lock. */
#define HK_RECORDS_PER_CHUNK 1024u
#define HK_RECORD_CHUNKS ((HK_KEY_ID_MAX + 1) / HK_RECORDS_PER_CHUNK)

#define HK_MAPPINGS_PART 4u /* of what the LRU cache of superslabs may keep: all cached mappings together */

static struct hk_large *_Atomic hk_records[HK_RECORD_CHUNKS]; /* constant once set */
static struct {
    struct hk_large *free;
    uint32_t nrecords;
    struct hk_large_counts counts;
} hk_large; /* guarded by hk_large_lock */

/* ---- Records ---- */

static struct hk_large *hk_record_at(uint32_t index)
{
    return atomic_load_explicit(&hk_records[index / HK_RECORDS_PER_CHUNK], memory_order_acquire) +
           index % HK_RECORDS_PER_CHUNK;
}

/* NULL if the key is no large block's any more: another thread has freed it since the caller looked. */
static struct hk_large *hk_record_of_key(hk_key key)
{
    return hk_key_kind(key) == HK_KEY_LARGE ? hk_record_at(hk_key_index(key)) : NULL;
}

static struct hk_large *hk_record_of(const void *p) { return hk_record_of_key(hk_key_of(p)); }

/* The lock is held. */
static struct hk_large *hk_record_obtain(void)
{
    struct hk_large *record = hk_large.free;
    if (record != NULL) {
        hk_large.free = record->next_free;
        return record;
    }
    uint32_t index = hk_large.nrecords;
    if (index > HK_KEY_ID_MAX)
        return NULL;
    struct hk_large *chunk = hk_get(&hk_records[index / HK_RECORDS_PER_CHUNK]);
    if (chunk == NULL) {
        chunk = hk_meta_alloc(HK_RECORDS_PER_CHUNK * sizeof *chunk, HK_CACHE_LINE);
        if (chunk == NULL)
            return NULL;
        atomic_store_explicit(&hk_records[index / HK_RECORDS_PER_CHUNK], chunk, memory_order_release);
    }
    record = &chunk[index % HK_RECORDS_PER_CHUNK];
    record->index = index;
    hk_large.nrecords++;
    return record;
}

/* Counts a block that is born, or dies. The lock is held. */
static void hk_count_block(const struct hk_large *block, bool born)
{
    struct hk_large_counts *counts = &hk_large.counts;
    size_t one = born ? 1 : (size_t)-1;
    if (block->mapping) {
        hk_add_visibly(&counts->mappings, one);
        hk_add_visibly(&counts->medium, block->medium ? one : 0);
        counts->mapping_bytes += one * block->size;
    } else {
        counts->runs += one;
        counts->run_bytes += one * block->usable;
    }
    hk_add_visibly(born ? &counts->allocs : &counts->frees, 1);
}

/* Enters a block into a record; NULL without memory. */
static struct hk_large *hk_record_begin(const struct hk_large *block)
{
    hk_lock_acquire(&hk_large_lock);
    struct hk_large *record = hk_record_obtain();
    if (record != NULL) {
        uint32_t index = record->index;
        *record = *block;
        record->index = index;
        hk_count_block(block, true);
    }
    hk_lock_release(&hk_large_lock);
    return record;
}

/* Gives the record up: it may serve another block from now on. */
static void hk_record_end(struct hk_large *record)
{
    hk_lock_acquire(&hk_large_lock);
    hk_count_block(record, false);
    record->next_free = hk_large.free;
    hk_large.free = record;
    hk_lock_release(&hk_large_lock);
}

static void hk_record_publish(const struct hk_large *record)
{
    atomic_store_explicit(hk_key_at(record->start), (record->index << HK_KEY_SHIFT) | HK_KEY_LARGE,
                          memory_order_release);
}

/* Takes the key of a block for the one who frees or moves it; false, with the present key, if another was faster. */
static bool hk_key_replace(const void *p, hk_key *key, hk_key by)
{
    return atomic_compare_exchange_strong_explicit(hk_key_at(p), key, by, memory_order_acq_rel, memory_order_relaxed);
}

static hk_key hk_gone_large(const struct hk_large *record)
{
    size_t units = record->usable / HK_GONE_UNIT;
    return (hk_key)(hk_min(units, HK_KEY_ID_MAX) << HK_KEY_SHIFT) | HK_KEY_GONE_LARGE;
}

/* Bytes of growth that are not paid for yet: if each page were paid for at once, a superslab would go for it. */
static _Atomic size_t hk_owed;

/* Growth is paid for with memory that lies idle elsewhere: so the peak stays what is live. */
static void hk_large_pay(size_t bytes)
{
    if (bytes != 0 && hk_add(&hk_owed, bytes) + bytes >= HK_SUPERSLAB_SIZE)
        hk_purge_pay_large(atomic_exchange_explicit(&hk_owed, 0, memory_order_relaxed));
}

/* ---- Runs of superslabs ---- */

/* The heads of equal buffers would all lie in one set of the cache, and of the TLB: where there is slack, the block
 * starts some pages and some cache lines into its run. */
static size_t hk_run_colour(const char *base, size_t count, size_t slack)
{
    size_t number = ((uintptr_t)base >> HK_SUPERSLAB_SHIFT) / count;
    size_t lines = number * 5 % 64 * HK_CACHE_LINE, pages = number % 16 * HK_COLOUR_PAGE;
    return pages + lines <= slack ? pages + lines : lines <= slack ? lines : 0;
}

/* From this size on a program may well use little of a zeroed block, and one that only reads it is rare. */
#define HK_LOOKED_AT_MIN ((size_t)32 << 20)

static void hk_zero_used(char *start, char *end, size_t block_size)
{
    if (block_size >= HK_LOOKED_AT_MIN)
        hk_zero(start, (size_t)(end - start));
    else
        memset(start, 0, (size_t)(end - start));
}

/* Zeroes [start, end) in superslabs that are the caller's, from `first` on, but for those that read as zeros: to write
 * to these would give them memory. No lock is held: the superslab behind the last is not looked at. */
static void hk_run_zero(const struct hk_superslab *first, char *start, char *end)
{
    char *from = start; /* from there on what comes before the superslab is to be zeroed */
    for (char *base = first->base; base < end; base += HK_SUPERSLAB_SIZE) {
        char *next = base + HK_SUPERSLAB_SIZE;
        if (!hk_superslab_of(base)->zero || next <= from)
            continue;
        if (from < base)
            hk_zero_used(from, base, (size_t)(end - start));
        from = next;
    }
    if (from < end)
        hk_zero_used(from, end, (size_t)(end - start));
}

/* Bytes of n superslabs that read as zeros: they have no memory yet. The pool's lock is held. */
static size_t hk_bytes_without_memory(const struct hk_superslab *first, size_t n)
{
    size_t zero = 0;
    for (size_t i = 0; i < n; i++)
        zero += hk_superslab_next(first, i)->zero;
    return zero * HK_SUPERSLAB_SIZE;
}

static bool hk_run_alloc(struct hk_large *block, size_t n, size_t alignment, bool zero)
{
    size_t margin = hk_sub_sat(alignment, HK_SUPERSLAB_SIZE);
    size_t count = hk_div_up(n + margin, HK_SUPERSLAB_SIZE);
    hk_lock_acquire(&hk_pool_lock);
    struct hk_superslab *first = hk_superslabs_acquire(count, HK_SUPERSLAB_LARGE);
    size_t fresh = first != NULL ? hk_bytes_without_memory(first, count) : 0;
    hk_lock_release(&hk_pool_lock);
    if (first == NULL)
        return false;
    hk_large_pay(fresh);
    block->mapping = false;
    block->huge = false;
    block->base = first->base;
    block->size = count * HK_SUPERSLAB_SIZE;
    block->start = (char *)hk_align_up((uintptr_t)first->base, alignment);
    if (alignment <= HK_MIN_ALIGN)
        block->start += hk_run_colour(first->base, count, block->size - hk_align_up(n, hk_os_page_size()));
    if (zero)
        hk_run_zero(first, block->start, block->start + n);
    return true;
}

static void hk_run_free(const struct hk_large *block)
{
    hk_lock_acquire(&hk_pool_lock);
    hk_superslabs_release(hk_superslab_of(block->base), block->size / HK_SUPERSLAB_SIZE, true);
    hk_lock_release(&hk_pool_lock);
    if (hk_superslabs_are_too_many())
        hk_superslabs_purge(hk_superslabs_max_cached(), UINT64_MAX, SIZE_MAX);
}

/* ---- Mappings ---- */

/* Counts bytes that are to be mapped, if the limits allow them: under the pool's lock, like all that makes more memory
 * be in use, so that two threads cannot both take what is left. */
static bool hk_mapped_admit_try(size_t more)
{
    hk_lock_acquire(&hk_pool_lock);
    bool allowed = hk_limit_admit(more);
    if (allowed)
        hk_mapped_add(more);
    hk_lock_release(&hk_pool_lock);
    return allowed;
}

/* Gives back what lies idle: it may be what stands in the way. */
static void hk_idle_discard(void)
{
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    hk_superslabs_unmap_free(true);
}

/* hk_mapped_admit_try; if it refuses, once more after what lies idle has gone. */
static bool hk_mapped_admit(size_t more)
{
    if (hk_mapped_admit_try(more))
        return true;
    hk_idle_discard();
    return hk_mapped_admit_try(more);
}

/* Makes a block's mapping of what is cached; false if that has no room for it. */
static bool hk_cached_take(struct hk_large *block, size_t size, size_t alignment, bool growing)
{
    hk_lock_acquire(&hk_large_lock);
    struct hk_mapping mapping = {.base = hk_mapping_cache_find(size, alignment, growing, block->medium), .huge = true};
    if (mapping.base != NULL) {
        hk_mapping_cache_give(&mapping, size, block->medium);
        hk_large.counts.cache_hits++;
        block->base = mapping.base;
        block->size = mapping.size;
        block->huge = mapping.huge;
    }
    hk_lock_release(&hk_large_lock);
    return mapping.base != NULL;
}

/* True if `size` bytes are cached in one place. */
static bool hk_is_cached(size_t size, size_t alignment, bool medium)
{
    hk_lock_acquire(&hk_large_lock);
    bool any = hk_mapping_cache_find(size, alignment, true, medium) != NULL;
    hk_lock_release(&hk_large_lock);
    return any;
}

/* Makes a block's mapping grow in place, into what is cached behind it, and by no more than `fresh` bytes beyond the
 * end of that. False, with nothing taken, if there is no such room. Returns in `fresh` how much of it was needed. */
static bool hk_mapping_extend(struct hk_large *record, size_t size, size_t *fresh)
{
    size_t before = record->size, page = hk_os_page_size();
    hk_lock_acquire(&hk_large_lock);
    size_t room = before + hk_mapping_cache_room(record->base + before, record->medium);
    size_t beyond = hk_sub_sat(size, room);
    /* The last page stands for all: the kernel may hold what is cached for another mapping. */
    bool extended =
        beyond == 0 || (beyond <= *fresh && hk_os_resize_in_place(record->base + room - page, page, page + beyond));
    if (extended) {
        struct hk_mapping mapping = {.base = record->base, .size = before, .huge = record->huge};
        hk_mapping_cache_give(&mapping, hk_min(size, room), record->medium);
        hk_large.counts.cache_hits += room > before;
        record->huge = mapping.huge;
        record->size = mapping.size + beyond;
        hk_large.counts.mapping_bytes += record->size - before;
    }
    hk_lock_release(&hk_large_lock);
    *fresh = extended ? beyond : 0;
    return extended;
}

/* Never less than a slot: so no two mappings start in the same slot, whose key they would share. */
static size_t hk_mapping_size(size_t n) { return hk_max(hk_align_up(n, hk_os_page_size()), HK_SLOT_SIZE); }

/* Where a mapping that is made may begin. */
static size_t hk_mapping_alignment(size_t size) { return size >= HK_HUGE_MIN ? HK_HUGE_PAGE : hk_os_page_size(); }

/* Pays for bytes of a mapping that nobody has touched yet. A medium one pays nothing: it would cut up what is cached
 * for large blocks. */
static void hk_mapping_pay(size_t bytes, bool medium)
{
    hk_surplus_regret_mappings(bytes);
    if (!medium)
        hk_large_pay(bytes);
}

static char *hk_mapping_make(size_t size, size_t alignment, bool growing, bool medium)
{
    char *base = growing ? hk_stretch_map(size, alignment, medium) : hk_os_map(size, alignment);
    if (base == NULL)
        return NULL;
    hk_mapping_pay(size, medium);
    if (!hk_window_prepare(base, 1)) {
        hk_os_unmap(base, size, size);
        return NULL;
    }
    return base;
}

/* The smaller a block is the less it has to gain: it may not grow on, and leaves the slabs it came from idle. */
bool hk_large_takes_medium(size_t n) { return hk_look(&hk_large.counts.medium) < hk_min(n / 1024, HK_CACHED_MEDIUM); }

static bool hk_mapping_alloc(struct hk_large *block, size_t n, size_t alignment, bool growing, bool zero)
{
    size_t size = hk_mapping_size(n);
    alignment = hk_max(alignment, hk_mapping_alignment(size));
    block->medium = growing && n <= HK_MEDIUM_MAX;
    bool cached = hk_cached_take(block, size, alignment, growing);
    if (!cached) {
        if (!hk_mapped_admit(size))
            return false;
        block->base = hk_mapping_make(size, alignment, growing, block->medium);
        block->size = size;
        block->huge = false;
        if (block->base == NULL) {
            hk_mapped_add(-size);
            return false;
        }
    }
    block->mapping = true;
    block->start = block->base;
    if (zero && cached)
        hk_zero(block->start, n);
    return true;
}

static void hk_mapping_free(const struct hk_large *block)
{
    size_t max = (hk_option(superslab_max_memory_mb) << 20) / HK_MAPPINGS_PART;
    struct hk_mapping mapping = {.base = block->base, .size = block->size, .huge = block->huge};
    bool keep = mapping.size <= max;
    hk_lock_acquire(&hk_large_lock);
    if (keep) {
        hk_mapping_cache_purge(max - mapping.size, UINT64_MAX, SIZE_MAX);
        hk_mapping_cache_add(mapping, block->medium);
    } else {
        hk_mapping_discard(mapping, block->medium);
    }
    hk_lock_release(&hk_large_lock);
}

/* Whole huge pages for a mapping that may have them: the tail is then not faulted in page by page. */
static size_t hk_growing_size(size_t n) { return n >= HK_HUGE_MIN ? hk_align_up(n, HK_HUGE_PAGE) : hk_mapping_size(n); }

static void hk_mapping_advise(struct hk_large *record)
{
    if (record->size < HK_HUGE_MIN || record->huge || hk_option(thp) == HK_THP_NEVER)
        return;
    hk_os_advise_huge(record->base, record->size);
    record->huge = true;
}

/* ---- Interface ---- */

static bool hk_memory_obtain(struct hk_large *block, size_t n, size_t alignment, enum hk_large_kind kind, bool zero)
{
    if (kind == HK_LARGE_ANY && n <= HK_LARGE_RUN_MAX && alignment <= HK_LARGE_RUN_MAX)
        return hk_run_alloc(block, n, alignment, zero);
    return hk_mapping_alloc(block, n, alignment, kind == HK_LARGE_MAPPING, zero);
}

static void hk_memory_release(const struct hk_large *block)
{
    if (block->mapping)
        hk_mapping_free(block);
    else
        hk_run_free(block);
}

void *hk_large_alloc(size_t n, size_t alignment, enum hk_large_kind kind, bool zero)
{
    struct hk_large block = {0};
    if (!hk_memory_obtain(&block, n, alignment, kind, zero)) {
        hk_idle_discard();
        /* A mapping takes less address space than a run. */
        if (!hk_memory_obtain(&block, n, alignment, HK_LARGE_MAPPING, zero))
            return NULL;
    }
    block.usable = hk_align_up(n, hk_os_page_size());
    size_t room = (size_t)(block.base + block.size - block.start);
    if (block.usable > room)
        block.usable = room;
    const struct hk_large *record = hk_record_begin(&block);
    if (record == NULL) {
        hk_memory_release(&block);
        return NULL;
    }
    hk_record_publish(record);
    return block.start;
}

size_t hk_large_purge(size_t keep, uint64_t freed_before_ms, size_t most)
{
    hk_lock_acquire(&hk_large_lock);
    size_t bytes = hk_mapping_cache_purge(keep, freed_before_ms, most);
    hk_lock_release(&hk_large_lock);
    return bytes;
}

struct hk_fault hk_large_fault(const void *p)
{
    const struct hk_large *record = hk_record_of(p);
    if (record == NULL || record->start == p)
        return hk_key_fault(p, hk_key_of(p));
    return (struct hk_fault){.kind = HK_FAULT_INSIDE, .ptr = p, .block = record->start, .block_size = record->usable};
}

bool hk_large_free(void *p, struct hk_fault *fault)
{
    hk_key key = hk_key_of(p);
    struct hk_large *record = hk_record_of_key(key);
    if (HK_UNLIKELY(record == NULL || record->start != p)) {
        hk_fault_note(fault, hk_large_fault(p));
        return false;
    }
    if (!hk_key_replace(p, &key, hk_gone_large(record))) {
        hk_fault_note(fault, hk_key_fault(p, key));
        return false;
    }
    struct hk_large block = *record;
    hk_record_end(record);
    hk_memory_release(&block);
    return true;
}

size_t hk_large_usable(const void *p)
{
    const struct hk_large *record = hk_record_of(p);
    return record != NULL && record->start == p ? record->usable : 0;
}

bool hk_large_stays(const void *p, size_t n)
{
    const struct hk_large *record = hk_record_of(p);
    return n > (record != NULL && record->medium ? HK_GROWING_MIN : HK_MEDIUM_MAX);
}

static bool hk_run_resize(struct hk_large *record, size_t n)
{
    size_t offset = (size_t)(record->start - record->base);
    size_t have = record->size / HK_SUPERSLAB_SIZE;
    size_t want = hk_div_up(offset + n, HK_SUPERSLAB_SIZE);
    size_t fresh = 0;
    bool ok = true;
    hk_lock_acquire(&hk_pool_lock);
    struct hk_superslab *first = hk_superslab_of(record->base);
    if (want < have)
        hk_superslabs_release(hk_superslab_next(first, want), have - want, true);
    else if (want > have && (ok = hk_superslabs_extend(first, have, want - have)))
        fresh = hk_bytes_without_memory(hk_superslab_next(first, have), want - have);
    hk_lock_release(&hk_pool_lock);
    hk_large_pay(fresh);
    if (ok) {
        size_t before = record->usable;
        record->size = want * HK_SUPERSLAB_SIZE;
        record->usable = hk_min(hk_align_up(n, hk_os_page_size()), record->size - offset);
        hk_lock_acquire(&hk_large_lock);
        hk_large.counts.run_bytes += record->usable - before;
        hk_lock_release(&hk_large_lock);
    }
    return ok;
}

/* Counts the new size of a mapping, which may not be a medium one any more. What it has grown by was admitted. */
static void hk_mapping_recount(struct hk_large *record, size_t size, bool medium, bool moved)
{
    if (size < record->size)
        hk_mapped_add(size - record->size);
    hk_lock_acquire(&hk_large_lock);
    hk_large.counts.mapping_bytes += size - record->size;
    hk_large.counts.remaps += moved;
    hk_add_visibly(&hk_large.counts.medium, (size_t)medium - record->medium);
    hk_lock_release(&hk_large_lock);
    record->size = size;
    record->medium = medium;
}

static bool hk_mapping_is_aligned(const struct hk_large *record)
{
    return ((uintptr_t)record->base & (HK_HUGE_PAGE - 1)) == 0;
}

/* What a medium mapping loses serves others, or this one when it grows again; what others lose goes back. If the kernel
 * refuses, the mapping is large enough as it is. */
static void hk_mapping_shrink(struct hk_large *record, size_t size)
{
    const struct hk_large end = {.base = record->base + size, .size = record->size - size, .medium = true};
    if (record->medium && end.size >= HK_SLOT_SIZE && hk_window_prepare(end.base, 1)) {
        hk_lock_acquire(&hk_large_lock);
        hk_large.counts.mapping_bytes -= end.size;
        hk_lock_release(&hk_large_lock);
        record->size = size;
        hk_mapping_free(&end);
    } else if (hk_os_resize_in_place(record->base, record->size, size)) {
        hk_mapping_recount(record, size, record->medium, false);
    }
}

static bool hk_mapping_grow(struct hk_large *record, size_t size)
{
    size_t fresh = 0, admitted = size - record->size;
    if (hk_mapping_extend(record, size, &fresh))
        return true;
    /* A mapping that is to have huge pages must start where one can: then it moves. */
    if ((size >= HK_HUGE_MIN && !hk_mapping_is_aligned(record)) || !hk_mapped_admit(admitted))
        return false;
    fresh = admitted;
    bool grown = hk_mapping_extend(record, size, &fresh);
    hk_mapped_add(fresh - admitted);
    hk_mapping_pay(fresh, record->medium);
    return grown;
}

static bool hk_mapping_resize(struct hk_large *record, size_t n)
{
    if (record->medium && n > HK_MEDIUM_MAX) /* it becomes a large one, and goes where there is room for more */
        return false;
    size_t size = hk_growing_size(n);
    bool fits = n <= record->size && (size >= record->size || n > record->usable);
    if (size < record->size && !fits)
        hk_mapping_shrink(record, size);
    else if (!fits && !hk_mapping_grow(record, size))
        return false;
    record->usable = record->size;
    if (hk_mapping_is_aligned(record))
        hk_mapping_advise(record);
    return true;
}

bool hk_large_resize(void *p, size_t n)
{
    struct hk_large *record = hk_record_of(p);
    if (HK_UNLIKELY(record == NULL || record->start != p))
        return false;
    return record->mapping ? hk_mapping_resize(record, n) : hk_run_resize(record, n);
}

/* Gives a mapping its new size, wherever there is room. Returns its address, or NULL with nothing changed. The window
 * is obtained first, as the mapping could not be moved back: another thread may have one in its place by then. */
static char *hk_mapping_move(const struct hk_large *record, size_t size)
{
    struct hk_window *window = hk_window_obtain();
    if (window == NULL)
        return NULL;
    char *to = hk_os_resize_moving(record->base, record->size, size);
    hk_window_enter(window, to != NULL ? to : record->base);
    return to;
}

void *hk_large_remap(void *p, size_t n)
{
    hk_key key = hk_key_of(p);
    struct hk_large *record = hk_record_of_key(key);
    if (record == NULL || !record->mapping)
        return NULL;
    hk_assert(record->start == record->base);
    size_t size = hk_growing_size(n);
    size_t grown = hk_sub_sat(size, record->size);
    bool medium = record->medium && n <= HK_MEDIUM_MAX;
    if (grown != 0 && record->medium &&
        hk_is_cached(size, hk_mapping_alignment(size), medium)) /* to copy it costs less than faults */
        return NULL;
    if (grown != 0 && !hk_mapped_admit(grown))
        return NULL;
    char *to = NULL;
    if (hk_key_replace(p, &key, hk_gone_large(record)) && (to = hk_mapping_move(record, size)) == NULL)
        hk_record_publish(record);
    if (to == NULL) {
        hk_mapped_add(-grown);
        return NULL;
    }
    hk_mapping_recount(record, size, medium, true);
    hk_mapping_pay(grown, medium);
    record->base = record->start = to;
    record->usable = size;
    hk_record_publish(record);
    hk_mapping_advise(record);
    return to;
}

uint32_t hk_large_calls(void) { return (uint32_t)(hk_look(&hk_large.counts.allocs) + hk_look(&hk_large.counts.frees)); }

struct hk_large_counts hk_large_read_counts(void)
{
    hk_lock_acquire(&hk_large_lock);
    struct hk_large_counts counts = hk_large.counts;
    counts.cached_bytes = hk_mapping_cache_bytes();
    hk_lock_release(&hk_large_lock);
    return counts;
}

void hk_large_after_fork(void) { hk_mapped_set(hk_large.counts.mapping_bytes + hk_mapping_cache_bytes()); }
