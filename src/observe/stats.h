/*
 * Statistics: what the counters and the heap's own structures say, summed when asked. Nothing is counted on a hot path.
 * Numbers that other threads are changing are recent, not exact, and never negative.
 */
#ifndef HK_OBSERVE_STATS_H
#define HK_OBSERVE_STATS_H

#include "heap/heap.h"
#include "heap/large.h"

struct hk_class_stats {
    size_t slabs;
    size_t live;   /* blocks that the program has */
    size_t cached; /* freed blocks in reserves, in magazines as of each one's last slow path, and sent ones */
    size_t sent;   /* of these: on their way to the heap that owns them */
    size_t free;   /* blocks free in slabs */
};

struct hk_stats {
    struct hk_class_stats classes[HK_NCLASSES];
    struct hk_heap_counts heap; /* summed over all heaps */
    struct hk_pool_counts pool;
    struct hk_superslab_counts superslabs;
    struct hk_large_counts large;
    size_t heaps, heaps_parked;
    size_t live_blocks, live_bytes;  /* large ones included */
    size_t cached_bytes, free_bytes; /* in magazines and reserves, and sent; in slabs */
    size_t sent_bytes;               /* of cached_bytes */
    size_t slab_bytes;               /* slots of slabs, and warm ones */
    size_t meta_used, meta_mapped;   /* hakmem's own structures */
    size_t mapped, committed, committed_peak;
    size_t resident; /* estimate: what has been in use and was not given back */
};

void hk_stats_read(struct hk_stats *stats);

#endif
