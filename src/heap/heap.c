#include "heap/heap.h"

#include <string.h>

#include "heap/clock.h"
#include "heap/hole.h"
#include "heap/magazine.h"
#include "heap/meta.h"
#include "heap/purge.h"
#include "heap/remote.h"

#define HK_ID_GUESTS 1u
#define HK_ID_ORPHANS 2u

struct hk_heap hk_orphans = {
    .lock = HK_LOCK_INIT(HK_RANK_HEAP), .key = HK_ID_ORPHANS << HK_KEY_SHIFT, .state = HK_HEAP_ORPHANS};
struct hk_heap hk_guests = {.lock = HK_LOCK_INIT(HK_RANK_HEAP),
                            .key = HK_ID_GUESTS << HK_KEY_SHIFT,
                            .state = HK_HEAP_GUESTS,
                            .next = &hk_orphans};

struct hk_lock hk_heaps_lock = HK_LOCK_INIT(HK_RANK_HEAPS);
struct hk_heap *_Atomic hk_heaps = &hk_guests;

static struct hk_heap *hk_parked;         /* the heap parked last; guarded by hk_heaps_lock */
static hk_key hk_last_id = HK_ID_ORPHANS; /* guarded by hk_heaps_lock */

/* ---- Slabs in bins ---- */

/* How many free blocks a slab has in a bin at most, and one more. */
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
    if (slab->prev != NULL)
        slab->prev->next = slab->next;
    else
        heap->classes[slab->class].bins[slab->bin] = slab->next;
    if (slab->next != NULL)
        slab->next->prev = slab->prev;
    hk_bin_set(slab, HK_BIN_FULL);
}

