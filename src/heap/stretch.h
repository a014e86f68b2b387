/*
 * Stretches: where mappings that grow lie.
 *
 * The kernel places mappings side by side, so that the next one takes the room into which the last one would have
 * grown. A mapping that grows is therefore given a stretch of address space of its own, far from all that the kernel
 * places by itself. Nothing is reserved: a stretch is an address at which the kernel is asked to put the mapping. So
 * it counts against no limit, and costs nothing but the page of keys that its first slot lies in. Where something else
 * lies there already, the kernel puts the mapping where it puts others.
 */
#ifndef HK_HEAP_STRETCH_H
#define HK_HEAP_STRETCH_H

#include "base/base.h"

/* Readable, writable, zero pages at a multiple of alignment, at the start of a stretch if that is free. A medium
 * mapping gets a short one, in which it can grow as far as it may. NULL without memory. Thread-safe. */
void *hk_stretch_map(size_t size, size_t alignment, bool medium);

#endif
