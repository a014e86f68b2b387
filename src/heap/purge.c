#include "heap/purge.h"

#include "base/options.h"
#include "base/os.h"
#include "base/trace.h"
#include "heap/clock.h"
#include "heap/heaps.h"
#include "heap/hole.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/payment.h"
#include "heap/purge_counts.h"
#include "heap/surplus.h"

struct hk_purge_counts hk_purge_counts;

struct hk_lock hk_purge_lock = HK_LOCK_INIT(HK_RANK_PURGE);

/* ---- Holes ---- */

/* True if a slab may have a page without a live block. Without its heap's lock it decides only whether to look. */
static bool hk_slab_may_have_holes(const struct hk_slab *slab, uint32_t used_before)
{
    uint32_t used_at = hk_look(&slab->used_at);
    return used_at != 0 && used_at < used_before && hk_slab_nfree(slab) != 0;
}

/* hk_holes_open, which also notes that the slab has been looked at. */
static bool hk_slab_open_holes(struct hk_holes *holes, struct hk_slab *slab)
{
    hk_set_visibly(&slab->used_at, 0);
    return (size_t)slab->nfree * hk_slab_class(slab)->size >= hk_os_page_size() && hk_holes_open(holes, slab);
}

static void hk_slab_close_holes(struct hk_heap *heap, struct hk_holes *holes, size_t bytes, struct hk_fault *fault)
{
    hk_trace(HK_TRACE_PURGE, "purge holes", {"slab", (uintptr_t)holes->slab->blocks}, {"class", holes->slab->cls},
             {"bytes", bytes});
    hk_add(&hk_purge_counts.holes_purged, bytes != 0);
    hk_add(&hk_purge_counts.hole_bytes_purged, bytes);
    hk_holes_close(holes, fault);
    hk_slab_settle(heap, holes->slab);
}

/* Gives the holes of a slab back whose heap's lock is held, and stays so. */
static size_t hk_slab_purge_locked(struct hk_heap *heap, struct hk_slab *slab)
{
    struct hk_holes holes;
    struct hk_fault fault = HK_NO_FAULT; /* the blocks do not leave the lock's protection: nothing can go wrong */
    if (!hk_slab_open_holes(&holes, slab))
        return 0;
    size_t bytes = hk_holes_purge(&holes);
    hk_slab_close_holes(heap, &holes, bytes, &fault);
    return bytes;
}

/* The slab's owner, with its lock held; NULL if it has none. */
static struct hk_heap *hk_slab_lock_owner(struct hk_slab *slab)
{
    for (;;) {
        struct hk_heap *heap = hk_slab_owner(slab);
        if (heap == NULL)
            return NULL;
        hk_lock_acquire(&heap->lock);
        if (hk_slab_owner(slab) == heap)
            return heap;
        hk_lock_release(&heap->lock);
    }
}

/* Gives the holes of a slab back, without its heap's lock. */
static size_t hk_slab_purge(struct hk_slab *slab, uint32_t used_before, struct hk_fault *fault)
{
    struct hk_holes holes;
    size_t bytes = 0;
    hk_lock_acquire(&hk_purge_lock);
    struct hk_heap *heap = hk_slab_lock_owner(slab);
    bool open = false;
    if (heap != NULL) {
        open = hk_slab_is_first(slab) && hk_slab_may_have_holes(slab, used_before) && hk_slab_open_holes(&holes, slab);
        if (open)
            hk_slab_settle(heap, slab); /* it has fewer free blocks for now */
        hk_lock_release(&heap->lock);
    }
    if (open) {
        bytes = hk_holes_purge(&holes);
        heap = hk_slab_lock_owner(slab); /* not NULL: blocks of it are out */
        hk_slab_close_holes(heap, &holes, bytes, fault);
        hk_lock_release(&heap->lock);
    }
    hk_lock_release(&hk_purge_lock);
    return bytes;
}

/* Walks over all slabs, from where the cursor stands, until `most` bytes have gone or `most_looks` slabs were looked
 * at. */
static void hk_purge_holes(struct hk_superslab_cursor *cursor, uint32_t used_before, size_t most, size_t most_looks,
                           size_t *bytes, struct hk_fault *fault)
{
    struct hk_slab *slabs[HK_SLOTS_PER_SUPERSLAB];
    for (size_t looks = 0, n; *bytes < most && looks < most_looks; looks += n) {
        n = hk_pool_next_slabs(cursor, slabs);
        if (n == 0)
            return;
        for (unsigned i = 0; i < n; i++)
            if (hk_slab_may_have_holes(slabs[i], used_before))
                *bytes += hk_slab_purge(slabs[i], used_before, fault);
    }
}

