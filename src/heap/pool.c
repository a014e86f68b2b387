#include "heap/pool.h"

#include "base/os.h"
#include "base/trace.h"
#include "heap/clock.h"
#include "heap/huge_pages.h"
#include "heap/limit.h"
#include "heap/meta.h"
#include "heap/regret.h"

struct hk_pool_counts hk_pool_counts;

static struct {
    /* Carved superslabs by whether they are for long runs alone, and by their longest run of free slots, 1 to 31. */
    struct hk_superslab *bins[2][HK_SLOTS_PER_SUPERSLAB];
    uint32_t bins_nonempty[2];
    struct hk_slab *empty[HK_NCLASSES]; /* EMPTY runs by the class that used them last, as their first slots */
    uint64_t empty_nonempty[(HK_NCLASSES + 63) / 64];
    /* Since the lock was taken: */
    struct hk_superslab *bare; /* carved, and to be populated when the lock has been released */
    size_t grown;              /* bytes of populated slots that were taken: growth, though they have memory */
} hk_pool;                     /* guarded by hk_pool_lock */

/* ---- Carved superslabs by room ---- */

/* Slabs of this many slots or more have superslabs that others do not use. Otherwise small slabs, which stay longer,
 * would take the slots that they leave, and the next long one would find no room for its run though most slots are
 * free. */
#define HK_LONG_RUN 8u

static bool hk_class_is_long(unsigned cls) { return hk_classes[cls].slots >= HK_LONG_RUN; }

static uint32_t hk_free_slots(const struct hk_superslab *superslab)
{
    return ~(superslab->active | superslab->purging);
}

static unsigned hk_longest_run(uint32_t bits)
{
    unsigned length = 0;
    for (; bits != 0; bits &= bits >> 1) /* each step takes one off every run */
        length++;
    return length;
}

static void hk_room_remove(struct hk_superslab *superslab)
{
    if (superslab->bin == 0)
        return;
    struct hk_superslab **head = &hk_pool.bins[superslab->long_runs][superslab->bin];
    hk_superslab_unlink(head, superslab);
    if (*head == NULL)
        hk_pool.bins_nonempty[superslab->long_runs] &= ~(1u << superslab->bin);
    superslab->bin = 0;
}

static void hk_room_insert(struct hk_superslab *superslab, unsigned bin)
{
    superslab->bin = (uint8_t)bin;
    hk_superslab_link(&hk_pool.bins[superslab->long_runs][bin], superslab);
    hk_pool.bins_nonempty[superslab->long_runs] |= 1u << bin;
}

/* ---- EMPTY slots ---- */

/* Neighbours that become EMPTY together stay one run: what else is known of them is in the descriptor of the first, and
 * only that is touched when a slab of the same class follows. */

static uint32_t hk_slots_mask(unsigned first, unsigned n) { return hk_low_mask32(n) << first; }

static uint32_t hk_empty_mask(const struct hk_slab *run) { return hk_slots_mask(run->slot, run->slots); }

static void hk_empty_link(struct hk_slab *run)
{
    hk_slab_link(&hk_pool.empty[run->cls], run);
    hk_pool.empty_nonempty[run->cls / 64] |= 1ull << (run->cls % 64);
    hk_add_visibly(&hk_pool_counts.slots_empty, run->slots);
}

static void hk_empty_unlink(struct hk_slab *run)
{
    hk_slab_unlink(&hk_pool.empty[run->cls], run);
    if (hk_pool.empty[run->cls] == NULL)
        hk_pool.empty_nonempty[run->cls / 64] &= ~(1ull << (run->cls % 64));
    hk_add_visibly(&hk_pool_counts.slots_empty, -(size_t)run->slots);
}

