/*
 * Zeroing what was used before and may lack memory, for calloc of large blocks.
 *
 * To write zeros is fast where memory is: some 30 us for a MiB, where the kernel takes 60 to get it back and 500 to
 * give other. Where none is it is the worst: the kernel gives memory for each page, in 500 us for a MiB, and a large
 * table of which the program uses little is as large as it can be from then on. No call that a sandbox is sure to allow
 * tells which it is; but pages without memory read as zeros. So some are looked at: where most are zero, the program
 * has used less than it would cost to write to the others.
 */
#ifndef HK_HEAP_ZERO_H
#define HK_HEAP_ZERO_H

#include "base/base.h"

/* Makes [start, start + n) read as zeros: the caller's memory, of which some may never have been written to. Parts that
 * look so are given back. */
void hk_zero(char *start, size_t n);

#endif
