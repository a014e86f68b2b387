/*
 * The C library's allocation functions. Semantics, errno and corner cases are those of glibc 2.41 (malloc(3),
 * posix_memalign(3), mallopt(3), mallinfo(3), malloc_trim(3), malloc_info(3)) and C23 7.24.3 for the sized frees.
 */
#if !HK_NO_LIBC_NAMES

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "api/start.h"
#include "base/options.h"
#include "base/os.h"
#include "front/hot_path.h"
#include "front/memory.h"
#include "front/realloc.h"
#include "observe/report.h"

HK_CONSTRUCTOR void hk_start_with_libc_names(HK_CONSTRUCTOR_ARGUMENTS) { hk_start(environment); }

/* Not in the headers of every C library that we build with. */
HK_EXPORT void cfree(void *p);
HK_EXPORT void free_sized(void *p, size_t n);
HK_EXPORT void free_aligned_sized(void *p, size_t alignment, size_t n);

HK_EXPORT void *malloc(size_t n) { return hk_malloc_hot(n); }

HK_EXPORT void free(void *p) { hk_free_hot(p); }

HK_EXPORT void cfree(void *p) { hk_free_hot(p); }

HK_EXPORT void *calloc(size_t count, size_t n) { return hk_calloc_any(count, n); }

HK_EXPORT void *realloc(void *p, size_t n) { return hk_realloc_any(p, n, "realloc"); }

/* The realloc that the program uses: ours, or that of a tool that stands before us (valgrind, a library with a malloc
 * of its own). The C library's reallocarray calls it as well, and the block's free will go the same way. */
extern void *hk_realloc_in_use(void *p, size_t n) __asm__("realloc");

HK_EXPORT void *reallocarray(void *p, size_t count, size_t n)
{
    size_t size;
    if (__builtin_mul_overflow(count, n, &size))
        return hk_no_memory();
    return hk_realloc_in_use(p, size);
}

HK_EXPORT void *aligned_alloc(size_t alignment, size_t n) { return hk_aligned_alloc(alignment, n); }

/* glibc rounds the alignment up to a power of two. */
HK_EXPORT void *memalign(size_t alignment, size_t n)
{
    if (alignment > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    if (!hk_is_power_of_two(alignment))
        alignment = alignment == 0 ? HK_MIN_ALIGN : (size_t)2 << hk_highest_bit64(alignment);
    return hk_malloc_aligned(alignment, n);
}

HK_EXPORT int posix_memalign(void **p, size_t alignment, size_t n)
{
    if (!hk_is_power_of_two(alignment) || alignment < sizeof(void *))
        return EINVAL;
    void *block = hk_malloc_aligned(alignment, n); /* without memory errno says so, too, as with glibc */
    if (block == NULL)
        return ENOMEM;
    *p = block;
    return 0;
}

HK_EXPORT void *valloc(size_t n) { return hk_malloc_aligned(hk_os_page_size(), n); }

HK_EXPORT void *pvalloc(size_t n)
{
    size_t page = hk_os_page_size();
    if (n > (size_t)PTRDIFF_MAX - page)
        return hk_no_memory();
    return hk_malloc_aligned(page, n == 0 ? page : hk_align_up(n, page));
}

HK_EXPORT size_t malloc_usable_size(void *p) { return hk_usable_size(p); }

HK_EXPORT void free_sized(void *p, size_t n) { hk_free_sized(p, n, "free_sized"); }

HK_EXPORT void free_aligned_sized(void *p, size_t alignment, size_t n)
{
    (void)alignment;
    hk_free_sized(p, n, "free_aligned_sized");
}

/* ---- Control and statistics ---- */

HK_EXPORT struct mallinfo2 mallinfo2(void) { return hk_report_mallinfo(); }

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* it is, and programs call it all the same */
HK_EXPORT struct mallinfo mallinfo(void)
{
    struct mallinfo2 info = hk_report_mallinfo();
    return (struct mallinfo){.arena = (int)info.arena,
                             .ordblks = (int)info.ordblks,
                             .hblks = (int)info.hblks,
                             .hblkhd = (int)info.hblkhd,
                             .uordblks = (int)info.uordblks,
                             .fordblks = (int)info.fordblks,
                             .keepcost = (int)info.keepcost};
}

/* All of glibc's parameters are accepted. What they govern there (arenas, mmap threshold, top padding) does not exist
 * here; only the error action (M_CHECK_ACTION: bit 1 aborts, bit 0 prints) has a meaning. */
HK_EXPORT int mallopt(int parameter, int value)
{
    if (parameter == M_CHECK_ACTION)
        return hk_option_write("on_error", (value & 2) != 0   ? "abort"
                                           : (value & 1) != 0 ? "warn"
                                                              : "ignore") == HK_OPTION_OK;
    if (parameter == M_MXFAST)
        return value >= 0 && value <= (int)(80 * sizeof(size_t) / 4);
    return 1;
}

HK_EXPORT int malloc_trim(size_t pad)
{
    int saved = errno;
    size_t bytes = hk_trim(HK_PURGE_ALL, pad);
    errno = saved;
    return bytes != 0;
}

HK_EXPORT void malloc_stats(void) { hk_report_print(); }

HK_EXPORT int malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    hk_report_xml(stream);
    return 0;
}

/* ---- The names under which glibc has them too ---- */

#define HK_ALIAS(of) __attribute__((alias(#of), visibility("default"), copy(of)))

extern void *__libc_malloc(size_t n) HK_ALIAS(malloc);
extern void __libc_free(void *p) HK_ALIAS(free);
extern void *__libc_calloc(size_t count, size_t n) HK_ALIAS(calloc);
extern void *__libc_realloc(void *p, size_t n) HK_ALIAS(realloc);
extern void *__libc_reallocarray(void *p, size_t count, size_t n) HK_ALIAS(reallocarray);
extern void *__libc_memalign(size_t alignment, size_t n) HK_ALIAS(memalign);
extern void *__libc_valloc(size_t n) HK_ALIAS(valloc);
extern void *__libc_pvalloc(size_t n) HK_ALIAS(pvalloc);
extern struct mallinfo __libc_mallinfo(void) HK_ALIAS(mallinfo);
extern int __libc_mallopt(int parameter, int value) HK_ALIAS(mallopt);

#endif