static void hk_empty_begin(struct hk_superslab *superslab, unsigned first, unsigned n, unsigned cls, uint32_t used_at)
{
    struct hk_slab *run = &superslab->table->slabs[first];
    hk_slots_join(&superslab->table->slots[first], n);
    run->cls = (uint8_t)cls;
    run->slots = (uint8_t)n;
    hk_set_visibly(&run->used_at, used_at);
    superslab->empty |= hk_slots_mask(first, n);
    hk_empty_link(run);
}

/* Makes those of `slots` EMPTY that have memory. */
static void hk_empty_add(struct hk_superslab *superslab, uint32_t slots, unsigned cls, uint32_t used_at)
{
    uint32_t touched = 0;
    for (uint32_t rest = slots; rest != 0; rest &= rest - 1)
        touched |= (rest & -rest) * (superslab->table->slots[hk_lowest_bit32(rest)].touched != 0);
    while (touched != 0) {
        unsigned first = hk_lowest_bit32(touched);
        unsigned n = hk_run_length32(touched, first);
        hk_empty_begin(superslab, first, n, cls, used_at);
        touched &= ~hk_slots_mask(first, n);
    }
}

/* The run in which an EMPTY slot lies. */
static struct hk_slab *hk_empty_run(struct hk_superslab *superslab, unsigned slot)
{
    return &superslab->table->slabs[slot - hk_slot_head(&superslab->table->slots[slot])];
}

/* Takes those of `slots` that are EMPTY out of their runs; those of one run are neighbours. What is left of a run is
 * one or two. */
static void hk_empty_remove(struct hk_superslab *superslab, uint32_t slots)
{
    for (uint32_t rest = superslab->empty & slots; rest != 0;) {
        struct hk_slab *run = hk_empty_run(superslab, hk_lowest_bit32(rest));
        unsigned end = run->slot + run->slots;
        uint32_t taken = hk_empty_mask(run) & slots;
        unsigned taken_end = hk_highest_bit64(taken) + 1;
        rest &= ~taken;
        superslab->empty &= ~taken;
        unsigned kept = hk_lowest_bit32(taken) - run->slot;
        if (kept == 0) {
            hk_empty_unlink(run);
        } else { /* where it is */
            hk_add_visibly(&hk_pool_counts.slots_empty, (size_t)kept - run->slots);
            run->slots = (uint8_t)kept;
        }
        if (taken_end < end)
            hk_empty_begin(superslab, taken_end, end - taken_end, run->cls, run->used_at);
    }
}

/* Calls change for each EMPTY run of a superslab. */
static void hk_empty_each(struct hk_superslab *superslab, void (*change)(struct hk_slab *run))
{
    for (uint32_t rest = superslab->empty; rest != 0;) {
        struct hk_slab *run = &superslab->table->slabs[hk_lowest_bit32(rest)];
        rest &= ~hk_empty_mask(run);
        change(run);
    }
}

/* ---- Whose a slot was ---- */

/* What a slot's blocks held is in the caches of the processor that wrote it, and so is what is known of the slot: a
 * heap that takes another heap's slots moves all that, line by line. So a heap takes slots of its own if it finds them
 * soon: it looks at this many runs in the list of the class, and at the heads of this many other lists. Heaps are told
 * apart by the low byte of their ids. */
#define HK_OWN_LOOKS 4u

static uint8_t hk_slot_user(hk_key key) { return (uint8_t)hk_key_index(key); }

static void hk_slots_set_user(struct hk_slab *slab, unsigned n, uint8_t user)
{
    for (unsigned i = 0; i < n; i++)
        hk_slab_slots(slab)[i].user = user;
}

/* True if the user had the last slot of an EMPTY run, which is the first to be taken. */
static bool hk_empty_is_of(const struct hk_slab *run, uint8_t user)
{
    return hk_slab_slots(run)[run->slots - 1].user == user;
}

