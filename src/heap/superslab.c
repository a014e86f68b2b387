#include "heap/superslab.h"

#include "base/options.h"
#include "base/os.h"
#include "base/trace.h"
#include "heap/huge_pages.h"
#include "heap/limit.h"
#include "heap/meta.h"
#include "heap/regret.h"

struct hk_lock hk_pool_lock = HK_LOCK_INIT(HK_RANK_POOL);
struct hk_superslab_counts hk_superslab_counts;

#define HK_RUN_BINS 33u /* runs of 1 to 32 superslabs, and longer ones */

/* Address space is reserved in steps that double, so that mappings stay few and small programs small. Where it is
 * limited, no step is more than a small part of it: the program has stacks and mappings of its own. */
#define HK_REGION_MIN ((size_t)16)
#define HK_REGION_MAX ((size_t)512)
#define HK_REGION_PART 32u

static struct {
    struct hk_superslab *runs[HK_RUN_BINS];
    uint64_t nonempty;                    /* bit b: runs[b] is not NULL */
    struct hk_superslab *newest, *oldest; /* the LRU cache */
    char *region, *region_end;            /* reserved and not yet made into superslabs */
    size_t region_step, region_most; /* superslabs that are reserved next; that one step may be, 0 until the first */
    struct hk_superslab *spare;      /* descriptors of superslabs that were unmapped */
    size_t ranges; /* of address space in which superslabs lie, with something else between each two */
    size_t wanted; /* superslabs that the cache may keep beyond its first bound; may be read without it */
} hk_superslabs = {.region_step = HK_REGION_MIN}; /* guarded by hk_pool_lock */

/* ---- The LRU cache ---- */

static void hk_lru_count(int more) { hk_add_visibly(&hk_superslab_counts.cached, (size_t)more); }

static void hk_lru_add(struct hk_superslab *superslab)
{
    superslab->resident = true;
    superslab->newer = NULL;
    superslab->older = hk_superslabs.newest;
    if (hk_superslabs.newest != NULL)
        hk_superslabs.newest->newer = superslab;
    else
        hk_superslabs.oldest = superslab;
    hk_superslabs.newest = superslab;
    hk_lru_count(1);
    if (hk_superslab_counts.cached > hk_superslab_counts.cached_peak)
        hk_superslab_counts.cached_peak = hk_superslab_counts.cached;
    hk_trace(HK_TRACE_LRU, "lru add", {"superslab", (uintptr_t)superslab->base},
             {"cached", hk_superslab_counts.cached});
}

static void hk_lru_remove(struct hk_superslab *superslab)
{
    *(superslab->newer != NULL ? &superslab->newer->older : &hk_superslabs.newest) = superslab->older;
    *(superslab->older != NULL ? &superslab->older->newer : &hk_superslabs.oldest) = superslab->newer;
    hk_lru_count(-1);
}

/* ---- Free runs ---- */

static unsigned hk_free_run_bin(size_t length) { return length < HK_RUN_BINS ? (unsigned)length - 1 : HK_RUN_BINS - 1; }

static void hk_free_run_insert(struct hk_superslab *first, size_t length, size_t resident)
{
    first->run = hk_superslab_next(first, length - 1)->run = (uint32_t)length;
    first->run_resident = (uint32_t)resident;
    unsigned bin = hk_free_run_bin(length);
    struct hk_superslab *before = NULL, *next = hk_superslabs.runs[bin];
    if (resident == 0) /* behind those with memory */
        for (; next != NULL && next->run_resident != 0; next = next->next)
            before = next;
    hk_superslab_link(before != NULL ? &before->next : &hk_superslabs.runs[bin], first);
    first->prev = before;
    hk_superslabs.nonempty |= 1ull << bin;
}

static void hk_free_run_remove(struct hk_superslab *first)
{
    unsigned bin = hk_free_run_bin(first->run);
    hk_superslab_unlink(&hk_superslabs.runs[bin], first);
    if (hk_superslabs.runs[bin] == NULL)
        hk_superslabs.nonempty &= ~(1ull << bin);
}

static size_t hk_count_resident(struct hk_superslab *first, size_t n)
{
    size_t resident = 0;
    for (size_t i = 0; i < n; i++)
        resident += hk_superslab_next(first, i)->resident;
    return resident;
}

