#include "heap/heap.h"

#include "heap/clock.h"
#include "heap/heaps.h"
#include "heap/hole.h"
#include "heap/regret.h"
#include "heap/purge.h"

/* ---- Slabs in bins ---- */

/* The number of free blocks at which a slab leaves its bin. */
static unsigned hk_bin_end(const struct hk_slab *slab, uint8_t bin)
{
    unsigned nblocks = hk_slab_class(slab)->nblocks;
    return bin == HK_BIN_FULL || bin == HK_BIN_UNBACKED ? slab->nfree + 1u
           : bin == HK_BIN_QUARTER                      ? (nblocks + 3) / 4
           : bin == HK_BIN_HALF                         ? (nblocks + 1) / 2
                                                        : nblocks;
}

static void hk_bin_set(struct hk_slab *slab, uint8_t bin)
{
    slab->bin = bin;
    slab->settle_at = (uint16_t)hk_bin_end(slab, bin);
}

static void hk_bin_unlink(struct hk_heap *heap, struct hk_slab *slab)
{
    if (slab->bin == HK_BIN_FULL || slab->bin == HK_BIN_CURRENT)
        return;
    hk_slab_unlink(&heap->classes[slab->cls].bins[slab->bin], slab);
    hk_bin_set(slab, HK_BIN_FULL);
}

static void hk_bin_link(struct hk_heap *heap, struct hk_slab *slab, uint8_t bin)
{
    hk_bin_set(slab, bin);
    hk_slab_link(&heap->classes[slab->cls].bins[bin], slab);
}

static uint8_t hk_bin_of(struct hk_slab *slab)
{
    unsigned nblocks = hk_slab_class(slab)->nblocks;
    return slab->nfree == 0             ? HK_BIN_FULL
           : hk_slab_nidle(slab) == 0   ? HK_BIN_UNBACKED
           : slab->nfree * 4u < nblocks ? HK_BIN_QUARTER
           : slab->nfree * 2u < nblocks ? HK_BIN_HALF
                                        : HK_BIN_MOST;
}

/* True if slabs in bins have free blocks with memory. */
static bool hk_class_has_idle_blocks(const struct hk_heap_class *cls)
{
    return cls->bins[HK_BIN_QUARTER] != NULL || cls->bins[HK_BIN_HALF] != NULL || cls->bins[HK_BIN_MOST] != NULL;
}

bool hk_heap_has_idle_blocks(const struct hk_heap *heap, unsigned class_number)
{
    const struct hk_heap_class *cls = &heap->classes[class_number];
    return (cls->current != NULL && hk_slab_nidle(cls->current) != 0) || hk_class_has_idle_blocks(cls);
}

static bool hk_class_has_blocks(const struct hk_heap_class *cls)
{
    return (cls->current != NULL && cls->current->nfree != 0) || hk_class_has_idle_blocks(cls) ||
           cls->bins[HK_BIN_UNBACKED] != NULL;
}

static void hk_heap_count_slab(struct hk_heap *heap, unsigned cls, int more)
{
    hk_set_visibly(&heap->classes[cls].nslabs, heap->classes[cls].nslabs + (uint32_t)more);
    heap->slab_bytes += (size_t)more * hk_classes[cls].slots * HK_SLOT_SIZE;
}

static void hk_heap_count_idle(struct hk_heap *heap, size_t more) { hk_add_visibly(&heap->idle_bytes, more); }

/* Updates the heap's sum of idle bytes, after a slab's free blocks have changed or before the slab leaves the heap. */
static void hk_slab_account(struct hk_heap *heap, struct hk_slab *slab, unsigned idle)
{
    hk_heap_count_idle(heap, ((size_t)idle - slab->idle_counted) * hk_slab_class(slab)->size);
    slab->idle_counted = (uint16_t)idle;
}

static void hk_slab_mark_used(struct hk_slab *slab) { hk_set_visibly(&slab->used_at, hk_clock_now()); }

static unsigned hk_warm_room(const struct hk_heap *heap) { return HK_WARM_SLOTS << heap->warm.doubled; }

/* True if slabs of a class leave their slots, as they are, to the next slabs of the heap, and take over theirs. Not if
 * they would have to give back what another class has touched, nor in a heap that no thread runs. */
static bool hk_warm_serves(const struct hk_heap *heap, unsigned cls)
{
    return hk_class_fills_slot(cls) && heap->state == HK_HEAP_RUNNING;
}

/* Gives n slots back to the pool, those that have been warm the longest. */
static void hk_warm_give(struct hk_heap *heap, unsigned n)
{
    hk_pool_release_slots(heap->warm.slots, n);
    heap->warm.n -= (uint8_t)n;
    for (unsigned i = 0; i < heap->warm.n; i++)
        heap->warm.slots[i] = heap->warm.slots[i + n];
}

