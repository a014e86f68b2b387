/*
 * <stdatomic.h> for the C++ of the unit tests: C's atomics as operations on plain objects, so that the internal
 * headers, which are C, can be read by a C++ compiler. GCC's own header is for C, C++'s std::atomic is another type.
 * The operations are the compiler's, the same that C's are made of, so code compiled from both works on one object.
 */
#ifndef HK_TESTS_STDATOMIC_H
#define HK_TESTS_STDATOMIC_H

#define _Atomic

enum {
    memory_order_relaxed = __ATOMIC_RELAXED,
    memory_order_acquire = __ATOMIC_ACQUIRE,
    memory_order_release = __ATOMIC_RELEASE,
    memory_order_acq_rel = __ATOMIC_ACQ_REL,
    memory_order_seq_cst = __ATOMIC_SEQ_CST,
};

typedef bool atomic_bool;
typedef bool atomic_flag;
#define ATOMIC_FLAG_INIT false

#define atomic_init(object, value) __atomic_store_n(object, value, __ATOMIC_RELAXED)
#define atomic_thread_fence(order) __atomic_thread_fence(order)

#define atomic_load_explicit(object, order) __atomic_load_n(object, order)
#define atomic_store_explicit(object, value, order) __atomic_store_n(object, value, order)
#define atomic_exchange_explicit(object, value, order) __atomic_exchange_n(object, value, order)
#define atomic_compare_exchange_strong_explicit(object, expected, value, success, failure) \
    __atomic_compare_exchange_n(object, expected, value, false, success, failure)
#define atomic_compare_exchange_weak_explicit(object, expected, value, success, failure) \
    __atomic_compare_exchange_n(object, expected, value, true, success, failure)
#define atomic_fetch_add_explicit(object, value, order) __atomic_fetch_add(object, value, order)
#define atomic_fetch_sub_explicit(object, value, order) __atomic_fetch_sub(object, value, order)
#define atomic_fetch_or_explicit(object, value, order) __atomic_fetch_or(object, value, order)
#define atomic_fetch_and_explicit(object, value, order) __atomic_fetch_and(object, value, order)
#define atomic_flag_test_and_set_explicit(object, order) __atomic_test_and_set(object, order)
#define atomic_flag_clear_explicit(object, order) __atomic_clear(object, order)

#define atomic_load(object) atomic_load_explicit(object, __ATOMIC_SEQ_CST)
#define atomic_store(object, value) atomic_store_explicit(object, value, __ATOMIC_SEQ_CST)
#define atomic_fetch_add(object, value) atomic_fetch_add_explicit(object, value, __ATOMIC_SEQ_CST)

#endif
