/*
 * Payments: whether memory that grows is paid for with idle memory, so that fragmentation does not add up to a peak.
 *
 * A program whose idle memory comes back into use soon does not fragment: to make it pay would only move its page
 * faults about. So what is paid is compared with what is regretted; when that is half, payments rest for a while, which
 * doubles each time. But what was found out about a small program does not hold for the large one that it has become:
 * if that has much idle memory, it is asked again (docs/decisions/021-payments-rest-at-records-too.md, 026).
 *
 * This is told what was purged, what of it is needed again, and what is in use; purge.c finds what is to go. Any thread
 * may call, with any lock held. Racy counts do: they are hints.
 */
#ifndef HK_HEAP_PAYMENT_H
#define HK_HEAP_PAYMENT_H

#include "base/base.h"

/* This part of what is in use may be idle without being made to pay. */
#define HK_IDLE_PART 20u
/* This part of what is in use is much to be idle. */
#define HK_REST_IDLE_PART 8u

/* So many bytes went as a payment. */
void hk_payment_note_paid(size_t bytes);
/* So many bytes that went, not as surplus, are needed again (regret.h). */
void hk_payment_note_regretted(size_t bytes);

/* Whether growth is to pay now, in a process that has so many bytes in use; if what was paid is regretted, a rest
 * begins. */
bool hk_payment_demand(size_t in_use);
/* True if payments rest, and the process has so many more bytes in use than when they began to that it may be another
 * program: with much idle memory it is, and the rest is to end. */
bool hk_payment_rest_is_outgrown(size_t in_use);
void hk_payment_end_rest(void);
/* Forgets all, as in the child of a fork. */
void hk_payment_reset(void);

#endif