static void hk_slab_release(struct hk_heap *heap, struct hk_slab *slab)
{
    hk_slab_account(heap, slab, 0);
    hk_bin_unlink(heap, slab);
    hk_heap_count_slab(heap, slab->cls, -1);
    heap->counts.slabs_released++;
    heap->released = true;
    if (HK_UNLIKELY(slab->holed)) /* they went in vain: the slots would have served the next slab with them */
        hk_regret_holes(hk_holes_bytes(slab));
    hk_slab_fini(slab);
    if (hk_warm_serves(heap, slab->cls)) {
        if (heap->warm.n >= hk_warm_room(heap))
            hk_warm_give(heap, heap->warm.n / 4u); /* one at a time where nobody contends */
        heap->warm.slots[heap->warm.n++] = slab;   /* for the next slab */
    } else {
        hk_pool_release_run(slab, slab->slots);
    }
}

/* An empty slab is kept if no other slab of its class has free blocks, so that a class that comes and goes does not
 * open and release a slab each time; but not a long run, and not by the orphans' heap. */
#define HK_KEEP_SLOTS_MAX 1

void hk_slab_settle(struct hk_heap *heap, struct hk_slab *slab)
{
    struct hk_heap_class *cls = &heap->classes[slab->cls];
    bool current = slab->bin == HK_BIN_CURRENT;
    hk_slab_account(heap, slab, hk_slab_nidle(slab));
    if (HK_UNLIKELY(hk_slab_is_empty(slab))) {
        if (!current)
            hk_bin_unlink(heap, slab);
        else
            cls->current = NULL;
        bool keep = slab->slots <= HK_KEEP_SLOTS_MAX && heap->state != HK_HEAP_ORPHANS;
        if (!keep || hk_class_has_blocks(cls)) {
            hk_bin_set(slab, HK_BIN_FULL);
            hk_slab_release(heap, slab);
            return;
        }
        if (current) {
            cls->current = slab;
            return;
        }
    }
    uint8_t bin = hk_bin_of(slab);
    if (current || bin == slab->bin) {
        hk_bin_set(slab, slab->bin);
        return;
    }
    hk_bin_unlink(heap, slab);
    if (bin != HK_BIN_FULL)
        hk_bin_link(heap, slab, bin);
}

void hk_heap_release_warm(struct hk_heap *heap)
{
    hk_warm_give(heap, heap->warm.n);
    heap->warm.doubled = 0;
}

void hk_heap_release_empty(struct hk_heap *heap, unsigned class_number)
{
    struct hk_heap_class *cls = &heap->classes[class_number];
    if (cls->current != NULL && hk_slab_is_empty(cls->current)) {
        hk_bin_set(cls->current, HK_BIN_FULL);
        hk_slab_release(heap, cls->current);
        cls->current = NULL;
    }
    for (unsigned bin = HK_BIN_MOST; bin < HK_NBINS; bin++) {
        for (struct hk_slab *slab = cls->bins[bin], *next; slab != NULL; slab = next) {
            next = slab->next;
            if (hk_slab_is_empty(slab))
                hk_slab_release(heap, slab);
        }
    }
}

struct hk_slab *hk_heap_next_slab(struct hk_heap *heap, unsigned class_number)
{
    struct hk_heap_class *cls = &heap->classes[class_number];
    if (cls->current != NULL) {
        hk_bin_set(cls->current, HK_BIN_FULL);
        if (cls->current->nfree != 0)
            hk_bin_link(heap, cls->current, hk_bin_of(cls->current));
    }
    cls->current = NULL;
    for (unsigned bin = HK_BIN_QUARTER; bin < HK_NBINS; bin++) {
        struct hk_slab *slab = cls->bins[bin];
        if (slab != NULL) {
            hk_bin_unlink(heap, slab);
            hk_bin_set(slab, HK_BIN_CURRENT);
            cls->current = slab;
            return slab;
        }
    }
    return NULL;
}

void hk_slab_change_owner(struct hk_heap *from, struct hk_slab *slab, struct hk_heap *to)
{
    if (slab->bin == HK_BIN_CURRENT) {
        from->classes[slab->cls].current = NULL;
        hk_bin_set(slab, HK_BIN_FULL);
    }
    hk_bin_unlink(from, slab);
    hk_heap_count_slab(from, slab->cls, -1);
    hk_slab_account(from, slab, 0); /* the new owner counts idle bytes when blocks come or go */
    hk_slab_set_owner(slab, to);
    hk_heap_count_slab(to, slab->cls, 1);
}

/* ---- Opening slabs ---- */

