/*
 * Walks every structure of src/heap and compares what each says of the others. For a process at rest: no other thread
 * is inside the allocator. What is private to a file is seen from its neighbours: the free runs and the LRU cache from
 * the superslabs, the pool's bins from the slots.
 */
#ifndef HK_TESTS_HEAP_INVARIANTS_H
#define HK_TESTS_HEAP_INVARIANTS_H

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <cstring>
#include <set>
#include <vector>

#include "c_begin.h"
#include "base/os.h"
#include "heap/heaps.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/mapping_cache.h"
#include "heap/meta.h"
#include "heap/purge.h"
#include "heap/remote.h"
#include "c_end.h"

inline std::vector<hk_superslab *> all_superslabs()
{
    std::vector<hk_superslab *> found;
    for (hk_window *window = hk_window_first(); window != nullptr; window = window->next)
        for (hk_superslab *superslab : window->superslabs)
            if (superslab != nullptr)
                found.push_back(superslab);
    std::sort(found.begin(), found.end(), [](auto a, auto b) { return a->base < b->base; });
    return found;
}

inline std::vector<hk_slab *> all_slabs()
{
    std::vector<hk_slab *> found;
    hk_superslab_cursor cursor{};
    hk_slab *slabs[HK_SLOTS_PER_SUPERSLAB];
    while (unsigned n = hk_pool_next_slabs(&cursor, slabs))
        found.insert(found.end(), slabs, slabs + n);
    return found;
}

inline std::vector<struct hk_heap *> all_heaps()
{
    std::vector<struct hk_heap *> found;
    for (struct hk_heap *heap = hk_heaps; heap != nullptr; heap = heap->next)
        found.push_back(heap);
    return found;
}

/* A heap that is in no list and owns nothing: it only sends what it has freed of others'. */
inline struct hk_heap *somebody()
{
    static hk_thread_heap *const made = [] {
        static hk_thread_heap heap{};
        hk_lock_init(&heap.heap.lock, HK_RANK_HEAP);
        return &heap;
    }();
    return &made->heap;
}

/* Those that have an outbox and parcels. */
inline std::vector<struct hk_heap *> sending_heaps()
{
    std::vector<struct hk_heap *> found = all_heaps();
    found.erase(std::remove(found.begin(), found.end(), &hk_guests), found.end());
    found.erase(std::remove(found.begin(), found.end(), &hk_orphans), found.end());
    found.push_back(somebody());
    return found;
}

/* Free runs are as long as can be, and know their length and memory; the counts are right; the LRU cache is a list of
 * all that is resident, by age. */
inline void check_superslabs()
{
    size_t count[4] = {}, resident = 0, cached = 0, huge = 0;
    hk_superslab *newest = nullptr;
    for (hk_superslab *superslab : all_superslabs()) {
        SCOPED_TRACE(testing::Message() << "superslab " << static_cast<void *>(superslab->base));
        ASSERT_EQ(hk_superslab_of(superslab->base), superslab);
        ASSERT_LE(superslab->state, HK_SUPERSLAB_PURGING);
        count[superslab->state]++;
        huge += superslab->huge;
        EXPECT_FALSE(superslab->huge && superslab->state == HK_SUPERSLAB_LARGE) << "part of a large block";
        EXPECT_TRUE(superslab->committed || superslab->state == HK_SUPERSLAB_FREE) << "in use without access";
        if (superslab->state != HK_SUPERSLAB_FREE) {
            EXPECT_FALSE(superslab->resident) << "in use and in the cache";
            continue;
        }
        if (superslab->resident) {
            EXPECT_FALSE(superslab->zero);
            resident++;
            if (superslab->newer == nullptr) {
                EXPECT_EQ(newest, nullptr);
                newest = superslab;
            }
        }
        hk_superslab *before = hk_superslab_of(superslab->base - HK_SUPERSLAB_SIZE);
        if (before != nullptr && before->state == HK_SUPERSLAB_FREE)
            continue; /* not the first of its run */
        uint32_t length = 0, with_memory = 0;
        hk_superslab *last = superslab;
        for (hk_superslab *s = superslab; s != nullptr && s->state == HK_SUPERSLAB_FREE; s = hk_superslab_next(s, 1)) {
            length++;
            with_memory += s->resident;
            last = s;
        }
        EXPECT_EQ(superslab->run, length);
        EXPECT_EQ(last->run, length);
        EXPECT_EQ(superslab->run_resident, with_memory);
    }
    EXPECT_EQ(count[HK_SUPERSLAB_CARVED], hk_superslab_counts.carved);
    EXPECT_EQ(count[HK_SUPERSLAB_LARGE], hk_superslab_counts.large);
    EXPECT_EQ(count[HK_SUPERSLAB_FREE] + count[HK_SUPERSLAB_PURGING], hk_superslab_counts.free);
    EXPECT_EQ(count[0] + count[1] + count[2] + count[3], hk_superslab_counts.reserved);
    EXPECT_EQ(resident, hk_superslab_counts.cached);
    EXPECT_EQ(huge, hk_superslab_counts.huge);
    for (hk_superslab *s = newest; s != nullptr; s = s->older) {
        cached++;
        if (s->older != nullptr) {
            EXPECT_EQ(s->older->newer, s);
            EXPECT_LE(s->older->freed_at_ms, s->freed_at_ms);
        }
        ASSERT_LE(cached, resident) << "the cache's list does not end";
    }
    EXPECT_EQ(cached, resident);
}

