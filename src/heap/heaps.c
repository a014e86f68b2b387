#include "heap/heaps.h"

#include <string.h>

#include "heap/clock.h"
#include "heap/magazine.h"
#include "heap/meta.h"
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

/* ---- Threads that begin and end ---- */

static struct hk_heap *hk_heap_create(void)
{
    if (hk_last_id == HK_KEY_ID_MAX - 1)
        return NULL;
    struct hk_thread_heap *created = hk_meta_alloc(sizeof *created, HK_MAGAZINE_BYTES);
    if (created == NULL)
        return NULL;
    struct hk_heap *heap = &created->heap;
    hk_lock_init(&heap->lock, HK_RANK_HEAP);
    if (HK_UNLIKELY(hk_lock_bypass)) /* by a handler of fork: held until it is over, like all others */
        hk_lock_seize(&heap->lock);
    heap->key = ++hk_last_id << HK_KEY_SHIFT;
    for (unsigned i = 0; i < HK_NCLASSES; i++)
        heap->parked_top[i] = HK_NO_MAGAZINE;
    heap->next = hk_get(&hk_heaps);
    atomic_store_explicit(&hk_heaps, heap, memory_order_release);
    return heap;
}

/* Both locks are held, or the process is a fork's child. */
static void hk_heap_set_parked(struct hk_heap *heap)
{
    hk_set_visibly(&heap->state, HK_HEAP_PARKED);
    hk_set_visibly(&heap->parked_at, hk_clock_now());
    heap->thread = NULL;
    heap->next_parked = hk_parked;
    hk_set_visibly(&hk_parked, heap);
}

/* Parks the heap of a thread that is gone, and with it the tops of its magazines. The blocks in them are given up: they
 * count as live for ever. Reserves stay. */
static void hk_heap_abandon(struct hk_heap *heap)
{
    for (unsigned cls = 0; cls < HK_NCLASSES; cls++)
        hk_magazine_abandon(heap, cls, heap->parked_top);
    hk_heap_set_parked(heap);
}

/* A thread that made its first call when the C library had run its last destructors got a heap and never parked it. It
 * is found when its memory serves another thread. */
static void hk_heaps_park_stray(const void *thread)
{
    HK_EACH_HEAP (heap) {
        if (heap->thread != thread)
            continue;
        hk_lock_acquire(&heap->lock);
        hk_heap_abandon(heap);
        hk_lock_release(&heap->lock);
    }
}

bool hk_heaps_any_parked(void) { return hk_look(&hk_parked) != NULL; }

