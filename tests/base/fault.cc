/* Messages of faults: each kind, word for word, and what option on_error makes of it. */
#include <gtest/gtest.h>

#include <string>

#include "c_begin.h"
#include "base/fault.h"
#include "base/options.h"
#include "c_end.h"

namespace
{

void *at(uintptr_t address) { return reinterpret_cast<void *>(address); }

hk_fault fault_of(hk_fault_kind kind)
{
    hk_fault fault{};
    fault.kind = kind;
    fault.ptr = at(0x7f0012345678);
    fault.block = at(0x7f0012345640);
    fault.block_size = 64;
    fault.size_given = 100;
    return fault;
}

std::string said_of(const hk_fault &fault, const char *call)
{
    testing::internal::CaptureStderr();
    hk_fault_report(&fault, call);
    return testing::internal::GetCapturedStderr();
}

class Fault : public testing::Test
{
  protected:
    void SetUp() override { ASSERT_EQ(hk_option_write("on_error", "warn"), HK_OPTION_OK); }
    void TearDown() override { ASSERT_EQ(hk_option_write("on_error", "abort"), HK_OPTION_OK); }
};

TEST_F(Fault, IsSaidInOneLine)
{
    EXPECT_EQ(said_of(fault_of(HK_FAULT_DOUBLE_FREE), "free"),
              "hakmem: free(0x7f0012345678): double free: a block of 64 bytes that is free already\n");
    EXPECT_EQ(said_of(fault_of(HK_FAULT_INSIDE), "free"),
              "hakmem: free(0x7f0012345678): invalid pointer: inside a block of 64 bytes at 0x7f0012345640\n");
    EXPECT_EQ(said_of(fault_of(HK_FAULT_FOREIGN), "realloc"),
              "hakmem: realloc(0x7f0012345678): invalid pointer: not memory of hakmem\n");
    EXPECT_EQ(said_of(fault_of(HK_FAULT_USE_AFTER_FREE), "realloc"),
              "hakmem: realloc(0x7f0012345678): use after free: a block of 64 bytes that is free already\n");
    EXPECT_EQ(said_of(fault_of(HK_FAULT_WRONG_SIZE), "free_sized"),
              "hakmem: free_sized(0x7f0012345678, 100): wrong size: the block has 64 usable bytes\n");
}

TEST_F(Fault, FoundInABatchNamesFree)
{
    hk_fault fault = fault_of(HK_FAULT_DOUBLE_FREE);
    fault.late = true;
    EXPECT_EQ(said_of(fault, "malloc"),
              "hakmem: free(0x7f0012345678): double free: a block of 64 bytes that is free already (noticed late)\n");
}

TEST_F(Fault, OnlyTheFirstOfABatchIsKept)
{
    hk_fault kept{}, none{};
    hk_fault_note(&kept, none);
    EXPECT_EQ(kept.kind, HK_FAULT_NONE);
    hk_fault_note(&kept, fault_of(HK_FAULT_INSIDE));
    hk_fault_note(&kept, fault_of(HK_FAULT_FOREIGN));
    hk_fault_note(&kept, none);
    EXPECT_EQ(kept.kind, HK_FAULT_INSIDE);
}

TEST_F(Fault, NoFaultIsNotReported)
{
    hk_fault none{};
    testing::internal::CaptureStderr();
    hk_fault_check(&none, "free");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Fault, MayBeIgnored)
{
    ASSERT_EQ(hk_option_write("on_error", "ignore"), HK_OPTION_OK);
    EXPECT_EQ(said_of(fault_of(HK_FAULT_DOUBLE_FREE), "free"), "");
}

TEST(FaultDeathTest, AbortsUnlessToldOtherwise)
{
    hk_fault fault = fault_of(HK_FAULT_DOUBLE_FREE);
    EXPECT_EXIT(hk_fault_report(&fault, "free"), testing::KilledBySignal(SIGABRT),
                "^hakmem: free\\(0x7f0012345678\\): double free");
}

TEST(FaultDeathTest, AssertionsSayWhatDoesNotHold)
{
    EXPECT_EXIT(hk_assert(1 + 1 == 3), testing::KilledBySignal(SIGABRT),
                "^hakmem: internal error: 1 \\+ 1 == 3 does not hold at .*fault.cc:[0-9]+");
}

} // namespace
