#include "lifecycle_view.h"
#include <pthread.h>

#include "base/options.h"
#include "front/thread.h"
#include "heap/heaps.h"

struct hk_heap *view_my_heap(void) { return hk_self.heap; }
bool view_i_have_exited(void) { return hk_self.state == HK_THREAD_EXITED; }
bool view_is_running(const struct hk_heap *heap) { return heap->state == HK_HEAP_RUNNING; }
bool view_is_parked(const struct hk_heap *heap) { return heap->state == HK_HEAP_PARKED; }

bool view_is_locked(struct hk_heap *heap) { return atomic_load_explicit(&heap->lock.word, memory_order_relaxed) != 0; }

/* Handlers that were registered first run last before a fork: this one is there before the library's. */
void (*view_during_fork)(void);

static void run_during_fork(void)
{
    if (view_during_fork != NULL)
        view_during_fork();
}

static void register_first(void) { pthread_atfork(run_during_fork, NULL, NULL); }

__attribute__((section(".preinit_array"), used)) static void (*const before_all_constructors)(void) = register_first;

size_t view_heaps(void)
{
    size_t n = 0;
    for (struct hk_heap *heap = atomic_load_explicit(&hk_heaps, memory_order_acquire); heap != NULL; heap = heap->next)
        n++;
    return n;
}

bool view_is_waited_for_list_of_heaps(void)
{
    return atomic_load_explicit(&hk_heaps_lock.word, memory_order_relaxed) == 2;
}
void view_lock_list_of_heaps(void) { hk_lock_acquire(&hk_heaps_lock); }
void view_unlock_list_of_heaps(void) { hk_lock_release(&hk_heaps_lock); }
bool view_dissolve_parked_heaps(void)
{
    struct hk_fault fault = HK_NO_FAULT;
    hk_heaps_dissolve_parked(UINT32_MAX, &fault);
    return fault.kind == HK_FAULT_NONE;
}

size_t view_guest_allocs(void) { return hk_option(guest_allocs); }
