/*
 * Regret: memory that was purged and is needed again, or was purged in vain. Those who had it purged learn of it:
 * payments for growth (payment.h), and what goes at once in a process without threads (surplus.h).
 *
 * Any thread may call, with any lock held. Racy counts do: they are hints.
 */
#ifndef HK_HEAP_REGRET_H
#define HK_HEAP_REGRET_H

#include "base/base.h"

/* Notes that bytes which were purged, for whatever reason, are needed again. */
void hk_regret(size_t bytes);
/* Notes that bytes of holes were purged in vain: the slab is released with them. */
void hk_regret_holes(size_t bytes);

#endif
