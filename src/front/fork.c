#include "front/fork.h"

#include <pthread.h>
#include <sys/single_threaded.h>

#include "front/maintenance.h"
#include "front/thread.h"
#include "heap/heaps.h"
#include "heap/huge_pages.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "heap/purge.h"

/* Before the fork every lock is taken in the order of ranks, so that no other thread is inside a structure when the
 * process is copied. From then on the forking thread's operations on locks do nothing: handlers that run later than
 * ours may allocate. The child gives the locks back like the parent, after it has put right what its missing threads
 * left.
 *
 * Where there is no other thread nothing of this is needed, and it would do harm: a signal handler may fork, and what
 * it has interrupted, with locks held or memory on its way to the OS, goes on in parent and child when it returns. */

/* How many forks of the calling thread are under way that it began as the only thread; more than one if signal handlers
 * fork within a fork. */
static HK_TLS unsigned hk_forks_alone;

static bool hk_fork_end_alone(void)
{
    if (HK_LIKELY(hk_forks_alone == 0))
        return false;
    hk_forks_alone--;
    return true;
}

/* glibc's fork takes the lock of its list of streams, and then those of its own malloc. Our handler takes our locks
 * before that: another thread that holds the list's lock may wait for a stream, whose owner may wait for one of our
 * locks. So the handler takes the list's lock first; it is recursive, and fork takes it again. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

static bool hk_streams_can_be_locked(void)
{
    return _IO_list_lock != NULL && _IO_list_unlock != NULL && _IO_list_resetlock != NULL;
}

static void hk_fork_prepare(void)
{
    if (__libc_single_threaded) {
        hk_forks_alone++;
        return;
    }
    if (hk_streams_can_be_locked())
        _IO_list_lock();
    hk_lock_seize(&hk_purge_lock);
    hk_lock_seize(&hk_heaps_lock);
    HK_EACH_HEAP (heap)
        hk_lock_seize(&heap->lock);
    hk_lock_seize(&hk_pool_lock);
    hk_lock_seize(&hk_large_lock);
    hk_lock_seize(&hk_meta_lock);
    hk_lock_bypass = true;
}

static void hk_fork_release(void)
{
    hk_lock_bypass = false;
    hk_lock_unseize(&hk_meta_lock);
    hk_lock_unseize(&hk_large_lock);
    hk_lock_unseize(&hk_pool_lock);
    HK_EACH_HEAP (heap)
        hk_lock_unseize(&heap->lock);
    hk_lock_unseize(&hk_heaps_lock);
    hk_lock_unseize(&hk_purge_lock);
}

static void hk_fork_parent(void)
{
    if (hk_fork_end_alone())
        return;
    hk_fork_release();
    if (hk_streams_can_be_locked())
        _IO_list_unlock();
}

static void hk_fork_child(void)
{
    if (hk_fork_end_alone()) {
        hk_purge_forget();
        hk_maintenance_begin();
        return;
    }
    hk_purge_after_fork();
    hk_huge_pages_after_fork();
    hk_superslabs_after_fork();
    hk_large_after_fork();
    hk_pool_after_fork();
    hk_heaps_after_fork(&hk_self);
    hk_thread_after_fork();
    hk_fork_release();
    if (hk_streams_can_be_locked())
        _IO_list_resetlock(); /* as the C library has done by now, for a process that had threads */
}

void hk_fork_init(void) { pthread_atfork(hk_fork_prepare, hk_fork_parent, hk_fork_child); }
