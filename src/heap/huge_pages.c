#include "heap/huge_pages.h"

#include "base/options.h"
#include "base/os.h"
#include "heap/heaps.h"
#include "heap/limit.h"
#include "heap/payment.h"

/* Each may add two mappings for good: the kernel does not merge them when the advice is taken back. It allows 65,530 in
 * a process. */
#define HK_HUGE_SUPERSLABS_MAX ((size_t)16 * HK_KIB)

/* ---- Time ---- */

/* Time that populating may take, in sixteenths of a millisecond. Each superslab that is populated adds what small pages
 * would take, about a millisecond, and takes off what it took; when there is none left the next ones do without, each
 * of which adds a sixteenth. */
#define HK_HUGE_TIME_MS 16
#define HK_HUGE_TIME_MOST (5 * HK_HUGE_TIME_MS)
#define HK_HUGE_SLOW_MS 16 /* what takes longer counts as that */

static _Atomic int32_t hk_huge_time = HK_HUGE_TIME_MOST; /* racy: it is a hint */

static void hk_huge_time_add(int32_t more)
{
    int32_t time = hk_get(&hk_huge_time) + more;
    hk_set(&hk_huge_time, time < HK_HUGE_TIME_MOST ? time : HK_HUGE_TIME_MOST);
}

/* True if the next superslab is to do without, which adds to the time. */
static bool hk_huge_time_is_up(void)
{
    if (hk_get(&hk_huge_time) > 0)
        return false;
    hk_huge_time_add(1);
    return true;
}

void hk_huge_pages_took(uint64_t ms) { hk_huge_time_add(HK_HUGE_TIME_MS * (1 - (int32_t)hk_min(ms, HK_HUGE_SLOW_MS))); }

/* By the coarse clock, which reads no hardware: it moves every 1 to 10 ms, while a huge page may take a tenth of one,
 * but what it says is right on average. */
void hk_huge_pages_populate(struct hk_superslab *superslab)
{
    uint64_t before_ms = hk_os_now_ms();
    hk_os_populate(superslab->base, HK_SUPERSLAB_SIZE);
    hk_huge_pages_took(hk_os_now_ms() - before_ms);
    hk_set_visibly(&superslab->populating, false);
}

void hk_huge_pages_after_fork(void) { hk_set(&hk_huge_time, HK_HUGE_TIME_MOST); }

/* ---- Advice ---- */

/* A heap is large when a superslab, and what the magazines of all threads may hold, are each at most a twentieth of
 * what is in use: they have memory as a whole then, though nobody has used it. It is dense when so little is idle that
 * it will not have to pay for growth soon: it would pay with what it has just populated. */
static bool hk_heap_is_large_and_dense(void)
{
    size_t part = hk_active_bytes() / HK_IDLE_PART;
    if (part < HK_SUPERSLAB_SIZE || part < hk_heaps_running() * hk_option(thread_budget))
        return false;
    size_t populated = hk_look(&hk_pool_counts.slots_populated) * HK_SLOT_SIZE;
    return hk_heaps_idle_bytes() + hk_empty_bytes() - populated <= part / 2;
}

static void hk_huge_set(struct hk_superslab *superslab, bool huge)
{
    hk_set_visibly(&superslab->huge, huge);
    hk_add_visibly(&hk_superslab_counts.huge, huge ? 1 : (size_t)-1);
}

static bool hk_huge_advise(struct hk_superslab *superslab)
{
    if (superslab->huge)
        return true;
    if ((!superslab->was_huge && hk_superslab_counts.were_huge == HK_HUGE_SUPERSLABS_MAX) ||
        !hk_os_advise_huge(superslab->base, HK_SUPERSLAB_SIZE))
        return false;
    hk_superslab_counts.were_huge += !superslab->was_huge;
    superslab->was_huge = true;
    hk_huge_set(superslab, true);
    return true;
}

bool hk_huge_pages_begin(struct hk_superslab *superslab)
{
    hk_assert(hk_lock_held_by_me(&hk_pool_lock));
    return hk_option(thp) == HK_THP_AUTO && hk_os_page_size() == 4 * HK_KIB && !hk_huge_time_is_up() &&
           hk_heap_is_large_and_dense() && hk_limit_has_room(HK_SUPERSLAB_SIZE) && hk_huge_advise(superslab);
}

void hk_huge_pages_end(struct hk_superslab *superslab)
{
    hk_assert(hk_lock_held_by_me(&hk_pool_lock));
    if (HK_UNLIKELY(superslab->huge) && hk_os_advise_small(superslab->base, HK_SUPERSLAB_SIZE))
        hk_huge_set(superslab, false);
}

void hk_huge_pages_end_unlocked(struct hk_superslab *superslab)
{
    if (HK_LIKELY(!hk_superslab_is_huge(superslab)))
        return;
    hk_lock_acquire(&hk_pool_lock);
    hk_huge_pages_end(superslab);
    hk_lock_release(&hk_pool_lock);
}

void hk_huge_pages_forget(struct hk_superslab *superslab)
{
    hk_assert(hk_lock_held_by_me(&hk_pool_lock));
    if (superslab->huge)
        hk_huge_set(superslab, false);
    hk_superslab_counts.were_huge -= superslab->was_huge;
    superslab->was_huge = false;
}
