/*
 * A shared library that is linked with libhakmem.so and allocates, for dlopen_host.c.
 */
#include "check.h"
#include <hakmem/hakmem.h>

#define HK_PLUGIN_EXPORT __attribute__((visibility("default")))

/* Plugins have thread-local variables of their own, and take their part of the space that is left for static TLS. */
static _Thread_local __attribute__((tls_model("initial-exec"))) volatile char neighbour[256];

HK_PLUGIN_EXPORT void plugin_work(uint64_t seed);
HK_PLUGIN_EXPORT void *plugin_allocate(size_t n);
HK_PLUGIN_EXPORT void plugin_free(void *p);
HK_PLUGIN_EXPORT bool plugin_malloc_is_hakmem(void);

static void churn(uint64_t *random, void *(*allocate)(size_t), void (*release)(void *))
{
    enum { BLOCKS = 200 };
    void *block[BLOCKS] = {NULL};
    size_t size[BLOCKS] = {0};
    for (int step = 0; step < 3000; step++) {
        size_t i = hk_random_below(random, BLOCKS);
        if (block[i] != NULL)
            HK_CHECK_CONTENT(block[i], size[i], size[i], hk_key(block[i], 12));
        release(block[i]);
        size[i] = hk_random_size(random, i == 0 ? 22 : 13);
        block[i] = allocate(size[i]);
        HK_CHECK(block[i] != NULL, "%zu bytes", size[i]);
        hk_fill(block[i], size[i], hk_key(block[i], 12));
    }
    for (int i = 0; i < BLOCKS; i++)
        release(block[i]);
}

/* By both names: hak_malloc is hakmem's for certain, malloc is whatever the process binds it to. */
void plugin_work(uint64_t seed)
{
    neighbour[seed % sizeof neighbour]++;
    churn(&seed, hak_malloc, hak_free);
    churn(&seed, malloc, free);
}

void *plugin_allocate(size_t n)
{
    void *p = hak_malloc(n);
    HK_CHECK(p != NULL, "hak_malloc(%zu)", n);
    hk_fill(p, n, hk_key(p, n));
    return p;
}

void plugin_free(void *p) { hak_free(p); }

bool plugin_malloc_is_hakmem(void)
{
    Dl_info mine, theirs;
    return dladdr((void *)malloc, &mine) != 0 && dladdr((void *)hak_malloc, &theirs) != 0 &&
           mine.dli_fbase == theirs.dli_fbase;
}