/* Makes [first, first + n), all in state FREE and in no run, part of the free runs. */
static void hk_free_run_join(struct hk_superslab *first, size_t n)
{
    size_t resident = hk_count_resident(first, n);
    struct hk_superslab *before = hk_superslab_of(first->base - HK_SUPERSLAB_SIZE);
    if (before != NULL && before->state == HK_SUPERSLAB_FREE) {
        before = hk_superslab_of(first->base - (size_t)before->run * HK_SUPERSLAB_SIZE);
        hk_free_run_remove(before);
        first = before;
        n += before->run;
        resident += before->run_resident;
    }
    struct hk_superslab *following = hk_superslab_next(first, n);
    if (following != NULL && following->state == HK_SUPERSLAB_FREE) {
        hk_free_run_remove(following);
        n += following->run;
        resident += following->run_resident;
    }
    hk_free_run_insert(first, n, resident);
}

/* Where in a run n superslabs are taken: at the end that has more memory; if neither has any, where memory begins. */
static size_t hk_run_best_start(struct hk_superslab *run, size_t n)
{
    size_t last = run->run - n;
    if (run->run_resident == 0 || last == 0)
        return 0;
    size_t low = hk_count_resident(run, n);
    size_t high = hk_count_resident(hk_superslab_next(run, last), n);
    if (low != 0 || high != 0)
        return high > low ? last : 0;
    size_t start = n;
    while (start < last && !hk_superslab_next(run, start)->resident)
        start++;
    return start;
}

/* Takes n superslabs from a run. Returns the first taken. */
static struct hk_superslab *hk_run_take(struct hk_superslab *run, size_t n)
{
    size_t length = run->run;
    size_t start = hk_run_best_start(run, n);
    struct hk_superslab *first = hk_superslab_next(run, start);
    size_t below = hk_count_resident(run, start);
    size_t above = run->run_resident - below - hk_count_resident(first, n);
    hk_free_run_remove(run);
    if (start > 0)
        hk_free_run_insert(run, start, below);
    if (start + n < length)
        hk_free_run_insert(hk_superslab_next(first, n), length - start - n, above);
    return first;
}

/* The shortest run of at least n with resident memory, else the shortest of all. */
static struct hk_superslab *hk_run_find(size_t n)
{
    struct hk_superslab *found = NULL;
    uint64_t bins = hk_superslabs.nonempty & ~hk_low_mask64(hk_free_run_bin(n));
    for (; bins != 0; bins &= bins - 1) {
        struct hk_superslab *run = hk_superslabs.runs[hk_lowest_bit64(bins)];
        while (run != NULL && run->run < n) /* only in the bin of long runs */
            run = run->next;
        if (run != NULL && run->run_resident != 0)
            return run;
        if (found == NULL)
            found = run;
    }
    return found;
}

/* ---- Address space ---- */

/* A process may have some 65,000 mappings, and the program wants some of them, too: free runs that would leave more
 * ranges than this when they are unmapped stay reserved. */
#define HK_RANGES_MAX 4096u

/* In how many directions superslabs that come or go have neighbours: these make one range of two, or of one two. */
static unsigned hk_range_neighbours(const char *base, size_t n)
{
    return (hk_superslab_of(base - HK_SUPERSLAB_SIZE) != NULL) +
           (hk_superslab_of(base + n * HK_SUPERSLAB_SIZE) != NULL);
}

/* Makes the next n superslabs of the region into a free run; false without metadata. */
static bool hk_region_carve(size_t n)
{
    char *base = hk_superslabs.region;
    if (!hk_window_prepare(base, n * HK_SUPERSLAB_SIZE))
        return false;
    struct hk_superslab *first = NULL;
    size_t done = 0;
    for (; done < n; done++) {
        struct hk_superslab *superslab = hk_superslabs.spare;
        if (superslab != NULL)
            hk_superslabs.spare = superslab->next;
        else
            superslab = hk_meta_alloc(sizeof *superslab, HK_CACHE_LINE);
        if (superslab == NULL)
            break;
        struct hk_slot_table *table = superslab->table; /* kept by a spare descriptor, for late readers */
        *superslab = (struct hk_superslab){
            .base = base + done * HK_SUPERSLAB_SIZE, .table = table, .state = HK_SUPERSLAB_FREE, .zero = true};
        hk_window_set_superslab(superslab->base, superslab);
        if (first == NULL)
            first = superslab;
    }
    hk_superslabs.region += done * HK_SUPERSLAB_SIZE;
    hk_superslab_counts.reserved += done;
    hk_superslab_counts.free += done;
    if (done > 0) {
        hk_superslabs.ranges += 1 - (size_t)hk_range_neighbours(base, done);
        hk_free_run_join(first, done);
    }
    return done == n;
}

