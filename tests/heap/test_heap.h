/*
 * Heaps without threads: a test makes as many as it wants and works them from one thread, holding the lock of the one
 * that it works on. Each test begins and ends with every structure in order.
 */
#ifndef HK_TESTS_HEAP_TEST_HEAP_H
#define HK_TESTS_HEAP_TEST_HEAP_H

#include "invariants.h"

#include "c_begin.h"
#include "base/options.h"
#include "heap/huge_pages.h"
#include "heap/magazine.h"
#include "c_end.h"
#include "slab_blocks.h"

/* The class that has blocks of a size; none is an error of the compiler's. */
constexpr unsigned class_of_blocks(uint32_t size)
{
    constexpr uint32_t sizes[] = {
#define HK_CLASS(index, block_size, nslots) block_size,
#include "heap/size_class.def"
#undef HK_CLASS
    };
    unsigned size_class = 0;
    while (sizes[size_class] != size)
        size_class++;
    return size_class;
}

/* Classes of one slot. 48 bytes divide no page, the others do, or are divided by one. */
constexpr unsigned k48 = class_of_blocks(48), k64 = class_of_blocks(64), k1024 = class_of_blocks(1024),
                   k4096 = class_of_blocks(4096);
constexpr unsigned kRun = class_of_blocks(8256); /* of three slots, 23 blocks */

class HeldLock
{
  public:
    explicit HeldLock(hk_lock *lock) : lock_(lock) { hk_lock_acquire(lock_); }
    ~HeldLock() { hk_lock_release(lock_); }
    HeldLock(const HeldLock &) = delete;
    HeldLock &operator=(const HeldLock &) = delete;

  private:
    hk_lock *lock_;
};

/* An option set for the length of a test. */
class WithOption
{
  public:
    WithOption(const char *name, const char *value) : name_(name)
    {
        hk_text old = hk_text_on(old_, sizeof old_);
        EXPECT_TRUE(hk_option_read(name, &old));
        EXPECT_EQ(hk_option_write(name, value), HK_OPTION_OK);
    }
    ~WithOption() { EXPECT_EQ(hk_option_write(name_, old_), HK_OPTION_OK); }
    WithOption(const WithOption &) = delete;
    WithOption &operator=(const WithOption &) = delete;

  private:
    const char *name_;
    char old_[64];
};

/* Gives a block to its owner under the owner's lock, as a thread does whose outbox is of no use. */
inline hk_fault free_directly(void *p)
{
    hk_fault fault{};
    for (unsigned left = 1; left > 0;) {
        struct hk_heap *owner = hk_block_owner(p, &fault);
        if (owner == nullptr)
            break;
        HeldLock held(&owner->lock);
        hk_parcels_open(owner, nullptr, &fault);
        left = hk_magazine_accept(owner, &p, 1, nullptr, &fault);
    }
    return fault;
}

/* The heap of a thread that is none. Its operations expect to find no fault, but for those that a test asks for. */
class TestHeap
{
  public:
    TestHeap() { start(); }
    ~TestHeap()
    {
        if (heap_ != nullptr)
            park();
    }
    TestHeap(const TestHeap &) = delete;
    TestHeap &operator=(const TestHeap &) = delete;

    struct hk_heap *operator->() { return heap_; }
    struct hk_heap *get() { return heap_; }
    void ***tops() { return tops_; }

    void start()
    {
        heap_ = hk_heap_obtain(tops_, this);
        ASSERT_NE(heap_, nullptr);
        send_outbox(); /* the heap's last thread may have left something in it */
    }
    struct hk_heap *park()
    {
        hk_fault fault{};
        struct hk_heap *heap = heap_;
        heap_ = nullptr;
        hk_heap_park(heap, tops_, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        return heap;
    }

