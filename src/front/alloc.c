#include "front/alloc.h"

#include <errno.h>
#include <string.h>

#include "front/hot_path.h"
#include "front/maintenance.h"
#include "front/memory.h"
#include "heap/heaps.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/magazine.h"
#include "heap/remote.h"

/* Once in this many slow paths a thread's outbox is sent, so that what it holds does not wait for ever. */
#define HK_OUTBOX_PERIOD 256u

void *hk_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* A thread's heap counts only the slow paths of its own thread: its tick stands still when the thread does, whoever
 * else enters the heap. */
static bool hk_heap_is_for_me(const struct hk_heap *heap) { return heap == hk_self.heap || heap == &hk_guests; }

/* Enters the slow path of a heap: takes its lock and does what is due. */
static void hk_heap_enter(struct hk_heap *heap, struct hk_fault *fault)
{
    hk_lock_acquire(&heap->lock);
    bool mine = heap == hk_self.heap;
    void ***tops = mine && hk_self.owner_key != HK_KEY_NOBODY ? hk_self.top : NULL;
    if (hk_heap_is_for_me(heap))
        hk_heap_count_tick(heap);
    if (mine && heap->tick % HK_OUTBOX_PERIOD == 0)
        hk_thread_send(fault);
    if (tops != NULL && hk_magazines_are_due(heap))
        hk_magazines_tend(heap, tops, fault);
    if (HK_UNLIKELY(hk_parcels_are_pending(heap)))
        hk_parcels_open(heap, tops, fault);
}

/* Leaves it: what is due without the lock. */
static void hk_heap_leave(struct hk_heap *heap, struct hk_fault *fault)
{
    bool due = heap->released || (hk_heap_is_for_me(heap) && heap->tick % HK_OUTBOX_PERIOD == 0);
    heap->released = false;
    hk_lock_release(&heap->lock);
    if (HK_UNLIKELY(due || hk_superslabs_are_too_many() || hk_maintenance_is_asleep() || hk_limit_is_pressing()))
        hk_maintain(fault);
}

/* ---- Blocks of a class ---- */

/* How a block of a class is wanted. */
enum hk_wish {
    HK_WISH_ANY,
    HK_WISH_ALIGNED, /* as the blocks of the class are: one of the next larger class will not do */
    HK_WISH_FRESH,   /* straight from a slab, to know whether it was ever handed out */
};

static void *hk_alloc_class_try(unsigned cls, enum hk_wish wish, bool *fresh, struct hk_fault *fault)
{
    struct hk_heap *heap = hk_thread_heap();
    hk_thread_register();
    void *p = NULL;
    bool guest = heap == NULL;
    *fresh = false;
    if (heap != NULL) {
        /* A heap that was just taken over comes with magazines that are not empty. */
        p = hk_magazine_pop(cls);
        if (p != NULL)
            return p;
        hk_heap_enter(heap, fault);
        p = hk_magazine_pop(cls); /* what others freed may be there now */
        hk_magazine_note_alloc(heap, cls, hk_self.top);
        bool checked = hk_self.owner_key == HK_KEY_NOBODY; /* and no magazine is used */
        bool one = wish == HK_WISH_FRESH || checked;
        guest = p == NULL && hk_heap_count_guest_alloc(heap, cls);
        if (guest)
            p = hk_thread_take_back(cls, fault);
        if (p == NULL && wish != HK_WISH_ALIGNED && !checked)
            p = hk_magazine_borrow(heap, cls, hk_self.top, fault);
        if (p == NULL && !guest)
            p = one ? hk_heap_take_one(heap, cls, fresh, fault) : hk_magazine_refill(heap, cls, hk_self.top, fault);
        hk_heap_leave(heap, fault);
    }
    if (guest && p == NULL) {
        hk_heap_enter(&hk_guests, fault);
        p = hk_heap_take_one(&hk_guests, cls, fresh, fault);
        hk_heap_leave(&hk_guests, fault);
    }
    return p;
}

