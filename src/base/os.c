#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/bits.h"

struct hk_os_counts hk_os_counts;

#if defined(__x86_64__)
static long hk_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long hk_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "hakmem supports x86-64 and AArch64"
#endif

/* The kernel reports an error as a value in [-4095, -1]. */
HK_INLINE bool hk_syscall_failed(long result) { return (unsigned long)result > -4096ul; }

static bool hk_counted(long result)
{
    if (!hk_syscall_failed(result))
        return true;
    hk_add(&hk_os_counts.failed, 1);
    return false;
}

static void hk_count_committed(size_t size)
{
    size_t now = hk_add(&hk_os_counts.bytes_committed, size) + size;
    size_t peak = hk_get(&hk_os_counts.bytes_committed_peak);
    while (now > peak && !atomic_compare_exchange_weak_explicit(&hk_os_counts.bytes_committed_peak, &peak, now,
                                                                memory_order_relaxed, memory_order_relaxed)) {}
}

_Atomic size_t hk_os_page_size_known;

HK_COLD size_t hk_os_ask_page_size(void)
{
    size_t size = getauxval(AT_PAGESZ);
    hk_set(&hk_os_page_size_known, size);
    return size;
}

static void *hk_mmap(void *hint, size_t size, int protection)
{
    hk_add(&hk_os_counts.mmap, 1);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (protection == PROT_NONE ? MAP_NORESERVE : 0);
    long p = hk_syscall(SYS_mmap, (long)hint, (long)size, protection, flags, -1, 0);
    if (!hk_counted(p))
        return NULL;
    hk_add(&hk_os_counts.bytes_reserved, size);
    return (void *)p;
}

bool hk_os_unmap(void *p, size_t size, size_t committed)
{
    hk_add(&hk_os_counts.munmap, 1);
    if (!hk_counted(hk_syscall(SYS_munmap, (long)p, (long)size, 0, 0, 0, 0)))
        return false;
    hk_add(&hk_os_counts.bytes_reserved, -size);
    hk_add(&hk_os_counts.bytes_committed, -committed);
    return true;
}

/* Takes the address that the kernel gives first; only if that is not aligned, maps again with a margin and cuts the
 * margin off. The kernel places mappings side by side, so a size that is a multiple of the alignment mostly needs no
 * margin. */
static void *hk_mmap_aligned(void *hint, size_t size, size_t alignment, int protection)
{
    char *p = hk_mmap(hint, size, protection);
    if (p == NULL || ((uintptr_t)p & (alignment - 1)) == 0)
        return p;
    hk_os_unmap(p, size, 0);
    if (size + alignment < size)
        return NULL;
    p = hk_mmap(NULL, size + alignment, protection);
    if (p == NULL)
        return NULL;
    size_t head = (size_t)(-(uintptr_t)p & (alignment - 1));
    if (head != 0)
        hk_os_unmap(p, head, 0);
    if (alignment != head)
        hk_os_unmap(p + head + size, alignment - head, 0);
    return p + head;
}

void *hk_os_reserve(size_t size, size_t alignment) { return hk_mmap_aligned(NULL, size, alignment, PROT_NONE); }

static bool hk_mprotect(void *p, size_t size, int protection)
{
    hk_add(&hk_os_counts.mprotect, 1);
    return hk_counted(hk_syscall(SYS_mprotect, (long)p, (long)size, protection, 0, 0, 0));
}

bool hk_os_commit(void *p, size_t size)
{
    if (!hk_mprotect(p, size, PROT_READ | PROT_WRITE))
        return false;
    hk_count_committed(size);
    return true;
}

void *hk_os_map_at(void *hint, size_t size, size_t alignment)
{
    void *p = hk_mmap_aligned(hint, size, alignment, PROT_READ | PROT_WRITE);
    if (p != NULL)
        hk_count_committed(size);
    return p;
}

void *hk_os_map(size_t size, size_t alignment) { return hk_os_map_at(NULL, size, alignment); }

static bool hk_madvise(void *p, size_t size, int advice)
{
    hk_add(&hk_os_counts.madvise, 1);
    return hk_counted(hk_syscall(SYS_madvise, (long)p, (long)size, advice, 0, 0, 0));
}

/* Emulators treat MADV_DONTNEED as a hint and keep the content: one try tells. */
static bool hk_purge_zeroes(void)
{
    enum { UNKNOWN, YES, NO };
    static _Atomic uint32_t known;
    uint32_t answer = hk_get(&known);
    if (HK_UNLIKELY(answer == UNKNOWN)) {
        size_t page = hk_os_page_size();
        volatile char *probe = hk_mmap(NULL, page, PROT_READ | PROT_WRITE);
        if (probe == NULL)
            return false;
        *probe = 1;
        if (hk_madvise((void *)probe, page, MADV_DONTNEED)) /* else it is locked, as all new memory may be for now */
            answer = *probe == 0 ? YES : NO;
        hk_os_unmap((void *)probe, page, 0);
        hk_set(&known, answer);
    }
    return answer == YES;
}

