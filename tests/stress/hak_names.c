#include "names.h"
#include <hakmem/hakmem.h>

static size_t usable_size(void *p) { return hak_usable_size(p); }

const struct hk_names hk_names = {
    .malloc = hak_malloc,
    .free = hak_free,
    .calloc = hak_calloc,
    .realloc = hak_realloc,
    .aligned_alloc = hak_aligned_alloc,
    .usable_size = usable_size,
    .malloc_batch = hak_malloc_batch,
    .free_batch = hak_free_batch,
};