inline unsigned longest_run(uint32_t bits)
{
    unsigned best = 0, run = 0;
    for (unsigned i = 0; i < 32; i++) {
        run = ((bits >> i) & 1) != 0 ? run + 1 : 0;
        best = std::max(best, run);
    }
    return best;
}

/* Each EMPTY slot knows the first of its run, which knows how many follow. */
inline void check_empty_runs(const hk_superslab *superslab)
{
    for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++) {
        if (((superslab->empty >> i) & 1) == 0)
            continue;
        unsigned distance = superslab->table->slots[i].head;
        ASSERT_LE(distance, i);
        EXPECT_LT(distance, superslab->table->slabs[i - distance].slots) << "slot " << i;
        if (distance == 0) {
            uint32_t run = hk_low_mask32(superslab->table->slabs[i].slots) << i;
            EXPECT_EQ(superslab->empty & run, run) << "the run of slot " << i << " has gaps";
        } else {
            EXPECT_EQ(superslab->table->slots[i - 1].head, distance - 1) << "slot " << i;
        }
    }
}

/* Each slot is in one state, each superslab in the bin of its longest run of free slots; keys say what slots are. */
inline void check_pool()
{
    size_t active = 0, empty = 0, populated = 0;
    for (hk_superslab *superslab : all_superslabs()) {
        SCOPED_TRACE(testing::Message() << "superslab " << static_cast<void *>(superslab->base));
        if (superslab->state == HK_SUPERSLAB_FREE && superslab->table != nullptr && !superslab->zero &&
            !superslab->was_large) { /* it knows what was EMPTY */
            for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++)
                EXPECT_EQ((superslab->empty >> i) & 1, superslab->table->slots[i].touched != 0) << "slot " << i;
            check_empty_runs(superslab);
        }
        if (superslab->state != HK_SUPERSLAB_CARVED)
            continue;
        EXPECT_EQ(superslab->active & superslab->empty, 0u);
        EXPECT_EQ(superslab->active & superslab->purging, 0u);
        EXPECT_EQ(superslab->empty & superslab->purging, 0u);
        EXPECT_EQ(superslab->populated & ~superslab->empty, 0u);
        EXPECT_NE(superslab->active | superslab->purging, 0u) << "a superslab without slots in use is not given back";
        EXPECT_EQ(superslab->bin, longest_run(~(superslab->active | superslab->purging)));
        active += hk_count_bits32(superslab->active);
        empty += hk_count_bits32(superslab->empty);
        populated += hk_count_bits32(superslab->populated);
        for (unsigned i = 0; i < HK_SLOTS_PER_SUPERSLAB; i++) {
            hk_slab *slab = &superslab->table->slabs[i];
            ASSERT_EQ(slab->superslab, superslab);
            ASSERT_EQ(slab->slot, i);
            if (hk_slab_owner(slab) != nullptr && superslab->long_runs) {
                EXPECT_GE(hk_slab_class(slab)->slots, 8) << "slot " << i;
            }
            if (((superslab->active >> i) & 1) == 0) {
                EXPECT_EQ(hk_slab_owner(slab), nullptr) << "slot " << i << " is free and has an owner";
                ASSERT_LT(slab->cls, HK_NCLASSES);
                EXPECT_EQ(superslab->table->slots[i].absent_pages, 0u) << "slot " << i;
                EXPECT_EQ(((superslab->empty | superslab->purging) >> i) & 1, superslab->table->slots[i].touched != 0)
                    << "slot " << i;
            }
        }
        check_empty_runs(superslab);
    }
    EXPECT_EQ(active, hk_pool_counts.slots_active);
    EXPECT_EQ(empty, hk_pool_counts.slots_empty);
    EXPECT_EQ(populated, hk_pool_counts.slots_populated);
}

inline unsigned expected_bin(hk_slab *slab)
{
    unsigned nblocks = hk_slab_class(slab)->nblocks;
    return slab->nfree == 0             ? HK_BIN_FULL
           : hk_slab_nidle(slab) == 0   ? HK_BIN_UNBACKED
           : slab->nfree * 4u < nblocks ? HK_BIN_QUARTER
           : slab->nfree * 2u < nblocks ? HK_BIN_HALF
                                        : HK_BIN_MOST;
}

