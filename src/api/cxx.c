/*
 * The C++17 allocation functions ([new.delete]), by their mangled names, so that the library is C and needs no C++
 * runtime to load. What only the runtime can do (find the new_handler, throw std::bad_alloc, catch what a handler
 * or a program's own operator throws) is looked up in the process when an allocation has failed, or at the start of a
 * program that has replaced what it calls, and only then.
 *
 * For the archive this is compiled anew, with HK_ARCHIVE: a program that is linked with it, and uses these operators,
 * is linked with its runtime as well. So there the linker finds what is needed, and the nothrow forms of new, which
 * call the others and catch, are the runtime's own.
 */
#if !HK_NO_LIBC_NAMES

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "api/start.h"
#include "base/os.h"
#include "base/text.h"
#include "front/hot_path.h"

typedef void hk_new_handler(void);
typedef hk_new_handler *hk_get_new_handler(void);
typedef void hk_throw_function(void);

#if HK_ARCHIVE

hk_get_new_handler _ZSt15get_new_handlerv;
_Noreturn hk_throw_function _ZSt17__throw_bad_allocv;

static hk_new_handler *hk_current_new_handler(void) { return _ZSt15get_new_handlerv(); }

_Noreturn static void hk_throw_bad_alloc(size_t n)
{
    (void)n;
    _ZSt17__throw_bad_allocv();
}

#else

__attribute__((weak)) hk_get_new_handler _ZSt15get_new_handlerv;
__attribute__((weak)) hk_throw_function _ZSt17__throw_bad_allocv;

/* The runtime may have been loaded after us, or by a plug-in and for it alone. Not before the C library has been
 * initialised: dlopen initialises what it finds, with what the C library knows of argc, argv and environ by then. */
