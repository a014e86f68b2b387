/*
 * Proves: after start, malloc needs no system calls but mmap, munmap, mprotect, madvise, mremap and futex. A filter
 * kills the process at any other, while threads allocate small, medium and large blocks, resize them, hand them to each
 * other, trim, fall quiet for longer than a second (so that pages are returned), and end.
 *
 * Beyond the six, the filter allows what the test itself needs: write and exit_group, and for the end of a thread exit
 * and what libc calls there (rt_sigprocmask, and rseq where it is registered). It is a raw BPF program, installed for
 * all threads at once, by the main thread, when the others have started and allocated.
 * With --first there are no threads, and the filter is there before the process's first malloc.
 * Usage: seccomp [--allow-brk | --first]   (glibc's own malloc needs brk)
 */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define HK_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HK_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

enum { THREADS = 4, BLOCKS = 300 };

/* ---- The filter ---- */

static const int allowed[] = {
    SYS_mmap,  SYS_munmap,         SYS_mprotect, SYS_madvise, SYS_mremap, SYS_futex, /* malloc's */
    SYS_write, SYS_exit_group,                                                       /* the test's */
    SYS_exit,  SYS_rt_sigprocmask, SYS_rseq,                                         /* libc's, when a thread ends */
};

/* A call that is not allowed raises SIGSYS, whose handler tells which it was and ends the process. */
static void forbidden_call(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    hk_say("failed: system call %d was made after start\n", info->si_syscall);
    syscall(SYS_exit_group, 1);
}

static void install_filter(bool allow_brk)
{
    struct sigaction action = {.sa_sigaction = forbidden_call, .sa_flags = SA_SIGINFO};
    HK_CHECK(sigaction(SIGSYS, &action, NULL) == 0, "sigaction");

    static struct sock_filter program[2 * HK_COUNT(allowed) + 10];
    unsigned short n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HK_AUDIT_ARCH, 1, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < HK_COUNT(allowed); i++) {
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
#ifdef SYS_brk
    if (allow_brk) {
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 0, 1);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
#endif
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog filter = {.len = n, .filter = program};
    HK_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
        hk_skip("seccomp filters are not available: errno %d", errno);
}

/* ---- The work ---- */

static _Atomic uint32_t started, filtered, ended;

static void wait_until(_Atomic uint32_t *word, uint32_t value)
{
    for (uint32_t now; (now = *word) != value;)
        syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
}

static void raise_word(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void quiet(double seconds)
{
    static uint32_t never;
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, &never, FUTEX_WAIT, 0, &t, NULL, 0);
}

static void *_Atomic mailbox[64];

static void work(uint64_t *random, int steps)
{
    static _Thread_local void *block[BLOCKS];
    static _Thread_local size_t size[BLOCKS];
    for (int step = 0; step < steps; step++) {
        size_t i = hk_random_below(random, BLOCKS);
        if (block[i] != NULL)
            HK_CHECK_CONTENT(block[i], size[i], size[i], hk_key(block[i], 10));
        size_t new_size = hk_random_size(random, i < 3 ? 25 : i < 20 ? 21 : 14);
        switch (hk_random_below(random, 6)) {
        case 0:
            free(block[i]);
            block[i] = calloc(1, new_size);
            HK_CHECK(block[i] != NULL && hk_all_zero(block[i], new_size), "calloc(%zu)", new_size);
            break;
        case 1: {
            uint64_t key = hk_key(block[i], 10);
            size_t kept = block[i] == NULL ? 0 : size[i] < new_size ? size[i] : new_size;
            block[i] = realloc(block[i], new_size);
            HK_CHECK(block[i] != NULL, "realloc to %zu", new_size);
            HK_CHECK_CONTENT(block[i], kept, size[i], key);
            break;
        }
        case 2:
            free(block[i]);
            block[i] = aligned_alloc((size_t)64 << hk_random_below(random, 12), new_size);
            break;
        case 3: /* free what another thread allocated */
            free(atomic_exchange(&mailbox[i % HK_COUNT(mailbox)], block[i]));
            block[i] = malloc(new_size);
            break;
        default: free(block[i]); block[i] = malloc(new_size);
        }
        HK_CHECK(block[i] != NULL, "%zu bytes", new_size);
        size[i] = new_size;
        hk_fill(block[i], new_size, hk_key(block[i], 10));
    }
    for (int i = 0; i < BLOCKS; i++) {
        free(block[i]);
        block[i] = NULL;
    }
}

static void *thread_body(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    free(malloc(100));
    raise_word(&started);
    wait_until(&filtered, 1);
    for (int round = 0; round < 2; round++) {
        work(&random, 5000);
        if (round == 0) {
            malloc_trim(0);
            quiet(1.5);
        }
    }
    raise_word(&ended);
    return NULL;
}

static int run_before_the_first_malloc(void)
{
    uint64_t random = 7;
    install_filter(false);
    work(&random, 5000);
    malloc_trim(0);
    hk_say("one thread in a sandbox\n");
    _exit(0);
}

int main(int argc, char **argv)
{
    hk_watchdog(55);
    if (argc > 1 && strcmp(argv[1], "--first") == 0)
        return run_before_the_first_malloc();
    for (int i = 0; i < THREADS; i++)
        hk_thread(thread_body, (void *)(intptr_t)(i + 1));
    wait_until(&started, THREADS);
    install_filter(argc > 1 && strcmp(argv[1], "--allow-brk") == 0);
    raise_word(&filtered);
    uint64_t random = 99;
    work(&random, 5000);
    wait_until(&ended, THREADS);
    quiet(1.5); /* the threads end; what they left is returned */
    work(&random, 2000);
    malloc_trim(0);
    hk_say("%d threads in a sandbox\n", THREADS + 1);
    _exit(0);
}
