#include "front/thread.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/options.h"
#include "front/maintenance.h"
#include "heap/heaps.h"
#include "heap/magazine.h"
#include "heap/remote.h"

HK_TLS struct hk_thread hk_self = {
    .top = {[0 ... HK_NCLASSES - 1] = HK_NO_MAGAZINE},
    .owner_key = HK_KEY_NOBODY,
};

/* The thread-specific key whose destructor parks the heap. */
enum hk_exit_key_state { HK_EXIT_KEY_NONE, HK_EXIT_KEY_BEING_MADE, HK_EXIT_KEY_READY, HK_EXIT_KEY_UNAVAILABLE };
static pthread_key_t hk_exit_key;
static _Atomic uint32_t hk_exit_key_state;

static void hk_thread_detach_heap(struct hk_thread *self, struct hk_fault *fault)
{
    /* From the moment the heap is parked its magazines are another thread's. */
    void **tops[HK_NCLASSES];
    memcpy(tops, self->top, sizeof tops);
    struct hk_heap *heap = self->heap;
    self->state = HK_THREAD_EXITED;
    self->owner_key = HK_KEY_NOBODY;
    self->heap = NULL;
    self->outbox_room = 0;
    self->outbox_next = NULL;
    for (unsigned i = 0; i < HK_NCLASSES; i++)
        self->top[i] = HK_NO_MAGAZINE;
    hk_heap_park(heap, tops, fault);
}

static void hk_thread_exit(void *thread)
{
    struct hk_thread *self = thread;
    struct hk_fault fault = HK_NO_FAULT;
    if (self != &hk_self) /* a second hakmem, in another namespace of the loader, has a key of the same number */
        return;
    if (self->heap != NULL)
        hk_thread_detach_heap(self, &fault);
    self->state = HK_THREAD_EXITED;
    if (self->counted)
        hk_maintenance_thread_ends();
    self->counted = false;
    hk_fault_check(&fault, "free");
}

/* Destructors run in the order of their keys, in up to four rounds. So that ours comes after the program's it gets a
 * high key: the highest for which the C library keeps a thread's value without allocating. */
#define HK_EXIT_KEY_NUMBER 31

static uint32_t hk_exit_key_make(void)
{
    pthread_key_t keys[HK_EXIT_KEY_NUMBER + 1];
    unsigned n = 0;
    while (n <= HK_EXIT_KEY_NUMBER && pthread_key_create(&keys[n], hk_thread_exit) == 0)
        if (keys[n++] >= HK_EXIT_KEY_NUMBER)
            break;
    if (n == 0)
        return HK_EXIT_KEY_UNAVAILABLE;
    hk_exit_key = keys[--n];
    while (n > 0)
        pthread_key_delete(keys[--n]);
    return HK_EXIT_KEY_READY;
}

static bool hk_exit_key_obtain(void)
{
    uint32_t state = atomic_load_explicit(&hk_exit_key_state, memory_order_acquire);
    if (HK_UNLIKELY(state == HK_EXIT_KEY_NONE) &&
        atomic_compare_exchange_strong_explicit(&hk_exit_key_state, &state, HK_EXIT_KEY_BEING_MADE,
                                                memory_order_acquire, memory_order_acquire)) {
        state = hk_exit_key_make();
        atomic_store_explicit(&hk_exit_key_state, state, memory_order_release);
    }
    return state == HK_EXIT_KEY_READY;
}

/* A thread's first call. The destructor is set now and not when the thread gets a heap: that may be so late in the
 * thread's life that no destructor runs any more, and the heap would never be parked. */
HK_COLD static void hk_thread_begin(struct hk_thread *self)
{
    int saved = errno;
    if (!hk_exit_key_obtain())
        return; /* try again at the next call */
    /* Not if the C library allocates for it: this call may come out of pthread_setspecific doing just that. */
    self->state = HK_THREAD_GUEST;
    if (hk_exit_key <= HK_EXIT_KEY_NUMBER)
        self->end_is_told = pthread_setspecific(hk_exit_key, self) == 0;
    errno = saved;
}

HK_COLD static void hk_thread_obtain_heap(struct hk_thread *self)
{
    int saved = errno;
    struct hk_fault fault = HK_NO_FAULT;
    self->guest_requests = 0; /* without memory: try again after as many requests */
    struct hk_heap *heap = hk_heap_obtain(self->top, self);
    if (heap == NULL)
        return;
    self->heap = heap;
    self->owner_key = hk_option(checked) ? HK_KEY_NOBODY : heap->key;
    self->state = HK_THREAD_RUNNING;
    /* The state stands before this call, which may allocate. Without a destructor the thread had better be a guest. */
    self->end_is_told = pthread_getspecific(hk_exit_key) == self || pthread_setspecific(hk_exit_key, self) == 0;
    if (!self->end_is_told)
        hk_thread_exit(self);
    else if (self->owner_key == HK_KEY_NOBODY)
        hk_thread_flush(&fault); /* what the heap's last thread has cached would not be checked */
    hk_fault_check(&fault, "free");
    errno = saved;
}

/* A parked heap costs nothing more, and makes what its last thread left local to the new one. But the few frees that
 * the C library makes after a thread's destructors are not to take one. A new heap must pay. */
#define HK_REQUESTS_FOR_PARKED_HEAP 8u

