#include "heap/magazine.h"

#include <string.h>

#include "base/options.h"
#include "base/os.h"
#include "base/trace.h"
#include "heap/clock.h"
#include "heap/remote.h"

void *const hk_no_magazine[HK_MAGAZINE_WORDS] __attribute__((aligned(HK_MAGAZINE_WORDS * sizeof(void *))));

/* ---- Capacity ---- */

/* What a magazine starts with: 8 blocks, fewer of those above 8 KiB, and one of the largest, of which a thread with a
 * few blocks of each class would else keep more than it uses. */
static unsigned hk_capacity_first(unsigned cls)
{
    size_t size = hk_classes[cls].size;
    return size <= 9 * HK_KIB ? 8 : size <= 18 * HK_KIB ? 4 : size <= 33 * HK_KIB ? 2 : 1;
}

/* What stays of a magazine when its heap is not busy. Blocks of more than 128 KiB go to their slabs then, where others
 * find them: one of each such class would be 7 MiB for each thread. */
static unsigned hk_capacity_quiet(unsigned cls)
{
    return hk_classes[cls].size <= 129 * HK_KIB ? hk_capacity_first(cls) : 0;
}

/* The first few blocks of each class are not charged to the budget: a few large classes would use it up. */
static size_t hk_budgeted_bytes(unsigned cls, unsigned capacity)
{
    unsigned first = hk_capacity_first(cls);
    return capacity <= first ? 0 : (capacity - first) * (size_t)hk_classes[cls].size;
}

/* The budget of a heap: a quarter of what its slabs come to, but no less than the option says, and no more than four
 * times as much. */
static size_t hk_heap_budget(const struct hk_heap *heap)
{
    size_t least = hk_option(thread_budget);
    return hk_max(least, hk_min(heap->slab_bytes / 4, 4 * least));
}

/* Moves entries of magazines and parcels; the places may overlap. Where they do not, memcpy would do; but GCC makes
 * string instructions of it if it knows that n is small, and these take longer to start than a call. */
static void hk_blocks_move(void **to, void *const *from, unsigned n) { memmove(to, from, n * sizeof *to); }

/* Sets the capacity of a magazine that holds no more than that; the bottom moves, so the entries do. */
static void hk_magazine_set_capacity(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], unsigned capacity)
{
    struct hk_heap_class *c = &heap->classes[cls];
    unsigned before = c->capacity;
    void **old_bottom = hk_magazine_bottom(heap, cls);
    heap->budget.bytes += hk_budgeted_bytes(cls, capacity);
    heap->budget.bytes -= hk_budgeted_bytes(cls, before);
    c->capacity = (uint8_t)capacity;
    if (capacity == 0) {
        c->held = 0;
        tops[cls] = HK_NO_MAGAZINE;
        return;
    }
    unsigned n = before == 0 ? 0 : (unsigned)(tops[cls] - old_bottom);
    void **bottom = hk_magazine_bottom(heap, cls);
    if (n > 0)
        hk_blocks_move(bottom + 1, old_bottom + 1, n);
    *bottom = NULL;
    tops[cls] = bottom + n;
}

/* ---- Giving blocks to the slabs ---- */

/* The oldest n blocks of a magazine have left it. */
static void hk_magazine_close_up(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], unsigned n)
{
    void **bottom = hk_magazine_bottom(heap, cls);
    unsigned kept = (unsigned)(tops[cls] - bottom) - n;
    hk_blocks_move(bottom + 1, bottom + 1 + n, kept);
    tops[cls] = bottom + kept;
    heap->classes[cls].held = (uint8_t)kept;
}

/* Gives blocks of a magazine or a reserve to their slabs. */
static void hk_heap_put_cached(struct hk_heap *heap, unsigned cls, void *const *blocks, unsigned n,
                               struct hk_fault *fault)
{
    struct hk_fault late = HK_NO_FAULT;
    heap->counts.flushes++;
    heap->counts.flushed_blocks += n;
    hk_heap_put_class(heap, cls, blocks, n, &late);
    hk_trace(HK_TRACE_DRAIN, "drain magazine", {"heap", hk_key_index(heap->key)}, {"class", cls}, {"blocks", n});
    hk_fault_note_late(fault, late);
}

