#include "front/realloc.h"

#include <errno.h>
#include <string.h>

#include "front/hot_path.h"
#include "heap/large.h"

bool hk_expand(void *p, size_t n)
{
    size_t usable = hk_usable_size(p);
    if (usable == 0 || n <= usable)
        return usable != 0;
    return hk_key_kind(hk_key_of(p)) == HK_KEY_LARGE && n <= PTRDIFF_MAX - HK_LARGE_RUN_MAX && hk_large_resize(p, n);
}

/* Without memory a block that is to shrink stays as it is: glibc's shrinks in place, and programs rely on that. */
static void *hk_realloc_move(void *p, size_t old_size, size_t n)
{
    bool growing = n > old_size && n > HK_GROWING_MIN;
    int saved = errno;
    void *moved = growing ? hk_malloc_growing(n) : hk_malloc_hot(n);
    if (HK_UNLIKELY(moved == NULL)) {
        if (n > old_size)
            return NULL;
        errno = saved;
        return p;
    }
    memcpy(moved, p, hk_min(old_size, n));
    hk_free_hot(p);
    return moved;
}

/* Reports what is wrong with a pointer that realloc was given. */
HK_COLD static void *hk_realloc_refuse(struct hk_fault fault, const char *call)
{
    if (fault.kind == HK_FAULT_DOUBLE_FREE)
        fault.kind = HK_FAULT_USE_AFTER_FREE;
    hk_fault_report(&fault, call);
    return hk_no_memory();
}

/* Without copying; NULL if that cannot be. */
static void *hk_realloc_pages(void *p, size_t n)
{
    if (!hk_large_stays(p, n))
        return NULL;
    return hk_large_resize(p, n) ? p : hk_large_remap(p, n);
}

static void *hk_realloc_large(void *p, size_t n, const char *call)
{
    size_t usable = hk_large_usable(p);
    if (HK_UNLIKELY(usable == 0))
        return hk_realloc_refuse(hk_large_fault(p), call);
    if (n > PTRDIFF_MAX - HK_LARGE_RUN_MAX)
        return hk_no_memory();
    if (n <= usable && n > usable - usable / (usable <= HK_MEDIUM_MAX ? 2 : 4)) /* medium ones as classes do */
        return p;
    int saved = errno;
    void *q = hk_realloc_pages(p, n);
    if (q == NULL)
        q = hk_realloc_move(p, usable, n);
    if (HK_UNLIKELY(q == NULL) && (q = hk_realloc_pages(p, n)) != NULL) /* there is no room for two, but for one */
        errno = saved;
    return q;
}

/* Says what is wrong with a pointer into a slab that is not a block in use. */
HK_COLD static void *hk_realloc_refuse_block(const void *p, const char *call)
{
    struct hk_slab *slab;
    unsigned index;
    struct hk_fault fault = HK_NO_FAULT;
    if (hk_slab_of_or_fault(p, &slab, &fault) && hk_slab_index(slab, p, &index, &fault))
        fault = hk_slab_double_free(slab, index);
    return hk_realloc_refuse(fault, call);
}

/* n is neither above what a block holds nor far below. */
static bool hk_realloc_stays(size_t size, size_t n) { return size - n <= size / 2; }

static void *hk_realloc_block(void *p, size_t size, size_t n)
{
    bool stays = hk_realloc_stays(size, n) || (n <= size && hk_good_size(n) == size);
    return stays ? p : hk_realloc_move(p, size, n);
}

HK_NOINLINE static void *hk_realloc_slow(void *p, size_t n, const char *call)
{
    if (p == NULL)
        return hk_malloc_hot(n);
    if (n == 0) {
        hk_free_hot(p);
        return NULL;
    }
    hk_key key = hk_key_of_any(p);
    if (hk_key_kind(key) == HK_KEY_LARGE)
        return hk_realloc_large(p, n, call);
    unsigned cls = hk_key_kind(key);
    if (HK_UNLIKELY(!hk_block_in_use(p) || *hk_self.top[cls] == p ||
                    (hk_self.outbox_next != NULL && hk_outbox_ends_with(p))))
        return hk_realloc_refuse_block(p, call);
    return hk_realloc_block(p, hk_classes[cls].size, n);
}

/* Grows a block of a slab of the thread's own: it moves, mostly from magazine to magazine. */
HK_NOINLINE static void *hk_realloc_grow(void *p, size_t cls, size_t n, const char *call)
{
    const struct hk_class *c = &hk_classes[cls];
    if (HK_UNLIKELY(!hk_is_user_address(p) || !hk_slab_uses(hk_slab_at(p, c), c, p)))
        return hk_realloc_slow(p, n, call);
    void *moved = hk_malloc_hot(n);
    if (HK_UNLIKELY(moved == NULL))
        return NULL;
    memcpy(moved, p, c->size);
    hk_free_hot(p); /* looks at the key again: one that was freed before may have lost its slab meanwhile */
    return moved;
}

void *hk_realloc_any(void *p, size_t n, const char *call)
{
    hk_key cls = hk_key_of(p) ^ hk_self.owner_key;
    /* The slab is mine, and p was not freed last: else it would lie on top of the magazine. */
    if (HK_LIKELY(cls < HK_NCLASSES && *hk_self.top[cls] != p && hk_self.top[cls] != HK_NO_MAGAZINE)) {
        size_t size = hk_classes[cls].size;
        if (HK_LIKELY(hk_realloc_stays(size, n)))
            return p;
        if (n > size && n <= HK_GROWING_MIN)
            return hk_realloc_grow(p, cls, n, call);
    }
    return hk_realloc_slow(p, n, call);
}