/* A run from which a single slot may be taken: the user's own, one of the class, or any. */
static struct hk_slab *hk_empty_find(unsigned cls, uint8_t user)
{
    struct hk_slab *any = hk_pool.empty[cls], *run = any;
    for (unsigned looks = 0; run != NULL && looks < HK_OWN_LOOKS; looks++, run = run->next)
        if (hk_empty_is_of(run, user))
            return run;
    unsigned looks = 0;
    for (unsigned i = 0; i < HK_COUNT(hk_pool.empty_nonempty); i++) {
        for (uint64_t rest = hk_pool.empty_nonempty[i]; rest != 0; rest &= rest - 1) {
            unsigned other = i * 64 + hk_lowest_bit64(rest);
            if (hk_class_is_long(other))
                continue;
            run = hk_pool.empty[other];
            if (any == NULL)
                any = run;
            if (hk_empty_is_of(run, user))
                return run;
            if (++looks == HK_OWN_LOOKS)
                return any;
        }
    }
    return any;
}

static void hk_populated_add(struct hk_superslab *superslab)
{
    superslab->populated = ~0u;
    hk_add_visibly(&hk_pool_counts.slots_populated, HK_SLOTS_PER_SUPERSLAB);
}

/* Notes that these slots are not populated any more. Returns the bytes of those that were. */
static size_t hk_populated_remove(struct hk_superslab *superslab, uint32_t slots)
{
    unsigned n = hk_count_bits32(superslab->populated & slots);
    superslab->populated &= ~slots;
    hk_add_visibly(&hk_pool_counts.slots_populated, -(size_t)n);
    return n * HK_SLOT_SIZE;
}

/* Puts a superslab whose slots have changed where it belongs; gives it back if no slot is in use. */
static void hk_superslab_rebin(struct hk_superslab *superslab)
{
    unsigned bin = hk_longest_run(hk_free_slots(superslab));
    if (bin != superslab->bin) {
        hk_room_remove(superslab);
        if (bin != 0 && bin < HK_SLOTS_PER_SUPERSLAB)
            hk_room_insert(superslab, bin);
    }
    if (bin == HK_SLOTS_PER_SUPERSLAB) {
        hk_empty_each(superslab, hk_empty_unlink);
        hk_populated_remove(superslab, ~0u);
        hk_pool_counts.superslab_releases++;
        hk_superslabs_release(superslab, 1, superslab->empty != 0);
    }
}

/* ---- Acquiring ---- */

static void hk_empty_renew(struct hk_slab *run)
{
    hk_set_visibly(&run->used_at, hk_clock_now());
    hk_empty_link(run);
}

/* Gives a superslab a table, with all that is constant in it; false without metadata. */
static bool hk_superslab_describe(struct hk_superslab *superslab)
{
    if (superslab->table == NULL) {
        superslab->table = hk_meta_alloc(sizeof *superslab->table, HK_CACHE_LINE);
        if (superslab->table == NULL)
            return false;
        superslab->was_large = true; /* if it has memory, it was a large block's */
    }
    if (!hk_superslab_forgot_slots(superslab))
        return true;
    for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++) {
        superslab->table->slabs[i].slot = (uint8_t)i;
        superslab->table->slabs[i].superslab = superslab;
    }
    return true;
}

/* Carves a superslab for slabs of a class, and others like it. populates: the caller populates it if it is to be
 * (hk_pool_unlock). */