static void hk_magazine_give(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], unsigned n,
                             struct hk_fault *fault)
{
    hk_heap_put_cached(heap, cls, hk_magazine_bottom(heap, cls) + 1, n, fault);
    hk_magazine_close_up(heap, cls, tops, n);
}

/* Lowers the capacity of a magazine, which gives its oldest blocks if it holds more. */
static void hk_magazine_cut(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], unsigned capacity,
                            struct hk_fault *fault)
{
    unsigned held = (unsigned)(tops[cls] - hk_magazine_bottom(heap, cls));
    if (held > capacity)
        hk_magazine_give(heap, cls, tops, held - capacity, fault);
    hk_magazine_set_capacity(heap, cls, tops, capacity);
}

/* ---- Reserves ---- */

/* Takes the youngest parcel, which is empty now, out of a reserve. */
static void hk_reserve_drop(struct hk_heap *heap, unsigned cls)
{
    struct hk_parcel *parcel = heap->classes[cls].reserve;
    heap->classes[cls].reserve = parcel->next;
    heap->parcels_reserved--;
    hk_parcel_keep(heap, parcel);
}

void hk_reserve_empty(struct hk_heap *heap, unsigned cls, struct hk_fault *fault)
{
    for (struct hk_parcel *parcel; (parcel = heap->classes[cls].reserve) != NULL;) {
        heap->budget.bytes -= parcel->count * (size_t)hk_classes[cls].size;
        hk_heap_put_cached(heap, cls, parcel->blocks, parcel->count, fault);
        parcel->count = 0;
        hk_reserve_drop(heap, cls);
    }
}

/* Puts the oldest n blocks of a magazine into its reserve. That is worth it only for a magazine that has grown to the
 * largest that its class may have: it has asked for more and more. False if it is smaller, or if there is no room. */
static bool hk_magazine_reserve(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], unsigned n)
{
    struct hk_heap_class *c = &heap->classes[cls];
    size_t bytes = n * (size_t)hk_classes[cls].size;
    if (cls >= HK_CLASS_FIRST_MEDIUM || c->capacity < hk_classes[cls].magazine_max ||
        heap->parcels_reserved == HK_RESERVE_PARCELS || heap->budget.bytes + bytes > hk_heap_budget(heap))
        return false;
    struct hk_parcel *parcel = hk_parcel_obtain(heap);
    if (parcel == NULL)
        return false;
    hk_blocks_move(parcel->blocks, hk_magazine_bottom(heap, cls) + 1, n);
    hk_magazine_close_up(heap, cls, tops, n);
    parcel->count = n;
    parcel->next = c->reserve;
    c->reserve = parcel;
    heap->parcels_reserved++;
    heap->counts.reserved_blocks += n;
    heap->budget.bytes += bytes;
    return true;
}

/* Fills an empty magazine with the youngest blocks of its reserve, and returns how many. */
static unsigned hk_reserve_take(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES])
{
    struct hk_parcel *parcel = heap->classes[cls].reserve;
    unsigned n = (unsigned)hk_min(parcel->count, heap->classes[cls].capacity);
    parcel->count -= n;
    hk_blocks_move(tops[cls] + 1, parcel->blocks + parcel->count, n);
    heap->budget.bytes -= n * (size_t)hk_classes[cls].size;
    if (parcel->count == 0)
        hk_reserve_drop(heap, cls);
    return n;
}

/* ---- Emptying ---- */

void hk_magazine_flush(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    hk_reserve_empty(heap, cls, fault);
    if (heap->classes[cls].capacity == 0)
        return;
    unsigned n = (unsigned)(tops[cls] - hk_magazine_bottom(heap, cls));
    if (n > 0) {
        heap->budget.exchanges++;
        hk_magazine_give(heap, cls, tops, n, fault);
    }
}

