/*
 * Freed mappings, kept for the next ones: whole, or what is left of one when its beginning serves a block again.
 *
 * Pieces that lie one behind the other serve together: what is found, and taken, is room from an address on. Medium
 * mappings (those of blocks of at most HK_MEDIUM_MAX) have a cache of their own: in one for all, they would take the
 * large ones' to pieces.
 *
 * Guarded by hk_large_lock, which the caller holds.
 */
#ifndef HK_HEAP_MAPPING_CACHE_H
#define HK_HEAP_MAPPING_CACHE_H

#include "base/base.h"

struct hk_mapping {
    char *base;
    size_t size;
    bool huge; /* advised for huge pages, as a whole */
};

/* How many pieces of large mappings are kept: if they are of 1 MiB each, as much as all may hold by default. */
#define HK_CACHED_LARGE 128u
/* How many pieces of medium mappings are kept, and how many such mappings may be live at a time: if there were more,
 * each would be made anew each time. */
#define HK_CACHED_MEDIUM 512u

/* Keeps a mapping, in the place of the oldest if there is no other. */
void hk_mapping_cache_add(struct hk_mapping mapping, bool medium);
/* Unmaps one that is not cached. If the kernel refuses (the map count is at its limit) it stays ours, without memory,
 * in the cache as long as there is room. */
void hk_mapping_discard(struct hk_mapping mapping, bool medium);
/* Unmaps cached mappings of both kinds, oldest first, and of the last one what is needed, until `keep` bytes are left
 * or `most` have gone, and only those that were freed before a time of hk_os_now_ms. Returns bytes. */
size_t hk_mapping_cache_purge(size_t keep, uint64_t freed_before_ms, size_t most);

/* Where `size` bytes are cached at a multiple of alignment: in the place that has least room, or, for a mapping that is
 * to grow, most. NULL if there is no such place. */
char *hk_mapping_cache_find(size_t size, size_t alignment, bool growing, bool medium);
/* How many bytes are cached from an address on, without a gap. */
size_t hk_mapping_cache_room(const char *base, bool medium);
/* Extends a mapping into what is cached right behind it, until it has at least `size` bytes; as many are cached there.
 * It is advised for huge pages then only if it was before, and all that it got was, too. */
void hk_mapping_cache_give(struct hk_mapping *mapping, size_t size, bool medium);

/* How many bytes are cached, of both kinds. */
size_t hk_mapping_cache_bytes(void);

#endif
