#include "heap/payment.h"

#include "heap/clock.h"

#define HK_PAID_MIN ((size_t)1 << 20) /* before that it is too early to tell */
#define HK_REST_MAX (64 * HK_CLOCK_SECOND)
#define HK_REST_GROWTH_MIN ((size_t)64 << 20) /* to ask costs a small program more than it saves */

static struct {
    _Atomic size_t paid, regretted;
    _Atomic uint32_t rest_until; /* coarse clock */
    _Atomic size_t rest_up_to;   /* bytes in use */
    _Atomic uint32_t rest;       /* how long the next rest will be */
} hk_payment = {.rest = HK_CLOCK_SECOND};

void hk_payment_note_paid(size_t bytes) { hk_add(&hk_payment.paid, bytes); }

void hk_payment_note_regretted(size_t bytes) { hk_add(&hk_payment.regretted, bytes); }

bool hk_payment_rest_is_outgrown(size_t in_use)
{
    return hk_clock_now() < hk_get(&hk_payment.rest_until) && in_use > hk_get(&hk_payment.rest_up_to);
}

void hk_payment_end_rest(void) { hk_set(&hk_payment.rest_until, hk_clock_now()); }

bool hk_payment_demand(size_t in_use)
{
    uint32_t now = hk_clock_now();
    if (now < hk_get(&hk_payment.rest_until))
        return false;
    size_t paid = hk_get(&hk_payment.paid);
    if (paid < HK_PAID_MIN || hk_get(&hk_payment.regretted) < paid / 2)
        return true;
    uint32_t rest = hk_get(&hk_payment.rest);
    hk_set(&hk_payment.rest_up_to, in_use + hk_max(in_use / 2, HK_REST_GROWTH_MIN));
    hk_set(&hk_payment.rest_until, now + rest);
    hk_set(&hk_payment.rest, (uint32_t)hk_min(rest * 2, HK_REST_MAX));
    hk_set(&hk_payment.paid, 0);
    hk_set(&hk_payment.regretted, 0);
    return false;
}

void hk_payment_reset(void)
{
    hk_set(&hk_payment.paid, 0);
    hk_set(&hk_payment.regretted, 0);
    hk_set(&hk_payment.rest_until, 0);
    hk_set(&hk_payment.rest, HK_CLOCK_SECOND);
}