bool hk_os_purge(void *p, size_t size) { return hk_madvise(p, size, MADV_DONTNEED) && hk_purge_zeroes(); }

bool hk_os_decommit(void *p, size_t size)
{
    hk_add(&hk_os_counts.mmap, 1);
    if (!hk_counted(hk_syscall(SYS_mmap, (long)p, (long)size, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)))
        return false;
    hk_add(&hk_os_counts.bytes_committed, -size);
    return true;
}

bool hk_os_unprotect(void *p, size_t size, bool executable)
{
    return hk_mprotect(p, size, PROT_READ | PROT_WRITE | (executable ? PROT_EXEC : 0));
}

bool hk_os_protect(void *p, size_t size, bool executable)
{
    return hk_mprotect(p, size, PROT_READ | (executable ? PROT_EXEC : 0));
}

bool hk_os_advise_huge(void *p, size_t size) { return hk_madvise(p, size, MADV_HUGEPAGE); }

bool hk_os_advise_small(void *p, size_t size) { return hk_madvise(p, size, MADV_NOHUGEPAGE); }

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

void hk_os_populate(void *p, size_t size)
{
    if (hk_madvise(p, size, MADV_POPULATE_WRITE))
        return;
    for (size_t at = 0; at < size; at += hk_os_page_size())
        __atomic_fetch_or((char *)p + at, 0, __ATOMIC_RELAXED);
}

/* SIGCANCEL, which is SIGTIMER as well, and SIGSETXID. */
#define HK_SIGNALS_OF_LIBC ((uint64_t)3 << 31)

static uint64_t hk_block_signals(uint64_t mask)
{
    uint64_t before = 0;
    long result = hk_syscall(SYS_rt_sigprocmask, SIG_BLOCK, (long)&mask, (long)&before, sizeof mask, 0, 0);
    if (hk_syscall_failed(result)) /* in a sandbox: to restore what there is changes nothing */
        hk_syscall(SYS_rt_sigprocmask, SIG_SETMASK, 0, (long)&before, sizeof mask, 0, 0);
    return before;
}

uint64_t hk_os_block_signals(void) { return hk_block_signals(~HK_SIGNALS_OF_LIBC); }

void hk_os_restore_signals(uint64_t mask)
{
    hk_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof mask, 0, 0);
}

/* The kernel's masks are as long as it has processors, up to 8,192. */
#define HK_PROCESSOR_WORDS 128

static unsigned hk_count_processors(const uint64_t mask[HK_PROCESSOR_WORDS])
{
    unsigned n = 0;
    for (unsigned i = 0; i < HK_PROCESSOR_WORDS; i++)
        n += hk_count_bits64(mask[i]);
    return n;
}

void hk_os_schedule_as_process(void)
{
    uint64_t own[HK_PROCESSOR_WORDS] = {0}, process[HK_PROCESSOR_WORDS] = {0};
    const struct sched_param none = {0};
    long policy = hk_syscall(SYS_sched_getscheduler, 0, 0, 0, 0, 0, 0);
    if (policy == SCHED_FIFO || policy == SCHED_RR)
        hk_syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, (long)&none, 0, 0, 0);
    long n = hk_syscall(SYS_sched_getaffinity, 0, sizeof own, (long)own, 0, 0, 0);
    long m = hk_syscall(SYS_sched_getaffinity, (long)hk_os_process_id(), sizeof process, (long)process, 0, 0, 0);
    if (n > 0 && m > 0 && hk_count_processors(process) > hk_count_processors(own))
        hk_syscall(SYS_sched_setaffinity, 0, m, (long)process, 0, 0, 0);
}

void hk_os_name_thread(const char *name) { hk_syscall(SYS_prctl, PR_SET_NAME, (long)name, 0, 0, 0, 0); }

bool hk_os_read_file(const char *path, char *to, size_t size)
{
    long fd = hk_syscall(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (hk_syscall_failed(fd))
        return false;
    long n = hk_syscall(SYS_read, fd, (long)to, (long)size - 1, 0, 0, 0);
    hk_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
    to[hk_syscall_failed(n) ? 0 : n] = '\0';
    return !hk_syscall_failed(n);
}

bool hk_os_resize_in_place(void *p, size_t old_size, size_t new_size)
{
    hk_add(&hk_os_counts.mremap, 1);
    if (!hk_counted(hk_syscall(SYS_mremap, (long)p, (long)old_size, (long)new_size, 0, 0, 0)))
        return false;
    hk_add(&hk_os_counts.bytes_reserved, new_size - old_size);
    hk_count_committed(new_size - old_size);
    return true;
}

void *hk_os_resize_moving(void *p, size_t old_size, size_t new_size)
{
    hk_add(&hk_os_counts.mremap, 1);
    long to = hk_syscall(SYS_mremap, (long)p, (long)old_size, (long)new_size, MREMAP_MAYMOVE, 0, 0);
    if (!hk_counted(to))
        return NULL;
    hk_add(&hk_os_counts.bytes_reserved, new_size - old_size);
    hk_count_committed(new_size - old_size);
    return (void *)to;
}

void hk_os_futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    hk_syscall(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, (long)expected, 0, 0, 0);
}

