/*
 * The allocation functions that a stress calls, by one set of names or the other: libc_names.c gives malloc and its
 * kin (for a preloaded or linked program), hak_names.c the hak_ functions (for the sanitizers, which own malloc). A
 * program is linked with one of the two; the stress itself is the same code.
 */
#ifndef HK_STRESS_NAMES_H
#define HK_STRESS_NAMES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hk_names {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    size_t (*usable_size)(void *);
    size_t (*malloc_batch)(size_t, size_t, void **);
    void (*free_batch)(void *const *, size_t);
    void (*trim)(void); /* NULL if there is no such function by these names */
};

extern const struct hk_names hk_names;

#ifdef __cplusplus
}
#endif
#endif