/* Threads that open and release slabs all the time meet at the pool's lock, the more the more of them there are. A heap
 * that meets others there, and so comes back with spare slots, has room for twice as many the next time, up to this
 * part of the slots of its slabs; one that meets nobody, for half as many. */
#define HK_WARM_PART 8u

static void hk_warm_adapt(struct hk_heap *heap, bool contended)
{
    unsigned doubled = 2 * hk_warm_room(heap);
    if (!contended)
        heap->warm.doubled = (uint8_t)hk_sub_sat(heap->warm.doubled, 1);
    else if (doubled <= HK_WARM_SLOTS_MAX && doubled <= heap->slab_bytes / HK_SLOT_SIZE / HK_WARM_PART)
        heap->warm.doubled++;
}

static struct hk_slab *hk_heap_acquire_slots(struct hk_heap *heap, unsigned cls)
{
    if (hk_classes[cls].slots != 1)
        return hk_pool_acquire_run(heap->key, cls, &heap->grown_bytes);
    if (!hk_warm_serves(heap, cls)) {
        struct hk_slab *slab = NULL;
        hk_pool_acquire_slots(heap->key, cls, &slab, 1, &heap->grown_bytes);
        return slab;
    }
    if (heap->warm.n > 0) {
        heap->counts.warm_hits++;
        return heap->warm.slots[--heap->warm.n];
    }
    struct hk_slab *acquired[HK_WARM_SLOTS_MAX];
    unsigned got = hk_pool_acquire_slots(heap->key, cls, acquired, hk_warm_room(heap), &heap->grown_bytes);
    if (got == 0)
        return NULL;
    hk_warm_adapt(heap, got > 1);
    heap->counts.warm_prefills += got > 1;
    /* What was acquired first is used first. */
    while (got > 1)
        heap->warm.slots[heap->warm.n++] = acquired[--got];
    return acquired[0];
}

/* A heap that has begun to use this many bytes that had no memory pays for them with idle memory. */
#define HK_GROWTH_STEP HK_SUPERSLAB_SIZE

static struct hk_slab *hk_heap_open_slab(struct hk_heap *heap, unsigned cls, struct hk_fault *fault)
{
    struct hk_slab *slab = hk_heap_adopt(heap, cls, fault);
    if (slab == NULL) {
        if (heap->grown_bytes >= HK_GROWTH_STEP) {
            hk_purge_pay(heap->grown_bytes, heap);
            heap->grown_bytes = 0;
        }
        slab = hk_heap_acquire_slots(heap, cls);
        if (slab == NULL)
            return NULL;
        hk_slab_trim_tail(slab, cls);
        hk_slab_init(slab, cls, heap);
        hk_heap_count_slab(heap, cls, 1);
        heap->counts.slabs_opened++;
    }
    heap->classes[cls].current = slab;
    hk_bin_set(slab, HK_BIN_CURRENT);
    return slab;
}

/* ---- Blocks ---- */

unsigned hk_heap_take(struct hk_heap *heap, unsigned class_number, void **end, unsigned want, bool *fresh,
                      struct hk_fault *fault)
{
    hk_assert(hk_lock_held_by_me(&heap->lock));
    struct hk_heap_class *cls = &heap->classes[class_number];
    unsigned got = 0;
    while (got < want) {
        struct hk_slab *slab = cls->current;
        if (slab == NULL || slab->nfree == 0 || (hk_slab_nidle(slab) == 0 && hk_class_has_idle_blocks(cls))) {
            slab = hk_heap_next_slab(heap, class_number);
            /* No new slab for what is beyond need. */
            if (slab == NULL && (got > 0 || (slab = hk_heap_open_slab(heap, class_number, fault)) == NULL))
                break;
        }
        unsigned idle = hk_slab_nidle(slab);
        if (idle == 0 && got > 0)
            break; /* nor memory that was never used */
        uint16_t fresh_from = slab->fresh_from;
        got += hk_slab_take(slab, end - got, idle == 0 ? want : (unsigned)hk_min(want - got, idle));
        hk_slab_account(heap, slab, hk_slab_nidle(slab));
        hk_slab_mark_used(slab);
        heap->grown_bytes += (size_t)(slab->fresh_from - fresh_from) * hk_classes[class_number].size;
        if (fresh != NULL)
            *fresh = slab->fresh_from != fresh_from;
    }
    return got;
}

void *hk_heap_take_one(struct hk_heap *heap, unsigned cls, bool *fresh, struct hk_fault *fault)
{
    void *p = NULL;
    heap->counts.single_blocks += hk_heap_take(heap, cls, &p + 1, 1, fresh, fault);
    return p;
}