void hk_magazine_close(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    hk_magazine_flush(heap, cls, tops, fault);
    hk_magazine_set_capacity(heap, cls, tops, 0);
}

void hk_magazine_abandon(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES])
{
    hk_magazine_set_capacity(heap, cls, tops, 0);
}

/* ---- Growing within the budget, and shrinking ---- */

/* Gives up what magazines hold beyond what stays when a heap is not busy, the reserves and the warm slots. */
static void hk_heap_shrink(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    for (unsigned cls = 0; cls < HK_NCLASSES; cls++) {
        unsigned quiet = hk_capacity_quiet(cls);
        hk_reserve_empty(heap, cls, fault);
        if (heap->classes[cls].capacity > quiet)
            hk_magazine_cut(heap, cls, tops, quiet, fault);
    }
    hk_heap_release_warm(heap);
}

/* A heap is busy when it makes this many refills and flushes in one step of hk_os_now_ms (1 to 10 ms, mostly 4): they
 * then take more than about a hundredth of the thread's time. Magazines grow only then, and shrink when the heap has
 * not been busy for a second: what is cached beyond that costs memory and gains nothing. Every eighth looks at the
 * time. */
#define HK_BUSY_REFILLS 128u
#define HK_BUSY_LOOK 8u
#define HK_BUSY_MS 1000u

/* How many blocks may be borrowed until the next step: this many for each millisecond since the last step, four
 * milliseconds at most. Each block costs a slow path, and slow paths are to be a small part of the thread's time even
 * if the thread touches no page of its blocks. */
#define HK_BORROWED_PER_MS 1024u
#define HK_BORROWED_MS_MOST 4u

void hk_magazines_tend(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    uint64_t now = hk_os_now_ms();
    heap->budget.tended_at = hk_clock_now();
    if (heap->budget.busy_step == now)
        return;
    if (HK_UNLIKELY(now - heap->budget.busy_at > HK_BUSY_MS)) {
        hk_heap_shrink(heap, tops, fault);
        heap->budget.busy_at = now;
    }
    heap->budget.may_borrow = HK_BORROWED_PER_MS * (uint32_t)hk_min(now - heap->budget.busy_step, HK_BORROWED_MS_MOST);
    heap->budget.busy_step = now;
    heap->budget.busy_count = 0;
}

static void hk_heap_count_busy(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    if (heap->budget.busy_count % HK_BUSY_LOOK == 0)
        hk_magazines_tend(heap, tops, fault);
    if (++heap->budget.busy_count == HK_BUSY_REFILLS)
        heap->budget.busy_at = heap->budget.busy_step;
}

/* Classes for which malloc has not taken a slow path for this many ticks of the heap may lose capacity to those for
 * which it does. */
#define HK_VICTIM_AGE 256u
#define HK_VICTIM_LOOKS 8u

/* Takes the reserves of other classes, and half the capacity of magazines that are not in demand, until `bytes` of the
 * budget are free; false if it cannot. */
static bool hk_heap_free_budget(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], size_t bytes,
                                struct hk_fault *fault)
{
    size_t budget = hk_heap_budget(heap);
    for (unsigned looks = 0; heap->budget.bytes + bytes > budget; looks++) {
        if (looks == HK_VICTIM_LOOKS)
            return false; /* the next try looks further */
        unsigned victim = heap->budget.victim = (heap->budget.victim + 1) % HK_NCLASSES;
        struct hk_heap_class *c = &heap->classes[victim];
        if (victim == cls)
            continue;
        hk_reserve_empty(heap, victim, fault);
        if (c->capacity > hk_capacity_first(victim) && heap->tick - c->last_alloc >= HK_VICTIM_AGE)
            hk_magazine_cut(heap, victim, tops, c->capacity / 2u, fault);
    }
    return true;
}

