#include "front/fork.h"

#include <pthread.h>

#include "front/thread.h"
#include "heap/heaps.h"
#include "heap/huge_pages.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "heap/purge.h"

/* Before the fork every lock is taken in the order of ranks, so that no other thread is inside a structure when the
 * process is copied. From then on the forking thread's operations on locks do nothing: handlers that run later than
 * ours may allocate. The child gives the locks back like the parent, after it has put right what its missing threads
 * left. */

/* The C library's: true only while the process has one thread. Not in all C libraries. */
extern char __libc_single_threaded __attribute__((weak));

static bool hk_process_has_one_thread(void) { return &__libc_single_threaded != NULL && __libc_single_threaded; }

/* The C library's fork takes the lock of its list of streams, and then those of its own malloc. A thread that has the
 * list may wait for a stream, whose thread may wait for us. So with malloc's locks in a handler, which comes before the
 * list, the list must come before the handler: the same thread may take its lock twice. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

static bool hk_streams_can_be_locked(void)
{
    return _IO_list_lock != NULL && _IO_list_unlock != NULL && _IO_list_resetlock != NULL;
}

static struct {
    bool interrupts; /* the only thread forks in a signal handler, which has interrupted it while it held a lock */
    bool has_streams;
} hk_fork; /* of the fork under way: guarded by all locks, or there is one thread */

static bool hk_any_lock_is_held(void)
{
    bool any = hk_lock_is_held(&hk_purge_lock) || hk_lock_is_held(&hk_heaps_lock) || hk_lock_is_held(&hk_pool_lock) ||
               hk_lock_is_held(&hk_large_lock) || hk_lock_is_held(&hk_meta_lock);
    HK_EACH_HEAP (heap)
        any |= hk_lock_is_held(&heap->lock);
    return any;
}

static void hk_fork_prepare(void)
{
    bool alone = hk_process_has_one_thread();
    if (HK_UNLIKELY(alone && hk_any_lock_is_held())) {
        hk_fork.interrupts = true; /* parent and child go on where they were, with what they held */
        return;
    }
    bool streams = !alone && hk_streams_can_be_locked();
    if (streams)
        _IO_list_lock();
    hk_lock_seize(&hk_purge_lock);
    hk_lock_seize(&hk_heaps_lock);
    HK_EACH_HEAP (heap)
        hk_lock_seize(&heap->lock);
    hk_lock_seize(&hk_pool_lock);
    hk_lock_seize(&hk_large_lock);
    hk_lock_seize(&hk_meta_lock);
    hk_fork.has_streams = streams;
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

/* True, once, if the fork was made in a signal handler that has interrupted us. */
static bool hk_fork_has_interrupted(void)
{
    bool interrupts = hk_fork.interrupts;
    hk_fork.interrupts = false;
    return interrupts;
}

static void hk_fork_parent(void)
{
    if (HK_UNLIKELY(hk_fork_has_interrupted()))
        return;
    bool streams = hk_fork.has_streams;
    hk_fork_release();
    if (streams)
        _IO_list_unlock();
}

static void hk_fork_child(void)
{
    if (HK_UNLIKELY(hk_fork_has_interrupted()))
        return;
    bool streams = hk_fork.has_streams;
    hk_purge_after_fork();
    hk_huge_pages_after_fork();
    hk_superslabs_after_fork();
    hk_large_after_fork();
    hk_pool_after_fork();
    hk_heaps_after_fork(&hk_self);
    hk_thread_after_fork();
    hk_fork_release();
    if (streams)
        _IO_list_resetlock(); /* as the C library has done by now, for a process that had threads */
}

void hk_fork_init(void) { pthread_atfork(hk_fork_prepare, hk_fork_parent, hk_fork_child); }