static struct hk_superslab *hk_pool_carve(unsigned cls, bool populates)
{
    struct hk_superslab *superslab = hk_superslabs_acquire(1, HK_SUPERSLAB_CARVED);
    if (superslab == NULL)
        return NULL;
    if (!hk_superslab_describe(superslab)) {
        hk_superslabs_release(superslab, 1, !superslab->zero);
        return NULL;
    }
    superslab->active = superslab->purging = superslab->purged = 0;
    superslab->bin = 0;
    if (superslab->zero)
        hk_pool_counts.stage3_mapped++;
    else
        hk_pool_counts.stage3_cached++;
    bool anew = hk_superslab_forgot_slots(superslab);
    bool populate = superslab->zero && populates && hk_class_fills_slot(cls) && hk_huge_pages_begin(superslab);
    if (populate) {
        hk_populated_add(superslab);
        hk_set_visibly(&superslab->populating, true);
        hk_pool.bare = superslab;
    } else if (superslab->zero) {
        hk_huge_pages_end(superslab);
    }
    size_t touched = superslab->zero && !populate ? 0 : HK_SUPERSLAB_SIZE;
    if (anew)
        hk_slots_set_touched(superslab->table->slots, HK_SLOTS_PER_SUPERSLAB, touched);
    if (anew || superslab->long_runs != hk_class_is_long(cls)) {
        superslab->empty = 0;
        hk_empty_add(superslab, ~0u, cls, hk_clock_now());
    } else {
        hk_empty_each(superslab, hk_empty_renew);
    }
    superslab->long_runs = hk_class_is_long(cls);
    superslab->was_large = false;
    return superslab;
}

/* Makes n slots ACTIVE. stage is for the trace. */
static struct hk_slab *hk_slots_take(struct hk_superslab *superslab, unsigned first, unsigned n, unsigned stage)
{
    uint32_t mask = hk_slots_mask(first, n);
    hk_assert((hk_free_slots(superslab) & mask) == mask);
    hk_trace(HK_TRACE_SLOT, "slot acquire", {"stage", stage}, {"superslab", (uintptr_t)superslab->base},
             {"slot", first}, {"slots", n});
    hk_empty_remove(superslab, mask);
    superslab->active |= mask;
    if (HK_UNLIKELY((superslab->purged & mask) != 0)) {
        hk_regret(hk_count_bits32(superslab->purged & mask) * HK_SLOT_SIZE);
        superslab->purged &= ~mask;
    }
    if (HK_UNLIKELY((superslab->populated & mask) != 0))
        hk_pool.grown += hk_populated_remove(superslab, mask);
    hk_add_visibly(&hk_pool_counts.slots_active, n);
    hk_superslab_rebin(superslab);
    return &superslab->table->slabs[first];
}

/* The first of n free slots in a row: EMPTY ones if there are so many. */
static unsigned hk_slots_find(const struct hk_superslab *superslab, unsigned n)
{
    uint32_t empty = hk_runs32(superslab->empty, n);
    return hk_lowest_bit32(empty != 0 ? empty : hk_runs32(hk_free_slots(superslab), n));
}

/* Takes the last slot of an EMPTY run, so that what is left is one run. */
static struct hk_slab *hk_empty_take(struct hk_slab *run, unsigned cls)
{
    if (run->cls == cls)
        hk_pool_counts.stage1_same_class++;
    else
        hk_pool_counts.stage1_any_class++;
    struct hk_slab *last = run + run->slots - 1;
    last->cls = run->cls;
    hk_set_visibly(&last->used_at, run->used_at);
    return hk_slots_take(last->superslab, last->slot, 1, 1);
}

/* Takes a slot that nobody needs yet: only an EMPTY one, so that the heap does not grow by it, and none that was
 * populated for growth. */
static struct hk_slab *hk_acquire_spare(unsigned cls, uint8_t user)
{
    struct hk_slab *run = hk_empty_find(cls, user);
    return run == NULL || (run->superslab->populated & hk_empty_mask(run)) != 0 ? NULL : hk_empty_take(run, cls);
}

static struct hk_slab *hk_acquire_slot(unsigned cls, uint8_t user)
{
    struct hk_slab *run = hk_empty_find(cls, user);
    if (run != NULL)
        return hk_empty_take(run, cls);
    struct hk_superslab *superslab;
    uint32_t bins = hk_pool.bins_nonempty[false];
    unsigned stage = bins != 0 ? 2 : 3;
    if (!hk_limit_admit(HK_SLOT_SIZE))
        return NULL;
    if (bins != 0) {
        hk_pool_counts.stage2_unused++;
        superslab = hk_pool.bins[false][hk_lowest_bit32(bins)];
    } else {
        superslab = hk_pool_carve(cls, true);
        if (superslab == NULL)
            return NULL;
    }
    return hk_slots_take(superslab, hk_slots_find(superslab, 1), 1, stage);
}

