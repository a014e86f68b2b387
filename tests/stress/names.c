#include "names.h"

#if HK_NO_LIBC_NAMES

#include <hakmem/hakmem.h>

#define NAME(function) hak_##function

static size_t usable_size(void *p) { return hak_usable_size(p); }
static void trim(void) { hak_purge(HAK_PURGE_ALL); }

#else

#include <malloc.h>
#include <stdlib.h>

#define NAME(function) function

static size_t usable_size(void *p) { return malloc_usable_size(p); }
static void trim(void) { malloc_trim(0); }

/* libc has no batches; a loop asks the same of the allocator, in small. */
static size_t malloc_batch(size_t n, size_t count, void **out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = malloc(n);
        if (out[i] == NULL)
            return i;
    }
    return count;
}

static void free_batch(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
}

#endif

const struct hk_names hk_names = {
    .malloc = NAME(malloc),
    .free = NAME(free),
    .calloc = NAME(calloc),
    .realloc = NAME(realloc),
    .aligned_alloc = NAME(aligned_alloc),
    .usable_size = usable_size,
    .malloc_batch = NAME(malloc_batch),
    .free_batch = NAME(free_batch),
    .trim = trim,
};