/* The least of what bounds a magazine now: its class, the option, the whole budget, and that the heap is not busy. */
static unsigned hk_capacity_most(const struct hk_heap *heap, unsigned cls)
{
    size_t most = hk_classes[cls].magazine_max;
    size_t by_option = hk_option(magazine_blocks);
    size_t by_budget = hk_capacity_first(cls) + hk_heap_budget(heap) / hk_classes[cls].size;
    size_t by_rest = heap->budget.busy_count < HK_BUSY_REFILLS ? hk_capacity_quiet(cls) : most;
    return (unsigned)hk_min(hk_min(most, by_option), hk_min(by_budget, by_rest));
}

static void hk_magazine_grow(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    unsigned capacity = heap->classes[cls].capacity;
    unsigned most = hk_capacity_most(heap, cls);
    unsigned wanted = (unsigned)hk_min(capacity == 0 ? hk_capacity_first(cls) : capacity * 2 + 1, most);
    /* The larger it is, the more demand it takes to show that the class deserves more. */
    if (wanted <= capacity || (capacity != 0 && heap->classes[cls].demand < (capacity + 3u) / 4))
        return;
    heap->classes[cls].demand = 0;
    if (capacity == 0 ||
        hk_heap_free_budget(heap, cls, tops, (wanted - capacity) * (size_t)hk_classes[cls].size, fault))
        hk_magazine_set_capacity(heap, cls, tops, wanted);
}

/* ---- Refilling ---- */

static void hk_magazine_count(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES])
{
    struct hk_heap_class *c = &heap->classes[cls];
    c->held = (uint8_t)(c->capacity == 0 ? 0 : tops[cls] - hk_magazine_bottom(heap, cls));
}

void hk_magazines_count(struct hk_heap *heap, void **tops[HK_NCLASSES])
{
    for (unsigned cls = 0; cls < HK_NCLASSES; cls++)
        hk_magazine_count(heap, cls, tops);
}

void hk_magazine_note_alloc(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES])
{
    heap->classes[cls].last_alloc = heap->tick;
    hk_magazine_count(heap, cls, tops);
}

/* Fills an empty magazine with up to want blocks from the slabs, the lowest address on top: it is handed out first.
 * Returns how many. */
static unsigned hk_magazine_take(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], unsigned want,
                                 struct hk_fault *fault)
{
    void **end = tops[cls] + 1 + want;
    unsigned got = hk_heap_take(heap, cls, end, want, NULL, fault);
    heap->counts.refills += got != 0;
    heap->counts.refilled_blocks += got;
    if (HK_UNLIKELY(got < want))
        hk_blocks_move(end - want, end - got, got);
    return got;
}

void *hk_magazine_refill(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    struct hk_heap_class *c = &heap->classes[cls];
    hk_assert(*tops[cls] == NULL);
    hk_heap_count_busy(heap, tops, fault);
    if (cls < HK_CLASS_FIRST_MEDIUM)
        c->demand++;
    if (c->capacity < hk_classes[cls].magazine_max)
        hk_magazine_grow(heap, cls, tops, fault);
    if (c->capacity == 0)
        return hk_heap_take_one(heap, cls, NULL, fault);
    unsigned got = c->reserve != NULL ? hk_reserve_take(heap, cls, tops)
                                      : hk_magazine_take(heap, cls, tops, (c->capacity + 1u) / 2, fault);
    if (got == 0)
        return NULL;
    heap->budget.exchanges++;
    tops[cls] += got - 1;
    c->held = (uint8_t)(got - 1);
    return tops[cls][1];
}

/* ---- Borrowing ---- */

/* True if malloc would have to take a block of a medium class that has no memory, as no other is free. */
static bool hk_heap_wants_memory(const struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES])
{
    return *tops[cls] == NULL && !hk_heap_has_idle_blocks(heap, cls);
}