static bool hk_thread_count_request(struct hk_thread *self)
{
    uint32_t requests = self->guest_requests++;
    return requests >= hk_option(guest_allocs) ||
           (requests >= HK_REQUESTS_FOR_PARKED_HEAP && hk_heaps_any_parked() && hk_exit_key <= HK_EXIT_KEY_NUMBER);
}

struct hk_heap *hk_thread_heap(void)
{
    struct hk_thread *self = &hk_self;
    if (HK_UNLIKELY(self->heap == NULL)) {
        if (self->state == HK_THREAD_NEW)
            hk_thread_begin(self);
        if (self->state == HK_THREAD_GUEST && hk_thread_count_request(self))
            hk_thread_obtain_heap(self);
    }
    return self->heap;
}

void hk_thread_register(void)
{
    struct hk_thread *self = &hk_self;
    if (HK_LIKELY(self->counted))
        return;
    if (self->state == HK_THREAD_NEW)
        hk_thread_begin(self);
    if (self->counted || !self->end_is_told || self->state == HK_THREAD_EXITED)
        return;           /* to begin may have allocated, and so counted it */
    self->counted = true; /* before: to make a thread allocates */
    self->counted = hk_maintenance_thread_allocates();
}

void hk_thread_after_fork(void)
{
    uint32_t being_made = HK_EXIT_KEY_BEING_MADE;
    hk_replace(&hk_exit_key_state, &being_made, HK_EXIT_KEY_NONE);
    hk_maintenance_after_fork(hk_self.counted);
}

void hk_thread_send(struct hk_fault *fault)
{
    struct hk_thread *self = &hk_self;
    /* Without parcels nothing can be sent; but an empty last place says that others have sent it. */
    if (self->outbox_next != NULL && hk_get(self->outbox_next - 1) != NULL && !hk_parcels_at_hand(self->heap))
        return;
    bool all = hk_outbox_send(self->heap, fault);
    if (self->owner_key == HK_KEY_NOBODY)
        return; /* its frees go to the owners at once */
    void *_Atomic *outbox = hk_outbox_of(self->heap);
    self->outbox_next = outbox;
    self->outbox_room = HK_OUTBOX_BYTES;
    if (HK_LIKELY(all))
        return;
    /* What is left moves to the front. */
    for (unsigned i = 0; i < HK_OUTBOX_BLOCKS; i++) {
        void *p = hk_get(&outbox[i]);
        if (p == NULL)
            continue;
        hk_set(&outbox[i], NULL);
        hk_set(self->outbox_next++, p);
        /* If it was freed twice its key may say anything by now. */
        hk_key kind = hk_key_kind(hk_key_of(p));
        uint32_t bytes = kind < HK_NCLASSES ? hk_outbox_bytes(kind) : HK_OUTBOX_BYTES_LEAST;
        self->outbox_room = (uint32_t)hk_sub_sat(self->outbox_room, bytes);
    }
}

/* The place in the calling thread's outbox, before `end`, of the youngest block of a class that belongs to the guests.
 * A pointer that is no block in use is left for the guests to find. */
static void *_Atomic *hk_outbox_find(unsigned cls, void *_Atomic *end)
{
    for (void *_Atomic *place = end; --place >= hk_outbox_of(hk_self.heap);) {
        void *p = hk_get(place);
        if (hk_key_of(p) == (hk_guests.key | cls) && hk_block_in_use(p))
            return place;
    }
    return NULL;
}

void *hk_thread_take_back(unsigned cls, struct hk_fault *fault)
{
    struct hk_thread *self = &hk_self;
    /* While parcels are on their way to the guests, their bitmaps do not show all that was freed before. */
    if (self->outbox_next == NULL || hk_parcels_are_pending(&hk_guests))
        return NULL;
    void *_Atomic *place = hk_outbox_find(cls, self->outbox_next);
    if (place == NULL)
        return NULL;
    void *p = hk_get(place);
    for (void *_Atomic *other = place; (other = hk_outbox_find(cls, other)) != NULL;)
        if (HK_UNLIKELY(hk_get(other) == p)) {
            hk_set(other, NULL);
            hk_fault_note_late(fault, hk_fault_freed_twice(p, hk_classes[cls].size));
        }
    void *_Atomic *last = --self->outbox_next;
    hk_set(place, hk_get(last));
    hk_set(last, NULL);
    return p; /* its share of outbox_room comes back when the outbox is sent */
}

void hk_thread_check_frees(void)
{
    struct hk_fault fault = HK_NO_FAULT;
    if (hk_self.heap == NULL)
        return;
    hk_thread_flush(&fault);
    hk_self.owner_key = HK_KEY_NOBODY;
    hk_self.outbox_room = 0;
    hk_self.outbox_next = NULL;
    hk_fault_check(&fault, "free");
}

void hk_thread_flush(struct hk_fault *fault)
{
    struct hk_heap *heap = hk_self.heap;
    if (heap == NULL)
        return;
    hk_lock_acquire(&heap->lock);
    for (unsigned cls = 0; cls < HK_NCLASSES; cls++)
        hk_magazine_flush(heap, cls, hk_self.top, fault);
    hk_thread_send(fault);
    hk_heap_release_warm(heap);
    hk_lock_release(&heap->lock);
}

void hk_thread_idle(void)
{
    struct hk_fault fault = HK_NO_FAULT;
    hk_thread_flush(&fault);
    hk_fault_check(&fault, "hak_thread_idle");
}
