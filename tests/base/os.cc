/* The system's calls: alignment, access, what reads as zero, counts, and failures that change nothing. */
#include <gtest/gtest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

#include "c_begin.h"
#include "base/os.h"
#include "c_end.h"

namespace
{

constexpr size_t kImpossible = size_t{1} << 60;

size_t reserved() { return hk_os_counts.bytes_reserved; }

TEST(Os, PageSizeIsTheKernels) { EXPECT_EQ(hk_os_page_size(), static_cast<size_t>(sysconf(_SC_PAGESIZE))); }

TEST(Os, MappingsAreAlignedZeroAndCounted)
{
    for (size_t alignment : {hk_os_page_size(), HK_SLOT_SIZE, HK_SUPERSLAB_SIZE, 64 * HK_MIB}) {
        size_t before = reserved();
        auto *p = static_cast<char *>(hk_os_map(3 * HK_SLOT_SIZE, alignment));
        ASSERT_NE(p, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
        EXPECT_EQ(reserved() - before, 3 * HK_SLOT_SIZE) << "margins were given back";
        for (size_t i = 0; i < 3 * HK_SLOT_SIZE; i++)
            ASSERT_EQ(p[i], 0);
        memset(p, 1, 3 * HK_SLOT_SIZE);
        EXPECT_TRUE(hk_os_unmap(p, 3 * HK_SLOT_SIZE, 3 * HK_SLOT_SIZE));
        EXPECT_EQ(reserved(), before);
    }
}

TEST(Os, ReservationsBecomeMemoryAsTheyAreCommitted)
{
    auto *p = static_cast<char *>(hk_os_reserve(4 * HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % HK_SUPERSLAB_SIZE, 0u);
    size_t committed = hk_os_counts.bytes_committed;
    ASSERT_TRUE(hk_os_commit(p + HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE));
    EXPECT_EQ(hk_os_counts.bytes_committed - committed, HK_SUPERSLAB_SIZE);
    memset(p + HK_SUPERSLAB_SIZE, 1, HK_SUPERSLAB_SIZE);
    ASSERT_TRUE(hk_os_purge(p + HK_SUPERSLAB_SIZE, HK_SLOT_SIZE) || HK_TEST_SLOWDOWN > 1) << "an emulator may not";
    if (hk_os_purge(p + HK_SUPERSLAB_SIZE, HK_SLOT_SIZE)) {
        EXPECT_EQ(p[HK_SUPERSLAB_SIZE], 0);
        EXPECT_EQ(p[HK_SUPERSLAB_SIZE + HK_SLOT_SIZE - 1], 0);
        EXPECT_EQ(p[HK_SUPERSLAB_SIZE + HK_SLOT_SIZE], 1);
    }
    ASSERT_TRUE(hk_os_decommit(p + HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE));
    EXPECT_EQ(hk_os_counts.bytes_committed, committed);
    ASSERT_TRUE(hk_os_commit(p + HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE)) << "and again";
    EXPECT_EQ(p[HK_SUPERSLAB_SIZE + HK_SLOT_SIZE], 0);
    EXPECT_TRUE(hk_os_unmap(p, 4 * HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE));
    EXPECT_EQ(hk_os_counts.bytes_committed, committed);
}

TEST(OsDeathTest, ReservationsHaveNoAccess)
{
    auto *p = static_cast<volatile char *>(hk_os_reserve(HK_SUPERSLAB_SIZE, HK_SUPERSLAB_SIZE));
    ASSERT_NE(p, nullptr);
    EXPECT_DEATH(*p = 1, "");
}

TEST(Os, FailuresSayNoAndKeepErrno)
{
    errno = 4711;
    size_t failed = hk_os_counts.failed;
    EXPECT_EQ(hk_os_map(kImpossible, hk_os_page_size()), nullptr);
    EXPECT_EQ(hk_os_reserve(kImpossible, HK_SUPERSLAB_SIZE), nullptr);
    EXPECT_EQ(hk_os_reserve(SIZE_MAX - HK_SUPERSLAB_SIZE + 1, HK_SUPERSLAB_SIZE), nullptr);
    EXPECT_FALSE(hk_os_commit(reinterpret_cast<void *>(4096), 4096));
#if !defined(__aarch64__) /* there it is qemu-user that answers, which takes advice for addresses without memory */
    EXPECT_FALSE(hk_os_purge(reinterpret_cast<void *>(4096), 4096));
#endif
    EXPECT_FALSE(hk_os_resize_in_place(reinterpret_cast<void *>(4096), 4096, 8192));
    EXPECT_EQ(errno, 4711);
    EXPECT_GE(hk_os_counts.failed, failed + 5);
}

TEST(Os, MappingsGrowInPlaceOrMove)
{
    const size_t n = 16 * HK_SLOT_SIZE;
    auto *p = static_cast<char *>(hk_os_map(n, HK_SLOT_SIZE));
    ASSERT_NE(p, nullptr);
    memset(p, 7, n);
    size_t before = reserved();
    ASSERT_TRUE(hk_os_resize_in_place(p, n, n / 2));
    EXPECT_EQ(before - reserved(), n / 2);
    auto *to = static_cast<char *>(hk_os_resize_moving(p, n / 2, 4 * n));
    ASSERT_NE(to, nullptr);
    EXPECT_EQ(reserved(), before - n + 4 * n);
    for (size_t i = 0; i < n / 2; i++)
        ASSERT_EQ(to[i], 7);
    EXPECT_EQ(to[n / 2], 0);
    memset(to, 8, 4 * n);
    EXPECT_EQ(hk_os_resize_moving(to, 4 * n, kImpossible), nullptr);
    EXPECT_EQ(reserved(), before - n + 4 * n);
    EXPECT_EQ(to[4 * n - 1], 8) << "nothing has changed";
    ASSERT_TRUE(hk_os_unmap(to, 4 * n, 4 * n));
    EXPECT_EQ(reserved(), before - n);
}

/* False if there are no such filters, as in an emulator. */
bool refuse_to_block_signals()
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIG_BLOCK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter{sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Os, WhereSignalsCannotBeBlockedTheMaskStaysAsItIs)
{
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        sigprocmask(SIG_SETMASK, &mask, nullptr);
        bool refused = refuse_to_block_signals();
        hk_os_restore_signals(hk_os_block_signals());
        sigprocmask(SIG_SETMASK, nullptr, &mask);
        bool same = sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGUSR2) == 0;
        if (!refused)
            printf("nobody refuses here, but the mask is restored all the same\n");
        fflush(stdout);
        _exit(same ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Os, TimeGoesOn)
{
    uint64_t before = hk_os_now_ms();
    usleep(60000);
    uint64_t passed = hk_os_now_ms() - before;
    EXPECT_GE(passed, 40u);
    EXPECT_LT(passed, 60000u);
}

TEST(Os, FutexWaitReturnsAtOnceIfTheValueIsAnother)
{
    uint32_t word = 3;
    hk_os_futex_wait(&word, 4);
    hk_os_futex_wake(&word, 1);
    EXPECT_FALSE(hk_os_is_secure());
}

} // namespace
