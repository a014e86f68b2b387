/*
 * What is surplus in a process without threads, told in made-up numbers. That purging does as it is told is in
 * purge.cc.
 */
#include "by_hand.h"

#include <algorithm>

#include "c_begin.h"
#include "base/options.h"
#include "c_end.h"

namespace
{

constexpr size_t kMib = 1 << 20, kBound = 96 * kMib, kPart = HK_SURPLUS_PART, kRest = HK_SURPLUS_REST;
constexpr uint32_t kSoon = 2 * HK_CLOCK_SECOND;

class Surplus : public ByHand
{
  protected:
    void SetUp() override
    {
        ByHand::SetUp();
        idle = 0;
        live = 0;
        call(); /* as a process that has nothing yet */
        live = 4096 * kMib;
        call();
    }

    /* So much is freed, in steps; what is due goes. Returns what went. */
    size_t drop(size_t bytes)
    {
        size_t gone = 0;
        for (size_t step = kMib / 4; bytes >= step; bytes -= step) {
            live -= step;
            idle += step;
            gone += call();
        }
        return gone;
    }
    /* So much is taken, of what is idle first. Returns what went all the same. */
    size_t take(size_t bytes)
    {
        live += bytes;
        idle -= std::min(bytes, idle);
        return call();
    }
    size_t call()
    {
        size_t due = hk_surplus_due(idle, live), gone = std::min(due, idle);
        idle -= gone;
        if (gone != 0)
            hk_surplus_note_gone(gone);
        return gone;
    }
    size_t idle = 0, live = 0;
};

/* ---- How much ---- */

TEST_F(Surplus, WhatIsWithinTheBoundStays)
{
    EXPECT_EQ(drop(kBound), 0u);
    EXPECT_GT(drop(kMib), 0u);
}

TEST_F(Surplus, TheBoundIsTheOptions)
{
    uint64_t before = hk_option(surplus_mb);
    ASSERT_EQ(before, 96u);
    EXPECT_EQ(hk_option_write("surplus_mb", "10"), HK_OPTION_OK);
    EXPECT_EQ(drop(10 * kMib), 0u);
    EXPECT_GT(drop(kMib), 0u);
    EXPECT_EQ(hk_option_write("surplus_mb", "96"), HK_OPTION_OK);
}

TEST_F(Surplus, OnceItIsExceededAllGoesAsItIsFreed)
{
    drop(kBound + 60 * kMib);
    EXPECT_LE(idle, kRest);
    for (int i = 0; i < 20; i++) {
        drop(10 * kMib);
        EXPECT_LE(idle, kRest);
    }
}

TEST_F(Surplus, ASlowPathGivesBackABoundedPart)
{
    drop(kBound);
    live -= kMib;
    idle += kMib;
    EXPECT_EQ(hk_surplus_due(idle, live), kPart + 2 * kMib);
    live -= 10 * kMib;
    idle += 10 * kMib;
    EXPECT_EQ(hk_surplus_due(idle, live), kPart + 20 * kMib) << "more than was freed, or it would never end";
    EXPECT_EQ(hk_surplus_due(kRest + 1, live), kPart);
    EXPECT_EQ(hk_surplus_due(kRest, live), 0u);
}

TEST_F(Surplus, WhatIsTakenMakesUpForEightTimesAsMuch)
{
    for (int round = 0; round < 20; round++) {
        EXPECT_EQ(drop(80 * kMib), 0u);
        take(10 * kMib);
    }
    drop(80 * kMib);
    take(2 * kMib);
    EXPECT_EQ(drop(32 * kMib), 0u);
    EXPECT_GT(drop(kMib), 0u) << "and not for more";
}

TEST_F(Surplus, ItEndsWhenMemoryIsTakenAgain)
{
    drop(400 * kMib);
    take(11 * kMib);
    EXPECT_GT(drop(10 * kMib), 0u);
    take(13 * kMib);
    EXPECT_EQ(drop(90 * kMib), 0u) << "however much had been dropped";
    EXPECT_GT(drop(10 * kMib), 0u) << "until the next time";
}

TEST_F(Surplus, WhatAForkedChildInheritsMayBeDropped)
{
    live = 200 * kMib;
    hk_surplus_reset();
    call();
    live += 1000 * kMib;
    call();
    EXPECT_EQ(drop(200 * kMib + kBound), 0u);
    EXPECT_GT(drop(kMib), 0u);
}

/* ---- Mistakes ---- */

TEST_F(Surplus, MoreThanHalfOfItNeededAgainDoublesTheBound)
{
    size_t gone = drop(200 * kMib);
    take(gone / 2);
    EXPECT_EQ(hk_surplus_regret(gone / 2, false), gone / 2);
    EXPECT_EQ(drop(kBound), 0u);
    EXPECT_GT(drop(kMib), 0u) << "it was not more than half";

    SetUp();
    gone = drop(200 * kMib);
    take(gone);
    EXPECT_EQ(hk_surplus_regret(gone / 2 + kMib, false), gone / 2 + kMib);
    EXPECT_EQ(drop(kBound + 2 * gone), 0u);
    EXPECT_GT(drop(kMib), 0u);
}

TEST_F(Surplus, WhatWentInVainIsNoMistake)
{
    size_t gone = drop(200 * kMib);
    EXPECT_EQ(hk_surplus_regret(gone - 20 * kMib, true), gone - 20 * kMib);
    EXPECT_EQ(hk_surplus_regret(10 * kMib, false), 10 * kMib);
    take(50 * kMib);
    EXPECT_EQ(drop(kBound), 0u);
    EXPECT_GT(drop(kMib), 0u) << "half of the rest is not more";
}

TEST_F(Surplus, ItIsToBlameForNoMoreThanWentAndNotForLong)
{
    size_t gone = drop(200 * kMib);
    EXPECT_EQ(hk_surplus_regret(gone - kMib, false), gone - kMib);
    EXPECT_EQ(hk_surplus_regret(3 * kMib, false), kMib);
    EXPECT_EQ(hk_surplus_regret(kMib, false), 0u);

    SetUp();
    drop(200 * kMib);
    advance(kSoon);
    EXPECT_EQ(hk_surplus_regret(kMib, false), kMib);
    advance(1);
    EXPECT_EQ(hk_surplus_regret(100 * kMib, false), 0u);
    take(100 * kMib);
    EXPECT_EQ(drop(kBound), 0u);
    EXPECT_GT(drop(kMib), 0u) << "the bound is the same";
}

TEST_F(Surplus, WhatWentLongAgoIsNotCounted)
{
    drop(400 * kMib);
    advance(kSoon + 1);
    size_t gone = drop(40 * kMib); /* still going */
    EXPECT_GT(gone, 30 * kMib);
    take(60 * kMib);
    hk_surplus_regret(gone, false);
    EXPECT_EQ(drop(kBound + 2 * gone), 0u);
    EXPECT_GT(drop(kMib), 0u);
}

TEST_F(Surplus, WhatWasKeptAndGrewOldLowersTheBoundAgain)
{
    size_t gone = drop(200 * kMib);
    take(gone);
    hk_surplus_regret(gone, false);
    hk_surplus_note_old(2 * gone - 50 * kMib);
    EXPECT_EQ(drop(kBound + 50 * kMib), 0u);
    EXPECT_GT(drop(kMib), 0u);
    SetUp();
    hk_surplus_note_old(50 * kMib);
    EXPECT_EQ(drop(kBound), 0u) << "but not below the option";
}

TEST_F(Surplus, WhatCannotGoIsNotTriedAgainSoon)
{
    for (int round = 0; round < 3; round++) {
        live -= kBound + kMib;
        idle += kBound + kMib;
        EXPECT_GT(hk_surplus_due(idle, live), 0u);
        hk_surplus_stop();
        EXPECT_EQ(hk_surplus_due(idle, live), 0u);
        live -= 90 * kMib;
        EXPECT_EQ(hk_surplus_due(idle, live), 0u);
        take(12 * kMib);
    }
}

/* ---- Holes ---- */

TEST_F(Surplus, HolesAreLookedForAgainWhenMoreIsIdle)
{
    drop(kBound + kMib);
    EXPECT_FALSE(hk_surplus_wants_holes(kRest));
    EXPECT_TRUE(hk_surplus_wants_holes(kRest + 1));
    hk_surplus_note_holes(4 * kMib, 4 * kMib, 64, 50 * kMib);
    EXPECT_TRUE(hk_surplus_wants_holes(kRest + 1)) << "all that was wanted came: there may be more";
    hk_surplus_note_holes(4 * kMib - 1, 4 * kMib, 64, 50 * kMib);
    EXPECT_FALSE(hk_surplus_wants_holes(50 * kMib + kRest)) << "all went that could go";
    EXPECT_TRUE(hk_surplus_wants_holes(50 * kMib + kRest + 1));
}

TEST_F(Surplus, TheBacklogEndsWhenAllHasBeenLookedInto)
{
    drop(kBound + kMib);
    hk_surplus_note_holes(4 * kMib, 4 * kMib, 64, 50 * kMib);
    EXPECT_TRUE(hk_surplus_has_backlog());
    hk_surplus_note_holes(4 * kMib - 1, 4 * kMib, 64, 50 * kMib);
    EXPECT_FALSE(hk_surplus_has_backlog());
    take(100 * kMib);
    EXPECT_FALSE(hk_surplus_has_backlog());
    drop(kBound + kMib);
    EXPECT_TRUE(hk_surplus_has_backlog());
}

TEST_F(Surplus, HolesThatAreSmallAreLookedForSeldom)
{
    drop(kBound + kMib);
    hk_surplus_note_holes(5 * 100 << 10, 4 * kMib, 100, 50 * kMib);
    EXPECT_TRUE(hk_surplus_wants_holes(60 * kMib));
    hk_surplus_note_holes((5 * 100 << 10) - 1, 4 * kMib, 100, 50 * kMib);
    EXPECT_FALSE(hk_surplus_wants_holes(100 * kMib));
    EXPECT_TRUE(hk_surplus_wants_holes(100 * kMib + 1));
    hk_surplus_note_holes(0, 4 * kMib, 0, 200 * kMib);
    EXPECT_FALSE(hk_surplus_wants_holes(400 * kMib));
    take(200 * kMib);
    drop(kBound + kMib);
    EXPECT_TRUE(hk_surplus_wants_holes(kRest + 1)) << "the next time things may be different";
}

} // namespace