void hk_os_futex_wait_ms(_Atomic uint32_t *word, uint32_t expected, uint32_t ms)
{
    struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    hk_syscall(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, (long)expected, (long)&timeout, 0, 0);
}

void hk_os_futex_wake(_Atomic uint32_t *word, int count)
{
    hk_syscall(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0);
}

void hk_os_sleep_ms(uint32_t ms)
{
    _Atomic uint32_t nobody = 0;
    hk_os_futex_wait_ms(&nobody, 0, ms);
}

size_t hk_os_address_space_limit(void)
{
    struct rlimit64 limit;
    long result = hk_syscall(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0);
    return hk_syscall_failed(result) || limit.rlim_cur == RLIM64_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
}

uint64_t hk_os_process_id(void) { return (uint64_t)hk_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0); }

uint64_t hk_os_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Standard error as it was at start, if reports are to go there, and to nothing else that gets its number later. */
static struct {
    bool reports;
    int descriptor; /* a second one, for programs that close the first; -1 if there is none */
    dev_t device;
    ino_t inode;
} hk_kept; /* constant since start */

/* Descriptors from here on are rarely a program's own. */
#define HK_KEPT_DESCRIPTOR 100

static bool hk_is_kept(int descriptor)
{
    struct stat status;
    return descriptor >= 0 && !hk_syscall_failed(hk_syscall(SYS_fstat, descriptor, (long)&status, 0, 0, 0, 0)) &&
           status.st_dev == hk_kept.device && status.st_ino == hk_kept.inode;
}

void hk_os_keep_stderr(void)
{
    struct stat status;
    hk_kept.reports = true;
    hk_kept.descriptor = -1;
    if (hk_syscall_failed(hk_syscall(SYS_fstat, 2, (long)&status, 0, 0, 0, 0)))
        return; /* with the device 0 that no file has */
    hk_kept.device = status.st_dev;
    hk_kept.inode = status.st_ino;
    long kept = hk_syscall(SYS_fcntl, 2, F_DUPFD_CLOEXEC, HK_KEPT_DESCRIPTOR, 0, 0, 0);
    if (!hk_syscall_failed(kept))
        hk_kept.descriptor = (int)kept;
}

/* Standard error as it was at start; -1 if that is gone. */
static int hk_stderr(void) { return hk_is_kept(hk_kept.descriptor) ? hk_kept.descriptor : hk_is_kept(2) ? 2 : -1; }

/* How long to wait for a full pipe that does not block. After one wait in vain there is no other until the pipe takes
 * something. */
#define HK_STDERR_PATIENCE_MS 200
static _Atomic unsigned hk_stderr_waited_ms;

/* Returns what the last write did. */
static long hk_write_all(int descriptor, const char *text, size_t length)
{
    long n = 0;
    while (length > 0) {
        n = hk_syscall(SYS_write, descriptor, (long)text, (long)length, 0, 0, 0);
        if (n == -EINTR)
            continue;
        if (n == -EAGAIN && hk_get(&hk_stderr_waited_ms) < HK_STDERR_PATIENCE_MS) {
            hk_os_sleep_ms(1); /* not poll, which a sandbox may not allow */
            hk_add(&hk_stderr_waited_ms, 1);
            continue;
        }
        if (n <= 0)
            break;
        hk_set(&hk_stderr_waited_ms, 0);
        text += n;
        length -= (size_t)n;
    }
    return n;
}

/* A program whose reports nobody reads any more, as they go to a pipe that is closed, is not to end by SIGPIPE. */
static void hk_write_without_signal(int descriptor, const char *text, size_t length)
{
    const uint64_t pipe = (uint64_t)1 << (SIGPIPE - 1);
    const struct timespec at_once = {0};
    uint64_t blocked = hk_block_signals(pipe);
    long result = hk_write_all(descriptor, text, length);
    if ((blocked & pipe) == 0 && result == -EPIPE)
        hk_syscall(SYS_rt_sigtimedwait, (long)&pipe, 0, (long)&at_once, sizeof pipe, 0, 0);
    hk_os_restore_signals(blocked);
}

void hk_os_write_report(const char *text, size_t length)
{
    if (hk_kept.reports)
        hk_write_without_signal(hk_stderr(), text, length);
    else
        hk_write_all(2, text, length);
}

void hk_os_write_stderr(const char *text, size_t length)
{
    int kept = hk_kept.reports ? hk_stderr() : -1;
    hk_write_all(kept >= 0 ? kept : 2, text, length);
}

_Noreturn void hk_os_abort(void) { abort(); }

bool hk_os_is_secure(void) { return getauxval(AT_SECURE) != 0; }
