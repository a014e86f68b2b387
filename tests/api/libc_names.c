/* Every name of the surface is there and leads to one library, and each of libc's other names works like its own. */
#include "check.h"

#include <malloc.h>
#include <string.h>
#include <unistd.h>

static const char *const names_of_libc[] = {
    "malloc",         "free",          "calloc",         "realloc",         "reallocarray",       "aligned_alloc",
    "posix_memalign", "memalign",      "valloc",         "pvalloc",         "malloc_usable_size", "mallinfo",
    "mallinfo2",      "mallopt",       "malloc_trim",    "malloc_stats",    "malloc_info",        "__libc_malloc",
    "__libc_free",    "__libc_calloc", "__libc_realloc", "__libc_memalign", "__libc_valloc",      "__libc_pvalloc",
};

/* glibc keeps these for itself, for old programs, or has them since 2.43 only. */
static const char *const names_of_hakmem[] = {
    "cfree",
    "free_sized",
    "free_aligned_sized",
    "__libc_reallocarray",
    "hak_malloc",
    "hak_free",
    "hak_calloc",
    "hak_realloc",
    "hak_aligned_alloc",
    "hak_usable_size",
    "hak_free_sized",
    "hak_free_aligned_sized",
    "hak_good_size",
    "hak_malloc_usable",
    "hak_realloc_zero",
    "hak_expand",
    "hak_malloc_batch",
    "hak_free_batch",
    "hak_version",
    "hak_option_get",
    "hak_option_set",
};

static const char *const names_of_operators[] = {
    "_Znwm",
    "_ZnwmRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_Znam",
    "_ZnamRKSt9nothrow_t",
    "_ZnamSt11align_val_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvm",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPv",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdaPvSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvm",
    "_ZdaPvmSt11align_val_t",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void check_owner(const char *const *names, size_t count)
{
    Dl_info malloc_info_of = {0}, info = {0};
    REQUIRE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &malloc_info_of) != 0);
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(RTLD_DEFAULT, names[i]);
        CHECK_MSG(address != NULL, "%s is not there", names[i]);
        if (address != NULL && dladdr(address, &info) != 0)
            CHECK_MSG(info.dli_fbase == malloc_info_of.dli_fbase, "%s comes from %s, malloc from %s", names[i],
                      info.dli_fname, malloc_info_of.dli_fname);
    }
}

/* The function of that name, as a pointer to type. */
#define FUNCTION(type, name) ((type *)(uintptr_t)dlsym(RTLD_DEFAULT, name))

typedef void *size_function(size_t);
typedef void *two_sizes_function(size_t, size_t);
typedef void *realloc_function(void *, size_t);
typedef void *reallocarray_function(void *, size_t, size_t);
typedef void free_function(void *);

static void other_names_work(void)
{
    size_function *libc_malloc = FUNCTION(size_function, "__libc_malloc");
    two_sizes_function *libc_calloc = FUNCTION(two_sizes_function, "__libc_calloc");
    realloc_function *libc_realloc = FUNCTION(realloc_function, "__libc_realloc");
    two_sizes_function *libc_memalign = FUNCTION(two_sizes_function, "__libc_memalign");
    size_function *libc_valloc = FUNCTION(size_function, "__libc_valloc");
    size_function *libc_pvalloc = FUNCTION(size_function, "__libc_pvalloc");
    free_function *libc_free = FUNCTION(free_function, "__libc_free");
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    REQUIRE(libc_malloc && libc_calloc && libc_realloc && libc_memalign && libc_valloc && libc_pvalloc && libc_free);
    for (size_t n = 1; n < 5000000; n = n * 3 + 1) {
        uint8_t *blocks[] = {libc_malloc(n),         libc_calloc(n, 1), libc_realloc(NULL, n),
                             libc_memalign(4096, n), libc_valloc(n),    libc_pvalloc(n)};
        for (size_t i = 0; i < COUNT(blocks); i++) {
            REQUIRE(blocks[i] != NULL);
            CHECK(malloc_usable_size(blocks[i]) >= n);
            CHECK(is_aligned(blocks[i], i < 3 ? 16 : i == 3 ? 4096 : page));
            CHECK(i != 1 || is_zero(blocks[i], 0, n));
            pattern_fill(blocks[i], 0, n, i);
        }
        /* Either free for blocks of either malloc, and realloc across them. */
        for (size_t i = 0; i < COUNT(blocks); i++) {
            CHECK(pattern_holds(blocks[i], 0, n, i));
            blocks[i] = i % 2 ? realloc(blocks[i], n + 10) : libc_realloc(blocks[i], n + 10);
            REQUIRE(blocks[i] != NULL);
            CHECK(pattern_holds(blocks[i], 0, n, i));
            if (i % 3 == 0)
                free(blocks[i]);
            else
                libc_free(blocks[i]);
        }
        libc_free(malloc(n));
    }
    errno = 0;
    CHECK(libc_malloc(hide_size(SIZE_MAX)) == NULL && errno == ENOMEM);
    errno = EILSEQ;
    libc_free(NULL);
    CHECK(errno == EILSEQ);

    free_function *cfree = FUNCTION(free_function, "cfree");
    reallocarray_function *libc_reallocarray = FUNCTION(reallocarray_function, "__libc_reallocarray");
    if (cfree != NULL) {
        cfree(malloc(100));
        cfree(NULL);
    }
    if (libc_reallocarray != NULL) {
        void *p = libc_reallocarray(NULL, 10, 10);
        CHECK(p != NULL && malloc_usable_size(p) >= 100);
        errno = 0;
        CHECK(libc_reallocarray(p, hide_size(SIZE_MAX / 2), 3) == NULL && errno == ENOMEM);
        free(p);
    }
}

int main(void)
{
    check_owner(names_of_libc, COUNT(names_of_libc));
    if (under_hakmem()) {
        check_owner(names_of_hakmem, COUNT(names_of_hakmem));
        check_owner(names_of_operators, COUNT(names_of_operators));
    }
    other_names_work();
    return check_result();
}
