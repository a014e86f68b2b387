/*
 * Limits: what percentages of the cgroup's memory limit become, from files as the kernel writes them, for groups within
 * groups, and from files that say nothing; what counts as in use; when the soft limit asks for a purge, and that
 * nothing is taken beyond the hard one.
 */
#include "test_heap.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "c_begin.h"

#include "heap/limit.h"

#include "c_end.h"

namespace
{

constexpr size_t kMib = 1 << 20;

uint64_t soft() { return hk_option(limit_soft); }
uint64_t hard() { return hk_option(limit_hard); }

/* ---- The cgroup's limit ---- */

/* A root folder with the files of a process and of groups; without any at first. */
class Cgroup : public testing::Test
{
  protected:
    void SetUp() override
    {
        std::string name = testing::TempDir() + "hakmem.XXXXXX";
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        root = name;
    }
    void TearDown() override
    {
        std::filesystem::remove_all(root);
        hk_option_write("limit_soft", "0");
        hk_option_write("limit_hard", "0");
    }
    /* What /proc/self/cgroup says. */
    void self(const std::string &lines) const { write("proc/self", "cgroup", lines); }
    /* The limit of a group; path as in /proc/self/cgroup, "" for the group at the mount. */
    void group(const std::string &path, const std::string &memory_max) const
    {
        write("sys/fs/cgroup" + path, "memory.max", memory_max);
    }
    /* Returns what was said on standard error. */
    std::string resolve() const
    {
        testing::internal::CaptureStderr();
        hk_limit_resolve(root.c_str());
        return testing::internal::GetCapturedStderr();
    }
    std::string resolve_with(const char *limit_soft, const char *limit_hard) const
    {
        EXPECT_EQ(hk_option_write("limit_soft", limit_soft), HK_OPTION_OK);
        EXPECT_EQ(hk_option_write("limit_hard", limit_hard), HK_OPTION_OK);
        return resolve();
    }
    static std::string unreadable(const char *variable)
    {
        return std::string("hakmem: ") + variable +
               ": no cgroup v2 memory limit can be read (/proc/self/cgroup, memory.max); using none\n";
    }

    std::string root;

  private:
    void write(const std::string &folder, const char *file, const std::string &content) const
    {
        std::filesystem::create_directories(root + "/" + folder);
        std::ofstream stream(root + "/" + folder + "/" + file, std::ios::binary | std::ios::trunc);
        stream << content;
        ASSERT_TRUE(stream.good()) << folder;
    }
};

TEST_F(Cgroup, BytesAreTakenAsTheyAre)
{
    const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"0", 0},
                 {"1", 1},
                 {"4097", 4097},
                 {"64K", 64 << 10},
                 {"64k", 64 << 10},
                 {"100M", 100 << 20},
                 {"100m", 100 << 20},
                 {"3G", 3ull << 30},
                 {"3g", 3ull << 30}};
    self("0::/a\n");
    group("/a", "1048576\n");
    for (const auto &c : cases) {
        EXPECT_EQ(resolve_with(c.text, c.text), "") << c.text;
        EXPECT_EQ(soft(), c.bytes) << c.text;
        EXPECT_EQ(hard(), c.bytes) << c.text;
    }
    std::filesystem::remove_all(root + "/proc");
    EXPECT_EQ(resolve_with("64K", "3G"), "") << "no file is needed for them";
    EXPECT_EQ(soft(), 64u << 10);
    EXPECT_EQ(hard(), 3ull << 30);
}

TEST_F(Cgroup, IsAllOfTheGroupsLimitAndAPercentageIsAPartOfIt)
{
    self("0::/a\n");
    group("/a", "1000000000\n");
    EXPECT_EQ(resolve_with("75%", "cgroup"), "");
    EXPECT_EQ(soft(), 750000000u);
    EXPECT_EQ(hard(), 1000000000u);
    EXPECT_EQ(resolve_with("1%", "100%"), "");
    EXPECT_EQ(soft(), 10000000u);
    EXPECT_EQ(hard(), 1000000000u);
    /* A limit that is known is a number of bytes: it does not change with the group's. */
    group("/a", "2000000000\n");
    EXPECT_EQ(resolve(), "");
    EXPECT_EQ(hard(), 1000000000u);
    /* The largest that the kernel writes, and no 64-bit product of it. */
    group("/a", "9223372036854771712\n");
    EXPECT_EQ(resolve_with("99%", "cgroup"), "");
    EXPECT_GT(soft(), 9100000000000000000u);
    EXPECT_LE(soft(), 9223372036854771712u / 100 * 99);
    EXPECT_GE(hard(), 9223372036854771712u - 100);
    EXPECT_LE(hard(), 9223372036854771712u);
}

