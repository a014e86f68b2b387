/*
 * Relaxed accesses: of values that order nothing else. Where an order matters the code names it, with <stdatomic.h>.
 */
#ifndef HK_BASE_ATOMIC_H
#define HK_BASE_ATOMIC_H

#include <stdatomic.h>

/* Of an atomic object. hk_add returns what it was before; hk_replace stores only if the object is *expected, and tells
 * else in *expected what it is. */
#define hk_get(object) atomic_load_explicit((object), memory_order_relaxed)
#define hk_set(object, value) atomic_store_explicit((object), (value), memory_order_relaxed)
#define hk_add(object, more) atomic_fetch_add_explicit((object), (more), memory_order_relaxed)
#define hk_replace(object, expected, value) \
    atomic_compare_exchange_strong_explicit((object), (expected), (value), memory_order_relaxed, memory_order_relaxed)

/* Of a plain number or pointer that is written under a lock, and read without it as a hint: whether to look closer. Who
 * holds the lock reads it as it is. */
#define hk_look(object) __atomic_load_n((object), __ATOMIC_RELAXED)
#define hk_set_visibly(object, value) __atomic_store_n((object), (value), __ATOMIC_RELAXED)
#define hk_add_visibly(object, more) hk_set_visibly((object), *(object) + (more))

#endif
