/*
 * Whether payments for growth rest, told in made-up numbers. That a heap which grows does as it is told is in purge.cc.
 */
#include "by_hand.h"

#include <algorithm>

#include "c_begin.h"
#include "heap/regret.h"
#include "c_end.h"

namespace
{

constexpr size_t kMib = 1 << 20;
constexpr uint32_t kLongerThanAnyRest = 100 * HK_CLOCK_SECOND;

class Payment : public ByHand
{
  protected:
    static void pay_in_vain(size_t in_use)
    {
        hk_payment_note_paid(100 * kMib);
        hk_regret(100 * kMib);
        ASSERT_FALSE(hk_payment_demand(in_use));
    }
};

TEST_F(Payment, RestsWhenHalfOfItIsRegretted)
{
    EXPECT_TRUE(hk_payment_demand(kMib)) << "nothing is known yet";
    hk_regret(300 * kMib);
    EXPECT_TRUE(hk_payment_demand(kMib)) << "nor paid";
    hk_payment_note_paid(800 * kMib);
    EXPECT_TRUE(hk_payment_demand(kMib)) << "most of it was not regretted";
    hk_regret_holes(100 * kMib);
    EXPECT_FALSE(hk_payment_demand(kMib));
    advance(kLongerThanAnyRest);
    EXPECT_TRUE(hk_payment_demand(kMib)) << "and begins anew";
    hk_regret(500 * kMib);
    hk_payment_note_paid(1000 * kMib + 2);
    EXPECT_TRUE(hk_payment_demand(kMib)) << "what was paid before counts no more";
}

TEST_F(Payment, RestsOnlyWhenThereIsSomethingToTellBy)
{
    hk_payment_note_paid(kMib - 1);
    hk_regret(kMib - 1);
    EXPECT_TRUE(hk_payment_demand(kMib));
    hk_payment_note_paid(1);
    EXPECT_FALSE(hk_payment_demand(kMib));
}

TEST_F(Payment, RestsBecomeLongerUpToABound)
{
    uint32_t before = 0;
    for (int round = 0; round < 12; round++) {
        pay_in_vain(kMib);
        uint32_t rest = 0;
        for (; !hk_payment_demand(kMib); rest++)
            advance(1);
        EXPECT_EQ(rest, round == 0 ? HK_CLOCK_SECOND : std::min(2 * before, 64 * HK_CLOCK_SECOND));
        before = rest;
    }
}

TEST_F(Payment, ARestIsOutgrownByHalfOfWhatIsInUseAndNoLessThan64MiB)
{
    for (size_t in_use : {kMib, 128 * kMib, 400 * kMib}) {
        hk_payment_reset();
        EXPECT_FALSE(hk_payment_rest_is_outgrown(1000 * kMib)) << "there is none";
        pay_in_vain(in_use);
        const size_t most = in_use + std::max(in_use / 2, 64 * kMib);
        EXPECT_FALSE(hk_payment_rest_is_outgrown(in_use));
        EXPECT_FALSE(hk_payment_rest_is_outgrown(most));
        EXPECT_TRUE(hk_payment_rest_is_outgrown(most + 1));
        EXPECT_FALSE(hk_payment_demand(most + 1)) << "whoever asked decides";
        hk_payment_end_rest();
        EXPECT_TRUE(hk_payment_demand(most + 1));
        EXPECT_FALSE(hk_payment_rest_is_outgrown(most + 1));
    }
}

} // namespace
