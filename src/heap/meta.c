#include "heap/meta.h"

#include "base/os.h"

#define HK_META_CHUNK (256 * HK_KIB)

struct hk_lock hk_meta_lock = HK_LOCK_INIT(HK_RANK_META);

static struct {
    uintptr_t next, end; /* what is left of the current chunk */
    size_t used, mapped;
} hk_meta; /* guarded by hk_meta_lock */

void *hk_meta_alloc(size_t size, size_t alignment)
{
    hk_lock_acquire(&hk_meta_lock);
    uintptr_t p = hk_align_up(hk_meta.next, alignment);
    if (hk_meta.next == 0 || p + size > hk_meta.end) {
        size_t chunk = hk_align_up(size + alignment, HK_META_CHUNK);
        uintptr_t fresh = (uintptr_t)hk_os_map(chunk, hk_os_page_size());
        if (fresh == 0) {
            hk_lock_release(&hk_meta_lock);
            return NULL;
        }
        if (fresh != hk_meta.end) /* else the chunk continues the last one */
            hk_meta.next = fresh;
        hk_meta.end = fresh + chunk;
        hk_meta.mapped += chunk;
        p = hk_align_up(hk_meta.next, alignment);
    }
    hk_meta.next = p + size;
    hk_meta.used += size;
    hk_lock_release(&hk_meta_lock);
    return (void *)p;
}

void hk_meta_purge(void *p, size_t size)
{
    uintptr_t first = hk_align_up((uintptr_t)p, hk_os_page_size());
    uintptr_t end = hk_align_down((uintptr_t)p + size, hk_os_page_size());
    if (first < end)
        hk_os_purge((void *)first, end - first);
}

static void hk_meta_count(size_t size)
{
    hk_lock_acquire(&hk_meta_lock);
    hk_meta.used += size;
    hk_meta.mapped += size;
    hk_lock_release(&hk_meta_lock);
}

void *hk_meta_alloc_pages(size_t size)
{
    size = hk_align_up(size, hk_os_page_size());
    void *p = hk_os_map(size, hk_os_page_size());
    if (p != NULL)
        hk_meta_count(size);
    return p;
}

void hk_meta_free_pages(void *p, size_t size)
{
    size = hk_align_up(size, hk_os_page_size());
    if (hk_os_unmap(p, size, size))
        hk_meta_count(-size);
}

void hk_meta_usage(size_t *used, size_t *mapped)
{
    hk_lock_acquire(&hk_meta_lock);
    *used = hk_meta.used;
    *mapped = hk_meta.mapped;
    hk_lock_release(&hk_meta_lock);
}
