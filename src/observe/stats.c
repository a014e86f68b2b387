#include "observe/stats.h"

#include <string.h>

#include "base/os.h"
#include "front/thread.h"
#include "heap/heaps.h"
#include "heap/magazine.h"
#include "heap/meta.h"
#include "heap/remote.h"

static void hk_add_slab(const struct hk_slab *slab, struct hk_stats *stats)
{
    struct hk_class_stats *cls = &stats->classes[slab->cls];
    size_t nblocks = hk_slab_class(slab)->nblocks;
    size_t free = hk_slab_nfree(slab);
    cls->slabs++;
    cls->free += free;
    cls->live += nblocks - free; /* cached ones are taken off below */
}

/* The pool's lock is held. */
static void hk_add_slabs(struct hk_stats *stats)
{
    struct hk_superslab_cursor cursor = {0};
    for (struct hk_superslab *superslab; (superslab = hk_superslabs_walk(&cursor)) != NULL;) {
        struct hk_slab *slabs[HK_SLOTS_PER_SUPERSLAB];
        unsigned n = hk_superslab_slabs(superslab, slabs);
        for (unsigned i = 0; i < n; i++)
            hk_add_slab(slabs[i], stats);
    }
}

/* What the magazines of other threads hold is known as of a slow path of theirs. What is sent from one heap to another
 * meanwhile may be counted twice, or not at all. */
static void hk_add_heap(struct hk_heap *heap, struct hk_stats *stats)
{
    hk_lock_acquire(&heap->lock);
    if (heap->state == HK_HEAP_PARKED && !heap->vacant)
        hk_magazines_count(heap, heap->parked_top);
    else if (heap == hk_self.heap)
        hk_magazines_count(heap, hk_self.top);
#define HK_HEAP_COUNTER(name, doc) stats->heap.name += heap->counts.name;
#include "base/stats.def"
    size_t sent[HK_NCLASSES] = {0};
    hk_remote_count(heap, sent);
    for (unsigned cls = 0; cls < HK_NCLASSES; cls++) {
        stats->classes[cls].cached += sent[cls];
        stats->classes[cls].sent += sent[cls];
    }
    if (heap->state == HK_HEAP_RUNNING || heap->state == HK_HEAP_PARKED) {
        stats->heaps++;
        stats->heaps_parked += heap->state == HK_HEAP_PARKED;
        for (unsigned cls = 0; !heap->vacant && cls < HK_NCLASSES; cls++) {
            stats->classes[cls].cached += heap->classes[cls].held;
            for (struct hk_parcel *parcel = heap->classes[cls].reserve; parcel != NULL; parcel = parcel->next)
                stats->classes[cls].cached += parcel->count;
        }
    }
    hk_lock_release(&heap->lock);
}

void hk_stats_read(struct hk_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    HK_EACH_HEAP (heap)
        hk_add_heap(heap, stats);
    hk_lock_acquire(&hk_pool_lock);
    hk_add_slabs(stats);
    stats->pool = hk_pool_counts;
    stats->slab_bytes = stats->pool.slots_active * HK_SLOT_SIZE;
    stats->superslabs = hk_superslab_counts;
    hk_lock_release(&hk_pool_lock);
    stats->large = hk_large_read_counts();
    hk_meta_usage(&stats->meta_used, &stats->meta_mapped);
    stats->mapped = hk_get(&hk_os_counts.bytes_reserved);
    stats->committed = hk_get(&hk_os_counts.bytes_committed);
    stats->committed_peak = hk_get(&hk_os_counts.bytes_committed_peak);

    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        struct hk_class_stats *cls = &stats->classes[i];
        cls->cached = hk_min(cls->cached, cls->live);
        cls->sent = hk_min(cls->sent, cls->cached);
        cls->live -= cls->cached;
        stats->live_blocks += cls->live;
        stats->live_bytes += cls->live * hk_classes[i].size;
        stats->cached_bytes += cls->cached * hk_classes[i].size;
        stats->sent_bytes += cls->sent * hk_classes[i].size;
        stats->free_bytes += cls->free * hk_classes[i].size;
    }
    stats->live_blocks += stats->large.runs + stats->large.mappings;
    stats->live_bytes += stats->large.run_bytes + stats->large.mapping_bytes;
    stats->resident = stats->slab_bytes + stats->pool.slots_empty * HK_SLOT_SIZE +
                      (stats->superslabs.cached + stats->superslabs.large) * HK_SUPERSLAB_SIZE +
                      stats->large.mapping_bytes + stats->large.cached_bytes + stats->meta_used;
}