HK_NOINLINE static void *hk_alloc_class(unsigned cls, enum hk_wish wish, bool *fresh)
{
    struct hk_fault fault = HK_NO_FAULT;
    void *p = hk_alloc_class_try(cls, wish, fresh, &fault);
    if (HK_UNLIKELY(p == NULL)) {
        hk_reclaim(&fault);
        p = hk_alloc_class_try(cls, wish, fresh, &fault);
    }
    hk_fault_check(&fault, "malloc");
    return p != NULL ? p : hk_no_memory();
}

static void *hk_alloc_large_try(size_t n, size_t alignment, enum hk_large_kind kind, bool zero, struct hk_fault *fault)
{
    hk_thread_register();
    void *p = hk_large_alloc(n, alignment, kind, zero);
    hk_maintain(fault);
    return p;
}

/* More cannot exist: no idle memory is given up for it. */
#define HK_LARGE_MAX (((size_t)1 << HK_ADDRESS_BITS) - 1)

static void *hk_alloc_large(size_t n, size_t alignment, enum hk_large_kind kind, bool zero)
{
    if (alignment > HK_LARGE_MAX || n > HK_LARGE_MAX - alignment)
        return hk_no_memory();
    n += n == 0;
    struct hk_fault fault = HK_NO_FAULT;
    void *p = hk_alloc_large_try(n, alignment, kind, zero, &fault);
    if (HK_UNLIKELY(p == NULL)) {
        hk_reclaim(&fault);
        p = hk_large_alloc(n, alignment, kind, zero);
    }
    hk_fault_check(&fault, "malloc");
    return p != NULL ? p : hk_no_memory();
}

HK_NOINLINE static void *hk_malloc_cold(size_t n)
{
    bool fresh;
    if (n > HK_MEDIUM_MAX)
        return hk_alloc_large(n, HK_MIN_ALIGN, HK_LARGE_ANY, false);
    return hk_alloc_class(hk_class_of(n), HK_WISH_ANY, &fresh);
}

HK_NOINLINE void *hk_malloc_slow(size_t n)
{
    if (n > HK_SMALL_MAX && n <= HK_MEDIUM_MAX) {
        void *p = hk_magazine_pop(hk_class_of_medium(n));
        if (HK_LIKELY(p != NULL))
            return p;
    }
    return hk_malloc_cold(n);
}

void *hk_malloc_growing(size_t n)
{
    if (n > HK_MEDIUM_MAX)
        return hk_alloc_large(n, HK_MIN_ALIGN, HK_LARGE_MAPPING, false);
    void *p = NULL;
    if (hk_large_takes_medium(n)) {
        struct hk_fault fault = HK_NO_FAULT;
        p = hk_alloc_large_try(n, HK_MIN_ALIGN, HK_LARGE_MAPPING, false, &fault);
        hk_fault_check(&fault, "malloc");
    }
    return p != NULL ? p : hk_malloc_hot(n);
}

void *hk_calloc_any(size_t count, size_t n)
{
    size_t size;
    if (HK_UNLIKELY(__builtin_mul_overflow(count, n, &size)))
        return hk_no_memory();
    if (size > HK_MEDIUM_MAX)
        return hk_alloc_large(size, HK_MIN_ALIGN, HK_LARGE_ANY, true);
    bool zero = false;
    void *p;
    if (size <= HK_SMALL_MAX) {
        p = hk_malloc_hot(size);
    } else {
        unsigned cls = hk_class_of_medium(size);
        p = hk_magazine_pop(cls);
        if (p == NULL)
            p = hk_alloc_class(cls, HK_WISH_FRESH, &zero);
    }
    return p == NULL || zero ? p : memset(p, 0, size);
}

void *hk_malloc_aligned(size_t alignment, size_t n)
{
    unsigned cls = hk_class_of_aligned(n, alignment);
    if (cls == HK_NCLASSES)
        return hk_alloc_large(n, alignment, HK_LARGE_ANY, false);
    void *p = hk_magazine_pop(cls);
    bool fresh;
    return p != NULL ? p : hk_alloc_class(cls, HK_WISH_ALIGNED, &fresh);
}

