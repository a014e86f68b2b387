#include "front/memory.h"

#include "front/alloc.h"
#include "front/thread.h"
#include "heap/heaps.h"
#include "heap/large.h"

HK_COLD void hk_reclaim(struct hk_fault *fault)
{
    hk_heaps_dissolve_parked(UINT32_MAX, fault);
    hk_heaps_tend(true, fault);
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
    hk_superslabs_unmap_free(true);
}

size_t hk_prewarm_superslabs(const struct hk_prewarm *wishes, unsigned nwishes, bool populate)
{
    const size_t all = HK_WINDOWS * (size_t)HK_SUPERSLABS_PER_WINDOW;
    if (!populate)
        return hk_pool_prewarm(wishes, nwishes, all, false);
    size_t most = hk_superslabs_most_cached(), wanted = 0;
    for (unsigned i = 0; i < nwishes; i++)
        wanted = hk_min(wanted + hk_min(wishes[i].superslabs, most), most);
    hk_prewarmed_begin(wanted * HK_SUPERSLAB_SIZE); /* before, as a purge may come meanwhile */
    size_t done = hk_pool_prewarm(wishes, nwishes, most, true);
    hk_prewarmed_end(wanted * HK_SUPERSLAB_SIZE, done * HK_SUPERSLAB_SIZE);
    return done;
}

size_t hk_prewarm(size_t n, size_t count)
{
    size_t bytes;
    if (n > HK_MEDIUM_MAX || __builtin_mul_overflow(hk_good_size(n), count, &bytes))
        return 0;
    struct hk_prewarm wish = {.cls = hk_class_of(n)};
    const struct hk_class *cls = &hk_classes[wish.cls];
    size_t per_superslab = HK_SLOTS_PER_SUPERSLAB / cls->slots * (size_t)cls->nblocks;
    wish.superslabs = hk_div_up(count, per_superslab);
    return hk_min(hk_prewarm_superslabs(&wish, 1, true) * per_superslab, count);
}

size_t hk_trim(enum hk_purge_level level, size_t pad)
{
    struct hk_fault fault = HK_NO_FAULT;
    if (level == HK_PURGE_ALL)
        hk_thread_flush(&fault);
    size_t bytes = hk_purge(level, pad, SIZE_MAX, &fault);
    if (level == HK_PURGE_ALL && pad == 0)
        hk_superslabs_unmap_free(false);
    hk_fault_check(&fault, "malloc_trim");
    return bytes;
}