/* How many superslabs may be reserved at once. */
static size_t hk_region_most(void)
{
    if (hk_superslabs.region_most == 0) {
        size_t part = hk_os_address_space_limit() / HK_REGION_PART / HK_SUPERSLAB_SIZE;
        hk_superslabs.region_most = hk_max(hk_min(part, HK_REGION_MAX), 1);
    }
    return hk_superslabs.region_most;
}

void hk_superslabs_read_limit(void)
{
    hk_lock_acquire(&hk_pool_lock);
    hk_region_most();
    hk_lock_release(&hk_pool_lock);
}

/* Reserves address space for n superslabs or more; what is left of the old region becomes a free run. */
static bool hk_region_reserve(size_t n)
{
    size_t left = (size_t)(hk_superslabs.region_end - hk_superslabs.region) / HK_SUPERSLAB_SIZE;
    if (left > 0 && !hk_region_carve(left))
        return false;
    for (size_t step = hk_min(hk_superslabs.region_step, hk_region_most()); step >= 1; step /= 2) {
        size_t size = hk_max(step, n) * HK_SUPERSLAB_SIZE;
        char *region = hk_os_reserve(size, HK_SUPERSLAB_SIZE);
        if (region != NULL) {
            /* As a whole, before any of it is used: a part would be a mapping of its own. Small pages are the rule:
             * else the kernel that gives huge ones to all would fill holes again (docs/decisions/009-huge-pages.md). */
            if (hk_option(thp) == HK_THP_ALWAYS)
                hk_os_advise_huge(region, size);
            else
                hk_os_advise_small(region, size);
            hk_superslabs.region = region;
            hk_superslabs.region_end = region + size;
            if (hk_superslabs.region_step < HK_REGION_MAX)
                hk_superslabs.region_step *= 2;
            return true;
        }
        if (step <= n)
            break;
    }
    return false;
}

static struct hk_superslab *hk_region_grow(size_t n)
{
    size_t left = (size_t)(hk_superslabs.region_end - hk_superslabs.region) / HK_SUPERSLAB_SIZE;
    if (left < n && !hk_region_reserve(n))
        return NULL;
    if (!hk_region_carve(n))
        return NULL;
    return hk_run_find(n);
}

static bool hk_commit(struct hk_superslab *first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (hk_superslab_next(first, i)->committed)
            continue;
        size_t end = i + 1;
        while (end < n && !hk_superslab_next(first, end)->committed)
            end++;
        if (!hk_os_commit(hk_superslab_next(first, i)->base, (end - i) * HK_SUPERSLAB_SIZE))
            return false;
        for (; i < end; i++)
            hk_superslab_next(first, i)->committed = true;
    }
    return true;
}

/* ---- Interface ---- */

static size_t *hk_state_count(enum hk_superslab_state state)
{
    return state == HK_SUPERSLAB_CARVED  ? &hk_superslab_counts.carved
           : state == HK_SUPERSLAB_LARGE ? &hk_superslab_counts.large
                                         : &hk_superslab_counts.free;
}

static void hk_set_state(struct hk_superslab *superslab, enum hk_superslab_state state)
{
    hk_add_visibly(hk_state_count(superslab->state), (size_t)-1);
    hk_add_visibly(hk_state_count(state), 1);
    superslab->state = (uint8_t)state;
}

/* The first bound of the cache. It learns that more are wanted when what it let go is needed again within this time,
 * and that fewer are when what it kept grows old. The options bound both. */
#define HK_CACHED_FIRST ((size_t)64)
#define HK_WANTED_AGAIN_MS 1000u

