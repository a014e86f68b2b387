/*
 * Options: one table (options.def) from which the values, the parser, the help and the manual come.
 *
 * Values are read where they matter, with hk_option(name); each is one relaxed atomic word, so that
 * hak_option_set may change it at any time. They hold their defaults until hk_options_init has run.
 */
#ifndef HK_BASE_OPTIONS_H
#define HK_BASE_OPTIONS_H

#include "base/text.h"

enum hk_option_id {
#define HK_OPTION(name, type, default_value, min, max, doc) HK_OPTION_##name,
#include "base/options.def"
#undef HK_OPTION
    HK_NOPTIONS
};

enum hk_thp { HK_THP_AUTO, HK_THP_ALWAYS, HK_THP_NEVER };
/* Kinds of events, one bit each. */
enum hk_trace_kind { HK_TRACE_PURGE = 1, HK_TRACE_SLOT = 2, HK_TRACE_LRU = 4, HK_TRACE_DRAIN = 8 };
/* A limit that is a percentage of the cgroup's memory limit, until it is known (heap/limit.c). */
#define HK_LIMIT_PERCENT ((uint64_t)1 << 63)
enum hk_on_error { HK_ON_ERROR_ABORT, HK_ON_ERROR_WARN, HK_ON_ERROR_IGNORE };

extern _Atomic uint64_t hk_option_values[HK_NOPTIONS];

/* Sets a value that is known to be in range. */
HK_INLINE void hk_option_store(enum hk_option_id id, uint64_t value) { hk_set(&hk_option_values[id], value); }
/* The same, unless another thread has set it to something else meanwhile. */
HK_INLINE void hk_option_replace(enum hk_option_id id, uint64_t old_value, uint64_t value)
{
    hk_replace(&hk_option_values[id], &old_value, value);
}
HK_INLINE uint64_t hk_option_load(enum hk_option_id id) { return hk_get(&hk_option_values[id]); }
#define hk_option(name) hk_option_load(HK_OPTION_##name)

enum hk_option_result { HK_OPTION_OK, HK_OPTION_UNKNOWN, HK_OPTION_INVALID, HK_OPTION_FIXED };

/* Reads HAKMEM_* from an environment: a warning line for each unknown name and each bad value. Called once. */
void hk_options_init(char *const *environment);
/* By name in lower case, as in the table. */
enum hk_option_result hk_option_write(const char *name, const char *value);
/* Appends the value as text; false for an unknown name. */
bool hk_option_read(const char *name, struct hk_text *to);

#endif
