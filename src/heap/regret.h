/*
 * Regret: memory that was purged and is needed again, or was purged in vain. Those who had it purged learn of it: growth
 * that pays (payment.h), and what goes at once in a process without threads (surplus.h).
 *
 * Any thread may call, with any lock held. Racy counts do: they are hints.
 */
#ifndef HK_HEAP_REGRET_H
#define HK_HEAP_REGRET_H

#include "base/base.h"

/* Memory that was purged, for whatever reason, is needed again, by so many bytes. */
void hk_regret(size_t bytes);
/* Holes of so many bytes were purged in vain: the slab is released with them. */
void hk_regret_holes(size_t bytes);

#endif