/* Releases the lock, and populates what was carved. Adds to *grown the bytes of populated slots that were taken. */
static void hk_pool_unlock(size_t *grown)
{
    struct hk_superslab *bare = hk_pool.bare;
    *grown += hk_pool.grown;
    hk_pool.bare = NULL;
    hk_pool.grown = 0;
    hk_lock_release(&hk_pool_lock);
    if (HK_UNLIKELY(bare != NULL))
        hk_huge_pages_populate(bare);
}

unsigned hk_pool_acquire_slots(hk_key key, unsigned cls, struct hk_slab **out, unsigned want, size_t *grown)
{
    uint8_t user = hk_slot_user(key);
    if (hk_lock_try(&hk_pool_lock))
        want = 1;
    else
        hk_lock_acquire(&hk_pool_lock);
    unsigned got = 0;
    for (struct hk_slab *slab = hk_acquire_slot(cls, user); slab != NULL;
         slab = got < want ? hk_acquire_spare(cls, user) : NULL) {
        hk_slots_set_user(slab, 1, user);
        out[got++] = slab;
    }
    hk_pool_unlock(grown);
    return got;
}

/* How many runs of the class, and how many superslabs of each bin, are looked at for a run of slots that all have
 * memory. */
#define HK_RUN_LOOKS 4

/* The bins of superslabs with room for n slots. */
static uint32_t hk_bins_with_room(bool long_runs, unsigned n)
{
    return hk_pool.bins_nonempty[long_runs] & ~hk_low_mask32(n);
}

/* Takes n slots that all have memory; NULL if there are none, or they are not found soon. */
static struct hk_slab *hk_take_empty_run(bool long_runs, unsigned n)
{
    for (uint32_t rest = hk_bins_with_room(long_runs, n); rest != 0; rest &= rest - 1) {
        struct hk_superslab *superslab = hk_pool.bins[long_runs][hk_lowest_bit32(rest)];
        for (unsigned i = 0; superslab != NULL && i < HK_RUN_LOOKS; i++, superslab = superslab->next) {
            uint32_t starts = hk_runs32(superslab->empty, n);
            if (starts != 0) {
                hk_pool_counts.stage1_any_class++;
                return hk_slots_take(superslab, hk_lowest_bit32(starts), n, 1);
            }
        }
    }
    return NULL;
}

/* A long run may come from the superslabs of others, too, where it takes room that is there anyway. */
static struct hk_slab *hk_acquire_run(unsigned cls, uint8_t user)
{
    unsigned n = hk_classes[cls].slots;
    struct hk_slab *fit = NULL, *run = hk_pool.empty[cls];
    bool own = false;
    for (unsigned i = 0; run != NULL && i < HK_RUN_LOOKS && !own; i++, run = run->next) {
        if (run->slots != n)
            continue;
        own = hk_empty_is_of(run, user);
        if (own || fit == NULL)
            fit = run;
    }
    if (fit != NULL) {
        hk_pool_counts.stage1_same_class++;
        return hk_slots_take(fit->superslab, fit->slot, n, 1);
    }
    bool long_run = hk_class_is_long(cls);
    if (hk_pool_counts.slots_empty >= n) {
        struct hk_slab *slab = hk_take_empty_run(long_run, n);
        if (slab == NULL && long_run)
            slab = hk_take_empty_run(false, n);
        if (slab != NULL)
            return slab;
    }
    if (!hk_limit_admit(n * HK_SLOT_SIZE))
        return NULL;
    bool from_long = long_run && hk_bins_with_room(true, n) != 0;
    uint32_t bins = hk_bins_with_room(from_long, n);
    struct hk_superslab *superslab = NULL;
    unsigned stage = 3;
    if (bins == 0 || hk_superslab_counts.cached != 0) /* a cached one has memory, and mostly much of it */
        superslab = hk_pool_carve(cls, false);
    if (superslab == NULL && bins != 0) {
        stage = 2;
        hk_pool_counts.stage2_unused++;
        superslab = hk_pool.bins[from_long][hk_lowest_bit32(bins)];
    }
    return superslab == NULL ? NULL : hk_slots_take(superslab, hk_slots_find(superslab, n), n, stage);
}

