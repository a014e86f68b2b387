/*
 * Proves: when a system call fails, the allocator survives: the request is served otherwise or refused with ENOMEM,
 * contents stay, free keeps errno, and when calls succeed again, so do all requests.
 *
 * Every mmap, munmap, mprotect, madvise and mremap of the process raises SIGSYS by a seccomp filter; the handler makes
 * the call (from the one address that the filter lets pass) or fails it, as the plan says. So each call of a run can be
 * made to fail exactly, without a tracer: the n-th alone, all from the n-th on, every third from the n-th on; for each
 * of the five, and for all of them together; as if memory were short, or as if a sandbox forbade the call.
 * Single-threaded; strace_faults.py does the same to threads, and to the start of the process.
 * Usage: failing_calls [most n for each plan]
 *        failing_calls CALL ERRNO FIRST STEP   one plan, in this process, for a debugger (handle SIGSYS nostop);
 *                                              CALL as in calls[] below, or any other word for all
 */
#include "../front/check.h"
#include "survivor.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { STEPS = 200 };

/* ---- The trap ---- */

long hk_untrapped_call(long number, long a, long b, long c, long d, long e, long f);
extern const char hk_untrapped_call_end[];

#if defined(__x86_64__)
#define HK_AUDIT_ARCH AUDIT_ARCH_X86_64
__asm__(".text\n.globl hk_untrapped_call, hk_untrapped_call_end\n"
        "hk_untrapped_call:\n"
        "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\nmov %r8, %r10\nmov %r9, %r8\n"
        "mov 8(%rsp), %r9\nsyscall\n"
        "hk_untrapped_call_end:\nret\n");

static long argument(const ucontext_t *u, int i)
{
    static const int registers[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
    return (long)u->uc_mcontext.gregs[registers[i]];
}
static void set_result(ucontext_t *u, long result) { u->uc_mcontext.gregs[REG_RAX] = result; }

#elif defined(__aarch64__)
#define HK_AUDIT_ARCH AUDIT_ARCH_AARCH64
__asm__(".text\n.globl hk_untrapped_call, hk_untrapped_call_end\n"
        "hk_untrapped_call:\n"
        "mov x8, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nmov x3, x4\nmov x4, x5\nmov x5, x6\nsvc 0\n"
        "hk_untrapped_call_end:\nret\n");

static long argument(const ucontext_t *u, int i) { return (long)u->uc_mcontext.regs[i]; }
static void set_result(ucontext_t *u, long result) { u->uc_mcontext.regs[0] = (unsigned long)result; }
#endif

static const struct call {
    const char *name;
    int number;
} calls[] = {{"mmap", SYS_mmap},
             {"munmap", SYS_munmap},
             {"mprotect", SYS_mprotect},
             {"madvise", SYS_madvise},
             {"mremap", SYS_mremap}};
enum { CALLS = HK_COUNT(calls), ALL = CALLS };

/* What is to fail: calls[call], or all. */
static struct plan {
    size_t call;
    int error;
    unsigned first; /* the first call to fail, from 1; 0: none */
    unsigned step;  /* and every so many after it; 0: no other */
} plan;
static bool armed;
static unsigned *seen; /* calls of each kind, and of all, while armed; shared with the parent */

static bool is_to_fail(size_t call)
{
    if (!armed)
        return false;
    seen[ALL]++;
    unsigned n = ++seen[call];
    if (plan.first == 0 || (plan.call != call && plan.call != ALL))
        return false;
    if (plan.call == ALL)
        n = seen[ALL];
    return n == plan.first || (n > plan.first && plan.step != 0 && (n - plan.first) % plan.step == 0);
}

static void trapped(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    ucontext_t *u = context;
    for (size_t i = 0; i < CALLS; i++)
        if (calls[i].number == info->si_syscall)
            set_result(u, is_to_fail(i)
                              ? -plan.error
                              : hk_untrapped_call(info->si_syscall, argument(u, 0), argument(u, 1), argument(u, 2),
                                                  argument(u, 3), argument(u, 4), argument(u, 5)));
}

static void install_trap(void)
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    HK_CHECK(sigaction(SIGSYS, &action, NULL) == 0, "sigaction");
    uint64_t after = (uint64_t)(uintptr_t)hk_untrapped_call_end;
    const size_t ip = offsetof(struct seccomp_data, instruction_pointer);
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HK_AUDIT_ARCH, 0, 11),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip), /* both machines are little-endian */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)after, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(after >> 32), 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = HK_COUNT(program), .filter = program};
    HK_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        hk_skip("seccomp filters are not available: errno %d", errno);
}

