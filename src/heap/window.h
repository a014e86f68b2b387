/*
 * Windows: from any pointer to the key of its slot, in two loads and without a test.
 *
 * hk_map.entries has an entry per 4 GiB window: the distance, in keys, from hk_map.no_keys to the window's own array
 * of keys. An entry of zero thus leads to no_keys, which is all zero: NULL, foreign and huge pointers need no test of
 * their own, as their key matches nobody. An entry is set once, before any block of its window is handed out, and never
 * changes; it is read without ordering, because whoever holds a block got it from somebody who saw the entry.
 *
 * A key tells who owns the slot and what lies in it:
 *   0                      nothing of ours
 *   id << 8 | class        part of a slab of that class, owned by the heap with that id
 *   index << 8 | LARGE     a large block starts in this slot; index of its record
 *   class << 8 | GONE      part of a slab that was given back; what was here, for messages
 *   size << 8 | GONE_LARGE  a large block that was freed; its size in units of HK_GONE_UNIT, for messages
 * Keys are relaxed atomics: written before a release operation that precedes the first hand-out of a block.
 */
#ifndef HK_HEAP_WINDOW_H
#define HK_HEAP_WINDOW_H

#include "base/fault.h"
#include "heap/size_class.h"

typedef uint32_t hk_key;

enum { HK_KEY_LARGE = 0xff, HK_KEY_GONE = 0xfe, HK_KEY_GONE_LARGE = 0xfd };
_Static_assert(HK_NCLASSES < HK_KEY_GONE_LARGE, "kinds of keys are told from classes by the low byte");

#define HK_GONE_UNIT (4 * HK_KIB)
#define HK_KEY_SHIFT 8
#define HK_KEY_ID_MAX (((hk_key)1 << 24) - 1)
/* The owner key of a thread without magazines: no key of a slab differs from it by a class alone. */
#define HK_KEY_NOBODY (HK_KEY_ID_MAX << HK_KEY_SHIFT)

struct hk_superslab;

struct hk_window {
    _Atomic hk_key keys[HK_SLOTS_PER_WINDOW];
    struct hk_superslab *_Atomic superslabs[HK_SUPERSLABS_PER_WINDOW]; /* those that exist; NULL elsewhere */
    uint32_t first, end;    /* all superslabs that ever existed are between; by hk_pool_lock */
    struct hk_window *next; /* in the list of all windows; constant once published */
};

struct hk_map {
    _Atomic hk_key no_keys[HK_SLOTS_PER_WINDOW];
    intptr_t entries[HK_WINDOWS]; /* constant once non-zero */
};

extern struct hk_map hk_map;

HK_INLINE _Atomic hk_key *hk_key_at(const void *p)
{
    uint32_t slot = (uint32_t)((uintptr_t)p >> HK_SLOT_SHIFT); /* bits 16 to 47 of the address */
    intptr_t at = (uint16_t)slot;
    /* No instruction; but it has the number within the window put into a register of its own, which saves free a
     * copy. */
    __asm__("" : "+r"(at) : "r"(slot));
    at += hk_map.entries[slot >> 16];
    return (_Atomic hk_key *)((uintptr_t)hk_map.no_keys + (uintptr_t)at * sizeof(hk_key));
}

HK_INLINE hk_key hk_key_of(const void *p) { return hk_get(hk_key_at(p)); }

/* The table does not look at a pointer's upper bits: where they are not zero, the key is not this pointer's. */
HK_INLINE bool hk_is_user_address(const void *p) { return (uintptr_t)p >> HK_ADDRESS_BITS == 0; }

/* For a pointer that may be anything. */
HK_INLINE hk_key hk_key_of_any(const void *p) { return hk_is_user_address(p) ? hk_key_of(p) : 0; }

/* The kind of a key; for a slab's key, its class. */
HK_INLINE unsigned hk_key_kind(hk_key key) { return key & 0xff; }
HK_INLINE uint32_t hk_key_index(hk_key key) { return key >> HK_KEY_SHIFT; }
HK_INLINE bool hk_key_is_slabs(hk_key key) { return key != 0 && hk_key_kind(key) < HK_NCLASSES; }

/* What is wrong with freeing a pointer that is no block, by its key, which is not a live block's. */
struct hk_fault hk_key_fault(const void *p, hk_key key);

/* A window by its number; NULL if nothing of ours lies there. */
HK_INLINE struct hk_window *hk_window_at(size_t index)
{
    intptr_t entry = __atomic_load_n(&hk_map.entries[index], __ATOMIC_ACQUIRE);
    return entry == 0 ? NULL : (struct hk_window *)(hk_map.no_keys + entry);
}
/* The superslab in which p lies, NULL if it is in none. Safe for any value of p. */
HK_INLINE struct hk_superslab *hk_superslab_of(const void *p)
{
    uintptr_t address = (uintptr_t)p;
    struct hk_window *window = hk_is_user_address(p) ? hk_window_at(address >> HK_WINDOW_SHIFT) : NULL;
    return window == NULL
               ? NULL
               : atomic_load_explicit(&window->superslabs[(address >> HK_SUPERSLAB_SHIFT) % HK_SUPERSLABS_PER_WINDOW],
                                      memory_order_acquire);
}
/* The same for a pointer whose key is a slab's. */
HK_INLINE struct hk_superslab *hk_superslab_at(const void *p)
{
    const struct hk_window *window =
        (const struct hk_window *)(hk_map.no_keys + hk_map.entries[(uintptr_t)p >> HK_WINDOW_SHIFT]);
    return hk_get(&window->superslabs[((uintptr_t)p >> HK_SUPERSLAB_SHIFT) % HK_SUPERSLABS_PER_WINDOW]);
}

/* Makes sure that the windows of [p, p + size) exist. False if there is no memory for them. Takes the META lock. */
bool hk_window_prepare(const void *p, size_t size);
/* The same in two steps, for a caller that must not fail once the address is known. Returns a window that covers no
 * address yet; NULL without memory. Takes the META lock. */
struct hk_window *hk_window_obtain(void);
/* Makes it the window in which p lies; if there is one already, keeps it for the next that is obtained. Takes the META
 * lock. */
void hk_window_enter(struct hk_window *window, const void *p);
/* Enters a superslab, or NULL, for the superslab-sized range that starts at base. The pool's lock is held. */
void hk_window_set_superslab(const void *base, struct hk_superslab *superslab);
/* Where a walk over all superslabs stands: all zero at first, and again when it has been through them. */
struct hk_superslab_cursor {
    struct hk_window *window;
    uint32_t number; /* of the next one to look at, in the window */
};
/* The next superslab; NULL at the end. The pool's lock is held, but may be dropped between two calls. */
struct hk_superslab *hk_superslabs_walk(struct hk_superslab_cursor *cursor);

/* The first of the list of all windows; NULL if there is none. */
struct hk_window *hk_window_first(void);

#endif