struct hk_slab *hk_pool_acquire_run(hk_key key, unsigned cls, size_t *grown)
{
    uint8_t user = hk_slot_user(key);
    hk_lock_acquire(&hk_pool_lock);
    struct hk_slab *slab = hk_acquire_run(cls, user);
    if (slab != NULL)
        hk_slots_set_user(slab, hk_classes[cls].slots, user);
    hk_pool_unlock(grown);
    return slab;
}

/* How many slots of a superslab the slabs of a class can take: the first ones. */
static unsigned hk_class_slots_of_superslab(unsigned cls)
{
    unsigned slots = hk_classes[cls].slots;
    return HK_SLOTS_PER_SUPERSLAB / slots * slots;
}

/* Ends what hk_pool_prewarm has begun with a superslab, which goes to the LRU cache, or is free without memory. */
static void hk_superslab_end_prewarm(struct hk_superslab *superslab, unsigned cls, bool populated)
{
    superslab->active = superslab->purging = 0;
    if (populated) {
        hk_add_visibly(&hk_pool_counts.slots_active, -(size_t)HK_SLOTS_PER_SUPERSLAB);
        unsigned nslots = hk_class_slots_of_superslab(cls);
        hk_slots_set_touched(superslab->table->slots, nslots, nslots * HK_SLOT_SIZE);
    }
    hk_empty_add(superslab, ~0u, cls, hk_clock_now());
    hk_superslab_rebin(superslab);
}

/* Carves a superslab that nobody can take until its prewarming ends, and puts it in front of a list; false without
 * memory. */
static bool hk_superslab_begin_prewarm(unsigned cls, bool populate, struct hk_superslab **list)
{
    bool cached = hk_superslab_counts.cached != 0; /* then it is one of these, which count already */
    if (populate && !cached && !hk_limit_admit(HK_SUPERSLAB_SIZE))
        return false;
    struct hk_superslab *superslab = hk_pool_carve(cls, false);
    if (superslab == NULL)
        return false;
    hk_empty_remove(superslab, ~0u);
    superslab->active = superslab->purging = ~0u; /* both */
    superslab->table->slabs[0].cls = (uint8_t)cls;
    if (populate)
        hk_add_visibly(&hk_pool_counts.slots_active, HK_SLOTS_PER_SUPERSLAB);
    superslab->next = *list;
    *list = superslab;
    return true;
}

size_t hk_pool_prewarm(const struct hk_prewarm *wishes, unsigned nwishes, size_t most, bool populate)
{
    size_t done = 0;
    hk_lock_acquire(&hk_pool_lock);
    struct hk_superslab *begun = NULL; /* all of them first: what has ended would be taken for the next */
    for (unsigned i = 0; i < nwishes; i++)
        for (size_t n = hk_min(wishes[i].superslabs, most - done);
             n > 0 && hk_superslab_begin_prewarm(wishes[i].cls, populate, &begun); n--)
            done++;
    for (struct hk_superslab *superslab = begun, *next; superslab != NULL; superslab = next) {
        next = superslab->next;
        superslab->next = superslab->prev = NULL;
        unsigned cls = superslab->table->slabs[0].cls;
        if (populate) {
            hk_lock_release(&hk_pool_lock); /* it takes too long */
            hk_os_populate(superslab->base, hk_class_slots_of_superslab(cls) * HK_SLOT_SIZE);
            hk_lock_acquire(&hk_pool_lock);
        }
        hk_superslab_end_prewarm(superslab, cls, populate);
    }
    hk_lock_release(&hk_pool_lock);
    return done;
}