struct hk_heap *hk_heap_obtain(void **tops[HK_NCLASSES], void *thread)
{
    hk_lock_acquire(&hk_heaps_lock);
    if (hk_parked == NULL)
        hk_heaps_park_stray(thread);
    struct hk_heap *heap = hk_parked;
    if (heap != NULL)
        hk_set_visibly(&hk_parked, heap->next_parked);
    else
        heap = hk_heap_create();
    if (heap != NULL) {
        hk_lock_acquire(&heap->lock);
        hk_set_visibly(&heap->state, HK_HEAP_RUNNING);
        heap->dissolving = false;
        hk_set_visibly(&heap->vacant, false);
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

/* ---- Adoption ---- */

/* How many parked heaps a thread that runs short looks into. */
#define HK_PARKED_LOOKS 8

/* Takes a slab with free blocks over from a heap without a running thread. Tries its lock. */
static struct hk_slab *hk_heap_adopt_from(struct hk_heap *heap, struct hk_heap *from, unsigned cls,
                                          struct hk_fault *fault)
{
    if (from == heap || !hk_lock_try(&from->lock))
        return NULL;
    struct hk_slab *slab = NULL;
    if (from->state != HK_HEAP_RUNNING) {
        hk_parcels_open(from, NULL, fault);
        if (from->state == HK_HEAP_PARKED)
            hk_magazine_flush(from, cls, from->parked_top, fault);
        slab = from->classes[cls].current;
        if (slab == NULL || slab->nfree == 0)
            slab = hk_heap_next_slab(from, cls);
        if (slab != NULL)
            hk_slab_change_owner(from, slab, heap);
    }
    hk_lock_release(&from->lock);
    return slab;
}

struct hk_slab *hk_heap_adopt(struct hk_heap *heap, unsigned cls, struct hk_fault *fault)
{
    struct hk_slab *slab = NULL;
    /* The blocks that a class had while it was the guests' are in slabs of theirs: these become the heap's before it
     * begins others. */
    if (hk_heap_nslabs(&hk_guests, cls) != 0)
        slab = hk_heap_adopt_from(heap, &hk_guests, cls, fault);
    if (slab == NULL && hk_heaps_any_parked() && hk_lock_try(&hk_heaps_lock)) {
        struct hk_heap *from = hk_parked;
        for (unsigned i = 0; i < HK_PARKED_LOOKS && from != NULL && slab == NULL; i++, from = from->next_parked)
            if (hk_heap_nslabs(from, cls) != 0)
                slab = hk_heap_adopt_from(heap, from, cls, fault);
        hk_lock_release(&hk_heaps_lock);
    }
    if (slab == NULL && hk_heap_nslabs(&hk_orphans, cls) != 0)
        slab = hk_heap_adopt_from(heap, &hk_orphans, cls, fault);
    if (slab != NULL)
        heap->counts.slabs_adopted++;
    return slab;
}

/* ---- Dissolution ---- */

/* In place of the time at which a heap was parked. */
#define HK_DISSOLVED UINT32_MAX

/* Empties the magazines of a heap that has been parked long enough; true if it has slabs that are to become orphans. */
static bool hk_heap_dissolve_begin(struct hk_heap *heap, uint32_t parked_before, struct hk_fault *fault)
{
    bool slabs = false;
    hk_lock_acquire(&heap->lock);
    if (heap->state == HK_HEAP_PARKED && heap->parked_at < parked_before) {
        hk_parcels_open(heap, NULL, fault);
        for (unsigned cls = 0; cls < HK_NCLASSES; cls++) {
            hk_magazine_close(heap, cls, heap->parked_top, fault);
            hk_heap_release_empty(heap, cls);
            slabs |= heap->classes[cls].nslabs != 0;
        }
        heap->dissolving = slabs;
        hk_set_visibly(&heap->parked_at, HK_DISSOLVED);
    }
    hk_lock_release(&heap->lock);
    return slabs;
}

/* Both locks are held, so that nobody, nor a fork's child, sees a slab between its heap and the orphans. */
static void hk_slab_orphan_locked(struct hk_heap *from, struct hk_slab *slab)
{
    hk_slab_change_owner(from, slab, &hk_orphans);
    from->counts.slabs_orphaned++;
    hk_slab_settle(&hk_orphans, slab);
}

static void hk_slab_orphan(struct hk_slab *slab)
{
    for (;;) {
        struct hk_heap *from = hk_slab_owner(slab);
        if (from == NULL || hk_look(&from->state) != HK_HEAP_PARKED)
            return;
        hk_lock_acquire(&hk_orphans.lock); /* the one of the two that others want more often */
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
        if (hk_look(&heap->state) == HK_HEAP_PARKED && hk_look(&heap->parked_at) < parked_before)
            slabs |= hk_heap_dissolve_begin(heap, parked_before, fault);
    if (!slabs)
        return;
    struct hk_superslab_cursor cursor = {0};
    struct hk_slab *found[HK_SLOTS_PER_SUPERSLAB];
    for (unsigned n; (n = hk_pool_next_slabs(&cursor, found)) != 0;)
        for (unsigned i = 0; i < n; i++)
            hk_slab_orphan(found[i]);
}

/* Without the heap's lock it decides only whether to look closer. */
static bool hk_heap_is_to_vacate(const struct hk_heap *heap)
{
    return hk_look(&heap->state) == HK_HEAP_PARKED && hk_look(&heap->parked_at) == HK_DISSOLVED &&
           !hk_look(&heap->vacant);
}

void hk_heaps_vacate(struct hk_fault *fault)
{
    HK_EACH_HEAP (heap) {
        if (!hk_heap_is_to_vacate(heap))
            continue;
        hk_lock_acquire(&heap->lock);
        if (hk_heap_is_to_vacate(heap) && heap->slab_bytes == 0 && hk_outbox_send(heap, fault) &&
            hk_parcels_forget(heap)) {
            hk_heap_release_warm(heap);
            hk_set_visibly(&heap->vacant, true);
            hk_meta_purge(heap->classes, sizeof(struct hk_thread_heap) - offsetof(struct hk_heap, classes));
        }
        hk_lock_release(&heap->lock);
    }
}

/* ---- On behalf of sleeping threads ---- */

static bool hk_heap_has_moved(const struct hk_heap *heap)
{
    return hk_look(&heap->tick) != hk_look(&heap->tended_tick);
}

static bool hk_heap_is_shared(const struct hk_heap *heap) { return heap == &hk_guests || heap == &hk_orphans; }

static void hk_heaps_send(bool all, struct hk_fault *fault)
{
    HK_EACH_HEAP (heap) {
        if ((!all && hk_heap_has_moved(heap)) || hk_heap_is_shared(heap) || hk_look(&heap->vacant))
            continue;
        hk_lock_acquire(&heap->lock);
        hk_outbox_send(heap, fault);
        hk_lock_release(&heap->lock);
    }
}

static void hk_heaps_open(bool all, struct hk_fault *fault)
{
    HK_EACH_HEAP (heap) {
        if (!all && hk_heap_has_moved(heap)) {
            hk_set_visibly(&heap->tended_tick, hk_look(&heap->tick));
            continue;
        }
        if (hk_look(&heap->vacant) && !hk_parcels_are_pending(heap))
            continue;
        hk_lock_acquire(&heap->lock);
        hk_parcels_open(heap, NULL, fault);
        for (unsigned cls = 0; cls < HK_NCLASSES; cls++) {
            hk_reserve_empty(heap, cls, fault);
            hk_heap_release_empty(heap, cls);
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
        ticks += hk_look(&heap->tick);
    return ticks;
}

size_t hk_heaps_idle_bytes(void)
{
    size_t bytes = 0;
    HK_EACH_HEAP (heap)
        bytes += hk_look(&heap->idle_bytes);
    return bytes;
}

size_t hk_heaps_running(void)
{
    size_t n = 0;
    HK_EACH_HEAP (heap)
        n += hk_look(&heap->state) == HK_HEAP_RUNNING;
    return n;
}

/* ---- Fork ---- */

/* Fork copies the pages of a process one after another while its other threads run on. So the tops and the entries of
 * their magazines need not agree in the child; and a block in an outbox may have been freed after the page that still
 * leads the child to it was copied. These blocks are given up: they count as live for ever. All else is guarded by
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
            if (hk_get(&outbox[i]) != NULL)
                hk_set(&outbox[i], NULL);
    }
}
