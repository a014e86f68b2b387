/*
 * The one kind of lock: a futex mutex of one word, with a rank.
 *
 * A thread may wait for a lock only if its rank is above the rank of every lock that it holds; a lock of equal or
 * lower rank may only be tried. Debug builds check this.
 */
#ifndef HK_BASE_LOCK_H
#define HK_BASE_LOCK_H

#include "base/base.h"

/* In the order in which locks are taken. */
enum hk_lock_rank {
    HK_RANK_PURGE = 1, /* pages on their way to the OS whose blocks are out of the bitmaps */
    HK_RANK_HEAPS,     /* the lists of all heaps and of parked heaps */
    HK_RANK_HEAP,      /* one heap; fork alone waits for several of them */
    HK_RANK_POOL,      /* superslabs, slots, the LRU cache; that more memory is in use */
    HK_RANK_LARGE,     /* records and cached mappings of large blocks */
    HK_RANK_META,      /* the metadata arena, and windows */
};

struct hk_lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody may be waiting */
    uint32_t rank;         /* constant */
};

#define HK_LOCK_INIT(r)        \
    {                          \
        .word = 0, .rank = (r) \
    }

/* While a thread is inside fork it holds every lock, and its operations on them do nothing. */
extern HK_TLS bool hk_lock_bypass;

void hk_lock_wait(struct hk_lock *lock);
void hk_lock_wake(struct hk_lock *lock);

#if HK_DEBUG
/* For tests: one in this many operations on locks sleeps for a millisecond, before the lock is taken or while it is
 * held; 0 for never. Other threads then see what lies between two locks, which is mostly too short to be
 * interrupted. */
extern _Atomic uint32_t hk_lock_delays;
void hk_lock_note_acquired(const struct hk_lock *lock, bool waited);
void hk_lock_note_released(const struct hk_lock *lock);
bool hk_lock_held_by_me(const struct hk_lock *lock);
#else
HK_INLINE void hk_lock_note_acquired(const struct hk_lock *lock, bool waited) { (void)lock, (void)waited; }
HK_INLINE void hk_lock_note_released(const struct hk_lock *lock) { (void)lock; }
HK_INLINE bool hk_lock_held_by_me(const struct hk_lock *lock)
{
    (void)lock;
    return true;
}
#endif

HK_INLINE void hk_lock_init(struct hk_lock *lock, enum hk_lock_rank rank)
{
    atomic_init(&lock->word, 0);
    lock->rank = rank;
}

HK_INLINE bool hk_lock_try_raw(struct hk_lock *lock)
{
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

HK_INLINE void hk_lock_acquire(struct hk_lock *lock)
{
    if (HK_UNLIKELY(hk_lock_bypass))
        return;
    hk_lock_note_acquired(lock, true);
    if (HK_UNLIKELY(!hk_lock_try_raw(lock)))
        hk_lock_wait(lock);
}

HK_INLINE bool hk_lock_try(struct hk_lock *lock)
{
    if (HK_UNLIKELY(hk_lock_bypass))
        return true;
    if (!hk_lock_try_raw(lock))
        return false;
    hk_lock_note_acquired(lock, false);
    return true;
}

HK_INLINE void hk_lock_release(struct hk_lock *lock)
{
    if (HK_UNLIKELY(hk_lock_bypass))
        return;
    hk_lock_note_released(lock);
    if (HK_UNLIKELY(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2))
        hk_lock_wake(lock);
}

/* For fork, which takes every lock there is, and for a heap that is made during it: ranks are not checked. */
HK_INLINE void hk_lock_seize(struct hk_lock *lock)
{
    if (!hk_lock_try_raw(lock))
        hk_lock_wait(lock);
}
HK_INLINE void hk_lock_unseize(struct hk_lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        hk_lock_wake(lock);
}

#endif