/* What a slab says of its pages and free blocks, counted from each block's address. All blocks that touch an absent
 * page are free, and one of them was handed out before; free blocks are fresh, absent or idle, and the slab knows how
 * many.
 * some_out: the pages of some are on their way to the OS, so they are neither free nor handed out. */
inline void check_holes(hk_slab *slab, bool some_out)
{
    const hk_class *c = hk_slab_class(slab);
    const size_t page_size = hk_os_page_size(), pages_per_slot = HK_SLOT_SIZE / page_size;
    auto is_absent = [&](size_t page) {
        return ((hk_slab_slots(slab)[page / pages_per_slot].absent_pages >> (page % pages_per_slot)) & 1) != 0;
    };
    size_t absent_pages = 0;
    for (size_t page = 0; page < slab->slots * pages_per_slot; page++)
        absent_pages += is_absent(page);
    if (absent_pages != 0) {
        EXPECT_TRUE(slab->holed);
    }
    const char *slots = slab->superslab->base + slab->slot * HK_SLOT_SIZE;
    size_t first = static_cast<size_t>(slab->blocks - slots), nabsent = 0, nidle = 0;
    std::set<size_t> known; /* absent pages on which there was a block */
    for (unsigned i = 0; i < c->nblocks; i++) {
        bool is_free = ((slab->free[i / HK_WORD_BITS] >> (i % HK_WORD_BITS)) & 1) != 0;
        bool on_absent = false;
        size_t begin = first + size_t{i} * c->size;
        for (size_t page = begin / page_size; absent_pages != 0 && page <= (begin + c->size - 1) / page_size; page++)
            if (is_absent(page)) {
                on_absent = true;
                EXPECT_TRUE(is_free || some_out) << "block " << i << " is handed out, and page " << page << " absent";
                if (i < slab->fresh_from)
                    known.insert(page);
            }
        bool fresh = i >= slab->fresh_from;
        nabsent += is_free && !fresh && on_absent;
        nidle += is_free && !fresh && !on_absent;
    }
    EXPECT_EQ(known.size(), absent_pages) << "absent pages on which no block was handed out before";
    EXPECT_EQ(slab->nabsent, nabsent);
    EXPECT_EQ(hk_slab_nidle(slab), nidle);
}

/* A slab's own invariants, its keys, and that all its slots lead to it. */
inline void check_slab(hk_slab *slab, bool some_out = false)
{
    hk_slab_check(slab);
    check_holes(slab, some_out);
    struct hk_heap *owner = hk_slab_owner(slab);
    ASSERT_NE(owner, nullptr);
    const hk_class *c = hk_slab_class(slab);
    EXPECT_EQ(slab->slots, c->slots);
    EXPECT_LE(slab->fresh_from, c->nblocks);
    char *first = slab->superslab->base + slab->slot * HK_SLOT_SIZE;
    for (unsigned i = 0; i < slab->slots; i++) {
        EXPECT_EQ(hk_key_of(first + i * HK_SLOT_SIZE), owner->key | slab->cls) << "key of slot " << i;
        EXPECT_EQ(hk_slab_of(first + i * HK_SLOT_SIZE), slab) << "slot " << i;
        EXPECT_NE(slab->superslab->active & (1u << (slab->slot + i)), 0u) << "slot " << i << " is not ACTIVE";
    }
}

/* Every slab is where its owner finds it, by its number of free blocks; the counts of slabs and the sums of idle bytes
 * are right. */
