/*
 * What hakmem's own structures take of the memory that a program has: at most 1.5 % of what is live in blocks of 64
 * bytes and more, and 3 % in smaller ones.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hakmem/hakmem.h"

#include "c_begin.h"
#include "heap/window.h"
#include "observe/stats.h"
#include "c_end.h"

namespace
{

/* By chance the address space that a process gets lies in two windows. Each has tables for all of its 4 GiB, of which
 * only what is used has memory: the second one's cost next to nothing. */
size_t bytes_of_further_windows()
{
    size_t bytes = 0;
    for (hk_window *window = hk_window_first(); window != nullptr && window->next != nullptr; window = window->next)
        bytes += sizeof *window;
    return bytes;
}

class Metadata : public testing::TestWithParam<size_t>
{
};

TEST_P(Metadata, IsASmallPartOfWhatIsLive)
{
    const size_t n = GetParam(), count = (64u << 20) / n;
    std::vector<void *> blocks(count);
    for (void *&p : blocks)
        ASSERT_NE(p = hak_malloc(n), nullptr);
    hk_stats stats;
    hk_stats_read(&stats);
    double part = static_cast<double>(stats.meta_used - bytes_of_further_windows()) / static_cast<double>(n * count);
    EXPECT_LE(part, n < 64 ? 0.03 : 0.015) << stats.meta_used << " bytes";
    RecordProperty("percent", std::to_string(100 * part));
    /* Half of them go in no order: what is left is dearer, but the structures do not grow. */
    std::reverse(blocks.begin(), blocks.end());
    for (size_t i = 0; i < count; i += 2)
        hak_free(blocks[i]);
    size_t before = stats.meta_used;
    hk_stats_read(&stats);
    EXPECT_LE(stats.meta_used, before + before / 8);
    for (size_t i = 1; i < count; i += 2)
        hak_free(blocks[i]);
}

INSTANTIATE_TEST_SUITE_P(Size, Metadata, testing::Values(20000, 4096, 1000, 256, 100, 64, 48, 32, 24, 16),
                         testing::PrintToStringParamName());

} // namespace
