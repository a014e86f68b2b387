/*
 * The allocation functions that a stress calls, by one set of names or the other: malloc and its kin in a program that
 * is preloaded or linked with the library, the hak_ functions where the core has no other names (HK_NO_LIBC_NAMES: the
 * sanitizers own malloc). The stress itself is the same code.
 */
#ifndef HK_STRESS_NAMES_H
#define HK_STRESS_NAMES_H

#include <stddef.h>

struct hk_names {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    size_t (*usable_size)(void *);
    size_t (*malloc_batch)(size_t, size_t, void **);
    void (*free_batch)(void *const *, size_t);
    void (*trim)(void);
};

/* Pointers, in a file of their own: what the declarations promise (that a new block overlaps no other) is what is
 * tested, and the compiler must not build on it. */
extern const struct hk_names hk_names;

#endif
