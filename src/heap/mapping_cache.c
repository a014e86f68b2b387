#include "heap/mapping_cache.h"

#include "base/lock.h"
#include "base/os.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/window.h"

/* A piece: a freed mapping, or what is left of one. */
struct hk_piece {
    struct hk_mapping mapping;
    uint64_t freed_at_ms;
    uint64_t number; /* in the order in which they were freed */
};

struct hk_mapping_cache {
    unsigned n;
    struct hk_piece pieces[HK_CACHED_MEDIUM]; /* by address */
};

static struct {
    struct hk_mapping_cache large, medium;
    uint64_t nfreed; /* so far */
    size_t bytes;
} hk_mapping_caches; /* guarded by hk_large_lock */

/* ---- Pieces ---- */

static struct hk_mapping_cache *hk_cache_of(bool medium)
{
    hk_assert(hk_lock_held_by_me(&hk_large_lock));
    return medium ? &hk_mapping_caches.medium : &hk_mapping_caches.large;
}

static bool hk_cache_is_full(const struct hk_mapping_cache *cache)
{
    return cache->n == (cache == &hk_mapping_caches.medium ? HK_CACHED_MEDIUM : HK_CACHED_LARGE);
}

/* NULL if the cache is empty. */
static struct hk_piece *hk_cache_oldest(struct hk_mapping_cache *cache)
{
    struct hk_piece *oldest = NULL;
    for (unsigned i = 0; i < cache->n; i++)
        if (oldest == NULL || cache->pieces[i].number < oldest->number)
            oldest = &cache->pieces[i];
    return oldest;
}

/* There is room for it. */
static void hk_cache_insert(struct hk_mapping_cache *cache, struct hk_mapping mapping)
{
    struct hk_piece piece = {.mapping = mapping, .freed_at_ms = hk_os_now_ms(), .number = hk_mapping_caches.nfreed++};
    unsigned i = cache->n++;
    for (; i > 0 && cache->pieces[i - 1].mapping.base > mapping.base; i--)
        cache->pieces[i] = cache->pieces[i - 1];
    cache->pieces[i] = piece;
    hk_mapping_caches.bytes += mapping.size;
}

/* Takes the first bytes of a piece, or all of them. */
static void hk_piece_cut(struct hk_mapping_cache *cache, struct hk_piece *piece, size_t size)
{
    hk_mapping_caches.bytes -= size;
    piece->mapping.base += size;
    piece->mapping.size -= size;
    if (piece->mapping.size != 0)
        return;
    cache->n--;
    for (; piece < cache->pieces + cache->n; piece++)
        piece[0] = piece[1];
}

/* How much of a piece is given to a mapping that wants `size` bytes of it: all, unless the rest can be a mapping of its
 * own. Such a rest does not begin in the slot in which the part does, its window is there, and no huge page lies in
 * both. */
static size_t hk_piece_part(const struct hk_piece *piece, size_t size)
{
    const struct hk_mapping *mapping = &piece->mapping;
    size_t part = mapping->huge ? hk_align_up(size, HK_HUGE_PAGE) : size;
    bool rest = part + HK_SLOT_SIZE <= mapping->size && hk_window_prepare(mapping->base + part, 1);
    return rest ? part : mapping->size;
}

/* ---- Giving back ---- */

static bool hk_cache_discard(struct hk_mapping_cache *cache, struct hk_mapping mapping)
{
    bool unmapped = hk_os_unmap(mapping.base, mapping.size, mapping.size);
    if (!unmapped)
        hk_os_purge(mapping.base, mapping.size);
    if (unmapped || hk_cache_is_full(cache)) {
        hk_mapped_add(-mapping.size);
        return unmapped;
    }
    hk_cache_insert(cache, mapping);
    return false;
}

void hk_mapping_discard(struct hk_mapping mapping, bool medium) { hk_cache_discard(hk_cache_of(medium), mapping); }

static bool hk_piece_discard(struct hk_mapping_cache *cache, struct hk_piece *piece)
{
    struct hk_mapping mapping = piece->mapping;
    hk_piece_cut(cache, piece, mapping.size);
    return hk_cache_discard(cache, mapping);
}

/* Unmaps `size` bytes or somewhat more at the end of a piece; all of it if not enough would be left for another block.
 * What is left begins where it did, aligned as it was, and has whole huge pages if any. If the kernel refuses, the
 * piece stays whole, with an end that has no memory. Returns bytes. */
