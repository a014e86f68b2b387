#include "heap/window.h"

#include "base/lock.h"
#include "heap/meta.h"

struct hk_map hk_map HK_CACHE_ALIGNED;

/* All windows, so that nobody walks the table, which is mostly pages that were never touched. */
static struct hk_window *_Atomic hk_windows;

HK_COLD struct hk_fault hk_key_fault(const void *p, hk_key key)
{
    if (hk_key_kind(key) == HK_KEY_GONE)
        return hk_fault_freed_twice(p, hk_classes[hk_key_index(key)].size);
    if (hk_key_kind(key) == HK_KEY_GONE_LARGE)
        return hk_fault_freed_twice(p, hk_key_index(key) * HK_GONE_UNIT);
    return (struct hk_fault){.kind = HK_FAULT_FOREIGN, .ptr = p};
}

/* A window that was obtained and never entered, so nobody has written to it. */
static struct hk_window *hk_spare_window; /* guarded by hk_meta_lock */

struct hk_window *hk_window_obtain(void)
{
    hk_lock_acquire(&hk_meta_lock);
    struct hk_window *window = hk_spare_window;
    hk_spare_window = NULL;
    hk_lock_release(&hk_meta_lock);
    return window != NULL ? window : hk_meta_alloc_pages(sizeof *window);
}

void hk_window_enter(struct hk_window *window, const void *p)
{
    uintptr_t i = (uintptr_t)p >> HK_WINDOW_SHIFT;
    hk_lock_acquire(&hk_meta_lock);
    if (hk_window_at(i) == NULL) {
        window->next = hk_get(&hk_windows);
        atomic_store_explicit(&hk_windows, window, memory_order_release);
        __atomic_store_n(&hk_map.entries[i], window->keys - hk_map.no_keys, __ATOMIC_RELEASE);
        window = NULL;
    } else if (hk_spare_window == NULL) {
        hk_spare_window = window;
        window = NULL;
    }
    hk_lock_release(&hk_meta_lock);
    if (window != NULL)
        hk_meta_free_pages(window, sizeof *window);
}

bool hk_window_prepare(const void *p, size_t size)
{
    uintptr_t first = (uintptr_t)p >> HK_WINDOW_SHIFT;
    uintptr_t last = ((uintptr_t)p + size - 1) >> HK_WINDOW_SHIFT;
    for (uintptr_t i = first; i <= last; i++) {
        if (hk_window_at(i) != NULL)
            continue;
        struct hk_window *window = hk_window_obtain();
        if (window == NULL)
            return false;
        hk_window_enter(window, (const void *)(i << HK_WINDOW_SHIFT));
    }
    return true;
}

void hk_window_set_superslab(const void *base, struct hk_superslab *superslab)
{
    struct hk_window *window = hk_window_at((uintptr_t)base >> HK_WINDOW_SHIFT);
    uint32_t number = ((uintptr_t)base >> HK_SUPERSLAB_SHIFT) % HK_SUPERSLABS_PER_WINDOW;
    if (number < window->first || window->end == 0)
        window->first = number;
    if (number >= window->end)
        window->end = number + 1;
    atomic_store_explicit(&window->superslabs[number], superslab, memory_order_release);
}

struct hk_window *hk_window_first(void) { return atomic_load_explicit(&hk_windows, memory_order_acquire); }

/* The superslab with the least number that is *number or more, and the number after it in *number; NULL if there is
 * none. */
static struct hk_superslab *hk_window_next_superslab(const struct hk_window *window, uint32_t *number)
{
    struct hk_superslab *superslab = NULL;
    *number = (uint32_t)hk_max(*number, window->first);
    while (superslab == NULL && *number < window->end)
        superslab = hk_get(&window->superslabs[(*number)++]);
    return superslab;
}

struct hk_superslab *hk_superslabs_walk(struct hk_superslab_cursor *cursor)
{
    struct hk_superslab *superslab = NULL;
    if (cursor->window == NULL)
        cursor->window = hk_window_first();
    while (cursor->window != NULL && (superslab = hk_window_next_superslab(cursor->window, &cursor->number)) == NULL)
        *cursor = (struct hk_superslab_cursor){.window = cursor->window->next};
    return superslab;
}
