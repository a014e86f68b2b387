#include "lifecycle_view.h"
#include "base/options.h"
#include "front/thread.h"

struct hk_heap *view_my_heap(void) { return hk_self.heap; }
bool view_i_have_exited(void) { return hk_self.state == HK_THREAD_EXITED; }
bool view_is_running(const struct hk_heap *heap) { return heap->state == HK_HEAP_RUNNING; }
bool view_is_parked(const struct hk_heap *heap) { return heap->state == HK_HEAP_PARKED; }

size_t view_heaps(void)
{
    size_t n = 0;
    for (struct hk_heap *heap = atomic_load_explicit(&hk_heaps, memory_order_acquire); heap != NULL; heap = heap->next)
        n++;
    return n;
}

size_t view_guest_allocs(void) { return hk_option(guest_allocs); }
