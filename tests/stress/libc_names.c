#include "names.h"
#include <malloc.h>
#include <stdlib.h>

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

static void trim(void) { malloc_trim(0); }

const struct hk_names hk_names = {
    .malloc = malloc,
    .free = free,
    .calloc = calloc,
    .realloc = realloc,
    .aligned_alloc = aligned_alloc,
    .usable_size = malloc_usable_size,
    .malloc_batch = malloc_batch,
    .free_batch = free_batch,
    .trim = trim,
};
