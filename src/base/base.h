/*
 * What every file of hakmem includes: attributes, assertions, and the geometry of the address space.
 * The geometry is stated once, here; everything else derives from it.
 */
#ifndef HK_BASE_BASE_H
#define HK_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

#define HK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HK_ALWAYS_INLINE inline __attribute__((always_inline))
#define HK_INLINE static HK_ALWAYS_INLINE
#define HK_NOINLINE __attribute__((noinline))
#define HK_COLD __attribute__((noinline, cold))
#define HK_CACHE_LINE 64
#define HK_CACHE_ALIGNED __attribute__((aligned(HK_CACHE_LINE)))
#define HK_EXPORT __attribute__((visibility("default")))

/* Initial-exec: a load from the GOT and a segment-relative access, never __tls_get_addr, which may allocate. */
#define HK_TLS _Thread_local __attribute__((tls_model("initial-exec")))

#define HK_COUNT(array) (sizeof(array) / sizeof *(array))

#define HK_KIB ((size_t)1 << 10)
#define HK_MIB ((size_t)1 << 20)

/* The kernel's huge pages, where its normal ones are 4 KiB. */
#define HK_HUGE_PAGE (2 * HK_MIB)

/* A slot is the unit of which slabs are made, a superslab the unit that the shared pool gets from the OS, a window
 * the unit of the table that leads from a pointer to the key of its slot. */
#define HK_SLOT_SHIFT 16
#define HK_SUPERSLAB_SHIFT 21
#define HK_WINDOW_SHIFT 32
#define HK_ADDRESS_BITS 48

#define HK_SLOT_SIZE ((size_t)1 << HK_SLOT_SHIFT)
#define HK_SUPERSLAB_SIZE ((size_t)1 << HK_SUPERSLAB_SHIFT)
#define HK_SLOTS_PER_SUPERSLAB (1u << (HK_SUPERSLAB_SHIFT - HK_SLOT_SHIFT))
#define HK_SLOTS_PER_WINDOW (1u << (HK_WINDOW_SHIFT - HK_SLOT_SHIFT))
#define HK_SUPERSLABS_PER_WINDOW (1u << (HK_WINDOW_SHIFT - HK_SUPERSLAB_SHIFT))
#define HK_WINDOWS (1u << (HK_ADDRESS_BITS - HK_WINDOW_SHIFT))

/* The alignment of every block (malloc(3): suitable for any built-in type). */
#define HK_MIN_ALIGN 16

_Static_assert(HK_SLOTS_PER_SUPERSLAB == 32, "slot states are kept in 32-bit masks");
_Static_assert(HK_SLOTS_PER_WINDOW == 65536, "the hot path takes the slot number as a 16-bit value");
_Static_assert(sizeof(void *) == 8, "hakmem is for 64-bit machines");

HK_INLINE size_t hk_align_up(size_t n, size_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }
HK_INLINE size_t hk_align_down(size_t n, size_t alignment) { return n & ~(alignment - 1); }
HK_INLINE size_t hk_div_up(size_t n, size_t by) { return (n + by - 1) / by; }
HK_INLINE size_t hk_sub_sat(size_t a, size_t b) { return a > b ? a - b : 0; }
HK_INLINE size_t hk_min(size_t a, size_t b) { return a < b ? a : b; }
HK_INLINE size_t hk_max(size_t a, size_t b) { return a > b ? a : b; }
HK_INLINE bool hk_is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

/* hk_assert checks invariants in debug builds; what it states is true in all builds. */
#if HK_DEBUG
#define hk_assert(x) ((x) ? (void)0 : hk_assert_failed(#x, __FILE__, __LINE__))
#else
#define hk_assert(x) ((void)0)
#endif
_Noreturn void hk_assert_failed(const char *what, const char *file, int line);

#endif