TEST_F(Cgroup, TheLowestOfTheGroupsThatAGroupIsInCounts)
{
    const struct {
        const char *outer, *middle, *inner;
        uint64_t expected;
    } cases[] = {
        {"max\n", "max\n", "4096000\n", 4096000},
        {"max\n", "4096000\n", "max\n", 4096000},
        {"4096000\n", "max\n", "max\n", 4096000},
        {"9000000\n", "4096000\n", "8000000\n", 4096000},
        {"4096000\n", "8000000\n", "9000000\n", 4096000},
        {"9000000\n", "8000000\n", "4096000\n", 4096000},
        {"max\n", "max\n", "max\n", 0},
    };
    self("0::/outer.slice/middle.scope/inner\n");
    for (const auto &c : cases) {
        group("/outer.slice", c.outer);
        group("/outer.slice/middle.scope", c.middle);
        group("/outer.slice/middle.scope/inner", c.inner);
        group("/other", "1000\n");
        EXPECT_EQ(resolve_with("cgroup", "50%"), "");
        EXPECT_EQ(soft(), c.expected) << c.outer << c.middle << c.inner;
        EXPECT_EQ(hard(), c.expected / 2) << c.outer << c.middle << c.inner;
    }
    /* Controllers are given to a part of the tree. */
    std::filesystem::remove(root + "/sys/fs/cgroup/outer.slice/middle.scope/inner/memory.max");
    group("/outer.slice", "700000\n");
    EXPECT_EQ(resolve_with("cgroup", "0"), "");
    EXPECT_EQ(soft(), 700000u);
}

TEST_F(Cgroup, TheRootGroup)
{
    /* A container's is a group with a limit, and the root of what it sees. */
    self("0::/\n");
    group("", "50000000\n");
    EXPECT_EQ(resolve_with("0", "cgroup"), "");
    EXPECT_EQ(hard(), 50000000u);
    /* It counts for the groups in it, too. */
    self("0::/inner\n");
    group("/inner", "max\n");
    EXPECT_EQ(resolve_with("0", "cgroup"), "");
    EXPECT_EQ(hard(), 50000000u);
    self("0::/\n");
    /* The machine's has no such file and no limit. */
    std::filesystem::remove(root + "/sys/fs/cgroup/memory.max");
    EXPECT_EQ(resolve_with("50%", "cgroup"), "");
    EXPECT_EQ(soft(), 0u);
    EXPECT_EQ(hard(), 0u);
}

TEST_F(Cgroup, IsFoundAmongOtherHierarchies)
{
    group("/mine", "60000000\n");
    group("/other", "1000000\n");
    for (const char *lines :
         {"0::/mine", "0::/mine\n1:name=systemd:/other\n", "12:memory:/other\n1:name=systemd:/other\n0::/mine\n",
          "10:0::/other:/other\n0::/mine\n", "10::/other\n0::/mine\n", "1:x:/0::/other\n0::/mine\n"}) {
        self(lines);
        EXPECT_EQ(resolve_with("cgroup", "0"), "") << lines;
        EXPECT_EQ(soft(), 60000000u) << lines;
    }
}

TEST_F(Cgroup, ALongNameIsNoMatter)
{
    std::string path;
    while (path.size() < 400)
        path += "/kubepods-burstable-pod0123456789.slice";
    self("0::" + path + "\n");
    group(path, "30000000\n");
    group(path.substr(0, path.rfind('/')), "40000000\n");
    EXPECT_EQ(resolve_with("cgroup", "0"), "");
    EXPECT_EQ(soft(), 30000000u);
}

