#include "heap/stretch.h"

#include "base/os.h"
#include "heap/size_class.h"

/* Stretches of one length, which serve in turn: when one's turn comes again, the mapping that had it has mostly gone.
 * The lengths are odd numbers of huge pages, and of slots: else the heads of all would lie in one set of the TLB. */
struct hk_stretches {
    size_t size;
    uint32_t count;
    _Atomic uint32_t turn;
};
static struct hk_stretches hk_long_stretches = {.size = (size_t)66 << 20, .count = 64};
static struct hk_stretches hk_short_stretches = {.size = 17 * HK_SLOT_SIZE, .count = 512};
_Static_assert(17 * HK_SLOT_SIZE >= HK_MEDIUM_MAX, "a medium mapping can grow as far as it may");

/* The long ones begin here, a multiple of a huge page; the short ones end here. Set once. */
static _Atomic uintptr_t hk_stretches_at;

/* How far the stretches lie below what the kernel places by itself, which reaches them only when it has filled the room
 * between. */
#define HK_STRETCHES_BELOW ((uintptr_t)64 << 30)

/* 0 if there is no room for them. What the kernel chose at random stays random. */
static uintptr_t hk_stretches_find(void)
{
    size_t page = hk_os_page_size();
    void *probe = hk_os_reserve(page, page);
    if (probe == NULL)
        return 0;
    hk_os_unmap(probe, page, 0);
    uintptr_t at = hk_sub_sat((uintptr_t)probe, HK_STRETCHES_BELOW) & ~(HK_HUGE_PAGE - 1);
    uintptr_t none = 0;
    if (at > HK_STRETCHES_BELOW)
        hk_replace(&hk_stretches_at, &none, at);
    return hk_get(&hk_stretches_at);
}

/* The start of the next one; NULL if there is none. */
static void *hk_stretch_next(bool medium)
{
    uintptr_t at = hk_get(&hk_stretches_at);
    if (at == 0 && (at = hk_stretches_find()) == 0)
        return NULL;
    struct hk_stretches *stretches = medium ? &hk_short_stretches : &hk_long_stretches;
    uint32_t turn = hk_add(&stretches->turn, 1) % stretches->count;
    return (void *)((medium ? at - stretches->count * stretches->size : at) + turn * stretches->size);
}

void *hk_stretch_map(size_t size, size_t alignment, bool medium)
{
    return hk_os_map_at(hk_stretch_next(medium), size, alignment);
}
