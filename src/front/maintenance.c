#include "front/maintenance.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <threads.h>

#include "base/options.h"
#include "base/os.h"
#include "front/thread.h"
#include "heap/heaps.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/purge.h"

_Atomic uint32_t hk_maintenance_state;

/* Threads that have made a call and not ended. */
static _Atomic uint32_t hk_threads;

static uint64_t hk_process; /* its ID; 0 before hk_maintenance_begin */

/* ---- The thread ---- */

#define HK_PASS_MS 500u
#define HK_PASS_QUIET_MS 250u
/* A process that makes fewer slow paths than this from one pass to the next is quiet: it may have a timer or two. */
#define HK_QUIET_TICKS 8u
/* A process that has been quiet this long keeps no warm budget; and if it has made no slow path at all meanwhile,
 * nothing that is idle stays, however young. */
#define HK_QUIET_MS 1000u
/* After this long without a slow path, the process has nothing left that is yet to come of age. */
#define HK_SLEEP_AFTER_MS 3000u

/* Stands still when the process does. */
static uint32_t hk_process_ticks(void) { return hk_heaps_ticks() + hk_large_calls(); }

/* Sequentially consistent, like all that starts and ends the maintenance thread: either a thread that begins to
 * allocate sees that it is ending, or the maintenance thread sees that thread. */
static bool hk_is_last_thread(void) { return atomic_load_explicit(&hk_threads, memory_order_seq_cst) == 0; }

/* Sleeps until a slow path wakes it, unless there has been one since `ticks` was read. */
static void hk_maintenance_sleep(uint32_t ticks)
{
    atomic_store_explicit(&hk_maintenance_state, HK_MAINTENANCE_ASLEEP, memory_order_seq_cst);
    /* Slow paths read the state without a fence: one that has just missed the change is noticed after this wait. */
    hk_os_futex_wait_ms(&hk_maintenance_state, HK_MAINTENANCE_ASLEEP, HK_PASS_MS);
    while (hk_process_ticks() == ticks && !hk_is_last_thread() && hk_maintenance_is_asleep())
        hk_os_futex_wait(&hk_maintenance_state, HK_MAINTENANCE_ASLEEP);
    hk_set(&hk_maintenance_state, HK_MAINTENANCE_AWAKE);
}

static enum hk_purge_level hk_level_after(unsigned quiet_ms, unsigned still_ms)
{
    return still_ms >= HK_QUIET_MS ? HK_PURGE_STILL : quiet_ms >= HK_QUIET_MS ? HK_PURGE_QUIET : HK_PURGE_DECAY;
}

/* Purges and sleeps, until there is no thread left to do it for. */
static void hk_maintenance_work(void)
{
    uint32_t ticks = hk_process_ticks();
    unsigned quiet_ms = 0; /* for how long there have been few slow paths */
    unsigned still_ms = 0; /* for how long there has been none */
    while (!hk_is_last_thread()) {
        unsigned wait_ms = quiet_ms > 0 ? HK_PASS_QUIET_MS : HK_PASS_MS;
        hk_os_futex_wait_ms(&hk_maintenance_state, HK_MAINTENANCE_AWAKE, wait_ms);
        uint32_t before = ticks;
        ticks = hk_process_ticks();
        quiet_ms = ticks - before < HK_QUIET_TICKS ? quiet_ms + wait_ms : 0;
        still_ms = ticks == before ? still_ms + wait_ms : 0;
        struct hk_fault fault = HK_NO_FAULT;
        size_t bytes = hk_purge(hk_level_after(quiet_ms, still_ms), 0, SIZE_MAX, &fault);
        hk_fault_check(&fault, "free");
        if (still_ms >= HK_SLEEP_AFTER_MS && bytes == 0) {
            hk_maintenance_sleep(ticks);
            quiet_ms = still_ms = 0;
        }
    }
    struct hk_fault fault = HK_NO_FAULT;
    hk_purge(HK_PURGE_ALL, 0, SIZE_MAX, &fault);
    hk_fault_check(&fault, "free");
}

/* False if a thread that relies on this one has begun meanwhile. */
static bool hk_maintenance_end(void)
{
    uint32_t none = HK_MAINTENANCE_NONE;
    atomic_store_explicit(&hk_maintenance_state, HK_MAINTENANCE_NONE, memory_order_seq_cst);
    return hk_is_last_thread() ||
           !atomic_compare_exchange_strong_explicit(&hk_maintenance_state, &none, HK_MAINTENANCE_AWAKE,
                                                    memory_order_seq_cst, memory_order_relaxed);
}

static void *hk_maintenance_run(void *unused)
{
    (void)unused;
    hk_os_name_thread("hakmem");
    hk_os_schedule_as_process();
    atomic_store_explicit(&hk_maintenance_state, HK_MAINTENANCE_AWAKE, memory_order_release);
    hk_os_futex_wake(&hk_maintenance_state, 1);
    do
        hk_maintenance_work();
    while (!hk_maintenance_end());
    /* The last thread of a process runs its exit handlers. */
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    return NULL;
}

/* More than the thread needs: exit handlers may run on it, signal frames and a program's thread-local variables lie
 * there. */
#define HK_STACK_MIN ((size_t)1 << 20)
#define HK_STACK_MAX ((size_t)64 << 20)