/* One line for each option that asked for it, and no limit. */
TEST_F(Cgroup, WithoutAnythingToReadThereIsAWarning)
{
    const auto expect_none = [this](const char *what) {
        EXPECT_EQ(resolve_with("cgroup", "0"), unreadable("HAKMEM_LIMIT_SOFT")) << what;
        EXPECT_EQ(resolve_with("5000", "80%"), unreadable("HAKMEM_LIMIT_HARD")) << what;
        EXPECT_EQ(soft(), 5000u) << "and the other as it was: " << what;
        EXPECT_EQ(hard(), 0u) << what;
        EXPECT_EQ(resolve_with("80%", "cgroup"), unreadable("HAKMEM_LIMIT_SOFT") + unreadable("HAKMEM_LIMIT_HARD"));
        EXPECT_EQ(soft(), 0u) << what;
        EXPECT_EQ(hard(), 0u) << what;
    };
    expect_none("no /proc");
    std::filesystem::create_directories(root + "/proc/self/cgroup");
    expect_none("a folder instead of a file");
    std::filesystem::remove_all(root + "/proc");
    group("/a", "1000000\n");
    for (const std::string &lines :
         {std::string(), std::string("\n"), std::string("0"), std::string("0:"), std::string("0::"),
          std::string("0::\n"), std::string("0::a\n"), std::string("4:memory:/a\n1:name=systemd:/a\n"),
          std::string("garbage"), std::string(100, '\0'), std::string(10000, 'x'), std::string(10000, '\xff'),
          std::string(5000, '\n'), std::string("0::/b\n"), "0::/" + std::string(5000, 'y') + "\n"}) {
        self(lines);
        expect_none(lines.substr(0, 40).c_str());
    }
}

TEST_F(Cgroup, WhatIsNoNumberLimitsNothing)
{
    self("0::/outer/inner\n");
    for (const std::string &garbage :
         {std::string("garbage\n"), std::string(), std::string("\n"), std::string("-1\n"), std::string("4096x\n"),
          std::string(" 4096\n"), std::string("0x1000\n"), std::string("1e6\n"), std::string("4K\n"),
          std::string("Max\n"), std::string("18446744073709551616\n"), std::string(8, '\0'), std::string(10000, '9'),
          std::string(70, '1')}) {
        group("/outer", "8192000\n");
        group("/outer/inner", garbage);
        EXPECT_EQ(resolve_with("0", "cgroup"), "") << garbage;
        EXPECT_EQ(hard(), 8192000u) << "the other group's still does: " << garbage;
        group("/outer", garbage);
        resolve_with("0", "cgroup"); /* whether this is worth a word is open */
        EXPECT_EQ(hard(), 0u) << garbage;
    }
    group("/outer", "max\n");
    group("/outer/inner", "4096");
    EXPECT_EQ(resolve_with("0", "cgroup"), "");
    EXPECT_EQ(hard(), 4000u) << "a line without its end is one, in hundredths";
}

/* ---- What counts, and what follows ---- */

constexpr unsigned k4096 = 47; /* a slab of one slot */

class Limit : public HeapTest
{
  protected:
    void SetUp() override
    {
        HeapTest::SetUp();
        set(0, 0);
        hk_limit_take_pressing();
    }
    void TearDown() override
    {
        set(0, 0);
        hk_limit_take_pressing();
        HeapTest::TearDown();
    }
    static void set(size_t limit_soft, size_t limit_hard)
    {
        EXPECT_EQ(hk_option_write("limit_soft", std::to_string(limit_soft).c_str()), HK_OPTION_OK);
        EXPECT_EQ(hk_option_write("limit_hard", std::to_string(limit_hard).c_str()), HK_OPTION_OK);
    }
    static void *large(size_t n, hk_large_kind kind = HK_LARGE_ANY)
    {
        return hk_large_alloc(n, HK_MIN_ALIGN, kind, false);
    }
    static void free(void *p)
    {
        hk_fault fault{};
        EXPECT_TRUE(hk_large_free(p, &fault));
    }
};

