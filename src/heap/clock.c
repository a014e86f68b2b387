#include "heap/clock.h"

#include "base/os.h"

_Atomic uint32_t hk_clock = 1;

uint32_t hk_clock_look(void)
{
    static _Atomic uint32_t start; /* such that the first look finds 1; never 0 */
    uint32_t system = (uint32_t)(hk_os_now_ms() / HK_CLOCK_MS) + 2;
    uint32_t begun = atomic_load_explicit(&start, memory_order_relaxed);
    if (HK_UNLIKELY(begun == 0)) {
        begun = system - 1;
        atomic_store_explicit(&start, begun, memory_order_relaxed);
    }
    uint32_t seen = hk_clock_now();
    uint32_t now = system - begun;
    if ((int32_t)(now - seen) <= 0 ||
        !atomic_compare_exchange_strong_explicit(&hk_clock, &seen, now, memory_order_relaxed, memory_order_relaxed))
        return 0;
    return now - seen;
}