/* ---- Giving back ---- */

static void hk_slots_release(struct hk_slab *slab, unsigned nslots)
{
    struct hk_superslab *superslab = slab->superslab;
    hk_trace(HK_TRACE_SLOT, "slot release", {"class", slab->cls}, {"superslab", (uintptr_t)superslab->base},
             {"slot", slab->slot}, {"slots", nslots});
    superslab->active &= ~hk_slots_mask(slab->slot, nslots);
    size_t touched = hk_slots_touched(hk_slab_slots(slab), nslots); /* from the first slot on */
    if (touched != 0)
        hk_empty_begin(superslab, slab->slot, (unsigned)((touched - 1) / HK_SLOT_SIZE) + 1, slab->cls, slab->used_at);
    hk_add_visibly(&hk_pool_counts.slots_active, -(size_t)nslots);
    hk_pool_counts.slot_releases += nslots;
    hk_superslab_rebin(superslab);
}

void hk_pool_release_run(struct hk_slab *slab, unsigned nslots)
{
    hk_lock_acquire(&hk_pool_lock);
    hk_slots_release(slab, nslots);
    hk_lock_release(&hk_pool_lock);
}

void hk_pool_release_slots(struct hk_slab *const *slots, unsigned n)
{
    if (n == 0)
        return;
    hk_lock_acquire(&hk_pool_lock);
    for (unsigned i = 0; i < n; i++)
        hk_slots_release(slots[i], 1);
    hk_lock_release(&hk_pool_lock);
}

/* Purges whole EMPTY runs of one superslab, without the lock, which is held at entry and at exit. */
static size_t hk_superslab_purge_slots(struct hk_superslab *superslab, uint32_t purging)
{
    uint32_t purged = 0;
    hk_huge_pages_end(superslab);
    hk_populated_remove(superslab, purging);
    hk_empty_remove(superslab, purging);
    superslab->purging |= purging;
    hk_superslab_rebin(superslab);
    hk_lock_release(&hk_pool_lock);
    for (uint32_t rest = purging; rest != 0;) {
        unsigned first = hk_lowest_bit32(rest);
        unsigned n = hk_run_length32(rest, first);
        uint32_t span = hk_slots_mask(first, n);
        if (hk_os_purge(superslab->base + first * HK_SLOT_SIZE, n * HK_SLOT_SIZE))
            purged |= span;
        rest &= ~span;
    }
    hk_lock_acquire(&hk_pool_lock);
    superslab->purging &= ~purging;
    hk_empty_add(superslab, purging & ~purged, superslab->table->slabs[hk_lowest_bit32(purging)].cls, hk_clock_now());
    for (uint32_t rest = purged; rest != 0; rest &= rest - 1)
        superslab->table->slots[hk_lowest_bit32(rest)].touched = 0;
    superslab->purged |= purged;
    hk_pool_counts.slots_purged += hk_count_bits32(purged);
    hk_trace(HK_TRACE_PURGE, "purge slots", {"superslab", (uintptr_t)superslab->base},
             {"slots", hk_count_bits32(purged)}, {"failed", hk_count_bits32(purging & ~purged)});
    hk_superslab_rebin(superslab);
    return hk_count_bits32(purged) * HK_SLOT_SIZE;
}

struct hk_slot_purge {
    uint32_t empty_before;
    size_t keep, most; /* bytes */
    bool spare;        /* leaves what was populated: it is growth itself, and soon in use */
};

static size_t hk_empty_to_purge(const struct hk_slot_purge *purge)
{
    return (hk_pool_counts.slots_empty - (purge->spare ? hk_pool_counts.slots_populated : 0)) * HK_SLOT_SIZE;
}