TEST_F(Limit, CountsWhatMayBeResident)
{
    const size_t before = hk_limit_in_use();
    TestHeap heap;
    std::vector<std::vector<void *>> slabs;
    for (unsigned i = 0; i < 5; i++)
        slabs.push_back(heap.take_slab(k4096));
    EXPECT_EQ(hk_limit_in_use() - before, 5 * HK_SLOT_SIZE) << "slots in use";
    for (unsigned i = 1; i < 5; i++)
        heap.give(slabs[i]);
    EXPECT_EQ(hk_limit_in_use() - before, 5 * HK_SLOT_SIZE) << "and EMPTY ones";
    hk_fault fault{};
    hk_heaps_tend(true, &fault);
    hk_pool_purge(UINT32_MAX, 0, SIZE_MAX);
    EXPECT_EQ(hk_limit_in_use() - before, HK_SLOT_SIZE) << "but not when they have been given back";
    heap.give(slabs[0]);
    hk_heaps_tend(true, &fault);
    EXPECT_EQ(hk_limit_in_use() - before, HK_SUPERSLAB_SIZE) << "a cached superslab";
    trim_all();
    EXPECT_EQ(hk_limit_in_use(), before);

    void *run = large(5 * kMib);
    EXPECT_EQ(hk_limit_in_use() - before, 3 * HK_SUPERSLAB_SIZE) << "a large block of superslabs";
    free(run);
    EXPECT_EQ(hk_limit_in_use() - before, 3 * HK_SUPERSLAB_SIZE) << "which are cached then";
    hk_superslabs_purge(0, UINT64_MAX, SIZE_MAX);
    EXPECT_EQ(hk_limit_in_use(), before);

    void *mapping = large(5 * kMib, HK_LARGE_MAPPING);
    EXPECT_EQ(hk_limit_in_use() - before, 5 * kMib) << "a mapping";
    free(mapping);
    EXPECT_EQ(hk_limit_in_use() - before, 5 * kMib) << "which is cached then";
    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
    EXPECT_EQ(hk_limit_in_use(), before);
}

TEST_F(Limit, NothingIsTakenBeyondTheHardLimit)
{
    const size_t room = 64 * HK_SLOT_SIZE, in_use = hk_limit_in_use();
    EXPECT_TRUE(hk_limit_admit(SIZE_MAX / 2)) << "without limits";
    set(0, in_use + room);
    EXPECT_TRUE(hk_limit_admit(room));
    EXPECT_FALSE(hk_limit_admit(room + 1));
    EXPECT_FALSE(hk_limit_is_pressing()) << "that is the soft limit's";

    TestHeap heap;
    std::vector<void *> blocks = heap.take(k4096, 100000);
    EXPECT_EQ(blocks.size(), room / 4096);
    EXPECT_EQ(hk_limit_in_use(), in_use + room);
    EXPECT_EQ(large(3 * kMib), nullptr);
    EXPECT_EQ(large(3 * kMib, HK_LARGE_MAPPING), nullptr);
    EXPECT_EQ(hk_limit_in_use(), in_use + room) << "what was refused is not in use";
    check_everything();

    /* EMPTY slots are had again: they count already. */
    std::vector<void *> kept{blocks[0], blocks.back()};
    ASSERT_NE(hk_superslab_of(kept[0]), hk_superslab_of(kept[1]));
    heap.give({blocks.begin() + 1, blocks.end() - 1});
    blocks = heap.take(k4096, 100000);
    EXPECT_EQ(blocks.size(), room / 4096 - 2);
    EXPECT_EQ(hk_limit_in_use(), in_use + room);
    heap.give(blocks);
    heap.give(kept);
}

TEST_F(Limit, LargeBlocksStopAtTheHardLimitToo)
{
    const size_t in_use = hk_limit_in_use();
    for (hk_large_kind kind : {HK_LARGE_ANY, HK_LARGE_MAPPING}) {
        set(0, in_use + 20 * kMib);
        std::vector<void *> blocks;
        for (void *p; blocks.size() < 100 && (p = large(4 * kMib, kind)) != nullptr;)
            blocks.push_back(p);
        EXPECT_EQ(blocks.size(), 5u);
        EXPECT_FALSE(hk_large_resize(blocks[0], 5 * kMib));
        EXPECT_EQ(hk_large_remap(blocks[0], 8 * kMib), nullptr);
        EXPECT_GE(hk_large_usable(blocks[0]), 4 * kMib) << "what cannot grow is as before";
        EXPECT_LE(hk_limit_in_use(), in_use + 20 * kMib);
        set(0, in_use + 24 * kMib);
        if (kind == HK_LARGE_MAPPING) {
            blocks[0] = hk_large_remap(blocks[0], 8 * kMib);
            ASSERT_NE(blocks[0], nullptr);
            EXPECT_EQ(hk_limit_in_use(), in_use + 24 * kMib);
        }
        for (void *p : blocks)
            free(p);
        trim_all();
    }
}