/* ---- The runs ---- */

static unsigned runs, refusals;

/* Returns how many requests were refused while calls failed. */
static unsigned run_here(struct plan with)
{
    hk_watchdog(20);
    plan = with;
    install_trap();
    struct hk_survivor survivor = {.random = 1};
    armed = true;
    hk_survive(&survivor, STEPS);
    armed = false;
    hk_survivor_recover(1);
    struct hk_survivor afterwards = {.random = 2};
    hk_survive(&afterwards, STEPS / 4);
    HK_CHECK(afterwards.refused == 0, "%u refusals after the calls had succeeded again", afterwards.refused);
    return survivor.refused;
}

/* One run in a child. Its counts are in `seen` afterwards. */
static void run(struct plan with)
{
    unsigned *refused = seen + ALL + 1;
    memset(seen, 0, (ALL + 2) * sizeof *seen);
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        *refused = run_here(with);
        _exit(0);
    }
    int status = hk_wait(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == HK_EXIT_SKIP)
        _exit(HK_EXIT_SKIP);
    HK_CHECK(status == 0, "wait status 0x%x: failing_calls %s %d %u %u", status,
             with.call == ALL ? "all" : calls[with.call].name, with.error, with.first, with.step);
    runs++;
    refusals += *refused;
}

/* Each n up to `most`, or as many spread over all of them. */
static void run_all(size_t call, int error, unsigned step, unsigned total, unsigned most)
{
    unsigned n = total < most ? total : most;
    for (unsigned i = 0; i < n; i++)
        run((struct plan){call, error, 1 + (unsigned)((uint64_t)i * total / n), step});
}

int main(int argc, char **argv)
{
    seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HK_CHECK(seen != MAP_FAILED, "mmap for the test itself");
    if (argc == 5) {
        struct plan one = {.call = 0,
                           .error = atoi(argv[2]),
                           .first = (unsigned)strtoul(argv[3], NULL, 0),
                           .step = (unsigned)strtoul(argv[4], NULL, 0)};
        while (one.call < ALL && strcmp(calls[one.call].name, argv[1]) != 0)
            one.call++;
        hk_say("%u requests refused\n", run_here(one));
        return 0;
    }
    unsigned most = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 8;
    HK_CHECK(most > 0, "usage: failing_calls [most n for each plan]");
    hk_watchdog(15 + 5 * most);
    run((struct plan){.first = 0});
    HK_CHECK(refusals == 0, "%u refusals without a failing call", refusals);
    unsigned total[CALLS + 1];
    memcpy(total, seen, sizeof total);
    for (size_t i = 0; i < CALLS; i++)
        hk_say("%s: %u calls\n", calls[i].name, total[i]);

    /* What the kernel says when it is short of memory or the range will not do. */
    static const int errors[CALLS][2] = {{ENOMEM}, {ENOMEM}, {ENOMEM}, {EINVAL, ENOMEM}, {ENOMEM}};
    static const unsigned steps[] = {0, 1, 3};
    for (size_t s = 0; s < HK_COUNT(steps); s++) {
        for (size_t call = 0; call < CALLS; call++)
            for (size_t e = 0; e < 2 && errors[call][e] != 0; e++)
                run_all(call, errors[call][e], steps[s], total[call], most);
        run_all(ALL, ENOMEM, steps[s], total[ALL], most);
    }
    /* What a sandbox says, always. */
    for (size_t call = 0; call <= ALL; call++)
        run((struct plan){call, EPERM, 1, 1});
    hk_say("%u runs with failing calls, %u requests refused\n", runs, refusals);
    return 0;
}