    /* The blocks that could be had. */
    std::vector<void *> take(unsigned size_class, unsigned want, bool *fresh = nullptr)
    {
        std::vector<void *> blocks(want);
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        unsigned left = want;
        for (unsigned more = 1; left > 0 && more > 0; left -= more)
            more = hk_heap_take(heap_, size_class, blocks.data() + left, left, fresh, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        blocks.erase(blocks.begin(), blocks.begin() + left);
        std::reverse(blocks.begin(), blocks.end());
        return blocks;
    }
    void *take_one(unsigned size_class, bool *fresh = nullptr)
    {
        std::vector<void *> blocks = take(size_class, 1, fresh);
        return blocks.empty() ? nullptr : blocks[0];
    }
    /* What is another's goes to its owner. */
    hk_fault give(std::vector<void *> blocks)
    {
        hk_fault fault{};
        unsigned others;
        {
            HeldLock held(&heap_->lock);
            others = hk_magazine_accept(heap_, blocks.data(), static_cast<unsigned>(blocks.size()), nullptr, &fault);
        }
        for (unsigned i = 0; i < others; i++)
            hk_fault_note(&fault, free_directly(blocks[i]));
        return fault;
    }

    /* What a thread does with blocks of others: no lock is held. False if there is no place for them all. */
    bool post(const std::vector<void *> &blocks)
    {
        if (posted_ + blocks.size() > HK_OUTBOX_BLOCKS)
            return false;
        for (void *p : blocks)
            atomic_store_explicit(&hk_outbox_of(heap_)[posted_++], p, memory_order_release);
        return true;
    }
    bool send_outbox(hk_fault *fault)
    {
        HeldLock held(&heap_->lock);
        bool all = hk_outbox_send(heap_, fault);
        void **outbox = hk_outbox_of(heap_), **end = outbox + HK_OUTBOX_BLOCKS;
        void **left = std::remove(outbox, end, nullptr); /* what is left moves to the front */
        std::fill(left, end, nullptr);
        posted_ = static_cast<unsigned>(left - outbox);
        return all;
    }
    /* False if something stays. */
    bool send_outbox()
    {
        hk_fault fault{};
        bool all = send_outbox(&fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        return all;
    }
    /* Into the slabs, as others do it for the heap. */
    hk_fault open_parcels()
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_parcels_open(heap_, nullptr, &fault);
        return fault;
    }
    /* Into the magazines first, as its thread does it. */
    hk_fault stow_parcels()
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_parcels_open(heap_, tops_, &fault);
        return fault;
    }
    /* What its thread's next slow path finds in a magazine. */
    unsigned held(unsigned class_number)
    {
        HeldLock held(&heap_->lock);
        hk_magazine_note_alloc(heap_, class_number, tops_);
        return heap_->classes[class_number].held;
    }
    /* Frees a block of another heap as best can be. */
    hk_fault free_to_other(void *p)
    {
        hk_fault fault{};
        if (!post({p}) && !(send_outbox(&fault) && post({p})))
            hk_fault_note(&fault, free_directly(p));
        return fault;
    }

    /* Takes all blocks of a new slab. */
    std::vector<void *> take_slab(unsigned size_class)
    {
        std::vector<void *> blocks = take(size_class, hk_classes[size_class].nblocks);
        EXPECT_EQ(blocks.size(), hk_classes[size_class].nblocks);
        EXPECT_EQ(hk_slab_of(blocks.front()), hk_slab_of(blocks.back()));
        EXPECT_EQ(hk_slab_of(blocks.front())->nfree, 0);
        return blocks;
    }