/* Where the walk of bounded purges stands. One of them walks at a time; the others do without, and do not wait. */
static struct hk_superslab_cursor hk_purge_walk;
static atomic_flag hk_purge_walk_taken = ATOMIC_FLAG_INIT;

static bool hk_purge_walk_begin(void)
{
    return !atomic_flag_test_and_set_explicit(&hk_purge_walk_taken, memory_order_acquire);
}

static void hk_purge_walk_end(void) { atomic_flag_clear_explicit(&hk_purge_walk_taken, memory_order_release); }

/* ---- By time ---- */

#define HK_WARM_MIN ((size_t)8 << 20)
#define HK_WARM_PART 16u /* of what is in use: about 6 % */

static size_t hk_warm_budget(void)
{
    struct hk_large_counts large = hk_large_read_counts();
    size_t warm = (hk_active_bytes() + large.run_bytes + large.mapping_bytes) / HK_WARM_PART;
    return hk_max(warm, HK_WARM_MIN);
}

/* How much one slow path gives back, and how many slabs it looks at: 8 MiB take some 1 or 2 ms. */
#define HK_TICK_BYTES ((size_t)8 << 20)
#define HK_TICK_LOOKS 1024u

size_t hk_purge(enum hk_purge_level level, size_t pad, size_t most, struct hk_fault *fault)
{
    hk_clock_look(); /* the process may have slept */
    bool all = level == HK_PURGE_ALL;
    /* What a pass takes from sleeping threads is as young as the pass, and as idle as they: if all sleep, it goes. */
    bool any_age = level >= HK_PURGE_STILL;
    uint32_t before = any_age ? UINT32_MAX : (uint32_t)hk_sub_sat(hk_clock_now(), HK_CLOCK_SECOND);
    uint64_t now_ms = hk_os_now_ms();
    uint64_t before_ms = any_age ? UINT64_MAX : hk_sub_sat(now_ms, 1000);
    size_t keep = level == HK_PURGE_DECAY ? hk_warm_budget() : pad;
    if (all)
        hk_prewarmed_forget();
    size_t prewarmed = hk_prewarmed_bytes();
    hk_add(&hk_purge_counts.purge_passes, 1);
    hk_add(&hk_purge_counts.purge_passes_quiet, level == HK_PURGE_QUIET || level == HK_PURGE_STILL);
    hk_heaps_dissolve_parked(before, fault);
    hk_heaps_tend(all, fault);
    hk_heaps_vacate(fault);

    size_t bytes = hk_large_purge(keep, before_ms, most);
    keep = hk_sub_sat(keep, hk_large_read_counts().cached_bytes);
    size_t apart = hk_max(keep, prewarmed); /* of superslabs and slots; holes were not prewarmed */
    bytes += hk_superslabs_purge(apart / HK_SUPERSLAB_SIZE, before_ms, hk_sub_sat(most, bytes) / HK_SUPERSLAB_SIZE);
    if (level == HK_PURGE_DECAY) /* and within the budget nothing stays for ever, but what was asked for */
        bytes +=
            hk_superslabs_purge(prewarmed / HK_SUPERSLAB_SIZE, hk_sub_sat(now_ms, hk_option(superslab_ttl_sec) * 1000),
                                hk_sub_sat(most, bytes) / HK_SUPERSLAB_SIZE);
    bytes += hk_pool_purge(before, hk_sub_sat(apart, hk_cached_bytes()), hk_sub_sat(most, bytes));
    keep = hk_sub_sat(keep, hk_cached_bytes() + hk_empty_bytes());
    size_t idle = hk_heaps_idle_bytes();
    if (idle > keep) {
        struct hk_superslab_cursor whole = {0};
        bool bounded = most != SIZE_MAX;
        if (keep != 0 && most > bytes + idle - keep)
            most = bytes + idle - keep;
        hk_purge_holes(bounded ? &hk_purge_walk : &whole, before, most, bounded ? HK_TICK_LOOKS : SIZE_MAX, &bytes,
                       fault);
    }
    if (bytes != 0)
        hk_trace(HK_TRACE_PURGE, "purge pass", {"level", level}, {"bytes", bytes});
    return bytes;
}

/* ---- By amount ---- */

/* Bytes of live blocks, mappings excepted. Blocks in magazines, and what is idle in other heaps, count as live. */
static size_t hk_live_bytes(const struct hk_heap *heap)
{
    size_t absent =
        hk_sub_sat(hk_get(&hk_purge_counts.hole_bytes_purged),
                   hk_get(&hk_purge_counts.hole_bytes_returned) + hk_get(&hk_purge_counts.hole_bytes_in_vain));
    size_t in_use = hk_active_bytes() + hk_large_run_bytes();
    return hk_sub_sat(in_use, hk_look(&heap->idle_bytes) + absent);
}

