/* What purging has done, for statistics and for those who learn from it. Any thread may count. */
#ifndef HK_HEAP_PURGE_COUNTS_H
#define HK_HEAP_PURGE_COUNTS_H

#include "base/base.h"

struct hk_purge_counts {
#define HK_PURGE_COUNTER(name, doc) _Atomic size_t name;
#include "base/stats.def"
#undef HK_PURGE_COUNTER
};
extern struct hk_purge_counts hk_purge_counts;

#endif
