/*
 * The operating system. The system calls that hakmem makes are in os.c, made directly and not through the C library
 * (but for clock_gettime and getauxval, which make none, and abort): no errno is touched, no cancellation point is met,
 * and nothing that interposes on mmap is called. The rest is what the C library calls when it makes the
 * maintenance thread for us, sets the signals that are blocked in it, or sets a thread's destructor.
 *
 * In steady state only mmap, munmap, mprotect, madvise, mremap and futex are used, so that a process in a seccomp
 * sandbox keeps running. Addresses and sizes are multiples of the page size unless a function says otherwise.
 * Functions that can fail return false or NULL and leave everything as it was.
 */
#ifndef HK_BASE_OS_H
#define HK_BASE_OS_H

#include "base/base.h"

extern _Atomic size_t hk_os_page_size_known; /* 0 until first asked */
size_t hk_os_ask_page_size(void);
/* The page size, read from the kernel at first use: 4, 16 or 64 KiB. */
HK_INLINE size_t hk_os_page_size(void)
{
    size_t size = hk_get(&hk_os_page_size_known);
    return HK_LIKELY(size != 0) ? size : hk_os_ask_page_size();
}

/* Address space without memory: no access, no commit charge. The result is a multiple of alignment. */
void *hk_os_reserve(size_t size, size_t alignment);
/* Makes part of a reservation (or more of it, again) readable and writable. */
bool hk_os_commit(void *p, size_t size);
/* Readable, writable, zero pages at a multiple of alignment. */
void *hk_os_map(size_t size, size_t alignment);
/* The same, at `hint` if that is aligned and nothing is mapped there; else wherever there is room. */
void *hk_os_map_at(void *hint, size_t size, size_t alignment);
/* committed: how many bytes of it were readable and writable, for the counters. */
bool hk_os_unmap(void *p, size_t size, size_t committed);
/* Gives the pages back; the range reads as zeros afterwards. False if the kernel refused: then it may hold anything. */
bool hk_os_purge(void *p, size_t size);
/* Takes access, memory and commit charge from part of a reservation, which stays reserved. Works where hk_os_purge does
 * not (locked memory), but may split the mapping. */
bool hk_os_decommit(void *p, size_t size);
/* Makes read-only pages writable, and read-only again. executable: whether they can be executed, which does not
 * change. */
bool hk_os_unprotect(void *p, size_t size, bool executable);
bool hk_os_protect(void *p, size_t size, bool executable);
/* Asks for huge pages. A refusal is of no consequence. Advice for a part of a mapping splits it. */
bool hk_os_advise_huge(void *p, size_t size);
/* Changes the size of a mapping, in place or not at all. */
bool hk_os_resize_in_place(void *p, size_t old_size, size_t new_size);
/* Changes the size of a mapping, moving it to where there is room; its new address, or NULL with nothing changed. */
void *hk_os_resize_moving(void *p, size_t old_size, size_t new_size);

void hk_os_futex_wait(_Atomic uint32_t *word, uint32_t expected);
void hk_os_futex_wait_ms(_Atomic uint32_t *word, uint32_t expected, uint32_t ms);
void hk_os_futex_wake(_Atomic uint32_t *word, int count);
/* Waits on a futex that nobody wakes: a sandbox must allow futex calls anyway. */
void hk_os_sleep_ms(uint32_t ms);

/* Blocks the calling thread's signals, but for the two that the C library keeps for itself; returns the mask of before,
 * for hk_os_restore_signals. pthread_sigmask would unblock these two, which the C library's own thread for timers waits
 * for. */
uint64_t hk_os_block_signals(void);
void hk_os_restore_signals(uint64_t mask);
/* Gives the calling thread the processors of the process's first thread, if these are more than its own, and the normal
 * policy if it is scheduled in real time: it has inherited both from the thread that made it. */
void hk_os_schedule_as_process(void);
/* Names the calling thread, for ps and debuggers; up to 15 characters. */
void hk_os_name_thread(const char *name);
/* Reads the start of a file, as much as there is room for, and puts a NUL after it. */
bool hk_os_read_file(const char *path, char *to, size_t size);
/* Faults the pages of a range in; where the kernel cannot (before Linux 5.14), by touching them. Their content
 * stays. */
void hk_os_populate(void *p, size_t size);
/* Asks for small pages only; the same holds of it as of hk_os_advise_huge. */
bool hk_os_advise_small(void *p, size_t size);

uint64_t hk_os_process_id(void);
/* How much address space the process may have (RLIMIT_AS); SIZE_MAX if there is no limit, or none can be read. */
size_t hk_os_address_space_limit(void);
/* Milliseconds of a monotonic clock, good to a few milliseconds; no system call where the kernel has a vDSO. */
uint64_t hk_os_now_ms(void);
/* Reports are to go where standard error leads now, though the program may close it, and nowhere else; messages as long
 * as that is there. At start. */
void hk_os_keep_stderr(void);
/* Writes all of a message to standard error. If that is full and does not block, waits for it up to a fifth of a
 * second; after one wait in vain, not again until it has taken something. */
void hk_os_write_stderr(const char *text, size_t length);
/* The same for a report, which is lost if standard error was kept at start and is gone. */
void hk_os_write_report(const char *text, size_t length);
_Noreturn void hk_os_abort(void);
/* True if the process runs with privileges its caller lacks (AT_SECURE): then the environment is not to be trusted. */
bool hk_os_is_secure(void);

/* How many calls of each kind were made, and bytes mapped now. Relaxed: readers get a recent value. */
struct hk_os_counts {
    _Atomic size_t mmap, munmap, mprotect, madvise, mremap, failed;
    _Atomic size_t bytes_reserved; /* address space held */
    _Atomic size_t bytes_committed;
    _Atomic size_t bytes_committed_peak;
};
extern struct hk_os_counts hk_os_counts;

#endif
