#include "front/thread.h"

#include <pthread.h>
#include <string.h>

#include "base/options.h"
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
    for (unsigned i = 0; i < HK_NCLASSES; i++)
        self->top[i] = HK_NO_MAGAZINE;
    hk_heap_park(heap, tops, fault);
}

static void hk_thread_exit(void *self)
{
    struct hk_fault fault = HK_NO_FAULT;
    hk_thread_detach_heap(self, &fault);
    hk_fault_check(&fault, "free");
}

static bool hk_exit_key_ready(void)
{
    uint32_t state = atomic_load_explicit(&hk_exit_key_state, memory_order_acquire);
    if (HK_UNLIKELY(state == HK_EXIT_KEY_NONE) &&
        atomic_compare_exchange_strong_explicit(&hk_exit_key_state, &state, HK_EXIT_KEY_BEING_MADE,
                                                memory_order_acquire, memory_order_acquire)) {
        state = pthread_key_create(&hk_exit_key, hk_thread_exit) == 0 ? HK_EXIT_KEY_READY : HK_EXIT_KEY_UNAVAILABLE;
        atomic_store_explicit(&hk_exit_key_state, state, memory_order_release);
    }
    return state == HK_EXIT_KEY_READY;
}

HK_COLD static struct hk_heap *hk_thread_register(struct hk_thread *self)
{
    if (!hk_exit_key_ready())
        return NULL;
    struct hk_heap *heap = hk_heap_obtain(self->top, self);
    if (heap == NULL) {
        self->guest_requests = 0; /* no memory: try again after as many requests */
        return NULL;
    }
    self->heap = heap;
    self->owner_key = hk_option(checked) ? HK_KEY_NOBODY : heap->key;
    self->state = HK_THREAD_RUNNING;
    /* The state stands before this call: it may allocate. */
    if (pthread_setspecific(hk_exit_key, self) != 0) {
        struct hk_fault fault = HK_NO_FAULT;
        hk_thread_detach_heap(self, &fault);
        return NULL;
    }
    return self->heap;
}

struct hk_heap *hk_thread_heap(void)
{
    struct hk_thread *self = &hk_self;
    if (HK_LIKELY(self->heap != NULL) || self->state == HK_THREAD_EXITED)
        return self->heap;
    if (self->guest_requests++ < hk_option(guest_allocs))
        return NULL;
    return hk_thread_register(self);
}

void hk_thread_flush(struct hk_fault *fault)
{
    struct hk_heap *heap = hk_self.heap;
    if (heap == NULL)
        return;
    hk_lock_acquire(&heap->lock);
    for (unsigned class = 0; class < HK_NCLASSES; class++)
        hk_heap_flush(heap, class, hk_self.top, fault);
    hk_outbox_drain(heap, fault);
    hk_lock_release(&heap->lock);
}