TEST_F(Limit, ThreadsDoNotPassTheHardLimitTogether)
{
    constexpr int kRounds = 2000 / HK_TEST_SLOWDOWN;
    set(0, hk_limit_in_use() + 60 * kMib);
    for (hk_large_kind kind : {HK_LARGE_ANY, HK_LARGE_MAPPING}) {
        std::atomic<int> met{0}, live{0}, taken{0};
        std::atomic<bool> both{false};
        auto take_and_give = [&] {
            int meetings = 0;
            auto meet = [&] { /* at the same time: who sleeps comes late */
                              meetings += 2;
                              met++;
                              while (met < meetings)
                                  std::this_thread::yield();
            };
            for (int i = 0; i < kRounds; i++) {
                meet();
                void *p = large(40 * kMib, kind);
                if (p != nullptr && ++live > 1)
                    both = true;
                meet();
                if (p != nullptr) {
                    taken++;
                    live--;
                    free(p);
                    hk_large_purge(0, UINT64_MAX, SIZE_MAX);
                }
            }
        };
        std::thread other(take_and_give);
        take_and_give();
        other.join();
        EXPECT_FALSE(both) << "two blocks of 40 MiB were live";
        EXPECT_GE(taken, kRounds) << "one of the two is there each time";
    }
}

TEST_F(Limit, PrewarmingStopsAtTheHardLimit)
{
    const size_t room = 4 * HK_SUPERSLAB_SIZE, in_use = hk_limit_in_use();
    set(0, in_use + room);
    const hk_prewarm wish = {10, k4096};
    for (int again = 0; again < 3; again++) {
        EXPECT_EQ(hk_pool_prewarm(&wish, 1, SIZE_MAX, true), 4u);
        EXPECT_EQ(hk_limit_in_use(), in_use + room);
    }
    EXPECT_EQ(hk_pool_prewarm(&wish, 1, SIZE_MAX, false), 10u) << "address space is not limited";
    EXPECT_FALSE(hk_limit_is_pressing());
    check_everything();
}

TEST_F(Limit, TheSoftLimitAsksForAPurgeNowAndThen)
{
    constexpr size_t kSoft = 64 * HK_SUPERSLAB_SIZE, kStep = kSoft / 32; /* how much makes it ask again */
    const size_t in_use = hk_limit_in_use();
    set(in_use + kSoft, 0);
    EXPECT_TRUE(hk_limit_admit(kSoft));
    EXPECT_FALSE(hk_limit_is_pressing());
    void *first = large(kSoft / 2), *second = large(kSoft / 2);
    EXPECT_FALSE(hk_limit_is_pressing()) << "up to the limit";
    EXPECT_TRUE(hk_limit_admit(1)) << "it refuses nothing";
    EXPECT_TRUE(hk_limit_is_pressing());
    EXPECT_TRUE(hk_limit_take_pressing()) << "for one who takes it";
    EXPECT_FALSE(hk_limit_take_pressing());
    EXPECT_FALSE(hk_limit_is_pressing());
    EXPECT_TRUE(hk_limit_admit(1));
    EXPECT_FALSE(hk_limit_is_pressing()) << "nothing has changed since";
    void *more = large(2 * kStep);
    hk_limit_take_pressing();
    EXPECT_TRUE(hk_limit_admit(1));
    EXPECT_TRUE(hk_limit_take_pressing()) << "so much more has been taken";
    EXPECT_TRUE(hk_limit_admit(1));
    EXPECT_FALSE(hk_limit_is_pressing());
    for (void *p : {first, second, more})
        free(p);
}

} // namespace
