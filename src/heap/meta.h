/*
 * The metadata arena: memory for hakmem's own structures, zeroed, cut from mappings that are never unmapped, so that a
 * reader who comes late (a stale pointer, a thread that is just leaving) always finds a structure where one was, though
 * it may find it zero.
 */
#ifndef HK_HEAP_META_H
#define HK_HEAP_META_H

#include "base/lock.h"

extern struct hk_lock hk_meta_lock;

/* size bytes at a multiple of alignment (a power of two, at most a page); NULL without memory. Takes the META lock. */
void *hk_meta_alloc(size_t size, size_t alignment);
/* Gives back the pages that lie wholly in a part of what was allocated: they are zero afterwards; the rest, or all of it
 * if the kernel refuses, stays as it is. */
void hk_meta_purge(void *p, size_t size);
/* A mapping of its own, for what is large and sparsely used. */
void *hk_meta_alloc_pages(size_t size);
/* Gives back what hk_meta_alloc_pages gave and nobody has seen. */
void hk_meta_free_pages(void *p, size_t size);
/* Bytes that the arena has handed out, and bytes mapped for it, mappings of their own included. */
void hk_meta_usage(size_t *used, size_t *mapped);

#endif