bool hk_slab_of_or_fault(const void *p, struct hk_slab **slab, struct hk_fault *fault)
{
    *slab = hk_slab_of(p);
    if (HK_UNLIKELY(*slab == NULL))
        hk_fault_note(fault, hk_key_fault(p, hk_key_of_any(p)));
    return *slab != NULL;
}

struct hk_heap *hk_block_owner(const void *p, struct hk_fault *fault)
{
    struct hk_slab *slab;
    if (!hk_slab_of_or_fault(p, &slab, fault))
        return NULL;
    struct hk_heap *owner = hk_slab_owner(slab);
    if (HK_UNLIKELY(owner == NULL)) /* released meanwhile: no block of it was live */
        hk_fault_note(fault, hk_fault_freed_twice(p, hk_slab_class(slab)->size));
    return owner;
}

bool hk_block_in_use(const void *p)
{
    struct hk_slab *slab = hk_slab_of(p);
    return slab != NULL && hk_slab_uses(slab, hk_slab_class(slab), p);
}

HK_COLD static void hk_heap_refuse(struct hk_slab *slab, const void *p, struct hk_fault *fault)
{
    unsigned index;
    if (hk_slab_index(slab, p, &index, fault))
        hk_fault_note(fault, hk_slab_double_free(slab, index));
}

/* Inlined into hk_heap_put_class. */
HK_ALWAYS_INLINE unsigned hk_heap_put(struct hk_heap *heap, const struct hk_class *cls, void *const *blocks, unsigned n,
                                      uint32_t now, struct hk_fault *fault)
{
    struct hk_slab *slab = hk_slab_at(blocks[0], cls);
    unsigned put = hk_slab_put(slab, cls, blocks, n);
    if (HK_UNLIKELY(put == 0)) {
        hk_heap_refuse(slab, blocks[0], fault);
        return 1;
    }
    hk_set_visibly(&slab->used_at, now);
    slab->idle_counted += (uint16_t)put; /* a slab that was adopted is counted as a whole when it settles */
    hk_heap_count_idle(heap, (size_t)put * cls->size);
    if (HK_UNLIKELY(slab->nfree >= slab->settle_at))
        hk_slab_settle(heap, slab);
    return put;
}

void hk_heap_put_class(struct hk_heap *heap, unsigned class_number, void *const *blocks, unsigned n,
                       struct hk_fault *fault)
{
    const struct hk_class *cls = &hk_classes[class_number];
    hk_key key = heap->key | class_number;
    uint32_t now = hk_clock_now();
    for (unsigned i = 0; i < n;) {
        if (HK_LIKELY(hk_key_of_any(blocks[i]) == key)) {
            i += hk_heap_put(heap, cls, blocks + i, n - i, now, fault);
        } else {
            if (hk_block_owner(blocks[i], fault) != NULL)
                hk_fault_note(fault, hk_fault_freed_twice(blocks[i], cls->size));
            i++;
        }
    }
}

/* ---- Guests ---- */

/* A class gets slabs of its own when it has been asked for this often within a window of this many exchanges of the
 * heap. Exchanges of guests are not counted: else many classes in turn would keep each other guests for ever. */
#define HK_CLASS_GUEST_ALLOCS 32u
#define HK_CLASS_GUEST_WINDOW 256u

bool hk_heap_count_guest_alloc(struct hk_heap *heap, unsigned cls)
{
    struct hk_heap_class *c = &heap->classes[cls];
    if (c->nslabs != 0)
        return false;
    uint32_t now = heap->budget.exchanges;
    if (c->guest_allocs == 0 || now - c->guest_since > HK_CLASS_GUEST_WINDOW) {
        c->guest_allocs = 0;
        c->guest_since = now;
    }
    if (c->guest_allocs == HK_CLASS_GUEST_ALLOCS)
        return false;
    c->guest_allocs++;
    return true;
}

void hk_heap_check(struct hk_heap *heap)
{
    size_t slab_bytes = 0;
    hk_assert(heap->warm.n <= hk_warm_room(heap) && hk_warm_room(heap) <= HK_WARM_SLOTS_MAX);
    for (unsigned cls = 0; cls < HK_NCLASSES; cls++) {
        slab_bytes += heap->classes[cls].nslabs * (size_t)hk_classes[cls].slots * HK_SLOT_SIZE;
        for (unsigned bin = HK_BIN_QUARTER; bin < HK_NBINS; bin++)
            for (struct hk_slab *slab = heap->classes[cls].bins[bin]; slab != NULL; slab = slab->next) {
                hk_assert(hk_slab_owner(slab) == heap && slab->cls == cls && slab->bin == bin);
                hk_slab_check(slab);
            }
    }
    hk_assert(slab_bytes == heap->slab_bytes);
}