void *hk_aligned_alloc(size_t alignment, size_t n)
{
    if (!hk_is_power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return hk_malloc_aligned(alignment, n);
}

/* ---- Free ---- */

static void hk_free_own(struct hk_heap *heap, unsigned cls, void *p, struct hk_fault *fault)
{
    if (*hk_self.top[cls] == p) {
        hk_fault_note(fault, hk_fault_freed_twice(p, hk_classes[cls].size));
        return;
    }
    hk_heap_enter(heap, fault);
    hk_magazine_free(heap, cls, hk_self.top, p, fault);
    hk_heap_leave(heap, fault);
}

/* Puts a block of another heap into the outbox. False if that has no room for it, if the block is the last one in it
 * already, if the key is not a slab's, or if the maintenance thread must be woken. */
HK_INLINE bool hk_free_to_outbox(void *p, hk_key key)
{
    struct hk_thread *self = &hk_self;
    if (HK_UNLIKELY(!hk_key_is_slabs(key) || !hk_is_user_address(p) || hk_maintenance_is_asleep()))
        return false;
    uint32_t bytes = hk_outbox_bytes(hk_key_kind(key));
    if (HK_UNLIKELY(bytes > self->outbox_room || hk_outbox_ends_with(p)))
        return false;
    hk_assert(self->outbox_next < hk_outbox_of(self->heap) + HK_OUTBOX_BLOCKS);
    self->outbox_room -= bytes;
    atomic_store_explicit(self->outbox_next++, p, memory_order_release);
    return true;
}

/* Gives a block to its owner under the owner's lock. The caller holds no other lock. */
static void hk_free_direct(void *p, struct hk_fault *fault)
{
    for (unsigned left = 1; left > 0;) {
        struct hk_heap *owner = hk_block_owner(p, fault);
        if (HK_UNLIKELY(owner == NULL))
            return;
        hk_heap_enter(owner, fault);
        left = hk_magazine_accept(owner, &p, 1, NULL, fault); /* one, if the slab was adopted meanwhile */
        owner->counts.direct_frees += left == 0;
        hk_heap_leave(owner, fault);
    }
}

static void hk_free_others(struct hk_heap *heap, void *p, struct hk_fault *fault)
{
    if (HK_UNLIKELY(hk_self.outbox_next != NULL && hk_outbox_ends_with(p))) {
        hk_fault_note(fault, hk_fault_freed_twice(p, hk_usable_size(p)));
        return;
    }
    if (heap != NULL && hk_self.owner_key != HK_KEY_NOBODY && hk_usable_size(p) <= HK_OUTBOX_BYTES) {
        hk_heap_enter(heap, fault);
        hk_thread_send(fault);
        hk_heap_leave(heap, fault);
        if (hk_free_to_outbox(p, hk_key_of(p)))
            return;
    }
    hk_free_direct(p, fault);
}

static void hk_free_any(void *p, const char *call)
{
    if (p == NULL)
        return;
    struct hk_fault fault = HK_NO_FAULT;
    if (hk_key_kind(hk_key_of_any(p)) == HK_KEY_LARGE) {
        hk_large_free(p, &fault);
        hk_maintain(&fault);
    } else {
        struct hk_heap *heap = hk_thread_heap();
        /* Read only now: until the thread has taken a parked heap over, others may adopt that heap's slabs. */
        hk_key cls = hk_key_of_any(p) ^ hk_self.owner_key;
        if (cls < HK_NCLASSES)
            hk_free_own(heap, cls, p, &fault);
        else
            hk_free_others(heap, p, &fault);
    }
    hk_fault_check(&fault, call);
}

/* Frees a block of the calling thread's slabs whose magazine does not take it. */
HK_NOINLINE static void hk_free_full(void *p, unsigned cls)
{
    if (HK_UNLIKELY(!hk_is_user_address(p))) {
        hk_free_any(p, "free");
        return;
    }
    struct hk_fault fault = HK_NO_FAULT;
    hk_free_own(hk_self.heap, cls, p, &fault);
    hk_fault_check(&fault, "free");
}

HK_NOINLINE void hk_free_slow(void *p, size_t cls)
{
    if (cls < HK_NCLASSES)
        hk_free_full(p, (unsigned)cls);
    else if (!hk_free_to_outbox(p, (hk_key)cls ^ hk_self.owner_key))
        hk_free_any(p, "free");
}

void hk_free_sized(void *p, size_t n, const char *call)
{
    size_t usable = hk_usable_size(p);
    if (HK_UNLIKELY(usable == 0)) {
        hk_free_any(p, call);
        return;
    }
    if (HK_UNLIKELY(n > usable)) {
        struct hk_fault fault = {.kind = HK_FAULT_WRONG_SIZE, .ptr = p, .block_size = usable, .size_given = n};
        hk_fault_report(&fault, call);
    }
    hk_free_hot(p);
}

/* ---- Size ---- */

size_t hk_usable_size(const void *p)
{
    hk_key key = hk_key_of_any(p);
    if (HK_LIKELY(hk_key_is_slabs(key)))
        return hk_classes[hk_key_kind(key)].size;
    return hk_key_kind(key) == HK_KEY_LARGE ? hk_large_usable(p) : 0;
}

size_t hk_good_size(size_t n)
{
    if (n <= HK_MEDIUM_MAX)
        return hk_classes[hk_class_of(n)].size;
    return n > HK_LARGE_MAX ? n : hk_align_up(n, 4 * HK_KIB);
}

/* ---- Batches ---- */

static void hk_reverse(void **blocks, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        void *p = blocks[i];
        blocks[i] = blocks[n - 1 - i];
        blocks[n - 1 - i] = p;
    }
}

