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

static void hk_fork_prepare(void)
{
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

static void hk_fork_child(void)
{
    hk_purge_after_fork();
    hk_huge_pages_after_fork();
    hk_superslabs_after_fork();
    hk_large_after_fork();
    hk_pool_after_fork();
    hk_heaps_after_fork(&hk_self);
    hk_thread_after_fork();
    hk_fork_release();
}

void hk_fork_init(void) { pthread_atfork(hk_fork_prepare, hk_fork_release, hk_fork_child); }
