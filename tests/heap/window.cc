/* Windows: any value of a pointer leads to a key and to a superslab or none; windows do not mix. */
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "c_begin.h"
#include "heap/meta.h"
#include "heap/superslab.h"
#include "heap/window.h"
#include "c_end.h"

namespace
{

constexpr uintptr_t kWindow = 1ull << HK_WINDOW_SHIFT;

char *at(uintptr_t address) { return reinterpret_cast<char *>(address); }

TEST(Window, AnyPointerHasAKey)
{
    std::vector<uintptr_t> addresses = {0,
                                        1,
                                        4095,
                                        HK_SLOT_SIZE,
                                        kWindow - 1,
                                        kWindow,
                                        UINTPTR_MAX,
                                        1ull << HK_ADDRESS_BITS,
                                        (1ull << HK_ADDRESS_BITS) - 1,
                                        0xffff800000000000,
                                        0x8000000000000000,
                                        0xdeadbeefdeadbeef};
    for (unsigned shift = 0; shift < 64; shift++)
        addresses.push_back(1ull << shift);
    for (uintptr_t address : addresses) {
        EXPECT_EQ(hk_key_of(at(address)), 0u) << std::hex << address;
        EXPECT_EQ(hk_superslab_of(at(address)), nullptr) << std::hex << address;
    }
    int local;
    static int fixed;
    EXPECT_EQ(hk_key_of(&local), 0u);
    EXPECT_EQ(hk_key_of(&fixed), 0u);
    EXPECT_EQ(hk_superslab_of(&local), nullptr);
}

TEST(Window, KeysAreTheSlotsOwn)
{
    const uintptr_t base = 0x200000000000;
    ASSERT_TRUE(hk_window_prepare(at(base), 3 * kWindow));
    const uintptr_t slots[] = {base, base + HK_SLOT_SIZE, base + kWindow - HK_SLOT_SIZE, base + kWindow,
                               base + 2 * kWindow + 5 * HK_SLOT_SIZE};
    hk_key key = 1;
    for (uintptr_t slot : slots)
        atomic_store_explicit(hk_key_at(at(slot)), key++, memory_order_relaxed);
    key = 1;
    for (uintptr_t slot : slots) {
        EXPECT_EQ(hk_key_of(at(slot)), key);
        EXPECT_EQ(hk_key_of(at(slot + 1)), key);
        EXPECT_EQ(hk_key_of(at(slot + HK_SLOT_SIZE - 1)), key);
        key++;
    }
    EXPECT_EQ(hk_key_of(at(base - 1)), 0u);
    EXPECT_EQ(hk_key_of(at(base + 2 * HK_SLOT_SIZE)), 0u);
    EXPECT_EQ(hk_key_of(at(base + 3 * kWindow)), 0u) << "the window behind was not prepared";
    EXPECT_EQ(hk_key_of(nullptr), 0u) << "keys that nobody has stay zero";
}

TEST(Window, IsPreparedOnceAndStays)
{
    const uintptr_t base = 0x300000000000 + kWindow - HK_SUPERSLAB_SIZE;
    ASSERT_TRUE(hk_window_prepare(at(base), HK_SUPERSLAB_SIZE));
    EXPECT_EQ(hk_map.entries[(base >> HK_WINDOW_SHIFT) + 1], 0) << "the range ends where the window does";
    intptr_t entry = hk_map.entries[base >> HK_WINDOW_SHIFT];
    EXPECT_NE(entry, 0);
    size_t used, used_again, mapped;
    hk_meta_usage(&used, &mapped);
    ASSERT_TRUE(hk_window_prepare(at(base), HK_SUPERSLAB_SIZE));
    hk_meta_usage(&used_again, &mapped);
    EXPECT_EQ(used_again, used);
    EXPECT_EQ(hk_map.entries[base >> HK_WINDOW_SHIFT], entry);
    ASSERT_TRUE(hk_window_prepare(at(base), HK_SUPERSLAB_SIZE + 1));
    EXPECT_NE(hk_map.entries[(base >> HK_WINDOW_SHIFT) + 1], 0);
}

TEST(Window, WhatIsObtainedIsEnteredOrKept)
{
    const uintptr_t base = 0x600000000000;
    hk_window *window = hk_window_obtain();
    ASSERT_NE(window, nullptr);
    hk_window_enter(window, at(base + 12345));
    EXPECT_EQ(hk_window_at(base >> HK_WINDOW_SHIFT), window);
    hk_window *first = hk_window_obtain(), *second = hk_window_obtain();
    size_t used, used_again, mapped;
    hk_meta_usage(&used, &mapped);
    hk_window_enter(first, at(base));
    hk_window_enter(second, at(base));
    EXPECT_EQ(hk_window_at(base >> HK_WINDOW_SHIFT), window) << "once there, it stays";
    hk_meta_usage(&used_again, &mapped);
    EXPECT_LT(used_again, used) << "one is enough";
    ASSERT_TRUE(hk_window_prepare(at(base + kWindow), 1));
    EXPECT_EQ(hk_window_at((base >> HK_WINDOW_SHIFT) + 1), first);
}

TEST(Window, LeadsToSuperslabs)
{
    static struct hk_superslab superslabs[3];
    const uintptr_t base = 0x400000000000;
    const uintptr_t bases[] = {base, base + HK_SUPERSLAB_SIZE, base + 2 * kWindow - HK_SUPERSLAB_SIZE};
    ASSERT_TRUE(hk_window_prepare(at(base), 2 * kWindow));
    for (unsigned i = 0; i < 3; i++)
        hk_window_set_superslab(at(bases[i]), &superslabs[i]);
    for (unsigned i = 0; i < 3; i++)
        for (uintptr_t offset : {uintptr_t{0}, uintptr_t{1}, HK_SUPERSLAB_SIZE - 1})
            EXPECT_EQ(hk_superslab_of(at(bases[i] + offset)), &superslabs[i]);
    EXPECT_EQ(hk_superslab_of(at(base - 1)), nullptr);
    EXPECT_EQ(hk_superslab_of(at(base + 2 * HK_SUPERSLAB_SIZE)), nullptr);
    EXPECT_EQ(hk_superslab_of(at((1ull << HK_ADDRESS_BITS) | base)), nullptr) << "not canonical";
    hk_window_set_superslab(at(bases[1]), nullptr);
    EXPECT_EQ(hk_superslab_of(at(bases[1])), nullptr);
    EXPECT_EQ(hk_superslab_of(at(bases[0])), &superslabs[0]);
}

TEST(Window, AllAreInTheList)
{
    auto windows = [] {
        std::set<hk_window *> seen;
        for (hk_window *window = hk_window_first(); window != nullptr; window = window->next)
            EXPECT_TRUE(seen.insert(window).second);
        return seen;
    };
    size_t before = windows().size();
    ASSERT_TRUE(hk_window_prepare(at(0x500000000000), 4 * kWindow));
    EXPECT_EQ(windows().size(), before + 4);
}

TEST(Window, AWalkFindsEachSuperslabOnce)
{
    static hk_superslab superslabs[4];
    const uintptr_t base = 0x510000000000;
    const uintptr_t bases[] = {base, base + HK_SUPERSLAB_SIZE, base + kWindow - HK_SUPERSLAB_SIZE, base + 2 * kWindow};
    ASSERT_TRUE(hk_window_prepare(at(base), 3 * kWindow));
    for (unsigned i = 0; i < 4; i++)
        hk_window_set_superslab(at(bases[i]), &superslabs[i]);
    hk_superslab_cursor cursor{};
    for (int walk = 0; walk < 2; walk++) {
        std::multiset<hk_superslab *> found;
        while (hk_superslab *superslab = hk_superslabs_walk(&cursor))
            found.insert(superslab);
        for (hk_superslab &superslab : superslabs)
            EXPECT_EQ(found.count(&superslab), 1u);
        EXPECT_EQ(cursor.window, nullptr) << "and begins anew";
    }
    for (uintptr_t p : bases)
        hk_window_set_superslab(at(p), nullptr);
}

} // namespace
