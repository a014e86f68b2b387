#include "heap/regret.h"

#include "heap/payment.h"
#include "heap/purge_counts.h"
#include "heap/surplus.h"

static void hk_regret_any(size_t bytes, bool in_vain)
{
    hk_add(&hk_purge_counts.regretted_bytes, bytes);
    size_t surplus = hk_surplus_regret(bytes, in_vain); /* the payments had no part in it */
    hk_payment_note_regretted(bytes - surplus);
}

void hk_regret(size_t bytes) { hk_regret_any(bytes, false); }

void hk_regret_holes(size_t bytes)
{
    hk_add(&hk_purge_counts.hole_bytes_in_vain, bytes);
    hk_regret_any(bytes, true);
}