    /* What malloc and free do with a magazine that is empty and full. */
    void *refill(unsigned size_class)
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        heap_->tick++;
        void *p = hk_magazine_refill(heap_, size_class, tops_, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        return p;
    }
    void *pop(unsigned size_class) { return *tops_[size_class] != nullptr ? *tops_[size_class]-- : nullptr; }
    void *alloc(unsigned size_class)
    {
        void *p = pop(size_class);
        return p != nullptr ? p : refill(size_class);
    }
    hk_fault free(unsigned size_class, void *p)
    {
        hk_fault fault{};
        if (!hk_magazine_is_full(tops_[size_class])) {
            *++tops_[size_class] = p;
            return fault;
        }
        HeldLock held(&heap_->lock);
        heap_->tick++;
        hk_magazine_free(heap_, size_class, tops_, p, &fault);
        return fault;
    }
    hk_fault close(unsigned size_class)
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_magazine_close(heap_, size_class, tops_, &fault);
        return fault;
    }
    hk_fault flush(unsigned size_class)
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_magazine_flush(heap_, size_class, tops_, &fault);
        return fault;
    }
    unsigned in_magazine(unsigned size_class)
    {
        return heap_->classes[size_class].capacity == 0
                   ? 0
                   : static_cast<unsigned>(tops_[size_class] - hk_magazine_bottom(heap_, size_class));
    }

  private:
    struct hk_heap *heap_ = nullptr;
    void **tops_[HK_NCLASSES];
    unsigned posted_ = HK_OUTBOX_BLOCKS; /* places of the outbox */
};

inline bool is_free(void *p)
{
    hk_fault fault{};
    unsigned index;
    hk_slab *slab = hk_slab_of(p);
    EXPECT_TRUE(hk_slab_index(slab, p, &index, &fault));
    return hk_slab_is_free(slab, index);
}

/* Blocks that somebody else has freed: parcels of a heap that no test knows arrive at their owners; or the blocks do,
 * if all these parcels are on their way. */
inline hk_fault free_remotely(std::vector<void *> blocks)
{
    struct hk_heap *heap = somebody();
    hk_fault fault{};
    {
        HeldLock held(&heap->lock);
        void **outbox = hk_outbox_of(heap), **end = outbox + HK_OUTBOX_BLOCKS;
        bool all = true;
        while (all && !blocks.empty()) {
            size_t n = std::min(blocks.size(), size_t{HK_OUTBOX_BLOCKS});
            std::copy_n(blocks.begin(), n, outbox);
            blocks.erase(blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(n));
            all = hk_outbox_send(heap, &fault);
        }
        std::remove_copy(outbox, end, std::back_inserter(blocks), nullptr);
        std::fill(outbox, end, nullptr);
    }
    for (void *p : blocks)
        hk_fault_note(&fault, free_directly(p));
    return fault;
}
inline hk_fault free_remotely(void *p) { return free_remotely(std::vector<void *>{p}); }

inline bool is_anything_on_its_way()
{
    for (const struct hk_heap *heap : all_heaps())
        if (heap->pending != nullptr)
            return true;
    for (struct hk_heap *heap : sending_heaps())
        for (unsigned i = 0; i < HK_OUTBOX_BLOCKS; i++)
            if (hk_outbox_of(heap)[i] != nullptr)
                return true;
    return false;
}

/* Until all that others have freed is where it belongs. One pass may leave what was passed on to a heap that it had
 * been to, and what found no parcel before others came home. */
inline void tend_all()
{
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    for (int passes = 1; is_anything_on_its_way(); passes++) {
        ASSERT_LT(passes, 100) << "it does not arrive";
        hk_heaps_tend(true, &fault);
    }
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
}

/* The slabs of all parked heaps become orphans, or are released. */
inline void dissolve_parked()
{
    hk_fault fault{};
    hk_heaps_dissolve_parked(UINT32_MAX, &fault);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
}

inline void vacate()
{
    hk_fault fault{};
    hk_heaps_vacate(&fault);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
}

/* Everything back to the start: no parked heap has slabs, no slab is kept, no memory is cached. */
inline void trim_all()
{
    dissolve_parked();
    tend_all();
    vacate();
    hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
    hk_superslabs_purge(0, UINT64_MAX, SIZE_MAX);
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    hk_purge_after_fork(); /* whether payments were worth it is forgotten */
    hk_huge_pages_after_fork();
}

/* Every test frees all that it took. */
class HeapTest : public testing::Test
{
  protected:
    void SetUp() override { clean(); }
    void TearDown() override
    {
        check_everything();
        clean();
    }

  private:
    static void clean()
    {
        trim_all();
        check_everything();
        EXPECT_TRUE(all_slabs().empty()) << "blocks were left by a test";
    }
};

#endif
