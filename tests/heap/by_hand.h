/* What is learnt from what was purged, told in made-up numbers, and at times that a test moves on by hand. */
#ifndef HK_TESTS_HEAP_BY_HAND_H
#define HK_TESTS_HEAP_BY_HAND_H

#include <gtest/gtest.h>

#include "c_begin.h"
#include "heap/clock.h"
#include "heap/payment.h"
#include "heap/surplus.h"
#include "c_end.h"

constexpr uint32_t kAheadOfTheSystem = UINT32_MAX / 4; /* whose clock does not move ours then */

class ByHand : public testing::Test
{
  protected:
    void SetUp() override
    {
        atomic_store(&hk_clock, kAheadOfTheSystem);
        hk_surplus_reset();
        hk_payment_reset();
    }
    static void advance(uint32_t quarters) { atomic_fetch_add(&hk_clock, quarters); }
};

#endif