static size_t hk_piece_discard_part(struct hk_mapping_cache *cache, struct hk_piece *piece, size_t size)
{
    struct hk_mapping *mapping = &piece->mapping;
    size_t before = mapping->size;
    size_t unit = mapping->huge ? HK_HUGE_PAGE : hk_os_page_size();
    size_t left = hk_align_down(hk_sub_sat(before, size), unit);
    if (left < HK_SLOT_SIZE)
        return hk_piece_discard(cache, piece) ? before : 0;
    size_t part = before - left;
    if (!hk_os_unmap(mapping->base + left, part, part)) {
        hk_os_purge(mapping->base + left, part);
        return 0;
    }
    hk_mapped_add(-part);
    hk_mapping_caches.bytes -= part;
    mapping->size = left;
    return part;
}

void hk_mapping_cache_add(struct hk_mapping mapping, bool medium)
{
    struct hk_mapping_cache *cache = hk_cache_of(medium);
    if (hk_cache_is_full(cache))
        hk_piece_discard(cache, hk_cache_oldest(cache));
    if (!hk_cache_is_full(cache))
        hk_cache_insert(cache, mapping);
    else
        hk_cache_discard(cache, mapping);
}

size_t hk_mapping_cache_purge(size_t keep, uint64_t freed_before_ms, size_t most)
{
    struct hk_mapping_cache *large = hk_cache_of(false), *medium = hk_cache_of(true);
    size_t bytes = 0;
    while (bytes < most && hk_mapping_caches.bytes > keep) {
        struct hk_piece *of_large = hk_cache_oldest(large), *of_medium = hk_cache_oldest(medium);
        bool from_medium = of_large == NULL || (of_medium != NULL && of_medium->number < of_large->number);
        struct hk_piece *oldest = from_medium ? of_medium : of_large;
        if (oldest->freed_at_ms >= freed_before_ms)
            break;
        size_t part = hk_piece_discard_part(from_medium ? medium : large, oldest,
                                            hk_min(hk_mapping_caches.bytes - keep, most - bytes));
        if (part == 0)
            break;
        bytes += part;
    }
    return bytes;
}

/* ---- Serving again ---- */

/* The piece that begins at an address; NULL if there is none. */
static struct hk_piece *hk_piece_at(struct hk_mapping_cache *cache, const char *base)
{
    unsigned from = 0, to = cache->n;
    while (from < to) {
        unsigned middle = (from + to) / 2;
        struct hk_piece *piece = &cache->pieces[middle];
        if (piece->mapping.base == base)
            return piece;
        if (piece->mapping.base < base)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

size_t hk_mapping_cache_room(const char *base, bool medium)
{
    struct hk_mapping_cache *cache = hk_cache_of(medium);
    const char *end = base;
    const struct hk_piece *piece = hk_piece_at(cache, base);
    for (; piece != NULL && piece < cache->pieces + cache->n && piece->mapping.base == end; piece++)
        end += piece->mapping.size;
    return (size_t)(end - base);
}

void hk_mapping_cache_give(struct hk_mapping *mapping, size_t size, bool medium)
{
    struct hk_mapping_cache *cache = hk_cache_of(medium);
    while (mapping->size < size) {
        struct hk_piece *piece = hk_piece_at(cache, mapping->base + mapping->size);
        size_t part = hk_piece_part(piece, size - mapping->size);
        mapping->size += part;
        mapping->huge &= piece->mapping.huge;
        hk_piece_cut(cache, piece, part);
    }
}

char *hk_mapping_cache_find(size_t size, size_t alignment, bool growing, bool medium)
{
    const struct hk_mapping_cache *cache = hk_cache_of(medium);
    char *best = NULL;
    const char *end = NULL; /* of what lies behind without a gap */
    size_t best_room = 0;
    for (unsigned i = cache->n; i-- > 0;) {
        const struct hk_piece *piece = &cache->pieces[i];
        char *base = piece->mapping.base;
        if (i + 1 == cache->n || base + piece->mapping.size != piece[1].mapping.base)
            end = base + piece->mapping.size;
        size_t room = (size_t)(end - base);
        if (room < size || ((uintptr_t)base & (alignment - 1)) != 0)
            continue;
        if (best == NULL || (growing ? room >= best_room : room <= best_room)) {
            best = base;
            best_room = room;
        }
    }
    return best;
}

size_t hk_mapping_cache_bytes(void)
{
    hk_assert(hk_lock_held_by_me(&hk_large_lock));
    return hk_mapping_caches.bytes;
}
