/*
 * A heap: which block is taken, what is refused, which slabs are kept, which classes are the guests'.
 */
#include "test_heap.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace
{

class Heap : public HeapTest
{
};

/* ---- Refill and flush ---- */

TEST_F(Heap, HandsOutLowestAddressesFirst)
{
    TestHeap heap;
    std::vector<void *> blocks;
    for (int i = 0; i < 100; i++)
        blocks.push_back(heap.alloc(k64));
    for (size_t i = 1; i < blocks.size(); i++)
        EXPECT_EQ(static_cast<char *>(blocks[i]), static_cast<char *>(blocks[i - 1]) + 64);
    EXPECT_EQ(heap.give(blocks).kind, HK_FAULT_NONE);
    heap.flush(k64);
}

TEST_F(Heap, RefillsFromTheFullestSlabFirst)
{
    TestHeap heap;
    std::vector<void *> emptier = heap.take_slab(k1024), fuller = heap.take_slab(k1024),
                        current = heap.take_slab(k1024);
    heap.give({emptier.begin() + 10, emptier.begin() + 50});
    heap.give({fuller.begin() + 20, fuller.begin() + 25});
    EXPECT_EQ(hk_slab_of(emptier[0])->bin, HK_BIN_MOST);
    EXPECT_EQ(hk_slab_of(fuller[0])->bin, HK_BIN_QUARTER);
    for (size_t i = 20; i < 25; i++)
        EXPECT_EQ(heap.take_one(k1024), fuller[i]);
    for (size_t i = 10; i < 50; i++)
        EXPECT_EQ(heap.take_one(k1024), emptier[i]);
    for (auto *blocks : {&emptier, &fuller, &current})
        heap.give(*blocks);
}

/* The slots of the last slabs that became empty stay with the heap, and serve its next slabs of whatever class. */
TEST_F(Heap, KeepsAFewSlotsWarm)
{
    TestHeap heap;
    std::vector<void *> pin = heap.take_slab(k1024);
    std::vector<std::vector<void *>> slabs(HK_WARM_SLOTS + 1);
    for (auto &blocks : slabs)
        blocks = heap.take_slab(k1024);
    hk_slab *last_kept = hk_slab_of(slabs[HK_WARM_SLOTS][0]);
    heap.give({pin[0]}); /* so that no empty slab is kept as the class's last */
    size_t releases = hk_pool_counts.slot_releases, hits = heap->counts.warm_hits;
    for (auto &blocks : slabs) {
        EXPECT_EQ(hk_pool_counts.slot_releases, releases);
        heap.give(blocks);
    }
    EXPECT_EQ(hk_pool_counts.slot_releases, releases + 1) << "the oldest made room for the last";
    EXPECT_EQ(heap->warm.n, HK_WARM_SLOTS);
    void *p = heap.take_one(k64);
    EXPECT_EQ(hk_slab_of(p), last_kept);
    EXPECT_EQ(heap->warm.n, HK_WARM_SLOTS - 1);
    EXPECT_EQ(heap->counts.warm_hits, hits + 1);
    heap.give({p});
    heap.give({pin.begin() + 1, pin.end()});
}

/* Does what takes the pool's lock while another thread holds it until it sees that somebody waits for it. */
template <typename Work> void while_contended(Work work)
{
    std::atomic<bool> held = false;
    std::thread other([&held] {
        HeldLock pool(&hk_pool_lock);
        held = true;
        auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (__atomic_load_n(&hk_pool_lock.word, __ATOMIC_RELAXED) != 2) { /* held, and waited for */
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "nobody wants the lock";
            std::this_thread::yield();
        }
    });
    while (!held)
        std::this_thread::yield();
    work();
    other.join();
}

/* Slabs of a heap, one block of the first of which is free between calls, so that no empty slab is kept as the class's
 * last. */
class Slabs
{
  public:
    Slabs(TestHeap &heap, size_t n) : heap_(heap), first_(heap.take_slab(k1024))
    {
        heap_.give({first_[0]});
        take(n - 1);
    }
    ~Slabs()
    {
        give(others_.size());
        heap_.give({first_.begin() + 1, first_.end()});
    }
    Slabs(const Slabs &) = delete;
    Slabs &operator=(const Slabs &) = delete;
    void take(size_t n)
    {
        EXPECT_EQ(heap_.take_one(k1024), first_[0]);
        for (; n > 0; n--)
            others_.push_back(heap_.take_slab(k1024));
        heap_.give({first_[0]});
    }
    void give(size_t n)
    {
        for (; n > 0; n--) {
            heap_.give(others_.back());
            others_.pop_back();
        }
    }
    void take_warm() { take(heap_->warm.n); }

  private:
    TestHeap &heap_;
    std::vector<void *> first_;
    std::vector<std::vector<void *>> others_;
};

/* A heap that meets others at the pool's lock fetches spare slots, and has room for twice as many the next time; but
 * none that nobody has used yet, and no more than an eighth of the slots of its slabs. */
TEST_F(Heap, KeepsMoreSlotsWarmWhereThePoolIsContended)
{
    TestHeap heap;
    Slabs slabs(heap, 1);
    while_contended([&] { slabs.take(1); });
    EXPECT_EQ(heap->warm.n, 0) << "no slot was EMPTY";

    slabs.take(8 * 2 * HK_WARM_SLOTS + 36);
    slabs.give(36);
    slabs.take_warm();
    while_contended([&] { slabs.take(1); });
    EXPECT_EQ(heap->warm.n, HK_WARM_SLOTS - 1);
    EXPECT_EQ(heap->warm.doubled, 1);
    slabs.take_warm();
    while_contended([&] { slabs.take(1); });
    EXPECT_EQ(heap->warm.n, 2 * HK_WARM_SLOTS - 1);
    EXPECT_EQ(heap->warm.doubled, 1) << "an eighth of its slots";
    for (int i = 0; i < 8; i++) {
        slabs.give(1);
        EXPECT_LE(heap->warm.n, 2 * HK_WARM_SLOTS);
    }
    slabs.take_warm();
    slabs.take(1);
    EXPECT_EQ(heap->warm.n, 0);
    EXPECT_EQ(heap->warm.doubled, 0) << "nobody was met";
}

TEST_F(Heap, NeverHasRoomForMoreWarmSlotsThanTheMost)
{
    TestHeap heap;
    Slabs slabs(heap, 8 * 2 * HK_WARM_SLOTS_MAX + 76);
    slabs.give(76);
    for (int i = 0; i < 4; i++) {
        slabs.take_warm();
        while_contended([&] { slabs.take(1); });
        EXPECT_LT(heap->warm.n, HK_WARM_SLOTS_MAX);
    }
    EXPECT_EQ(heap->warm.n, HK_WARM_SLOTS_MAX - 1);
    {
        HeldLock held(&heap->lock);
        hk_heap_release_warm(heap.get());
    }
    EXPECT_EQ(heap->warm.n, 0);
    EXPECT_EQ(heap->warm.doubled, 0);
}

/* Purging is due when a slab has become empty, whoever keeps its slot. */
TEST_F(Heap, SaysThatASlabWasReleased)
{
    TestHeap heap;
    std::vector<void *> pin = heap.take_slab(k1024), blocks = heap.take_slab(k1024);
    heap.give({pin[0]});
    heap->released = false;
    heap.give(blocks);
    EXPECT_EQ(heap->warm.n, 1);
    EXPECT_TRUE(heap->released);
    heap.give({pin.begin() + 1, pin.end()});
}

/* A slab of 16 bytes uses half a slot: it would give back what another class has touched of the rest, each time. */
TEST_F(Heap, KeepsNoSlotWarmWhoseEndWouldComeAndGo)
{
    constexpr unsigned k16 = 0;
    ASSERT_TRUE(hk_class_has_tail(k16));
    ASSERT_FALSE(hk_class_has_tail(k64));
    TestHeap heap;
    std::vector<void *> pin = heap.take_slab(k16), blocks = heap.take_slab(k16);
    heap.give({pin[0]});
    heap.give(blocks);
    EXPECT_EQ(heap->warm.n, 0);
    std::vector<void *> other_pin = heap.take_slab(k1024), others = heap.take_slab(k1024);
    heap.give({other_pin[0]});
    heap.give(others);
    EXPECT_EQ(heap->warm.n, 1);
    EXPECT_EQ(heap.take_one(k16), pin[0]);
    while_contended([&] { blocks = heap.take_slab(k16); });
    EXPECT_EQ(heap->warm.n, 1);
    heap.give(blocks);
    heap.give(pin);
    heap.give({other_pin.begin() + 1, other_pin.end()});
}

TEST_F(Heap, GuestsKeepNoSlotWarm)
{
    std::vector<void *> blocks(2 * hk_classes[k1024].nblocks);
    hk_fault fault{};
    HeldLock held(&hk_guests.lock);
    unsigned left = static_cast<unsigned>(blocks.size());
    while_contended([&] {
        while (left > 0)
            left -= hk_heap_take(&hk_guests, k1024, blocks.data() + left, left, nullptr, &fault);
    });
    EXPECT_EQ(hk_magazine_accept(&hk_guests, blocks.data(), static_cast<unsigned>(blocks.size()), nullptr, &fault), 0u);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    EXPECT_EQ(hk_guests.warm.n, 0);
}

/* What lies behind the block that emptied a slab is looked up anew, though it lies in the same slot. */
TEST_F(Heap, ForgetsASlabThatItHasReleased)
{
    TestHeap heap;
    std::vector<void *> pin = heap.take_slab(k1024), blocks = heap.take_slab(k1024);
    heap.give({pin[0]});
    blocks.push_back(blocks[0]);
    EXPECT_EQ(heap.give(blocks).kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(hk_slab_of(blocks[0]), nullptr);
    heap.give({pin.begin() + 1, pin.end()});
}

TEST_F(Heap, HandsOutUsedBlocksBeforeThoseThatWereNeverUsed)
{
    TestHeap heap;
    std::vector<void *> used = heap.take_slab(k1024), begun = heap.take(k1024, 10);
    ASSERT_NE(hk_slab_of(begun[0]), hk_slab_of(used[0]));
    heap.give({used.begin() + 3, used.begin() + 7});
    for (size_t i = 3; i < 7; i++)
        EXPECT_EQ(heap.take_one(k1024), used[i]);
    void *fresh = heap.take_one(k1024);
    EXPECT_EQ(fresh, static_cast<char *>(begun[9]) + 1024);
    check_everything();
    heap.give(used);
    heap.give(begun);
    heap.give({fresh});
}

/* What a magazine takes beyond need would be in use before what others of its slabs have free. */
TEST_F(Heap, MixesNoNeverUsedBlocksWithUsedOnes)
{
    TestHeap heap;
    std::vector<void *> used = heap.take_slab(k1024), begun = heap.take(k1024, 10);
    heap.give({begun[2], begun[3]});
    heap.give({used.begin() + 3, used.begin() + 7});
    std::vector<void *> taken(20);
    hk_fault fault{};
    {
        HeldLock held(&heap->lock);
        ASSERT_EQ(hk_heap_take(heap.get(), k1024, taken.data() + 20, 20, nullptr, &fault), 6u);
        EXPECT_EQ(std::vector<void *>(taken.rbegin(), taken.rbegin() + 6),
                  std::vector<void *>({begun[2], begun[3], used[3], used[4], used[5], used[6]}));
        ASSERT_EQ(hk_heap_take(heap.get(), k1024, taken.data() + 14, 14, nullptr, &fault), 14u);
        EXPECT_EQ(taken[13], static_cast<char *>(begun[9]) + 1024);
    }
    check_everything();
    heap.give(used);
    heap.give(begun);
    heap.give({taken.begin(), taken.begin() + 14});
}

TEST_F(Heap, KnowsWhichBlocksWereNeverHandedOut)
{
    TestHeap heap;
    bool fresh = false;
    void *first = heap.take_one(k64, &fresh), *second = heap.take_one(k64, &fresh);
    EXPECT_TRUE(fresh);
    heap.give({first});
    EXPECT_EQ(heap.take_one(k64, &fresh), first);
    EXPECT_FALSE(fresh) << "it was handed out before";
    heap.give({first, second});
}

/* ---- Faults ---- */

TEST_F(Heap, RefusesWhatIsNoBlock)
{
    TestHeap heap;
    std::vector<void *> blocks = heap.take(k64, 5);
    auto *p = static_cast<char *>(blocks[2]);
    int local;
    const struct {
        void *p;
        hk_fault_kind kind;
    } wrong[] = {
        {p + 1, HK_FAULT_INSIDE},
        {p + 16, HK_FAULT_INSIDE},
        {&local, HK_FAULT_FOREIGN},
        {reinterpret_cast<void *>(UINTPTR_MAX), HK_FAULT_FOREIGN},
        {reinterpret_cast<void *>(16), HK_FAULT_FOREIGN},
        {reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(p) | 1ull << 60), HK_FAULT_FOREIGN},
    };
    for (const auto &w : wrong) {
        /* Good blocks before and after it are taken back all the same. */
        hk_fault fault = heap.give({blocks[0], w.p, blocks[1]});
        EXPECT_EQ(fault.kind, w.kind) << w.p;
        EXPECT_EQ(fault.ptr, w.p);
        EXPECT_TRUE(is_free(blocks[0]));
        EXPECT_TRUE(is_free(blocks[1]));
        ASSERT_EQ(heap.take(k64, 2), (std::vector<void *>{blocks[0], blocks[1]}));
    }
    hk_fault fault = heap.give({p + 16});
    EXPECT_EQ(fault.block, p);
    EXPECT_EQ(fault.block_size, 64u);
    EXPECT_EQ(heap.give({p, p}).kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(heap.give({p}).kind, HK_FAULT_DOUBLE_FREE);
    heap.give({blocks[0], blocks[1], blocks[3], blocks[4]});
}

TEST_F(Heap, KnowsAnAddressWhoseSlabIsGone)
{
    TestHeap heap;
    void *p = heap.take_one(kRun);
    heap.give({p}); /* the slab of a run is not kept */
    ASSERT_EQ(hk_key_kind(hk_key_of(p)), static_cast<unsigned>(HK_KEY_GONE));
    hk_fault fault = heap.give({p});
    EXPECT_EQ(fault.kind, HK_FAULT_DOUBLE_FREE);
    EXPECT_EQ(fault.block_size, hk_classes[kRun].size);
}

/* ---- Slabs that become empty ---- */

TEST_F(Heap, KeepsTheLastSlabOfAClassOnly)
{
    TestHeap heap;
    std::vector<void *> first = heap.take_slab(k1024), second = heap.take_slab(k1024);
    hk_slab *kept = hk_slab_of(second[0]);
    heap.give(first);
    EXPECT_EQ(heap->classes[k1024].nslabs, 2u) << "all that the class has free is in it";
    heap.give(second);
    EXPECT_EQ(heap->classes[k1024].nslabs, 1u);
    hk_slab *left =
        heap->classes[k1024].current != nullptr ? heap->classes[k1024].current : heap->classes[k1024].bins[HK_BIN_MOST];
    EXPECT_TRUE(left == kept || left == hk_slab_of(first[0]));
    void *again = heap.take_one(k1024);
    EXPECT_EQ(heap->classes[k1024].nslabs, 1u);
    heap.give({again});
    void *run = heap.take_one(kRun);
    heap.give({run});
    EXPECT_EQ(heap->classes[kRun].nslabs, 0u) << "a run of slots is not kept";
}

/* ---- Guests ---- */

TEST_F(Heap, IsAGuestForAClassUntilThatIsBusy)
{
    TestHeap heap;
    HeldLock held(&heap->lock);
    unsigned allowed = 0;
    while (allowed < 1000 && hk_heap_count_guest_alloc(heap.get(), k64))
        allowed++;
    EXPECT_GT(allowed, 0u);
    EXPECT_LT(allowed, 1000u);
    EXPECT_TRUE(hk_heap_count_guest_alloc(heap.get(), k1024)) << "another class";
    heap->budget.exchanges += 1000000;
    EXPECT_TRUE(hk_heap_count_guest_alloc(heap.get(), k64)) << "what was long ago does not count";
    heap->budget.exchanges -= 1000000;
    heap->classes[k64].guest_allocs = 0;
}

/* Once a heap made a slow path, and so a step towards "long ago", of each call for a class that was a guest. */
TEST_F(Heap, ManyClassesInTurnDoNotKeepEachOtherGuests)
{
    TestHeap heap;
    HeldLock held(&heap->lock);
    unsigned guests = 1;
    for (unsigned round = 0; round < 1000 && guests > 0; round++) {
        guests = 0;
        for (unsigned c = 0; c < HK_NCLASSES; c++) {
            heap->tick += 2;
            guests += hk_heap_count_guest_alloc(heap.get(), c);
        }
    }
    EXPECT_EQ(guests, 0u);
    for (unsigned c = 0; c < HK_NCLASSES; c++)
        heap->classes[c].guest_allocs = 0;
}

/* The slab of a large block ends with it. */
TEST_F(Heap, IsNoGuestAgainBecauseItsSlabEnds)
{
    TestHeap heap;
    {
        HeldLock held(&heap->lock);
        while (hk_heap_count_guest_alloc(heap.get(), kRun)) {}
    }
    void *p = heap.take_one(kRun);
    heap.give({p});
    HeldLock held(&heap->lock);
    EXPECT_EQ(heap->classes[kRun].nslabs, 0u);
    EXPECT_FALSE(hk_heap_count_guest_alloc(heap.get(), kRun));
    heap->classes[kRun].guest_allocs = 0;
}

TEST_F(Heap, AClassTakesItsSlabsFromTheGuestsWithIt)
{
    constexpr unsigned kBlocks = 100; /* of two slabs */
    hk_fault fault{};
    std::vector<void *> guests(kBlocks);
    {
        HeldLock held(&hk_guests.lock);
        for (void *&p : guests)
            p = hk_heap_take_one(&hk_guests, k1024, nullptr, &fault);
        ASSERT_EQ(hk_guests.classes[k1024].nslabs, 2u);
        ASSERT_EQ(hk_magazine_accept(&hk_guests, guests.data(), 1, nullptr, &fault), 0u);
    }
    TestHeap heap;
    std::vector<void *> blocks;
    while (heap->classes[k1024].nslabs < 3)
        blocks.push_back(heap.take_one(k1024));
    EXPECT_EQ(blocks.size(), 2 * hk_classes[k1024].nblocks - kBlocks + 2) << "all that the guests' slabs had";
    EXPECT_EQ(heap->counts.slabs_adopted, 2u);
    EXPECT_EQ(hk_guests.classes[k1024].nslabs, 0u);
    heap.give({guests.begin() + 1, guests.end()});
    heap.give(blocks);
}

/* ---- Statistics on the way ---- */

TEST_F(Heap, CountsWhatItDoes)
{
    TestHeap heap;
    hk_heap_counts before = heap->counts;
    std::vector<void *> blocks;
    for (int i = 0; i < 100; i++)
        blocks.push_back(heap.alloc(k64));
    EXPECT_EQ(heap->counts.refilled_blocks - before.refilled_blocks, 100 + heap.in_magazine(k64));
    EXPECT_GT(heap->counts.refills, before.refills);
    for (void *p : blocks)
        heap.free(k64, p);
    heap.flush(k64);
    EXPECT_EQ(heap->counts.flushed_blocks - before.flushed_blocks,
              heap->counts.refilled_blocks - before.refilled_blocks);
    EXPECT_EQ(heap->counts.slabs_opened - before.slabs_opened, 1u);
}

/* ---- At random ---- */

TEST_F(Heap, StaysInOrderWhateverHappens)
{
    constexpr size_t kHeaps = 4;
    constexpr unsigned kClasses[] = {0, k64, k1024, 47, 52, kRun, 62, 81, 83};
    uint64_t random = 42;
    auto below = [&random](uint64_t n) {
        random = random * 6364136223846793005 + 1442695040888963407;
        return (random >> 33) % n;
    };
    std::vector<std::unique_ptr<TestHeap>> heaps;
    for (size_t i = 0; i < kHeaps; i++)
        heaps.push_back(std::make_unique<TestHeap>());
    std::vector<std::pair<unsigned, void *>> live;
    std::set<void *> seen;
    auto free_one = [&](size_t at) {
        auto [size_class, p] = live[at];
        live[at] = live.back();
        live.pop_back();
        ASSERT_EQ(seen.erase(p), 1u);
        TestHeap &heap = *heaps[below(kHeaps)];
        hk_fault fault = hk_slab_owner(hk_slab_of(p)) == heap.get() ? heap.free(size_class, p)
                         : below(4) == 0                            ? free_remotely(p)
                                                                    : heap.free_to_other(p);
        ASSERT_EQ(fault.kind, HK_FAULT_NONE);
    };
    for (int step = 0; step < 40000 / HK_TEST_SLOWDOWN; step++) {
        TestHeap &heap = *heaps[below(kHeaps)];
        unsigned size_class = kClasses[below(std::size(kClasses))];
        unsigned what = static_cast<unsigned>(below(100));
        if (what < 50 && live.size() < 3000) {
            void *p = heap.alloc(size_class);
            ASSERT_NE(p, nullptr);
            ASSERT_TRUE(seen.insert(p).second) << "handed out twice";
            live.emplace_back(size_class, p);
        } else if (what < 90 && !live.empty()) {
            free_one(below(live.size()));
        } else if (what < 93) {
            EXPECT_EQ((below(2) == 0 ? heap.open_parcels() : heap.stow_parcels()).kind, HK_FAULT_NONE);
        } else if (what < 95) {
            heap.send_outbox();
        } else if (what == 95) {
            heap.flush(size_class);
        } else if (what == 96) {
            heap.park();
            if (below(2) == 0)
                trim_all();
            heap.start();
        } else if (what == 97) {
            hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
        } else if (what == 98 && step % 16 == 0) {
            check_everything();
        }
    }
    while (!live.empty())
        free_one(live.size() - 1);
}

} // namespace