static bool hk_maintenance_create_small(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int result = EINVAL;
    for (size_t stack = HK_STACK_MIN; result == EINVAL && stack <= HK_STACK_MAX; stack *= 2) {
        pthread_attr_setstacksize(&attributes, stack);
        result = pthread_create(&thread, &attributes, hk_maintenance_run, NULL);
    }
    pthread_attr_destroy(&attributes);
    return result == 0;
}

static int hk_maintenance_run_int(void *unused)
{
    hk_maintenance_run(unused);
    return 0;
}

static bool hk_maintenance_create_large(void)
{
    thrd_t thread;
    if (thrd_create(&thread, hk_maintenance_run_int, NULL) != thrd_success)
        return false;
    thrd_detach(thread);
    return true;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define HK_SANITIZED true /* the sanitizer's pthread_create is to know of the thread */
#else
#define HK_SANITIZED false
#endif

/* The C library's code extends farther than this to both sides of thrd_create: what lies nearer is the library's. */
#define HK_NEAR ((uintptr_t)256 << 10)

/* True if pthread_create is the C library's own. A program, or a tool that looks after its threads, may have one that
 * takes a lock and allocates under it: called from within malloc, it would wait for itself. Nobody replaces
 * thrd_create, which cannot set the size of the stack. To ask the loader whose function it is would take a lock as
 * well. */
static bool hk_pthread_create_is_safe(void)
{
    uintptr_t of_threads = (uintptr_t)&pthread_create, of_libc = (uintptr_t)&thrd_create;
    return HK_SANITIZED || of_threads - of_libc + HK_NEAR < 2 * HK_NEAR;
}

static bool hk_maintenance_create(void)
{
    uint64_t saved = hk_os_block_signals(); /* the new thread inherits that */
    bool created = hk_pthread_create_is_safe() ? hk_maintenance_create_small() : hk_maintenance_create_large();
    hk_os_restore_signals(saved);
    return created;
}

/* Returns when the thread runs, so that nothing is left to be done if the program enters a sandbox next. It waits for
 * the kernel alone, and not for ever. */
HK_COLD static void hk_maintenance_start(void)
{
    uint32_t none = HK_MAINTENANCE_NONE;
    if (!atomic_compare_exchange_strong_explicit(&hk_maintenance_state, &none, HK_MAINTENANCE_STARTING,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return;
    int saved = errno;
    if (hk_maintenance_create())
        hk_os_futex_wait_ms(&hk_maintenance_state, HK_MAINTENANCE_STARTING, 100);
    else
        atomic_store_explicit(&hk_maintenance_state, HK_MAINTENANCE_UNAVAILABLE, memory_order_release);
    errno = saved;
}

static void hk_maintenance_wake(void)
{
    uint32_t asleep = HK_MAINTENANCE_ASLEEP;
    if (atomic_compare_exchange_strong_explicit(&hk_maintenance_state, &asleep, HK_MAINTENANCE_AWAKE,
                                                memory_order_seq_cst, memory_order_relaxed))
        hk_os_futex_wake(&hk_maintenance_state, 1);
}

/* ---- Slow paths ---- */

/* How many superslabs beyond the bounds of the LRU cache one slow path purges. */
#define HK_TRIM_MAX 4

void hk_maintain(struct hk_fault *fault)
{
    if (hk_superslabs_are_too_many())
        hk_superslabs_purge(hk_superslabs_max_cached(), UINT64_MAX, HK_TRIM_MAX);
    if (hk_limit_is_pressing() && hk_limit_take_pressing())
        hk_purge(HK_PURGE_ALL, 0, SIZE_MAX, fault);
    uint32_t state = hk_get(&hk_maintenance_state);
    if (state == HK_MAINTENANCE_ASLEEP)
        hk_maintenance_wake();
    bool alone = state == HK_MAINTENANCE_NONE || state == HK_MAINTENANCE_UNAVAILABLE;
    bool only = alone && hk_get(&hk_threads) < 2;
    struct hk_heap *heap = hk_self.heap != NULL ? hk_self.heap : &hk_guests;
    hk_purge_tick(alone, only ? heap : NULL, fault);
}

static bool hk_is_vfork_child(void) { return hk_process != 0 && hk_process != hk_os_process_id(); }

bool hk_maintenance_thread_allocates(void)
{
    bool may_start = hk_option(background) && !hk_lock_bypass;
    if (may_start && hk_get(&hk_threads) > 0 && hk_get(&hk_maintenance_state) == HK_MAINTENANCE_NONE &&
        hk_is_vfork_child())
        return false;
    if (atomic_fetch_add_explicit(&hk_threads, 1, memory_order_seq_cst) > 0 && may_start)
        hk_maintenance_start();
    return true;
}

void hk_maintenance_thread_ends(void)
{
    bool last = atomic_fetch_sub_explicit(&hk_threads, 1, memory_order_seq_cst) == 1;
    hk_maintenance_wake(); /* the heap that the thread has left is to be dissolved */
    if (last)
        hk_os_futex_wake(&hk_maintenance_state, 1); /* it waits for its next pass */
}

void hk_maintenance_begin(void) { hk_process = hk_os_process_id(); }

void hk_maintenance_after_fork(bool alive)
{
    hk_maintenance_begin();
    hk_set(&hk_maintenance_state, HK_MAINTENANCE_NONE);
    hk_set(&hk_threads, alive);
}
