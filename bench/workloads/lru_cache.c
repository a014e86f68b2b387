/*
 * A cache with a limit: what was used longest ago goes when there is no room.
 *
 * Stands for memcached, page and image caches, resolvers, memoising libraries: values of very different sizes, most of
 * them small, live until they are evicted, in an order that has nothing to do with their size. A heap that cannot
 * use the holes of the evicted ones for the new ones grows beyond the limit.
 *
 * A hash table with a chain of nodes, each with a value of its own; sizes are log-normal. Keys are drawn so that a few
 * are asked for often. A value is written when it comes in, and looked at, at both ends, when it is found.
 *
 * Figure: look-ups per second, each miss with an insertion and the evictions it needs. Check: both ends of each value
 * when it is found and when it goes.
 *
 *     lru_cache CAPACITY_KIB KEYS LOOKUPS
 */
#include "arguments.h"
#include "sizes.h"

enum { MEDIAN_VALUE = 300, MOST_VALUE = 64 << 10 };
static const double VALUE_OCTAVES = 1.7;

struct entry {
    struct entry *chained;       /* the next one with the same hash */
    struct entry *newer, *older; /* by when they were used; a ring through cache.oldest_newest */
    uint64_t key;
    unsigned char *value;
    size_t size;
};

static struct {
    struct entry **bucket;
    size_t buckets;
    struct entry ends; /* of the ring: its newer is the oldest entry, its older the newest */
    size_t bytes;
    size_t capacity;
} cache;

static struct entry **bucket_of(uint64_t key) { return &cache.bucket[key * 0x9e3779b97f4a7c15u % cache.buckets]; }

static void unlink_entry(struct entry *entry)
{
    entry->newer->older = entry->older;
    entry->older->newer = entry->newer;
}

static void link_newest(struct entry *entry)
{
    entry->newer = &cache.ends;
    entry->older = cache.ends.older;
    entry->older->newer = entry;
    cache.ends.older = entry;
}

static void check(const struct entry *entry)
{
    unsigned char name = (unsigned char)entry->key;
    if (entry->value[0] != name || entry->value[entry->size - 1] != name)
        fail("the value of key %llu changed", (unsigned long long)entry->key);
}

static void evict_oldest(void)
{
    struct entry *gone = cache.ends.newer;
    struct entry **link = bucket_of(gone->key);
    while (*link != gone)
        link = &(*link)->chained;
    *link = gone->chained;
    unlink_entry(gone);
    check(gone);
    cache.bytes -= gone->size;
    free(gone->value);
    free(gone);
}

static void insert(uint64_t key, size_t size)
{
    while (cache.bytes + size > cache.capacity && cache.ends.newer != &cache.ends)
        evict_oldest();
    struct entry *entry = malloc(sizeof *entry);
    unsigned char *value = malloc(size);
    if (!entry || !value)
        fail("no memory for a value of %zu bytes", size);
    memset(value, (unsigned char)key, size);
    *entry = (struct entry){.key = key, .value = value, .size = size, .chained = *bucket_of(key)};
    *bucket_of(key) = entry;
    link_newest(entry);
    cache.bytes += size;
}

static struct entry *find(uint64_t key)
{
    struct entry *entry = *bucket_of(key);
    while (entry && entry->key != key)
        entry = entry->chained;
    return entry;
}

/* The square of a uniform number: half of all look-ups are for a quarter of the keys. */
static uint64_t draw_key(uint64_t *state, size_t keys)
{
    uint64_t bits = random_next(state);
    return random_below((uint32_t)(((bits >> 32) * (bits >> 32)) >> 32), keys);
}

int main(int argc, char **argv)
{
    cache.capacity = count_argument(argc, argv, 1, "CAPACITY_KIB") << 10;
    size_t keys = count_argument(argc, argv, 2, "KEYS");
    size_t lookups = count_argument(argc, argv, 3, "LOOKUPS");
    cache.buckets = keys;
    cache.bucket = table_of(cache.buckets, sizeof *cache.bucket);
    cache.ends.newer = cache.ends.older = &cache.ends;
    uint64_t state = 1;

    size_t hits = 0;
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < lookups; i++) {
        uint64_t key = draw_key(&state, keys);
        struct entry *found = find(key);
        if (found) {
            check(found);
            unlink_entry(found);
            link_newest(found);
            hits++;
        } else {
            insert(key, size_lognormal(&state, MEDIAN_VALUE, VALUE_OCTAVES, 1, MOST_VALUE));
        }
    }
    struct stopwatch elapsed = stopwatch_read(start);
    size_t live = cache.bytes;
    while (cache.ends.newer != &cache.ends)
        evict_oldest();
    report((double)lookups / elapsed.cpu * 1e-6, "Mops/s", elapsed, "hits=%zu live_kib=%zu", hits, live >> 10);
    return 0;
}
