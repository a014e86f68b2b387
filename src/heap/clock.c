#include "heap/clock.h"

#include "base/bits.h"
#include "base/os.h"

_Atomic uint32_t hk_clock = 1;

void hk_clock_look(void)
{
    static _Atomic uint32_t start; /* such that the first look finds 1; never 0 */
    uint32_t system = (uint32_t)(hk_os_now_ms() / HK_CLOCK_MS) + 2;
    uint32_t begun = hk_get(&start);
    if (HK_UNLIKELY(begun == 0)) {
        begun = system - 1;
        hk_set(&start, begun);
    }
    uint32_t seen = hk_clock_now();
    uint32_t now = system - begun;
    if ((int32_t)(now - seen) > 0) /* fails if another was faster, and has moved it as far */
        hk_replace(&hk_clock, &seen, now);
}