static void hk_lru_note_wanted(size_t regretted)
{
    size_t most = hk_option(superslab_max_cached);
    size_t wanted = hk_superslabs.wanted + regretted;
    hk_add_visibly(&hk_superslabs.wanted, hk_min(wanted, most) - hk_superslabs.wanted);
}

static void hk_lru_note_unwanted(size_t purged)
{
    hk_add_visibly(&hk_superslabs.wanted, -hk_min(purged, hk_superslabs.wanted));
}

/* Forgets the slots that a superslab had: it becomes part of a large block, say. Keys that they have left would name
 * slabs that are gone; an earlier large block can have left the first key only. */
static void hk_superslab_forget_slots(struct hk_superslab *superslab)
{
    _Atomic hk_key *keys = hk_key_at(superslab->base);
    unsigned n = superslab->was_large ? 1 : HK_SLOTS_PER_SUPERSLAB;
    for (unsigned slot = 0; slot < n; slot++)
        hk_set(&keys[slot], 0);
    superslab->was_large = true;
    hk_huge_pages_end(superslab);
}

/* Turns n free superslabs that are in no run into superslabs in use. */
static void hk_superslabs_use(struct hk_superslab *first, size_t n, enum hk_superslab_state state)
{
    size_t regretted = 0;
    uint64_t latest_ms = 0; /* when one of these was freed */
    for (size_t i = 0; i < n; i++) {
        struct hk_superslab *superslab = hk_superslab_next(first, i);
        hk_assert(superslab->state == HK_SUPERSLAB_FREE);
        if (superslab->resident) {
            hk_lru_remove(superslab);
        } else if (superslab->freed_at_ms != 0) { /* it had memory before */
            regretted++;
            latest_ms = hk_max(latest_ms, superslab->freed_at_ms);
        }
        superslab->resident = false;
        if (state == HK_SUPERSLAB_LARGE)
            hk_superslab_forget_slots(superslab);
        hk_set_state(superslab, state);
    }
    if (regretted == 0)
        return;
    hk_regret(regretted * HK_SUPERSLAB_SIZE);
    if (hk_os_now_ms() - latest_ms < HK_WANTED_AGAIN_MS)
        hk_lru_note_wanted(regretted);
}

/* True if the limits allow n superslabs to be taken. Carved ones always are: the pool counts their slots. */
static bool hk_superslabs_allowed(struct hk_superslab *first, size_t n, enum hk_superslab_state state)
{
    return state == HK_SUPERSLAB_CARVED || hk_limit_admit((n - hk_count_resident(first, n)) * HK_SUPERSLAB_SIZE);
}

struct hk_superslab *hk_superslabs_acquire(size_t n, enum hk_superslab_state state)
{
    hk_assert(hk_lock_held_by_me(&hk_pool_lock));
    struct hk_superslab *run = hk_run_find(n);
    if (run == NULL)
        run = hk_region_grow(n);
    if (run == NULL)
        return NULL;
    struct hk_superslab *first = hk_run_take(run, n);
    if (!hk_superslabs_allowed(first, n, state) || !hk_commit(first, n)) {
        hk_free_run_join(first, n);
        return NULL;
    }
    hk_superslabs_use(first, n, state);
    return first;
}

bool hk_superslabs_extend(struct hk_superslab *first, size_t have, size_t n)
{
    hk_assert(hk_lock_held_by_me(&hk_pool_lock));
    struct hk_superslab *following = hk_superslab_next(first, have);
    if (following == NULL || following->state != HK_SUPERSLAB_FREE || following->run < n)
        return false;
    size_t length = following->run;
    size_t resident = following->run_resident;
    if (!hk_superslabs_allowed(following, n, HK_SUPERSLAB_LARGE) || !hk_commit(following, n))
        return false;
    hk_free_run_remove(following);
    if (length > n)
        hk_free_run_insert(hk_superslab_next(following, n), length - n, resident - hk_count_resident(following, n));
    hk_superslabs_use(following, n, (enum hk_superslab_state)first->state);
    return true;
}

void hk_superslabs_release(struct hk_superslab *first, size_t n, bool resident)
{
    hk_assert(hk_lock_held_by_me(&hk_pool_lock));
    uint64_t now = resident ? hk_os_now_ms() : 0;
    for (size_t i = 0; i < n; i++) {
        struct hk_superslab *superslab = hk_superslab_next(first, i);
        hk_set_state(superslab, HK_SUPERSLAB_FREE);
        superslab->resident = false;
        superslab->zero = !resident;
        if (resident) {
            superslab->freed_at_ms = now;
            hk_lru_add(superslab);
        }
    }
    hk_free_run_join(first, n);
}

