/*
 * A program's worth of allocations that must survive any failure of a system call: for failing_calls.c and
 * strace_victim.c. It takes NULL with ENOMEM for an answer, and nothing else; contents are checked throughout.
 */
#ifndef HK_SURVIVOR_H
#define HK_SURVIVOR_H

#include <stdint.h>

struct hk_survivor {
    uint64_t random;
    unsigned refused; /* requests that were answered by NULL */
};

/* Allocates, resizes and frees in all ways and sizes; nothing is left allocated at the end. Not for two threads at
 * once on the same survivor. */
void hk_survive(struct hk_survivor *s, unsigned steps);

/* Allocates some blocks of each size, each within `attempts` tries, and frees them. */
void hk_survivor_recover(unsigned attempts);

#endif
