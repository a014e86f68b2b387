#include "base/lock.h"

#include "base/os.h"

HK_TLS bool hk_lock_bypass;

/* How often a waiter looks before it sleeps: most critical sections are over within a microsecond. */
#define HK_LOCK_SPINS 64

HK_INLINE void hk_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

HK_NOINLINE void hk_lock_wait(struct hk_lock *lock)
{
    for (int i = 0; i < HK_LOCK_SPINS; i++) {
        hk_pause();
        if (hk_get(&lock->word) == 0 && hk_lock_try_raw(lock))
            return;
    }
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        hk_os_futex_wait(&lock->word, 2);
}

HK_NOINLINE void hk_lock_wake(struct hk_lock *lock) { hk_os_futex_wake(&lock->word, 1); }

#if HK_DEBUG

#define HK_LOCKS_HELD_MAX 8

static HK_TLS const struct hk_lock *hk_held[HK_LOCKS_HELD_MAX];
static HK_TLS unsigned hk_nheld;

_Atomic uint32_t hk_lock_delays;

static void hk_lock_delay(void)
{
    static HK_TLS uint32_t random;
    uint32_t one_in = hk_get(&hk_lock_delays);
    if (one_in == 0)
        return;
    if (random == 0)
        random = (uint32_t)((uintptr_t)&random >> 4); /* differs between threads */
    random = random * 1664525u + 1013904223u;         /* D. E. Knuth, The Art of Computer Programming 2, 3.3.4 */
    if ((random >> 8) % one_in == 0)
        hk_os_sleep_ms(1);
}

void hk_lock_note_acquired(const struct hk_lock *lock, bool waited)
{
    hk_lock_delay();
    for (unsigned i = 0; waited && i < hk_nheld; i++)
        hk_assert(hk_held[i]->rank < lock->rank);
    hk_assert(hk_nheld < HK_LOCKS_HELD_MAX);
    hk_held[hk_nheld++] = lock;
}

void hk_lock_note_released(const struct hk_lock *lock)
{
    hk_lock_delay();
    for (unsigned i = hk_nheld; i-- > 0;) {
        if (hk_held[i] == lock) {
            hk_held[i] = hk_held[--hk_nheld];
            return;
        }
    }
    hk_assert(!"a lock is released by a thread that does not hold it");
}

bool hk_lock_held_by_me(const struct hk_lock *lock)
{
    if (hk_lock_bypass)
        return true;
    for (unsigned i = 0; i < hk_nheld; i++)
        if (hk_held[i] == lock)
            return true;
    return false;
}

#endif
