/*
 * The C++17 allocation functions ([new.delete]), by their mangled names, so that the library is C and needs no
 * C++ runtime to load. What only the runtime can do is looked up in the process when it is needed: calling the new_handler,
 * which std::get_new_handler returns, and throwing std::bad_alloc.
 */
#if !HK_NO_LIBC_NAMES

#include <errno.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/text.h"
#include "front/magazine.h"

typedef void hk_new_handler(void);

/* Of the C++ runtime, if the process has one; weak, so that the library loads without. */
__attribute__((weak)) hk_new_handler *_ZSt15get_new_handlerv(void);
__attribute__((weak)) _Noreturn void _ZSt17__throw_bad_allocv(void);

_Noreturn static void hk_throw_bad_alloc(size_t n)
{
    if (_ZSt17__throw_bad_allocv != NULL)
        _ZSt17__throw_bad_allocv();
    HK_TEXT(text, 128);
    hk_text_str(&text, "hakmem: operator new: no memory for ");
    hk_text_dec(&text, n);
    hk_text_str(&text, " bytes, and no C++ runtime to throw std::bad_alloc\n");
    hk_text_to_stderr(&text);
    hk_os_abort();
}

static void *hk_new_try(size_t n, size_t alignment)
{
    return alignment <= HK_MIN_ALIGN ? hk_malloc_hot(n) : hk_malloc_aligned(alignment, n);
}

/* [new.delete.single]: as long as there is a new_handler it is called and the allocation tried again. */
HK_COLD static void *hk_new_retry(size_t n, size_t alignment)
{
    while (_ZSt15get_new_handlerv != NULL) {
        hk_new_handler *handler = _ZSt15get_new_handlerv();
        if (handler == NULL)
            break;
        handler();
        void *p = hk_new_try(n, alignment);
        if (p != NULL)
            return p;
    }
    return NULL;
}

HK_COLD static void *hk_new_or_throw(size_t n, size_t alignment)
{
    void *p = hk_new_retry(n, alignment);
    if (p == NULL)
        hk_throw_bad_alloc(n);
    return p;
}

HK_INLINE void *hk_new(size_t n, size_t alignment)
{
    void *p = hk_new_try(n, alignment);
    return HK_LIKELY(p != NULL) ? p : hk_new_or_throw(n, alignment);
}

/* nothrow forms: a handler that throws would throw through C frames, which are compiled with unwind tables; the forms are
 * noexcept, so std::terminate is called then. */
HK_INLINE void *hk_new_nothrow(size_t n, size_t alignment)
{
    void *p = hk_new_try(n, alignment);
    return HK_LIKELY(p != NULL) ? p : hk_new_retry(n, alignment);
}

#define HK_NEW(name) HK_EXPORT void *name(size_t n); HK_EXPORT void *name(size_t n) { return hk_new(n, HK_MIN_ALIGN); }
HK_NEW(_Znwm) /* operator new(size_t) */
HK_NEW(_Znam) /* operator new[](size_t) */

#define HK_NEW_NOTHROW(name)                                                                                           \
    HK_EXPORT void *name(size_t n, const void *nothrow);                                                               \
    HK_EXPORT void *name(size_t n, const void *nothrow) { (void)nothrow; return hk_new_nothrow(n, HK_MIN_ALIGN); }
HK_NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
HK_NEW_NOTHROW(_ZnamRKSt9nothrow_t)

#define HK_NEW_ALIGNED(name)                                                                                           \
    HK_EXPORT void *name(size_t n, size_t alignment);                                                                  \
    HK_EXPORT void *name(size_t n, size_t alignment) { return hk_new(n, alignment); }
HK_NEW_ALIGNED(_ZnwmSt11align_val_t)
HK_NEW_ALIGNED(_ZnamSt11align_val_t)

#define HK_NEW_ALIGNED_NOTHROW(name)                                                                                   \
    HK_EXPORT void *name(size_t n, size_t alignment, const void *nothrow);                                             \
    HK_EXPORT void *name(size_t n, size_t alignment, const void *nothrow)                                              \
    {                                                                                                                  \
        (void)nothrow;                                                                                                 \
        return hk_new_nothrow(n, alignment);                                                                           \
    }
HK_NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
HK_NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)

#define HK_DELETE(name, ...)                                                                                           \
    HK_EXPORT void name(void *p, ##__VA_ARGS__);                                                                       \
    HK_EXPORT void name(void *p, ##__VA_ARGS__)
HK_DELETE(_ZdlPv) { hk_free_hot(p); } /* operator delete(void *) */
HK_DELETE(_ZdaPv) { hk_free_hot(p); } /* operator delete[](void *) */
HK_DELETE(_ZdlPvRKSt9nothrow_t, const void *nothrow) { (void)nothrow; hk_free_hot(p); }
HK_DELETE(_ZdaPvRKSt9nothrow_t, const void *nothrow) { (void)nothrow; hk_free_hot(p); }
HK_DELETE(_ZdlPvSt11align_val_t, size_t alignment) { (void)alignment; hk_free_hot(p); }
HK_DELETE(_ZdaPvSt11align_val_t, size_t alignment) { (void)alignment; hk_free_hot(p); }
HK_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, size_t alignment, const void *nothrow)
{
    (void)alignment, (void)nothrow;
    hk_free_hot(p);
}
HK_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, size_t alignment, const void *nothrow)
{
    (void)alignment, (void)nothrow;
    hk_free_hot(p);
}
/* Sized forms: programs that delete through a wrong static type pass wrong sizes and have always worked, so the size is not
 * held against them. */
HK_DELETE(_ZdlPvm, size_t n) { (void)n; hk_free_hot(p); }
HK_DELETE(_ZdaPvm, size_t n) { (void)n; hk_free_hot(p); }
HK_DELETE(_ZdlPvmSt11align_val_t, size_t n, size_t alignment) { (void)n, (void)alignment; hk_free_hot(p); }
HK_DELETE(_ZdaPvmSt11align_val_t, size_t n, size_t alignment) { (void)n, (void)alignment; hk_free_hot(p); }

#endif
