/*
 * Heaps without threads: a test makes as many as it wants and works them from one thread, holding the lock of the one
 * that it works on. Each test begins and ends with every structure in order.
 */
#ifndef HK_TESTS_HEAP_TEST_HEAP_H
#define HK_TESTS_HEAP_TEST_HEAP_H

#include "invariants.h"

#include "c_begin.h"
#include "base/options.h"
#include "c_end.h"

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
        unsigned got = 0;
        for (unsigned more = 1; got < want && more > 0; got += more)
            more = hk_heap_take(heap_, size_class, &blocks[got], want - got, fresh, &fault);
        EXPECT_EQ(fault.kind, HK_FAULT_NONE);
        blocks.resize(got);
        return blocks;
    }
    void *take_one(unsigned size_class, bool *fresh = nullptr)
    {
        std::vector<void *> blocks = take(size_class, 1, fresh);
        return blocks.empty() ? nullptr : blocks[0];
    }
    hk_fault give(const std::vector<void *> &blocks)
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_heap_give(heap_, blocks.data(), static_cast<unsigned>(blocks.size()), &fault);
        return fault;
    }
    hk_fault collect()
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_heap_collect(heap_, &fault);
        return fault;
    }
    hk_fault add_to_outbox(void *p)
    {
        hk_fault fault{};
        unsigned index;
        hk_slab *slab = hk_slab_of(p);
        EXPECT_TRUE(hk_slab_index(slab, p, &index, &fault));
        HeldLock held(&heap_->lock);
        hk_outbox_add(heap_, slab, index, &fault);
        return fault;
    }
    hk_fault drain_outbox()
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_outbox_drain(heap_, &fault);
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
        void *p = hk_heap_refill(heap_, size_class, tops_, &fault);
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
        if (hk_magazine_is_full(tops_[size_class])) {
            HeldLock held(&heap_->lock);
            heap_->tick++;
            hk_heap_make_room(heap_, size_class, tops_, &fault);
        }
        *++tops_[size_class] = p;
        return fault;
    }
    hk_fault flush(unsigned size_class)
    {
        hk_fault fault{};
        HeldLock held(&heap_->lock);
        hk_heap_flush(heap_, size_class, tops_, &fault);
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
};

inline bool is_free(void *p)
{
    hk_fault fault{};
    unsigned index;
    hk_slab *slab = hk_slab_of(p);
    EXPECT_TRUE(hk_slab_index(slab, p, &index, &fault));
    return hk_slab_is_free(slab, index);
}

inline hk_fault free_remotely(void *p)
{
    hk_fault fault{};
    unsigned index;
    hk_slab *slab = hk_slab_of(p);
    EXPECT_TRUE(hk_slab_index(slab, p, &index, &fault));
    hk_remote_free(slab, index / HK_WORD_BITS, 1ull << (index % HK_WORD_BITS), &fault);
    return fault;
}

/* Everything back to the start: no parked heap has slabs, no slab is kept, no memory is cached. */
inline void trim_all()
{
    hk_fault fault{};
    hk_heaps_dissolve_parked(UINT32_MAX, &fault);
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(fault.kind, HK_FAULT_NONE);
    hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
    hk_superslabs_purge(0, UINT64_MAX, SIZE_MAX);
    hk_large_purge(0, UINT64_MAX);
    hk_purge_after_fork(); /* whether payments were worth it is forgotten */
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
