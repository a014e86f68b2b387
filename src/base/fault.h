/*
 * Faults: what a program did wrong with a pointer.
 *
 * Where a fault is found, locks may be held; it is only noted there (hk_fault_note), and reported by the front once
 * they are released (hk_fault_report): a handler of SIGABRT may allocate.
 */
#ifndef HK_BASE_FAULT_H
#define HK_BASE_FAULT_H

#include "base/base.h"

enum hk_fault_kind {
    HK_FAULT_NONE,
    HK_FAULT_DOUBLE_FREE,    /* block_size is valid */
    HK_FAULT_INSIDE,         /* block and block_size are valid */
    HK_FAULT_FOREIGN,        /* not memory of hakmem */
    HK_FAULT_USE_AFTER_FREE, /* realloc of a freed block; block_size is valid */
    HK_FAULT_WRONG_SIZE,     /* block_size is what may be used, size_given what the caller said */
};

struct hk_fault {
    enum hk_fault_kind kind;
    bool late; /* found in a batch, after the call that was wrong */
    const void *ptr;
    const void *block;
    size_t block_size;
    size_t size_given;
};

#define HK_NO_FAULT ((struct hk_fault){.kind = HK_FAULT_NONE})

HK_INLINE struct hk_fault hk_fault_freed_twice(const void *p, size_t block_size)
{
    return (struct hk_fault){.kind = HK_FAULT_DOUBLE_FREE, .ptr = p, .block_size = block_size};
}

/* Keeps the first fault of a batch. */
HK_INLINE void hk_fault_note(struct hk_fault *to, struct hk_fault fault)
{
    if (HK_UNLIKELY(fault.kind != HK_FAULT_NONE) && to->kind == HK_FAULT_NONE)
        *to = fault;
}

/* The same for one that was found in a batch, after the call that was wrong. */
HK_INLINE void hk_fault_note_late(struct hk_fault *to, struct hk_fault fault)
{
    fault.late = true;
    hk_fault_note(to, fault);
}

/* Writes the message and aborts, or does what option on_error says instead. No lock may be held. */
HK_COLD void hk_fault_report(const struct hk_fault *fault, const char *call);

/* For the end of slow paths: reports what was noted, if anything. */
HK_INLINE void hk_fault_check(const struct hk_fault *fault, const char *call)
{
    if (HK_UNLIKELY(fault->kind != HK_FAULT_NONE))
        hk_fault_report(fault, call);
}

#endif