/* Takes a free superslab out of its run, which is split. */
static void hk_superslab_isolate(struct hk_superslab *superslab)
{
    struct hk_superslab *run = superslab;
    while (true) { /* to the first of the run */
        struct hk_superslab *before = hk_superslab_of(run->base - HK_SUPERSLAB_SIZE);
        if (before == NULL || before->state != HK_SUPERSLAB_FREE)
            break;
        run = before;
    }
    size_t length = run->run;
    size_t low = (size_t)(superslab->base - run->base) / HK_SUPERSLAB_SIZE;
    hk_free_run_remove(run);
    if (low > 0)
        hk_free_run_insert(run, low, hk_count_resident(run, low));
    if (low + 1 < length) {
        struct hk_superslab *high = hk_superslab_next(superslab, 1);
        hk_free_run_insert(high, length - low - 1, hk_count_resident(high, length - low - 1));
    }
}

/* How much of a free superslab may have memory. */
static size_t hk_superslab_resident_bytes(const struct hk_superslab *superslab)
{
    bool by_slots = superslab->table != NULL && !superslab->was_large;
    return by_slots ? hk_count_bits32(superslab->empty) * HK_SLOT_SIZE : HK_SUPERSLAB_SIZE;
}

/* The pages of the table of a superslab without memory go with it: nothing in it is wanted again. */
static void hk_superslab_purge_table(struct hk_superslab *superslab)
{
    if (superslab->table != NULL)
        hk_meta_purge(superslab->table, sizeof *superslab->table);
}

/* Purges the oldest superslab of the cache without the lock, which is held at entry and at exit. */
static size_t hk_superslab_purge_oldest(void)
{
    struct hk_superslab *superslab = hk_superslabs.oldest;
    size_t bytes = hk_superslab_resident_bytes(superslab);
    hk_superslab_isolate(superslab);
    hk_lru_remove(superslab);
    superslab->resident = false;
    superslab->state = HK_SUPERSLAB_PURGING; /* counted as free meanwhile */
    hk_lock_release(&hk_pool_lock);
    bool purged = hk_os_purge(superslab->base, HK_SUPERSLAB_SIZE);
    bool decommitted = !purged && hk_os_decommit(superslab->base, HK_SUPERSLAB_SIZE);
    if (purged || decommitted)
        hk_superslab_purge_table(superslab);
    hk_lock_acquire(&hk_pool_lock);
    superslab->committed = !decommitted;
    if (decommitted)
        hk_huge_pages_end(superslab);
    purged |= decommitted;
    superslab->state = HK_SUPERSLAB_FREE;
    superslab->zero = purged;
    hk_superslab_counts.purged += purged;
    hk_trace(HK_TRACE_LRU, "lru purge", {"superslab", (uintptr_t)superslab->base}, {"purged", purged},
             {"cached", hk_superslab_counts.cached});
    hk_free_run_join(superslab, 1);
    return purged ? bytes : 0;
}

size_t hk_superslabs_purge(size_t keep, uint64_t freed_before_ms, size_t most)
{
    size_t bytes = 0, n = 0;
    hk_lock_acquire(&hk_pool_lock);
    for (; n < most && hk_superslab_counts.cached > keep && hk_superslabs.oldest->freed_at_ms < freed_before_ms; n++)
        bytes += hk_superslab_purge_oldest();
    if (freed_before_ms != UINT64_MAX)
        hk_lru_note_unwanted(n);
    hk_lock_release(&hk_pool_lock);
    return bytes;
}

size_t hk_superslabs_most_cached(void)
{
    return hk_min(hk_option(superslab_max_cached), (hk_option(superslab_max_memory_mb) << 20) / HK_SUPERSLAB_SIZE);
}

size_t hk_superslabs_max_cached(void)
{
    size_t by_demand = HK_CACHED_FIRST + hk_look(&hk_superslabs.wanted) + hk_prewarmed_bytes() / HK_SUPERSLAB_SIZE;
    return hk_min(by_demand, hk_superslabs_most_cached());
}

