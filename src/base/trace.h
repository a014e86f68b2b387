/*
 * Traces: one line on standard error for each event of the kinds that option trace names, written at once by the thread
 * that meets it. Slow paths only. The format is described in docs/trace.md.
 *
 *     hk_trace(HK_TRACE_SLOT, "slot acquire", {"stage", 2}, {"slots", 1});
 */
#ifndef HK_BASE_TRACE_H
#define HK_BASE_TRACE_H

#include "base/options.h"

struct hk_trace_field {
    const char *name;
    uint64_t value;
};

void hk_trace_write(const char *event, const struct hk_trace_field *fields, size_t n);

#define hk_trace(kind, event, ...)                                   \
    do {                                                             \
        if (HK_UNLIKELY((hk_option(trace) & (kind)) != 0)) {         \
            const struct hk_trace_field hk_fields[] = {__VA_ARGS__}; \
            hk_trace_write(event, hk_fields, HK_COUNT(hk_fields));   \
        }                                                            \
    } while (0)

#endif