static void hk_bin_link(struct hk_heap *heap, struct hk_slab *slab, uint8_t bin)
{
    struct hk_slab **head = &heap->classes[slab->class].bins[bin];
    hk_bin_set(slab, bin);
    slab->prev = NULL;
    slab->next = *head;
    if (slab->next != NULL)
        slab->next->prev = slab;
    *head = slab;
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
static bool hk_class_has_idle_blocks(const struct hk_heap_class *class)
{
    return class->bins[HK_BIN_QUARTER] != NULL || class->bins[HK_BIN_HALF] != NULL || class->bins[HK_BIN_MOST] != NULL;
}

static bool hk_class_has_blocks(const struct hk_heap_class *class)
{
    return (class->current != NULL && class->current->nfree != 0) || hk_class_has_idle_blocks(class) ||
           class->bins[HK_BIN_UNBACKED] != NULL;
}

/* Read without the heap's lock: it decides only whether to look closer. */
static uint32_t hk_class_nslabs(const struct hk_heap *heap, unsigned class)
{
    return __atomic_load_n(&heap->classes[class].nslabs, __ATOMIC_RELAXED);
}

static void hk_class_count_slab(struct hk_heap *heap, unsigned class, int more)
{
    __atomic_store_n(&heap->classes[class].nslabs, heap->classes[class].nslabs + (uint32_t)more, __ATOMIC_RELAXED);
}

static void hk_heap_count_idle(struct hk_heap *heap, size_t more) { hk_add_visibly(&heap->idle_bytes, more); }

/* Keeps the heap's sum of idle bytes, after a slab's free blocks changed or before the slab leaves the heap. */
static void hk_slab_account(struct hk_heap *heap, struct hk_slab *slab, unsigned idle)
{
    hk_heap_count_idle(heap, ((size_t)idle - slab->idle_counted) * hk_slab_class(slab)->size);
    slab->idle_counted = (uint16_t)idle;
}

static void hk_slab_mark_used(struct hk_slab *slab)
{
    __atomic_store_n(&slab->used_at, hk_clock_now(), __ATOMIC_RELAXED);
}

/* Slabs of one slot leave it to the next, or take it, as it is; but not those that would have to give back what the
 * other has touched of it. */
static bool hk_class_may_be_warm(unsigned class) { return hk_classes[class].slots == 1 && !hk_class_has_tail(class); }

static void hk_slab_release(struct hk_heap *heap, struct hk_slab *slab)
{
    hk_slab_account(heap, slab, 0);
    hk_bin_unlink(heap, slab);
    hk_class_count_slab(heap, slab->class, -1);
    heap->counts.slabs_released++;
    heap->released = true;
    if (HK_UNLIKELY(slab->holed)) /* they went in vain: the slots would have served the next slab with them */
        hk_purge_regret(hk_holes_bytes(slab));
    hk_slab_fini(slab);
    if (hk_class_may_be_warm(slab->class) && heap->nwarm < HK_WARM_SLOTS && heap->state == HK_HEAP_RUNNING)
        heap->warm[heap->nwarm++] = slab; /* for the next slab */
    else
        hk_pool_release(slab, slab->slots);
}

/* An empty slab is kept if it is all that a class has, so that a class that comes and goes does not open and release a
 * slab each time; but not a long run, and not by nobody. */
#define HK_KEEP_SLOTS_MAX 1

void hk_slab_settle(struct hk_heap *heap, struct hk_slab *slab)
{
    struct hk_heap_class *class = &heap->classes[slab->class];
    bool current = slab->bin == HK_BIN_CURRENT;
    hk_slab_account(heap, slab, hk_slab_nidle(slab));
    if (HK_UNLIKELY(hk_slab_is_empty(slab))) {
        if (!current)
            hk_bin_unlink(heap, slab);
        else
            class->current = NULL;
        bool keep = slab->slots <= HK_KEEP_SLOTS_MAX && heap->state != HK_HEAP_ORPHANS;
        if (!keep || hk_class_has_blocks(class)) {
            hk_bin_set(slab, HK_BIN_FULL);
            hk_slab_release(heap, slab);
            return;
        }
        if (current) {
            class->current = slab;
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
    while (heap->nwarm > 0)
        hk_pool_release(heap->warm[--heap->nwarm], 1);
}

/* Releases the slabs that were kept though they are empty. */
static void hk_class_release_empty(struct hk_heap *heap, unsigned class_number)
{
    struct hk_heap_class *class = &heap->classes[class_number];
    if (class->current != NULL && hk_slab_is_empty(class->current)) {
        hk_bin_set(class->current, HK_BIN_FULL);
        hk_slab_release(heap, class->current);
        class->current = NULL;
    }
    for (unsigned bin = HK_BIN_MOST; bin < HK_NBINS; bin++) {
        for (struct hk_slab *slab = class->bins[bin], *next; slab != NULL; slab = next) {
            next = slab->next;
            if (hk_slab_is_empty(slab))
                hk_slab_release(heap, slab);
        }
    }
}

/* Takes the fullest slab out of the bins as the one to refill from. */
static struct hk_slab *hk_class_next_slab(struct hk_heap *heap, unsigned class_number)
{
    struct hk_heap_class *class = &heap->classes[class_number];
    if (class->current != NULL) {
        hk_bin_set(class->current, HK_BIN_FULL);
        if (class->current->nfree != 0)
            hk_bin_link(heap, class->current, hk_bin_of(class->current));
    }
    class->current = NULL;
    for (unsigned bin = HK_BIN_QUARTER; bin < HK_NBINS; bin++) {
        struct hk_slab *slab = class->bins[bin];
        if (slab != NULL) {
            hk_bin_unlink(heap, slab);
            hk_bin_set(slab, HK_BIN_CURRENT);
            class->current = slab;
            return slab;
        }
    }
    return NULL;
}

/* ---- Adopting and opening slabs ---- */

/* How many parked heaps a thread that runs short looks into. */
#define HK_PARKED_LOOKS 8

static void hk_slab_change_owner(struct hk_heap *from, struct hk_slab *slab, struct hk_heap *to)
{
    if (slab->bin == HK_BIN_CURRENT) {
        from->classes[slab->class].current = NULL;
        hk_bin_set(slab, HK_BIN_FULL);
    }
    hk_bin_unlink(from, slab);
    hk_class_count_slab(from, slab->class, -1);
    hk_slab_account(from, slab, 0); /* the new owner counts when blocks come or go */
    hk_slab_set_owner(slab, to);
}

/* Takes a slab with free blocks over from a heap without a running thread. Tries its lock. */
static struct hk_slab *hk_heap_adopt_from(struct hk_heap *heap, struct hk_heap *from, unsigned class,
                                          struct hk_fault *fault)
{
    if (from == heap || !hk_lock_try(&from->lock))
        return NULL;
    struct hk_slab *slab = NULL;
    if (from->state != HK_HEAP_RUNNING) {
        hk_parcels_open(from, NULL, fault);
        if (from->state == HK_HEAP_PARKED)
            hk_magazine_flush(from, class, from->parked_top, fault);
        slab = from->classes[class].current;
        if (slab == NULL || slab->nfree == 0)
            slab = hk_class_next_slab(from, class);
        if (slab != NULL)
            hk_slab_change_owner(from, slab, heap);
    }
    hk_lock_release(&from->lock);
    return slab;
}

static struct hk_slab *hk_heap_adopt(struct hk_heap *heap, unsigned class, struct hk_fault *fault)
{
    struct hk_slab *slab = NULL;
    /* The blocks that a class had while it was the guests' are in a slab of theirs: it becomes this heap's, so that the
     * class does not begin a second one. */
    if (heap->classes[class].nslabs == 0 && heap != &hk_guests)
        slab = hk_heap_adopt_from(heap, &hk_guests, class, fault);
    if (slab == NULL && __atomic_load_n(&hk_parked, __ATOMIC_RELAXED) != NULL && hk_lock_try(&hk_heaps_lock)) {
        struct hk_heap *from = hk_parked;
        for (unsigned i = 0; i < HK_PARKED_LOOKS && from != NULL && slab == NULL; i++, from = from->next_parked)
            if (hk_class_nslabs(from, class) != 0)
                slab = hk_heap_adopt_from(heap, from, class, fault);
        hk_lock_release(&hk_heaps_lock);
    }
    if (slab == NULL && hk_class_nslabs(&hk_orphans, class) != 0)
        slab = hk_heap_adopt_from(heap, &hk_orphans, class, fault);
    if (slab != NULL)
        heap->counts.slabs_adopted++;
    return slab;
}

static struct hk_slab *hk_heap_acquire_slots(struct hk_heap *heap, unsigned class)
{
    if (hk_classes[class].slots != 1)
        return hk_pool_acquire_run(class);
    if (heap->nwarm > 0 && hk_class_may_be_warm(class)) {
        heap->counts.warm_hits++;
        return heap->warm[--heap->nwarm];
    }
    struct hk_slab *acquired[HK_WARM_SLOTS];
    unsigned room = HK_WARM_SLOTS - heap->nwarm;
    unsigned got = hk_pool_acquire_slots(class, acquired, room > 0 ? room : 1);
    if (got == 0)
        return NULL;
    heap->counts.warm_prefills += got > 1;
    /* What was acquired first is used first: stage one came before stage two. */
    while (got > 1)
        heap->warm[heap->nwarm++] = acquired[--got];
    return acquired[0];
}

/* A heap that has begun so much without memory pays for it with idle memory. */
#define HK_GROWTH_STEP HK_SUPERSLAB_SIZE

static struct hk_slab *hk_heap_open_slab(struct hk_heap *heap, unsigned class, struct hk_fault *fault)
{
    struct hk_slab *slab = hk_heap_adopt(heap, class, fault);
    if (slab == NULL) {
        if (heap->grown_bytes >= HK_GROWTH_STEP) {
            hk_purge_pay(heap->grown_bytes, heap);
            heap->grown_bytes = 0;
        }
        slab = hk_heap_acquire_slots(heap, class);
        if (slab == NULL)
            return NULL;
        hk_bin_set(slab, HK_BIN_FULL);
        hk_slab_trim_tail(slab, class);
        hk_slab_init(slab, class, heap);
        heap->counts.slabs_opened++;
    }
    hk_class_count_slab(heap, class, 1);
    heap->classes[class].current = slab;
    hk_bin_set(slab, HK_BIN_CURRENT);
    return slab;
}

/* ---- Blocks ---- */

unsigned hk_heap_take(struct hk_heap *heap, unsigned class_number, void **end, unsigned want, bool *fresh,
                      struct hk_fault *fault)
{
    hk_assert(hk_lock_held_by_me(&heap->lock));
    struct hk_heap_class *class = &heap->classes[class_number];
    unsigned got = 0;
    while (got < want) {
        struct hk_slab *slab = class->current;
        if (slab == NULL || slab->nfree == 0 || (hk_slab_nidle(slab) == 0 && hk_class_has_idle_blocks(class))) {
            slab = hk_class_next_slab(heap, class_number);
            /* No new slab for what is beyond need. */
            if (slab == NULL && (got > 0 || (slab = hk_heap_open_slab(heap, class_number, fault)) == NULL))
                break;
        }
        uint16_t fresh_from = slab->fresh_from;
        got += hk_slab_take(slab, end - got, want - got);
        hk_slab_account(heap, slab, hk_slab_nidle(slab));
        hk_slab_mark_used(slab);
        heap->grown_bytes += (size_t)(slab->fresh_from - fresh_from) * hk_classes[class_number].size;
        if (fresh != NULL)
            *fresh = slab->fresh_from != fresh_from;
    }
    return got;
}

void *hk_heap_take_one(struct hk_heap *heap, unsigned class, bool *fresh, struct hk_fault *fault)
{
    void *p = NULL;
    heap->counts.single_blocks += hk_heap_take(heap, class, &p + 1, 1, fresh, fault);
    return p;
}

bool hk_block_slab(const void *p, struct hk_slab **slab, struct hk_fault *fault)
{
    *slab = hk_slab_of(p);
    if (HK_UNLIKELY(*slab == NULL))
        hk_fault_note(fault, hk_key_fault(p, hk_key_of_any(p)));
    return *slab != NULL;
}

struct hk_heap *hk_block_owner(const void *p, struct hk_fault *fault)
{
    struct hk_slab *slab;
    if (!hk_block_slab(p, &slab, fault))
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
        hk_fault_note(fault, hk_fault_double_free(slab, index));
}

inline __attribute__((always_inline)) /* into hk_heap_put_class */
unsigned hk_heap_put(struct hk_heap *heap, const struct hk_class *class, void *const *blocks, unsigned n, uint32_t now,
                     struct hk_fault *fault)
{
    struct hk_slab *slab = hk_slab_at(blocks[0], class);
    unsigned put = hk_slab_put(slab, class, blocks, n);
    if (HK_UNLIKELY(put == 0)) {
        hk_heap_refuse(slab, blocks[0], fault);
        return 1;
    }
    __atomic_store_n(&slab->used_at, now, __ATOMIC_RELAXED);
    slab->idle_counted += (uint16_t)put; /* a slab that was adopted is counted as a whole when it settles */
    hk_heap_count_idle(heap, (size_t)put * class->size);
    if (HK_UNLIKELY(slab->nfree >= slab->settle_at))
        hk_slab_settle(heap, slab);
    return put;
}

void hk_heap_put_class(struct hk_heap *heap, unsigned class_number, void *const *blocks, unsigned n,
                       struct hk_fault *fault)
{
    const struct hk_class *class = &hk_classes[class_number];
    hk_key key = heap->key | class_number;
    uint32_t now = hk_clock_now();
    for (unsigned i = 0; i < n;) {
        if (HK_LIKELY(hk_key_of_any(blocks[i]) == key)) {
            i += hk_heap_put(heap, class, blocks + i, n - i, now, fault);
        } else {
            if (hk_block_owner(blocks[i], fault) != NULL)
                hk_fault_note(fault, hk_fault_freed_twice(blocks[i], class->size));
            i++;
        }
    }
}

/* ---- Guests ---- */

/* A class gets slabs of its own when it has been asked for so often while the heap made no more than so many exchanges.
 * What guests cost is not counted: else many classes in turn would keep each other guests for ever. */
#define HK_CLASS_GUEST_ALLOCS 32u
#define HK_CLASS_GUEST_WINDOW 256u

bool hk_heap_is_guest_for(struct hk_heap *heap, unsigned class)
{
    struct hk_heap_class *c = &heap->classes[class];
    if (c->nslabs != 0)
        return false;
    uint32_t now = heap->exchanges;
    if (c->guest_allocs == 0 || now - c->guest_since > HK_CLASS_GUEST_WINDOW) {
        c->guest_allocs = 0;
        c->guest_since = now;
    }
    if (c->guest_allocs == HK_CLASS_GUEST_ALLOCS)
        return false;
    c->guest_allocs++;
    return true;
}

/* ---- The list of heaps ---- */

static struct hk_heap *hk_heap_create(void)
{
    struct hk_thread_heap *created = hk_meta_alloc(sizeof *created, HK_MAGAZINE_BYTES);
    if (created == NULL || hk_last_id == HK_KEY_ID_MAX - 1)
        return NULL;
    struct hk_heap *heap = &created->heap;
    hk_lock_init(&heap->lock, HK_RANK_HEAP);
    if (HK_UNLIKELY(hk_lock_bypass)) /* by a handler of fork: held until it is over, like all others */
        hk_lock_seize(&heap->lock);
    heap->key = ++hk_last_id << HK_KEY_SHIFT;
    for (unsigned i = 0; i < HK_NCLASSES; i++)
        heap->parked_top[i] = HK_NO_MAGAZINE;
    heap->next = atomic_load_explicit(&hk_heaps, memory_order_relaxed);
    atomic_store_explicit(&hk_heaps, heap, memory_order_release);
    return heap;
}

/* Both locks are held, or the process is a fork's child. */
static void hk_heap_set_parked(struct hk_heap *heap)
{
    __atomic_store_n(&heap->state, HK_HEAP_PARKED, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->parked_at, hk_clock_now(), __ATOMIC_RELAXED);
    heap->thread = NULL;
    heap->next_parked = hk_parked;
    __atomic_store_n(&hk_parked, heap, __ATOMIC_RELAXED);
}

/* Parks the heap of a thread that is gone, and with it the tops of its magazines. The blocks in them are given up: they
 * count as live for ever. Reserves stay. */
static void hk_heap_abandon(struct hk_heap *heap)
{
    for (unsigned class = 0; class < HK_NCLASSES; class++)
        hk_magazine_abandon(heap, class, heap->parked_top);
    hk_heap_set_parked(heap);
}

/* A thread that made its first call when the C library had run its last destructors got a heap and never parked it. It
 * is found when its memory serves another thread. */
static void hk_heap_reclaim(const void *thread)
{
    HK_EACH_HEAP (heap) {
        if (__atomic_load_n(&heap->thread, __ATOMIC_RELAXED) != thread)
            continue;
        hk_lock_acquire(&heap->lock);
        hk_heap_abandon(heap);
        hk_lock_release(&heap->lock);
    }
}

bool hk_heaps_any_parked(void) { return __atomic_load_n(&hk_parked, __ATOMIC_RELAXED) != NULL; }

struct hk_heap *hk_heap_obtain(void **tops[HK_NCLASSES], void *thread)
{
    hk_lock_acquire(&hk_heaps_lock);
    if (hk_parked == NULL)
        hk_heap_reclaim(thread);
    struct hk_heap *heap = hk_parked;
    if (heap != NULL)
        __atomic_store_n(&hk_parked, heap->next_parked, __ATOMIC_RELAXED);
    else
        heap = hk_heap_create();
    if (heap != NULL) {
        hk_lock_acquire(&heap->lock);
        __atomic_store_n(&heap->state, HK_HEAP_RUNNING, __ATOMIC_RELAXED);
        heap->dissolving = false;
        heap->thread = thread;
        memcpy(tops, heap->parked_top, sizeof heap->parked_top);
        hk_lock_release(&heap->lock);
    }
    hk_lock_release(&hk_heaps_lock);
    return heap;
}

void hk_heap_park(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    hk_lock_acquire(&hk_heaps_lock);
    hk_lock_acquire(&heap->lock);
    hk_outbox_send(heap, fault);
    memcpy(heap->parked_top, tops, sizeof heap->parked_top);
    hk_heap_count_tick(heap); /* the process did not stand still */
    hk_heap_set_parked(heap);
    hk_lock_release(&heap->lock);
    hk_lock_release(&hk_heaps_lock);
}

/* ---- On behalf of others ---- */

/* In place of the time at which a heap was parked. */
#define HK_DISSOLVED UINT32_MAX

/* Empties the magazines of a heap that has been parked long enough; true if it has slabs that are to become orphans. */
static bool hk_heap_dissolve_begin(struct hk_heap *heap, uint32_t parked_before, struct hk_fault *fault)
{
    bool slabs = false;
    hk_lock_acquire(&heap->lock);
    if (heap->state == HK_HEAP_PARKED && heap->parked_at < parked_before) {
        hk_parcels_open(heap, NULL, fault);
        for (unsigned class = 0; class < HK_NCLASSES; class++) {
            hk_magazine_close(heap, class, heap->parked_top, fault);
            hk_class_release_empty(heap, class);
            slabs |= heap->classes[class].nslabs != 0;
        }
        heap->dissolving = slabs;
        __atomic_store_n(&heap->parked_at, HK_DISSOLVED, __ATOMIC_RELAXED);
    }
    hk_lock_release(&heap->lock);
    return slabs;
}

/* Both locks are held, so that nobody, nor a fork's child, sees a slab between its heap and the orphans. */
static void hk_slab_orphan_locked(struct hk_heap *from, struct hk_slab *slab)
{
    hk_slab_change_owner(from, slab, &hk_orphans);
    hk_class_count_slab(&hk_orphans, slab->class, 1);
    from->counts.slabs_orphaned++;
    hk_slab_settle(&hk_orphans, slab);
}

static void hk_slab_orphan(struct hk_slab *slab)
{
    for (;;) {
        struct hk_heap *from = hk_slab_owner(slab);
        if (from == NULL || __atomic_load_n(&from->state, __ATOMIC_RELAXED) != HK_HEAP_PARKED)
            return;
        hk_lock_acquire(&hk_orphans.lock); /* of the two the one that others want more often */
        bool locked = hk_lock_try(&from->lock);
        if (locked) {
            if (hk_slab_owner(slab) == from && from->state == HK_HEAP_PARKED && from->dissolving &&
                hk_slab_is_first(slab))
                hk_slab_orphan_locked(from, slab);
            hk_lock_release(&from->lock);
        }
        hk_lock_release(&hk_orphans.lock);
        if (locked)
            return;
        hk_lock_acquire(&from->lock); /* waits for who has it, with no other lock held */
        hk_lock_release(&from->lock);
    }
}

void hk_heaps_dissolve_parked(uint32_t parked_before, struct hk_fault *fault)
{
    bool slabs = false;
    HK_EACH_HEAP (heap)
        if (__atomic_load_n(&heap->state, __ATOMIC_RELAXED) == HK_HEAP_PARKED &&
            __atomic_load_n(&heap->parked_at, __ATOMIC_RELAXED) < parked_before)
            slabs |= hk_heap_dissolve_begin(heap, parked_before, fault);
    if (!slabs)
        return;
    struct hk_slab_cursor cursor = {0};
    struct hk_slab *found[HK_SLOTS_PER_SUPERSLAB];
    for (unsigned n; (n = hk_pool_next_slabs(&cursor, found)) != 0;)
        for (unsigned i = 0; i < n; i++)
            hk_slab_orphan(found[i]);
}

static bool hk_heap_is_untended(const struct hk_heap *heap)
{
    return __atomic_load_n(&heap->tick, __ATOMIC_RELAXED) != __atomic_load_n(&heap->tended_tick, __ATOMIC_RELAXED);
}

static bool hk_heap_is_shared(const struct hk_heap *heap) { return heap == &hk_guests || heap == &hk_orphans; }

static void hk_heaps_send(bool all, struct hk_fault *fault)
{
    HK_EACH_HEAP (heap) {
        if ((!all && hk_heap_is_untended(heap)) || hk_heap_is_shared(heap))
            continue;
        hk_lock_acquire(&heap->lock);
        hk_outbox_send(heap, fault);
        hk_lock_release(&heap->lock);
    }
}

static void hk_heaps_open(bool all, struct hk_fault *fault)
{
    HK_EACH_HEAP (heap) {
        if (!all && hk_heap_is_untended(heap)) {
            __atomic_store_n(&heap->tended_tick, __atomic_load_n(&heap->tick, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
            continue;
        }
        hk_lock_acquire(&heap->lock);
        hk_parcels_open(heap, NULL, fault);
        for (unsigned class = 0; class < HK_NCLASSES; class++) {
            hk_reserve_empty(heap, class, fault);
            hk_class_release_empty(heap, class);
        }
        hk_heap_release_warm(heap);
        hk_lock_release(&heap->lock);
    }
}

void hk_heaps_tend(bool all, struct hk_fault *fault)
{
    if (all) { /* twice: an outbox may have lacked the parcels that are opened now, and parcels are passed on */
        hk_heaps_send(true, fault);
        hk_heaps_open(true, fault);
    }
    hk_heaps_send(all, fault);
    hk_heaps_open(all, fault);
}

uint32_t hk_heaps_ticks(void)
{
    uint32_t ticks = 0;
    HK_EACH_HEAP (heap)
        ticks += __atomic_load_n(&heap->tick, __ATOMIC_RELAXED);
    return ticks;
}

size_t hk_heaps_idle_bytes(void)
{
    size_t bytes = 0;
    HK_EACH_HEAP (heap)
        bytes += hk_look(&heap->idle_bytes);
    return bytes;
}

/* ---- Fork ---- */

/* Fork copies the pages of a process one after another while its other threads run, so what their magazines' tops and
 * entries say need not agree in the child; and a block in an outbox may have been freed after the page was copied by
 * which the child still reaches it. These blocks are given up: they count as live for ever. All else is guarded by
 * locks, which the forking thread holds. */
void hk_heaps_after_fork(const void *surviving_thread)
{
    HK_EACH_HEAP (heap) {
        if (heap->dissolving) { /* by a thread that is gone */
            heap->dissolving = false;
            heap->parked_at = hk_clock_now();
        }
        if (heap->state != HK_HEAP_RUNNING || heap->thread == surviving_thread)
            continue;
        hk_heap_abandon(heap);
        void *_Atomic *outbox = hk_outbox_of(heap);
        for (unsigned i = 0; i < HK_OUTBOX_BLOCKS; i++) /* written only where they differ: a page is copied for that */
            if (atomic_load_explicit(&outbox[i], memory_order_relaxed) != NULL)
                atomic_store_explicit(&outbox[i], NULL, memory_order_relaxed);
    }
}

void hk_heap_check(struct hk_heap *heap)
{
    for (unsigned class = 0; class < HK_NCLASSES; class++)
        for (unsigned bin = HK_BIN_QUARTER; bin < HK_NBINS; bin++)
            for (struct hk_slab *slab = heap->classes[class].bins[bin]; slab != NULL; slab = slab->next) {
                hk_assert(hk_slab_owner(slab) == heap && slab->class == class && slab->bin == bin);
                hk_slab_check(slab);
            }
}