/* Those slots of a superslab that a purge is for. */
static uint32_t hk_slots_to_purge(struct hk_superslab *superslab, const struct hk_slot_purge *purge)
{
    if (superslab->state != HK_SUPERSLAB_CARVED || hk_look(&superslab->populating))
        return 0;
    uint32_t old = 0;
    for (uint32_t rest = superslab->empty; rest != 0;) {
        const struct hk_slab *run = &superslab->table->slabs[hk_lowest_bit32(rest)];
        rest &= ~hk_empty_mask(run);
        if (run->used_at < purge->empty_before)
            old |= hk_empty_mask(run);
    }
    return purge->spare ? old & ~superslab->populated : old;
}

static size_t hk_slots_purge(const struct hk_slot_purge *purge)
{
    size_t bytes = 0;
    struct hk_superslab_cursor cursor = {0};
    hk_lock_acquire(&hk_pool_lock);
    for (struct hk_superslab *superslab; bytes < purge->most && hk_empty_to_purge(purge) > purge->keep &&
                                         (superslab = hk_superslabs_walk(&cursor)) != NULL;) {
        uint32_t slots = hk_slots_to_purge(superslab, purge);
        if (hk_empty_to_purge(purge) - hk_count_bits32(slots) * HK_SLOT_SIZE < purge->keep)
            break;
        if (slots != 0)
            bytes += hk_superslab_purge_slots(superslab, slots);
    }
    hk_lock_release(&hk_pool_lock);
    return bytes;
}

size_t hk_pool_purge(uint32_t empty_before, size_t keep, size_t most)
{
    return hk_slots_purge(&(struct hk_slot_purge){.empty_before = empty_before, .keep = keep, .most = most});
}

size_t hk_pool_pay(size_t keep, size_t most)
{
    return hk_slots_purge(
        &(struct hk_slot_purge){.empty_before = UINT32_MAX, .keep = keep, .most = most, .spare = true});
}

/* ---- Walks ---- */

unsigned hk_superslab_slabs(struct hk_superslab *superslab, struct hk_slab *out[HK_SLOTS_PER_SUPERSLAB])
{
    unsigned n = 0;
    for (uint32_t rest = superslab->state == HK_SUPERSLAB_CARVED ? superslab->active : 0; rest != 0; rest &= rest - 1) {
        struct hk_slab *slab = &superslab->table->slabs[hk_lowest_bit32(rest)];
        if (hk_slab_owner(slab) != NULL && hk_slab_is_first(slab))
            out[n++] = slab;
    }
    return n;
}

unsigned hk_pool_next_slabs(struct hk_superslab_cursor *cursor, struct hk_slab *out[HK_SLOTS_PER_SUPERSLAB])
{
    unsigned n = 0;
    hk_lock_acquire(&hk_pool_lock);
    for (struct hk_superslab *superslab; n == 0 && (superslab = hk_superslabs_walk(cursor)) != NULL;)
        n = hk_superslab_slabs(superslab, out);
    hk_lock_release(&hk_pool_lock);
    return n;
}

void hk_pool_after_fork(void)
{
    struct hk_superslab_cursor cursor = {0};
    for (struct hk_superslab *superslab; (superslab = hk_superslabs_walk(&cursor)) != NULL;) {
        if (superslab->state != HK_SUPERSLAB_CARVED || superslab->purging == 0)
            continue;
        uint32_t purging = superslab->purging;
        unsigned cls = superslab->table->slabs[hk_lowest_bit32(purging)].cls;
        if ((superslab->active & purging) != 0) {
            hk_superslab_end_prewarm(superslab, cls, true);
            continue;
        }
        superslab->purging = 0;
        hk_empty_add(superslab, purging, cls, hk_clock_now());
        hk_superslab_rebin(superslab);
    }
}