void *hk_magazine_borrow(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    unsigned lender = cls + 1;
    if (cls < HK_CLASS_FIRST_MEDIUM || lender == HK_CLASS_FIRST_ALIGNED || lender == HK_NCLASSES)
        return NULL;
    if (heap->budget.may_borrow == 0)
        hk_magazines_tend(heap, tops, fault); /* first: it may shrink magazines */
    if (heap->budget.may_borrow == 0 || !hk_heap_wants_memory(heap, cls, tops) ||
        hk_heap_wants_memory(heap, lender, tops))
        return NULL;
    heap->budget.may_borrow--;
    heap->counts.borrowed_blocks++;
    return *tops[lender] != NULL ? *tops[lender]-- : hk_magazine_refill(heap, lender, tops, fault);
}

/* ---- Freeing ---- */

/* Makes room in a full magazine. */
static void hk_magazine_give_half(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    struct hk_heap_class *c = &heap->classes[cls];
    if (cls >= HK_CLASS_FIRST_MEDIUM)
        c->demand++;
    unsigned half = (c->capacity + 1u) / 2;
    if (!hk_magazine_reserve(heap, cls, tops, (unsigned)hk_min(half, HK_PARCEL_BLOCKS)))
        hk_magazine_give(heap, cls, tops, half, fault);
}

/* Puts a block of the heap into the magazine of its class; one that is full gives its older half away first. False if
 * the class has no magazine. A block that lies on top already, or whose slab goes when an earlier copy of it is
 * given back, was freed twice; what else is wrong with a block is found when it is flushed. */
HK_INLINE bool hk_magazine_stow(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], void *p,
                                struct hk_fault *fault)
{
    bool twice = *tops[cls] == p;
    if (HK_UNLIKELY(hk_magazine_is_full(tops[cls]) && !twice)) {
        if (heap->classes[cls].capacity == 0)
            return false;
        hk_magazine_give_half(heap, cls, tops, fault);
        twice = hk_key_of(p) != (heap->key | cls);
    }
    if (HK_UNLIKELY(twice))
        hk_fault_note(fault, hk_fault_freed_twice(p, hk_classes[cls].size));
    else
        *++tops[cls] = p;
    return true;
}

/* True if a block is in use, as far as its slab knows, which is one of the heap. */
static bool hk_heap_uses(const struct hk_heap *heap, unsigned cls, const void *p)
{
    return hk_key_of_any(p) == (heap->key | cls) && hk_block_in_use(p);
}

void hk_magazine_free(struct hk_heap *heap, unsigned cls, void **tops[HK_NCLASSES], void *p, struct hk_fault *fault)
{
    if (hk_magazine_is_full(tops[cls]))
        hk_heap_count_busy(heap, tops, fault);
    if (tops[cls] == HK_NO_MAGAZINE) {
        hk_magazine_grow(heap, cls, tops, fault);
        /* Without a magazine, what was freed before went to its slab: that knows if it was this. */
        if (tops[cls] == HK_NO_MAGAZINE || !hk_heap_uses(heap, cls, p)) {
            hk_heap_put_class(heap, cls, &p, 1, fault);
            return;
        }
    } else if (hk_magazine_is_full(tops[cls])) {
        heap->budget.exchanges++;
    }
    hk_magazine_stow(heap, cls, tops, p, fault);
}

unsigned hk_magazine_accept(struct hk_heap *heap, void **blocks, unsigned n, void **tops[HK_NCLASSES],
                            struct hk_fault *fault)
{
    hk_assert(hk_lock_held_by_me(&heap->lock));
    if (tops != NULL)
        hk_heap_count_busy(heap, tops, fault);
    uint32_t now = hk_clock_now();
    unsigned others = 0;
    for (unsigned i = 0; i < n;) {
        void *p = blocks[i];
        hk_key cls = hk_key_of_any(p) ^ heap->key; /* keys that name the heap are written under its lock */
        if (HK_UNLIKELY(cls >= HK_NCLASSES)) {
            blocks[others++] = p;
            i++;
        } else if (tops != NULL && hk_magazine_stow(heap, cls, tops, p, fault)) {
            i++;
        } else {
            i += hk_heap_put(heap, &hk_classes[cls], blocks + i, n - i, now, fault);
        }
    }
    return others;
}