size_t hk_malloc_batch(size_t n, size_t count, void **out)
{
    size_t got = 0;
    struct hk_heap *heap = n <= HK_MEDIUM_MAX && count > 0 ? hk_thread_heap() : NULL;
    if (heap != NULL) {
        struct hk_fault fault = HK_NO_FAULT;
        unsigned cls = hk_class_of(n);
        size_t left = count;
        hk_thread_register();
        hk_heap_enter(heap, &fault);
        for (unsigned more = 1; left > 0 && more > 0; left -= more) {
            unsigned want = (unsigned)hk_min(left, HK_SLAB_BLOCKS_MAX);
            more = hk_heap_take(heap, cls, out + left, want, NULL, &fault);
        }
        hk_heap_leave(heap, &fault);
        hk_fault_check(&fault, "malloc");
        got = count - left;
        hk_reverse(out, count); /* what came last lies in front; programs go through memory upwards */
    }
    for (; got < count && (out[got] = hk_malloc_hot(n)) != NULL; got++) {}
    if (HK_UNLIKELY(got < count))
        memset(out + got, 0, (count - got) * sizeof *out);
    return got;
}

#define HK_FREE_BATCH 64u

void hk_free_batch(void *const *blocks, size_t count)
{
    struct hk_heap *heap = count > 0 ? hk_thread_heap() : NULL;
    void *slab_blocks[HK_FREE_BATCH];
    for (size_t i = 0; i < count;) {
        unsigned n = 0;
        for (; i < count && n < HK_FREE_BATCH; i++) {
            void *p = blocks[i];
            if (heap != NULL && (hk_key_of_any(p) ^ heap->key) < HK_NCLASSES)
                slab_blocks[n++] = p;
            else
                hk_free_slow(p, hk_key_of(p) ^ hk_self.owner_key);
        }
        if (n > 0) {
            struct hk_fault fault = HK_NO_FAULT;
            hk_heap_enter(heap, &fault);
            unsigned left = hk_magazine_accept(heap, slab_blocks, n, NULL, &fault);
            hk_heap_leave(heap, &fault);
            while (left > 0)
                hk_free_direct(slab_blocks[--left], &fault);
            hk_fault_check(&fault, "free");
        }
    }
}