/* After this many slabs in a row that have been looked at before, the rest of their class is left alone; but not until
 * all slabs have been looked at once. */
#define HK_SURPLUS_STALE 128u

/* Gives back the holes of slabs that are at least half free, beginning with those that have become so last. Counts the
 * work (surplus.h). */
static size_t hk_heap_purge_holes(struct hk_heap *heap, size_t most, size_t *work)
{
    size_t bytes = 0, slabs = 0, calls = hk_get(&hk_os_counts.madvise);
    unsigned most_stale = hk_surplus_has_backlog() ? UINT32_MAX : HK_SURPLUS_STALE;
    hk_lock_acquire(&heap->lock);
    for (unsigned cls = 0; cls < HK_NCLASSES && bytes < most; cls++) {
        unsigned stale = 0;
        for (struct hk_slab *slab = heap->classes[cls].bins[HK_BIN_MOST], *next;
             slab != NULL && stale < most_stale && bytes < most; slab = next) {
            next = slab->next;
            bool purge = hk_slab_may_have_holes(slab, UINT32_MAX);
            stale = purge ? 0 : stale + 1;
            if (purge) {
                slabs++;
                bytes += hk_slab_purge_locked(heap, slab);
            }
        }
    }
    hk_lock_release(&heap->lock);
    *work = slabs + hk_get(&hk_os_counts.madvise) - calls;
    return bytes;
}

/* Gives back what the only thread of a process has dropped (surplus.h). */
static void hk_purge_surplus(struct hk_heap *heap)
{
    size_t prewarmed = hk_prewarmed_bytes();
    struct hk_large_counts large = hk_large_read_counts();
    size_t apart = large.cached_bytes + hk_sub_sat(hk_cached_bytes() + hk_empty_bytes(), prewarmed);
    size_t in_slabs = hk_look(&heap->idle_bytes);
    size_t most = hk_surplus_due(apart + in_slabs, hk_live_bytes(heap) + large.mapping_bytes);
    size_t bytes = 0;
    if (most == 0)
        return;
    if (apart > HK_SURPLUS_REST) {
        bytes = hk_large_purge(0, UINT64_MAX, most);
        hk_surplus_note_mappings(bytes);
        bytes +=
            hk_superslabs_purge(prewarmed / HK_SUPERSLAB_SIZE, UINT64_MAX, hk_sub_sat(most, bytes) / HK_SUPERSLAB_SIZE);
        bytes += hk_pool_purge(UINT32_MAX, hk_sub_sat(prewarmed, hk_cached_bytes()), hk_sub_sat(most, bytes));
        if (bytes == 0) /* the kernel refuses */
            hk_surplus_stop();
    }
    most = hk_sub_sat(most, bytes);
    if (most != 0 && hk_surplus_wants_holes(in_slabs)) {
        size_t work, holes = hk_heap_purge_holes(heap, most, &work);
        hk_surplus_note_holes(holes, most, work, hk_look(&heap->idle_bytes));
        bytes += holes;
    }
    if (bytes == 0)
        return;
    hk_surplus_note_gone(bytes);
    hk_add(&hk_purge_counts.surplus_bytes_purged, bytes);
    hk_trace(HK_TRACE_PURGE, "purge surplus", {"bytes", bytes});
}

/* ---- Ticks ---- */

/* When a slow path purged last; coarse clock. */
static _Atomic uint32_t hk_ticked_at = 1;

/* How much time has passed since the last tick; one caller is told, others that ask meanwhile get 0. */
static uint32_t hk_tick_claim(void)
{
    hk_clock_look();
    uint32_t now = hk_clock_now(), before = hk_get(&hk_ticked_at);
    bool mine = now != before && hk_replace(&hk_ticked_at, &before, now);
    return mine ? now - before : 0;
}

void hk_purge_tick(bool alone, struct hk_heap *only, struct hk_fault *fault)
{
    uint32_t passed = hk_tick_claim();
    if (!alone || (passed == 0 && only == NULL) || !hk_purge_walk_begin())
        return;
    if (only != NULL)
        hk_purge_surplus(only);
    if (passed != 0) {
        enum hk_purge_level level = passed > HK_CLOCK_SECOND ? HK_PURGE_QUIET : HK_PURGE_DECAY;
        hk_surplus_note_old(hk_purge(level, 0, HK_TICK_BYTES, fault));
    }
    hk_purge_walk_end();
}

/* ---- By growth ---- */