static void *hk_runtime_symbol(const char *name)
{
    void *runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (runtime == NULL)
        runtime = dlopen("libc++.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return runtime != NULL ? dlsym(runtime, name) : NULL;
}

static hk_new_handler *hk_current_new_handler(void)
{
    hk_get_new_handler *get = _ZSt15get_new_handlerv;
    if (get == NULL)
        *(void **)&get = hk_runtime_symbol("_ZSt15get_new_handlerv");
    return get != NULL ? get() : NULL;
}

_Noreturn static void hk_throw_bad_alloc(size_t n)
{
    hk_throw_function *throw = _ZSt17__throw_bad_allocv;
    if (throw == NULL)
        *(void **)&throw = hk_runtime_symbol("_ZSt17__throw_bad_allocv");
    if (throw != NULL)
        throw();
    HK_TEXT(text, 128);
    hk_text_str(&text, "hakmem: operator new: no memory for ");
    hk_text_dec(&text, n);
    hk_text_str(&text, " bytes, and no C++ runtime to throw std::bad_alloc\n");
    hk_text_to_stderr(&text);
    hk_os_abort();
}

#endif

/* NULL without memory, and for an alignment that is no power of two: undefined, and what the runtimes' own forms do. */
static void *hk_new_try(size_t n, size_t alignment)
{
    if (HK_UNLIKELY(!hk_is_power_of_two(alignment)))
        return NULL;
    return alignment <= HK_MIN_ALIGN ? hk_malloc_hot(n) : hk_malloc_aligned(alignment, n);
}

/* [new.delete.single]: as long as there is a new_handler it is called and the allocation tried again, if that helps. */
HK_COLD static void *hk_new_retry(size_t n, size_t alignment)
{
    if (!hk_is_power_of_two(alignment))
        return NULL;
    for (hk_new_handler *handler; (handler = hk_current_new_handler()) != NULL;) {
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

/* A function of its own, so that the hot path need not keep n over a call. */
HK_NOINLINE static void *hk_new_slow(size_t n)
{
    void *p = hk_malloc_slow(n);
    return HK_LIKELY(p != NULL) ? p : hk_new_or_throw(n, HK_MIN_ALIGN);
}

/* ---- The forms that a program may replace alone ----
 *
 * All others call these ([new.delete.single], [new.delete.array]), whoever defines them: a program that replaces them
 * need not replace the others. They are weak so that it can when it is linked with the archive, and so that the
 * compiler does not take them for ours where they are called. */

#define HK_REPLACEABLE HK_EXPORT __attribute__((weak))
#define HK_REPLACEABLE_ALIAS(ours) HK_EXPORT __attribute__((weak, alias(#ours)))
#define HK_UNUSED __attribute__((unused))

/* By these names they are ours, whatever the program has replaced. */
void *hk_own_new(size_t n);
void *hk_own_new_aligned(size_t n, size_t alignment);
void *hk_own_new_array(size_t n);
void *hk_own_new_array_aligned(size_t n, size_t alignment);

void *hk_own_new(size_t n)
{
    void *p = hk_small_pop(n);
    return HK_LIKELY(p != NULL) ? p : hk_new_slow(n);
}

void *hk_own_new_aligned(size_t n, size_t alignment)
{
    void *p = hk_new_try(n, alignment);
    return HK_LIKELY(p != NULL) ? p : hk_new_or_throw(n, alignment);
}

HK_REPLACEABLE_ALIAS(hk_own_new) void *_Znwm(size_t n);
HK_REPLACEABLE_ALIAS(hk_own_new_aligned) void *_ZnwmSt11align_val_t(size_t n, size_t alignment);

HK_REPLACEABLE void _ZdlPv(void *p);
HK_REPLACEABLE void _ZdlPv(void *p) { hk_free_hot(p); }

HK_REPLACEABLE void _ZdlPvSt11align_val_t(void *p, size_t alignment);
HK_REPLACEABLE void _ZdlPvSt11align_val_t(void *p, HK_UNUSED size_t alignment) { hk_free_hot(p); }

/* ---- Arrays: by the forms for single objects ---- */

void *hk_own_new_array(size_t n) { return _Znwm(n); }
void *hk_own_new_array_aligned(size_t n, size_t alignment) { return _ZnwmSt11align_val_t(n, alignment); }

HK_REPLACEABLE_ALIAS(hk_own_new_array) void *_Znam(size_t n);
HK_REPLACEABLE_ALIAS(hk_own_new_array_aligned) void *_ZnamSt11align_val_t(size_t n, size_t alignment);

HK_REPLACEABLE void _ZdaPv(void *p);
HK_REPLACEABLE void _ZdaPv(void *p) { _ZdlPv(p); }

HK_REPLACEABLE void _ZdaPvSt11align_val_t(void *p, size_t alignment);
HK_REPLACEABLE void _ZdaPvSt11align_val_t(void *p, size_t alignment) { _ZdlPvSt11align_val_t(p, alignment); }

/* ---- Sized and nothrow delete: by the forms without ---- */

/* Programs that delete through a wrong static type pass wrong sizes and have always worked, so the size is not held
 * against them. */
#define HK_DELETE_BY(form, name, ...)                 \
    HK_REPLACEABLE void name(void *p, ##__VA_ARGS__); \
    HK_REPLACEABLE void name(void *p, ##__VA_ARGS__) { form(p); }
HK_DELETE_BY(_ZdlPv, _ZdlPvm, HK_UNUSED size_t n)
HK_DELETE_BY(_ZdaPv, _ZdaPvm, HK_UNUSED size_t n)
HK_DELETE_BY(_ZdlPv, _ZdlPvRKSt9nothrow_t, HK_UNUSED const void *nothrow)
HK_DELETE_BY(_ZdaPv, _ZdaPvRKSt9nothrow_t, HK_UNUSED const void *nothrow)

#define HK_DELETE_ALIGNED_BY(form, name, ...)       \
    HK_REPLACEABLE void name(void *p, __VA_ARGS__); \
    HK_REPLACEABLE void name(void *p, __VA_ARGS__) { form(p, alignment); }
HK_DELETE_ALIGNED_BY(_ZdlPvSt11align_val_t, _ZdlPvmSt11align_val_t, HK_UNUSED size_t n, size_t alignment)
HK_DELETE_ALIGNED_BY(_ZdaPvSt11align_val_t, _ZdaPvmSt11align_val_t, HK_UNUSED size_t n, size_t alignment)
HK_DELETE_ALIGNED_BY(_ZdlPvSt11align_val_t, _ZdlPvSt11align_val_tRKSt9nothrow_t, size_t alignment,
                     HK_UNUSED const void *nothrow)
HK_DELETE_ALIGNED_BY(_ZdaPvSt11align_val_t, _ZdaPvSt11align_val_tRKSt9nothrow_t, size_t alignment,
                     HK_UNUSED const void *nothrow)

#if !HK_ARCHIVE

/* ---- Nothrow new: by the forms that throw ---- */

typedef void *hk_new_nothrow_function(size_t n, const void *nothrow);
typedef void *hk_new_aligned_nothrow_function(size_t n, size_t alignment, const void *nothrow);

enum hk_form { HK_FORM_SINGLE, HK_FORM_ARRAY, HK_FORM_SINGLE_ALIGNED, HK_FORM_ARRAY_ALIGNED, HK_NFORMS };

HK_INLINE bool hk_form_is_ours(enum hk_form form)
{
    switch (form) {
    case HK_FORM_SINGLE: return _Znwm == hk_own_new;
    case HK_FORM_ARRAY: return _Znam == hk_own_new_array && _Znwm == hk_own_new;
    case HK_FORM_SINGLE_ALIGNED: return _ZnwmSt11align_val_t == hk_own_new_aligned;
    default: return _ZnamSt11align_val_t == hk_own_new_array_aligned && _ZnwmSt11align_val_t == hk_own_new_aligned;
    }
}

static const char *const hk_nothrow_names[HK_NFORMS] = {"_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
                                                        "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                                        "_ZnamSt11align_val_tRKSt9nothrow_t"};
static void *_Atomic hk_nothrow_of_runtime[HK_NFORMS];

static void *hk_nothrow_form(enum hk_form form)
{
    void *function = hk_get(&hk_nothrow_of_runtime[form]);
    if (HK_UNLIKELY(function == NULL)) {
        function = hk_runtime_symbol(hk_nothrow_names[form]);
        hk_set(&hk_nothrow_of_runtime[form], function);
    }
    return function;
}

HK_INLINE bool hk_form_is_aligned(enum hk_form form) { return form >= HK_FORM_SINGLE_ALIGNED; }

static void *hk_new_by_form(enum hk_form form, size_t n, size_t alignment)
{
    switch (form) {
    case HK_FORM_SINGLE: return _Znwm(n);
    case HK_FORM_ARRAY: return _Znam(n);
    case HK_FORM_SINGLE_ALIGNED: return _ZnwmSt11align_val_t(n, alignment);
    default: return _ZnamSt11align_val_t(n, alignment);
    }
}

/* [new.delete.single]: the nothrow forms return NULL where the throwing form would throw, as a program's own may, and
 * ours by a new_handler. To catch takes the runtime: its own nothrow form calls the throwing one and catches. Where
 * there is none, neither the program's form nor a handler can throw. */
HK_COLD static void *hk_new_nothrow_cold(enum hk_form form, size_t n, size_t alignment, const void *nothrow)
{
    bool ours = hk_form_is_ours(form);
    if (ours && hk_current_new_handler() == NULL)
        return NULL;
    void *symbol = hk_nothrow_form(form);
    if (symbol == NULL)
        return ours ? hk_new_retry(n, alignment) : hk_new_by_form(form, n, alignment);
    if (hk_form_is_aligned(form)) {
        hk_new_aligned_nothrow_function *of_runtime;
        *(void **)&of_runtime = symbol;
        return of_runtime(n, alignment, nothrow);
    }
    hk_new_nothrow_function *of_runtime;
    *(void **)&of_runtime = symbol;
    return of_runtime(n, nothrow);
}

HK_INLINE void *hk_new_nothrow(enum hk_form form, size_t n, size_t alignment, const void *nothrow)
{
    void *p = HK_LIKELY(hk_form_is_ours(form)) ? hk_new_try(n, alignment) : NULL;
    return HK_LIKELY(p != NULL) ? p : hk_new_nothrow_cold(form, n, alignment, nothrow);
}

#define HK_NEW_NOTHROW(form, name)                            \
    HK_REPLACEABLE void *name(size_t n, const void *nothrow); \
    HK_REPLACEABLE void *name(size_t n, const void *nothrow) { return hk_new_nothrow(form, n, HK_MIN_ALIGN, nothrow); }
HK_NEW_NOTHROW(HK_FORM_SINGLE, _ZnwmRKSt9nothrow_t)
HK_NEW_NOTHROW(HK_FORM_ARRAY, _ZnamRKSt9nothrow_t)

#define HK_NEW_ALIGNED_NOTHROW(form, name)                                      \
    HK_REPLACEABLE void *name(size_t n, size_t alignment, const void *nothrow); \
    HK_REPLACEABLE void *name(size_t n, size_t alignment, const void *nothrow)  \
    {                                                                           \
        return hk_new_nothrow(form, n, alignment, nothrow);                     \
    }
HK_NEW_ALIGNED_NOTHROW(HK_FORM_SINGLE_ALIGNED, _ZnwmSt11align_val_tRKSt9nothrow_t)
HK_NEW_ALIGNED_NOTHROW(HK_FORM_ARRAY_ALIGNED, _ZnamSt11align_val_tRKSt9nothrow_t)

#endif

/* ---- Start ---- */

/* A program whose own objects only use new and delete gets malloc from libc.c, too: what the C++ runtime takes from
 * malloc must not come from another allocator. And the loader is asked now, before any thread can hold its lock and
 * wait for us. */
HK_CONSTRUCTOR static void hk_start_with_operators(HK_CONSTRUCTOR_ARGUMENTS)
{
    hk_start_with_libc_names(argc, argv, environment);
#if !HK_ARCHIVE
    for (enum hk_form form = 0; form < HK_NFORMS; form++)
        if (!hk_form_is_ours(form))
            hk_set(&hk_nothrow_of_runtime[form], dlsym(RTLD_NEXT, hk_nothrow_names[form]));
#endif
}

#endif
