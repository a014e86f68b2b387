/*
 * Zeroing what was used before and may lack memory, for calloc of large blocks.
 *
 * Writing zeros is fast where there is memory: some 30 us for a MiB, while the kernel takes 60 to take the memory back
 * and 500 to give other. Where there is none it is the worst choice: the kernel gives memory for each page, in 500 us
 * for a MiB, and a large table of which the program uses little has all its memory from then on. No call that a sandbox
 * is sure to allow tells which is the case; but pages without memory read as zeros. So some pages are looked at: where
 * most of them are zero, the program has used less than it would cost to write to the others.
 */
#ifndef HK_HEAP_ZERO_H
#define HK_HEAP_ZERO_H

#include "base/base.h"

/* Makes [start, start + n) read as zeros: the caller's memory, of which some may never have been written to. Parts that
 * look so are given back. */
void hk_zero(char *start, size_t n);

#endif
