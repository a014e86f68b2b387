/*
 * The coarse clock: how long memory has lain unused, in quarters of a second since about the first call. It stands
 * still until somebody looks: slow paths do now and then, and the maintenance thread.
 */
#ifndef HK_HEAP_CLOCK_H
#define HK_HEAP_CLOCK_H

#include "base/base.h"

#define HK_CLOCK_MS 250u
#define HK_CLOCK_SECOND (1000u / HK_CLOCK_MS)

extern _Atomic uint32_t hk_clock; /* at least 1; written by hk_clock_look alone */

HK_INLINE uint32_t hk_clock_now(void) { return hk_get(&hk_clock); }

/* Reads the system's clock, and moves ours on. */
void hk_clock_look(void);

#endif
