/* The hak_ API, documented in include/hakmem/hakmem.h. */
#include "hakmem/hakmem.h"

#include <errno.h>

#include "api/start.h"
#include "base/options.h"
#include "front/hot_path.h"
#include "front/memory.h"
#include "front/realloc.h"
#include "front/thread.h"
#include "heap/limit.h"

HK_CONSTRUCTOR static void hk_start_with_interface(HK_CONSTRUCTOR_ARGUMENTS) { hk_start(environment); }

#define HK_STRING(x) HK_STRING_OF(x)
#define HK_STRING_OF(x) #x

HK_EXPORT void *hak_malloc(size_t n) { return hk_malloc_hot(n); }

HK_EXPORT void hak_free(void *ptr) { hk_free_hot(ptr); }

HK_EXPORT void *hak_calloc(size_t count, size_t n) { return hk_calloc_any(count, n); }

HK_EXPORT void *hak_realloc(void *ptr, size_t n) { return hk_realloc_any(ptr, n, "hak_realloc"); }

HK_EXPORT void *hak_aligned_alloc(size_t alignment, size_t n) { return hk_aligned_alloc(alignment, n); }

HK_EXPORT size_t hak_usable_size(const void *ptr) { return hk_usable_size(ptr); }

HK_EXPORT void hak_free_sized(void *ptr, size_t n) { hk_free_sized(ptr, n, "hak_free_sized"); }

HK_EXPORT void hak_free_aligned_sized(void *ptr, size_t alignment, size_t n)
{
    (void)alignment;
    hk_free_sized(ptr, n, "hak_free_aligned_sized");
}

HK_EXPORT size_t hak_good_size(size_t n) { return hk_good_size(n); }

HK_EXPORT void *hak_malloc_usable(size_t n, size_t *usable)
{
    void *p = hk_malloc_hot(n);
    if (usable != NULL)
        *usable = p != NULL ? hk_usable_size(p) : 0;
    return p;
}

HK_EXPORT void *hak_realloc_zero(void *ptr, size_t old_size, size_t n)
{
    if (ptr == NULL)
        return hk_calloc_any(1, n);
    char *p = hk_realloc_any(ptr, n, "hak_realloc_zero");
    if (p != NULL && n > old_size)
        __builtin_memset(p + old_size, 0, n - old_size);
    return p;
}

HK_EXPORT bool hak_expand(void *ptr, size_t n) { return ptr != NULL && hk_expand(ptr, n); }

HK_EXPORT size_t hak_malloc_batch(size_t n, size_t count, void **out) { return hk_malloc_batch(n, count, out); }

HK_EXPORT void hak_free_batch(void *const *ptrs, size_t count) { hk_free_batch(ptrs, count); }

_Static_assert((int)HAK_PURGE_DECAY == HK_PURGE_DECAY && (int)HAK_PURGE_QUIET == HK_PURGE_QUIET,
               "the levels that a caller may want less than all of are the same");

HK_EXPORT size_t hak_purge(enum hak_purge_level level)
{
    int saved = errno;
    size_t bytes = hk_trim(level >= HAK_PURGE_ALL ? HK_PURGE_ALL : (enum hk_purge_level)level, 0);
    errno = saved;
    return bytes;
}

HK_EXPORT void hak_thread_idle(void) { hk_thread_idle(); }

HK_EXPORT size_t hak_prewarm(size_t n, size_t count) { return hk_prewarm(n, count); }

HK_EXPORT int hak_limit_set(size_t soft, size_t hard)
{
    if ((hard != 0 && soft > hard) || soft > PTRDIFF_MAX || hard > PTRDIFF_MAX) {
        errno = EINVAL;
        return -1;
    }
    hk_option_store(HK_OPTION_limit_soft, soft);
    hk_option_store(HK_OPTION_limit_hard, hard);
    return 0;
}

HK_EXPORT const char *hak_version(void)
{
    return HK_STRING(HAK_VERSION_MAJOR) "." HK_STRING(HAK_VERSION_MINOR) "." HK_STRING(HAK_VERSION_PATCH);
}

HK_EXPORT int hak_option_get(const char *name, char *buf, size_t len)
{
    HK_TEXT(value, 64);
    if (name == NULL || (buf == NULL && len > 0)) {
        errno = EINVAL;
        return -1;
    }
    if (!hk_option_read(name, &value)) {
        errno = ENOENT;
        return -1;
    }
    if (len > 0) {
        struct hk_text to = hk_text_on(buf, len);
        hk_text_str(&to, value_buf);
    }
    return (int)value.length;
}

HK_EXPORT int hak_option_set(const char *name, const char *value)
{
    if (name == NULL || value == NULL) {
        errno = EINVAL;
        return -1;
    }
    static const int errors[] = {[HK_OPTION_UNKNOWN] = ENOENT, [HK_OPTION_INVALID] = EINVAL, [HK_OPTION_FIXED] = EPERM};
    enum hk_option_result result = hk_option_write(name, value);
    if (result == HK_OPTION_OK) {
        hk_limit_resolve(""); /* if it is one that refers to the cgroup's */
        return 0;
    }
    errno = errors[result];
    return -1;
}
