#include "heap/surplus.h"

#include "base/bits.h"
#include "base/options.h"
#include "heap/clock.h"

/* Each byte that is taken makes up for this many that were freed. */
#define HK_TAKEN_WEIGHT 8u
/* How many bytes each slab that is looked into, and each call of the kernel, must yield on average. */
#define HK_HOLES_LEAST ((size_t)5 << 10)
/* What is needed again within this time should not have gone; coarse clock. */
#define HK_SOON (2 * HK_CLOCK_SECOND)

#define HK_UNKNOWN SIZE_MAX

static struct {
    size_t live;       /* when last told; UNKNOWN in a fork's child */
    size_t inherited;  /* live in a fork's child when first told: it gains nothing if it frees what it shares */
    size_t dropped;    /* freed, and not taken again: no more than the bound counts */
    bool dropping;     /* it has exceeded the bound, and not been made up for */
    bool backlog;      /* since then not all slabs have been looked into */
    size_t holes_next; /* bytes that must be idle in slabs before holes are looked for again */
    /* Any thread: */
    _Atomic size_t gone;     /* in parts that may still turn out to be a mistake */
    _Atomic size_t left;     /* of them, and not needed again yet */
    _Atomic uint32_t at;     /* when the last part went; coarse clock */
    _Atomic size_t mappings; /* of what has gone, and not needed again yet */
    _Atomic size_t learned;  /* from mistakes: by how much the bound is higher */
} hk_surplus;

static bool hk_surplus_is_recent(void) { return hk_clock_now() - hk_get(&hk_surplus.at) <= HK_SOON; }

size_t hk_surplus_due(size_t idle, size_t live)
{
    if (HK_UNLIKELY(hk_surplus.live == HK_UNKNOWN))
        hk_surplus.live = hk_surplus.inherited = live;
    size_t freed = hk_sub_sat(hk_surplus.live, live), taken = hk_sub_sat(live, hk_surplus.live);
    size_t bound = (hk_option(surplus_mb) << 20) + hk_surplus.inherited + hk_get(&hk_surplus.learned);
    hk_surplus.live = live;
    hk_surplus.dropped = hk_min(hk_sub_sat(hk_surplus.dropped + freed, taken * HK_TAKEN_WEIGHT), bound + 1);
    if (hk_surplus.dropped == 0)
        hk_surplus.dropping = false;
    /* What is unmapped as it is freed is dropped, and not idle. */
    if (hk_surplus.dropped > bound && idle > bound && !hk_surplus.dropping) {
        hk_surplus.dropping = hk_surplus.backlog = true;
        hk_surplus.holes_next = HK_SURPLUS_REST;
    }
    return hk_surplus.dropping && idle > HK_SURPLUS_REST ? HK_SURPLUS_PART + 2 * freed : 0;
}

void hk_surplus_note_gone(size_t bytes)
{
    if (!hk_surplus_is_recent()) {
        hk_set(&hk_surplus.gone, 0);
        hk_set(&hk_surplus.left, 0);
    }
    hk_set(&hk_surplus.gone, hk_get(&hk_surplus.gone) + bytes);
    hk_set(&hk_surplus.left, hk_get(&hk_surplus.left) + bytes);
    hk_set(&hk_surplus.at, hk_clock_now());
}

void hk_surplus_stop(void)
{
    hk_surplus.dropped = 0;
    hk_surplus.dropping = false;
}

bool hk_surplus_wants_holes(size_t idle) { return idle > hk_surplus.holes_next; }

bool hk_surplus_has_backlog(void) { return hk_surplus.backlog; }

void hk_surplus_note_holes(size_t bytes, size_t wanted, size_t work, size_t idle)
{
    bool worth = bytes != 0 && bytes >= work * HK_HOLES_LEAST;
    bool all = bytes < wanted;
    size_t rest = all ? idle : 0;
    hk_surplus.backlog &= !all;
    hk_surplus.holes_next = worth ? rest + HK_SURPLUS_REST : 2 * idle;
}

size_t hk_surplus_regret(size_t bytes, bool in_vain)
{
    if (HK_LIKELY(hk_get(&hk_surplus.left) == 0))
        return 0;
    hk_clock_look(); /* the process may have slept */
    if (!hk_surplus_is_recent()) {
        hk_set(&hk_surplus.left, 0);
        return 0;
    }
    size_t gone = hk_get(&hk_surplus.gone), left = hk_get(&hk_surplus.left);
    bytes = hk_min(bytes, left);
    left -= bytes;
    hk_set(&hk_surplus.left, left);
    if (in_vain) {
        hk_set(&hk_surplus.gone, hk_sub_sat(gone, bytes));
    } else if (left < gone / 2) {
        hk_set(&hk_surplus.learned, hk_max(hk_get(&hk_surplus.learned), 2 * gone));
        hk_set(&hk_surplus.gone, 0);
    }
    return bytes;
}

void hk_surplus_note_mappings(size_t bytes) { hk_add(&hk_surplus.mappings, bytes); }

void hk_surplus_regret_mappings(size_t bytes)
{
    size_t gone = hk_get(&hk_surplus.mappings);
    bytes = hk_min(bytes, gone);
    if (HK_LIKELY(bytes == 0)) /* which says nothing of when they went */
        return;
    bool recent = hk_surplus_regret(bytes, false) != 0;
    hk_set(&hk_surplus.mappings, recent ? gone - bytes : 0);
}

void hk_surplus_note_old(size_t bytes) { hk_set(&hk_surplus.learned, hk_sub_sat(hk_get(&hk_surplus.learned), bytes)); }

void hk_surplus_reset(void)
{
    hk_surplus.live = HK_UNKNOWN;
    hk_surplus_stop();
    hk_set(&hk_surplus.gone, 0);
    hk_set(&hk_surplus.left, 0);
    hk_set(&hk_surplus.mappings, 0);
    hk_set(&hk_surplus.learned, 0);
}
