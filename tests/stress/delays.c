/* Linked into a stress: its threads sleep now and then when they take a lock or give it back (base/lock.h). */
#include "base/lock.h"

enum { DELAY_ONE_IN = 300 };

__attribute__((constructor)) static void begin_delays(void)
{
    atomic_store_explicit(&hk_lock_delays, DELAY_ONE_IN, memory_order_relaxed);
}