inline void check_heaps()
{
    /* By owner and class: slabs, and slabs with free blocks. */
    std::map<struct hk_heap *, std::map<unsigned, uint32_t>> nslabs, with_blocks;
    std::map<struct hk_heap *, size_t> idle_bytes;
    size_t all_idle_bytes = 0, slots = 0, warm = 0;
    for (hk_slab *slab : all_slabs()) {
        check_slab(slab);
        slots += slab->slots;
        nslabs[hk_slab_owner(slab)][slab->cls]++;
        EXPECT_EQ(slab->idle_counted, hk_slab_nidle(slab));
        idle_bytes[hk_slab_owner(slab)] += size_t{hk_slab_nidle(slab)} * hk_slab_class(slab)->size;
        with_blocks[hk_slab_owner(slab)][slab->cls] += slab->bin != HK_BIN_FULL;
        if (slab->bin != HK_BIN_CURRENT) {
            EXPECT_EQ(slab->bin, expected_bin(slab));
        }
    }
    for (struct hk_heap *heap : all_heaps()) {
        hk_heap_check(heap);
        EXPECT_EQ(heap->idle_bytes, idle_bytes[heap]) << "heap " << (heap->key >> HK_KEY_SHIFT);
        all_idle_bytes += idle_bytes[heap];
        warm += heap->warm.n;
        if (heap == &hk_guests || heap == &hk_orphans) {
            EXPECT_EQ(heap->warm.n, 0) << "nobody would use them";
        }
        for (unsigned i = 0; i < HK_NCLASSES; i++) {
            hk_heap_class &c = heap->classes[i];
            EXPECT_EQ(c.nslabs, nslabs[heap][i]) << "heap " << (heap->key >> HK_KEY_SHIFT) << ", class " << i;
            size_t found = 0;
            if (c.current != nullptr) {
                EXPECT_EQ(c.current->bin, HK_BIN_CURRENT);
                EXPECT_EQ(hk_slab_owner(c.current), heap);
                found++;
            }
            for (unsigned bin = HK_BIN_QUARTER; bin < HK_NBINS; bin++) {
                const hk_slab *before = nullptr;
                for (hk_slab *slab = c.bins[bin]; slab != nullptr; before = slab, slab = slab->next) {
                    EXPECT_EQ(slab->prev, before);
                    found++;
                }
            }
            EXPECT_EQ(found, with_blocks[heap][i]) << "slabs in bins, and slabs that say so";
        }
    }
    EXPECT_EQ(hk_heaps_idle_bytes(), all_idle_bytes);
    EXPECT_EQ(slots + warm, hk_pool_counts.slots_active) << "slots in use without a slab are a heap's warm ones";
}

/* Each parcel that was ever used is in one place: the stock or the returned stack of its home, empty; or in a reserve
 * of its home or pending for some heap, and not empty. The blocks in them and in outboxes are live, and there once. For
 * tests that free no block twice. */
inline void check_parcels()
{
    std::set<const hk_parcel *> seen;
    std::set<const void *> kept;
    auto check_block = [&](const void *p) {
        ASSERT_TRUE(kept.insert(p).second) << p << " is there twice";
        hk_slab *slab = nullptr;
        unsigned index = 0;
        hk_fault fault{};
        ASSERT_TRUE(hk_slab_of_or_fault(p, &slab, &fault) && hk_slab_index(slab, p, &index, &fault))
            << p << " is no block";
        EXPECT_FALSE(hk_slab_is_free(slab, index)) << p << " is free, and kept";
    };
    auto check_stack = [&](const hk_parcel *parcel, const char *where, const struct hk_heap *home, bool empty) {
        SCOPED_TRACE(where);
        for (; parcel != nullptr; parcel = parcel->next) {
            ASSERT_TRUE(seen.insert(parcel).second) << "a parcel is in two places";
            const hk_parcel *first = hk_parcels_of(parcel->home);
            ASSERT_GE(parcel, first);
            ASSERT_LT(parcel, first + parcel->home->parcels_begun) << "was never begun";
            if (home != nullptr) {
                EXPECT_EQ(parcel->home, home);
            }
            EXPECT_EQ(parcel->count == 0, empty);
            ASSERT_LE(parcel->count, HK_PARCEL_BLOCKS);
            for (unsigned i = 0; i < parcel->count; i++)
                check_block(parcel->blocks[i]);
        }
    };
    size_t begun = 0;
    for (const struct hk_heap *heap : all_heaps())
        check_stack(heap->pending, "pending", nullptr, false);
    for (struct hk_heap *heap : sending_heaps()) {
        EXPECT_LE(heap->parcels_begun, HK_PARCELS);
        begun += heap->parcels_begun;
        check_stack(heap->stock, "in stock", heap, true);
        check_stack(heap->returned, "returned", heap, true);
        size_t reserved = 0;
        for (unsigned i = 0; i < HK_NCLASSES; i++) {
            const hk_parcel *reserve = heap->classes[i].reserve;
            check_stack(reserve, "in reserve", heap, false);
            for (; reserve != nullptr; reserve = reserve->next, reserved++)
                for (unsigned block = 0; block < reserve->count; block++)
                    EXPECT_EQ(hk_key_of(reserve->blocks[block]), heap->key | i);
        }
        EXPECT_EQ(reserved, heap->parcels_reserved);
        for (unsigned i = 0; i < HK_OUTBOX_BLOCKS; i++)
            if (const void *p = hk_outbox_of(heap)[i])
                check_block(p);
    }
    EXPECT_EQ(seen.size(), begun) << "parcels that are nowhere";
}

/* While nobody maps or unmaps. */
inline void check_large()
{
    hk_large_counts counts = hk_large_read_counts();
    EXPECT_EQ(hk_mapped_bytes(), counts.mapping_bytes + counts.cached_bytes);
}

inline void check_everything()
{
    check_large();
    check_superslabs();
    check_pool();
    check_heaps();
    check_parcels();
}

#endif
