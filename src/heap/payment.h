/*
 * Payments: whether memory that grows is paid for with idle memory, so that fragmentation does not add up to a peak.
 *
 * A program whose idle memory comes back into use soon does not fragment: to make it pay would only move its page
 * faults about. So what is paid is compared with what is regretted; when that is half, payments rest for a while, which
 * doubles each time. But what was found out about a small program does not hold for the large one that it has become:
 * if that has much idle memory, it is asked again (docs/decisions/021-payments-rest-at-records-too.md, 026).
 *
 * This module is told what was purged, how much of it is needed again, and what is in use; purge.c finds what is to go.
 * Any thread may call, with any lock held. The counts are racy, which is good enough for hints.
 */
#ifndef HK_HEAP_PAYMENT_H
#define HK_HEAP_PAYMENT_H

#include "base/base.h"

/* While no more than this part of what is in use is idle, the heap does not pay. */
#define HK_IDLE_PART 20u
/* A rest that the process has outgrown ends if at least this part of what is in use is idle. */
#define HK_REST_IDLE_PART 8u

/* Notes bytes that went as a payment. */
void hk_payment_note_paid(size_t bytes);
/* Notes bytes that went, not as surplus, and are needed again (regret.h). */
void hk_payment_note_regretted(size_t bytes);

/* Whether growth is to pay now; begins a rest when too much of what was paid is regretted. in_use: bytes that the
 * process has in use. */
bool hk_payment_demand(size_t in_use);
/* True if payments rest, and the process has so many more bytes in use than when the rest began that it may have become
 * another program. If much of them is idle it has, and the rest is to end. */
bool hk_payment_rest_is_outgrown(size_t in_use);
void hk_payment_end_rest(void);
/* Forgets all, as in the child of a fork. */
void hk_payment_reset(void);

#endif
