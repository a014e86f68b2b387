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
    struct hk_class_stats *class = &stats->classes[slab->class];
    size_t nblocks = hk_slab_class(slab)->nblocks;
    size_t free = hk_slab_nfree(slab);
    class->slabs++;
    class->free += free;
    class->live += nblocks - free; /* cached ones are taken off below */
}

/* The pool's lock is held. */
static void hk_add_slabs(struct hk_stats *stats)
{
    struct hk_superslab_cursor cursor = {0};
    for (struct hk_superslab *superslab; (superslab = hk_superslabs_next(&cursor)) != NULL;) {
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
    if (heap->state == HK_HEAP_PARKED)
        hk_magazines_count(heap, heap->parked_top);
    else if (heap == hk_self.heap)
        hk_magazines_count(heap, hk_self.top);
#define HK_HEAP_COUNTER(name, doc) stats->heap.name += heap->counts.name;
#include "base/stats.def"
    size_t sent[HK_NCLASSES] = {0};
    hk_remote_count(heap, sent);
    for (unsigned class = 0; class < HK_NCLASSES; class++) {
        stats->classes[class].cached += sent[class];
        stats->classes[class].sent += sent[class];
    }
    if (heap->state == HK_HEAP_RUNNING || heap->state == HK_HEAP_PARKED) {
        stats->heaps++;
        stats->heaps_parked += heap->state == HK_HEAP_PARKED;
        for (unsigned class = 0; class < HK_NCLASSES; class++) {
            stats->classes[class].cached += heap->classes[class].held;
            for (struct hk_parcel *parcel = heap->classes[class].reserve; parcel != NULL; parcel = parcel->next)
                stats->classes[class].cached += parcel->count;
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
    stats->mapped = atomic_load_explicit(&hk_os_counts.bytes_reserved, memory_order_relaxed);
    stats->committed = atomic_load_explicit(&hk_os_counts.bytes_committed, memory_order_relaxed);
    stats->committed_peak = atomic_load_explicit(&hk_os_counts.bytes_committed_peak, memory_order_relaxed);

    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        struct hk_class_stats *class = &stats->classes[i];
        class->cached = hk_min(class->cached, class->live);
        class->sent = hk_min(class->sent, class->cached);
        class->live -= class->cached;
        stats->live_blocks += class->live;
        stats->live_bytes += class->live * hk_classes[i].size;
        stats->cached_bytes += class->cached * hk_classes[i].size;
        stats->sent_bytes += class->sent * hk_classes[i].size;
        stats->free_bytes += class->free * hk_classes[i].size;
    }
    stats->live_blocks += stats->large.runs + stats->large.mappings;
    stats->live_bytes += stats->large.run_bytes + stats->large.mapping_bytes;
    stats->resident = stats->slab_bytes + stats->pool.slots_empty * HK_SLOT_SIZE +
                      (stats->superslabs.cached + stats->superslabs.large) * HK_SUPERSLAB_SIZE +
                      stats->large.mapping_bytes + stats->large.cached_bytes + stats->meta_used;
}
