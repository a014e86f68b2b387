/* Who learns of what is regretted, told in made-up numbers. */
#include "by_hand.h"

#include "c_begin.h"
#include "heap/purge_counts.h"
#include "heap/regret.h"
#include "c_end.h"

namespace
{

constexpr size_t kMib = 1 << 20;

using Regret = ByHand;

TEST_F(Regret, IsCounted)
{
    struct hk_purge_counts before = hk_purge_counts;
    hk_regret(7), hk_regret_holes(11);
    EXPECT_EQ(hk_purge_counts.regretted_bytes - before.regretted_bytes, 18u);
    EXPECT_EQ(hk_purge_counts.hole_bytes_in_vain - before.hole_bytes_in_vain, 11u);
}

TEST_F(Regret, OfWhatWentAsSurplusIsNotThePayments)
{
    hk_surplus_note_gone(30 * kMib);
    hk_payment_note_paid(20 * kMib);
    hk_regret(30 * kMib);
    EXPECT_TRUE(hk_payment_demand(kMib)) << "nothing that was paid is needed again";
    hk_regret(10 * kMib);
    EXPECT_FALSE(hk_payment_demand(kMib)) << "half of it is";
}

} // namespace