#define HK_PAY_LOOKS 1024u /* slabs that are looked at for each superslab that the heap grows by */

/* Gives the holes of a slab back if its heap is `heap`, whose lock is held, or can be locked without waiting. */
static size_t hk_slab_pay(struct hk_slab *slab, struct hk_heap *heap)
{
    size_t bytes = 0;
    if (!hk_slab_may_have_holes(slab, UINT32_MAX))
        return 0;
    struct hk_heap *owner = hk_slab_owner(slab);
    if (owner == NULL || (owner != heap && !hk_lock_try(&owner->lock)))
        return 0;
    if (hk_slab_owner(slab) == owner && hk_slab_is_first(slab))
        bytes = hk_slab_purge_locked(owner, slab);
    if (owner != heap)
        hk_lock_release(&owner->lock);
    return bytes;
}

/* Goes once round the slabs at most. */
static size_t hk_pay_with_holes(size_t grown, struct hk_heap *heap)
{
    struct hk_slab *slabs[HK_SLOTS_PER_SUPERSLAB];
    size_t bytes = 0;
    size_t most = HK_PAY_LOOKS * hk_div_up(grown, HK_SUPERSLAB_SIZE);
    unsigned ends = 0;
    for (size_t looks = 0; bytes < grown && looks < most && ends < 2;) {
        unsigned n = hk_pool_next_slabs(&hk_purge_walk, slabs);
        for (unsigned i = 0; i < n; i++)
            bytes += hk_slab_pay(slabs[i], heap);
        looks += n;
        ends += n == 0;
    }
    return bytes;
}

bool hk_purge_demand_payment(void)
{
    size_t in_use = hk_limit_in_use();
    if (hk_payment_rest_is_outgrown(in_use) &&
        hk_empty_bytes() + hk_cached_bytes() + hk_heaps_idle_bytes() + hk_large_read_counts().cached_bytes >=
            in_use / HK_REST_IDLE_PART)
        hk_payment_end_rest();
    return hk_payment_demand(in_use);
}

static void hk_note_paid(size_t grown, size_t bytes)
{
    if (bytes == 0)
        return;
    hk_payment_note_paid(bytes);
    hk_add(&hk_purge_counts.growth_paid_bytes, bytes);
    hk_trace(HK_TRACE_PURGE, "purge growth", {"grown", grown}, {"bytes", bytes});
}

/* With EMPTY slots, and with holes. */
static size_t hk_pay_with_slots(size_t grown, struct hk_heap *heap)
{
    size_t used = hk_active_bytes();
    size_t keep = hk_max(used / HK_IDLE_PART, hk_sub_sat(hk_prewarmed_bytes(), hk_cached_bytes()));
    size_t bytes = 0;
    if (hk_empty_bytes() > keep)
        bytes = hk_pool_pay(keep, grown);
    size_t idle = hk_heaps_idle_bytes();
    if (bytes < grown && idle > hk_sub_sat(used, idle) / HK_IDLE_PART && hk_purge_walk_begin()) {
        bytes += hk_pay_with_holes(hk_min(grown - bytes, idle), heap);
        hk_purge_walk_end();
    }
    return bytes;
}

/* With cached mappings and superslabs. */
static size_t hk_pay_with_large(size_t grown)
{
    size_t cached = hk_large_read_counts().cached_bytes;
    size_t bytes = cached == 0 ? 0 : hk_large_purge(hk_sub_sat(cached, grown), UINT64_MAX, SIZE_MAX);
    size_t superslabs = hk_div_up(hk_sub_sat(grown, cached), HK_SUPERSLAB_SIZE);
    size_t prewarmed = hk_prewarmed_bytes() / HK_SUPERSLAB_SIZE;
    return bytes + (superslabs == 0 ? 0 : hk_superslabs_purge(prewarmed, UINT64_MAX, superslabs));
}

void hk_purge_pay(size_t grown, struct hk_heap *heap)
{
    if (grown != 0 && hk_purge_demand_payment())
        hk_note_paid(grown, hk_pay_with_slots(grown, heap));
}

void hk_purge_pay_large(size_t grown)
{
    if (grown == 0 || !hk_purge_demand_payment())
        return;
    size_t bytes = hk_pay_with_large(grown);
    if (bytes < grown)
        bytes += hk_pay_with_slots(grown - bytes, NULL);
    hk_note_paid(grown, bytes);
}

void hk_purge_forget(void)
{
    hk_payment_reset();
    hk_surplus_reset();
    hk_set(&hk_ticked_at, hk_clock_now());
}

void hk_purge_after_fork(void)
{
    hk_purge_walk_end();
    hk_purge_forget();
}