/* Unmaps a free run; false if that would leave too many ranges, or the kernel refuses. */
static bool hk_free_run_unmap(struct hk_superslab *run)
{
    size_t n = run->run;
    unsigned neighbours = hk_range_neighbours(run->base, n);
    if (neighbours == 2 && hk_superslabs.ranges >= HK_RANGES_MAX)
        return false;
    size_t committed = 0;
    for (size_t i = 0; i < n; i++)
        committed += hk_superslab_next(run, i)->committed * HK_SUPERSLAB_SIZE;
    char *base = run->base;
    if (!hk_os_unmap(base, n * HK_SUPERSLAB_SIZE, committed))
        return false;
    hk_superslabs.ranges -= 1 - (size_t)neighbours;
    hk_free_run_remove(run);
    for (size_t i = 0; i < n; i++) {
        struct hk_superslab *superslab = hk_superslab_of(base + i * HK_SUPERSLAB_SIZE);
        if (superslab->resident) {
            hk_lru_remove(superslab);
            hk_superslab_purge_table(superslab);
        }
        hk_huge_pages_forget(superslab);
        hk_window_set_superslab(superslab->base, NULL);
        superslab->next = hk_superslabs.spare;
        hk_superslabs.spare = superslab;
    }
    hk_superslab_counts.free -= n;
    hk_superslab_counts.reserved -= n;
    hk_superslab_counts.unmapped += n;
    return true;
}

/* Unmaps what is reserved and not yet made into superslabs; false if there is none, or the kernel refuses. */
static bool hk_region_unmap(void)
{
    size_t left = (size_t)(hk_superslabs.region_end - hk_superslabs.region);
    if (left == 0 || !hk_os_unmap(hk_superslabs.region, left, 0))
        return false;
    hk_superslabs.region_end = hk_superslabs.region;
    return true;
}

bool hk_superslabs_unmap_free(bool scarce)
{
    hk_lock_acquire(&hk_pool_lock);
    if (scarce)
        hk_superslabs.region_step = 1; /* or the next reservation may leave no room for what describes it */
    bool any = hk_region_unmap();
    for (unsigned bin = HK_RUN_BINS; bin-- > 0;) { /* the longest first */
        struct hk_superslab *next;
        for (struct hk_superslab *run = hk_superslabs.runs[bin]; run != NULL; run = next) {
            next = run->next;
            any |= hk_free_run_unmap(run);
        }
    }
    hk_lock_release(&hk_pool_lock);
    return any;
}

/* ---- Prewarmed ---- */

static struct {
    _Atomic size_t kept, begun;
} hk_prewarmed; /* in bytes: what stays, and what is being made ready */

void hk_prewarmed_begin(size_t bytes) { hk_add(&hk_prewarmed.begun, bytes); }

void hk_prewarmed_end(size_t bytes, size_t done)
{
    size_t kept = hk_get(&hk_prewarmed.kept);
    while (kept < done && !hk_replace(&hk_prewarmed.kept, &kept, done)) {}
    hk_add(&hk_prewarmed.begun, -bytes);
}

void hk_prewarmed_forget(void) { hk_set(&hk_prewarmed.kept, 0); }

size_t hk_prewarmed_bytes(void)
{
    size_t bytes = hk_get(&hk_prewarmed.kept) + hk_get(&hk_prewarmed.begun);
    return bytes == 0 ? 0 : hk_min(bytes, hk_superslabs_most_cached() * HK_SUPERSLAB_SIZE);
}

/* ---- Fork ---- */

void hk_superslabs_after_fork(void)
{
    hk_set(&hk_prewarmed.begun, 0);
    struct hk_superslab_cursor cursor = {0};
    for (struct hk_superslab *superslab; (superslab = hk_superslabs_walk(&cursor)) != NULL;) {
        if (superslab->state == HK_SUPERSLAB_PURGING) {
            superslab->state = HK_SUPERSLAB_FREE;
            superslab->zero = false;
            superslab->committed = false;         /* it may not be; to commit twice does no harm */
            hk_superslab_forget_slots(superslab); /* the table may be lost */
            hk_free_run_join(superslab, 1);
        }
    }
}
