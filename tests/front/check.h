/*
 * What the programs of tests/front and tests/stress share: checks, figures of the process, threads with small stacks,
 * random numbers, and patterns that tell whose bytes a block holds.
 *
 * Nothing here allocates or uses stdio: a test that breaks or measures malloc must not lean on it.
 */
#ifndef HK_TEST_CHECK_H
#define HK_TEST_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HK_EXIT_SKIP 77 /* what the test runner takes for "skipped" */
/* How much longer a run takes under a sanitizer or an emulator; the build says. */
#ifndef HK_TEST_SLOWDOWN
#define HK_TEST_SLOWDOWN 1
#endif
/* Figures of memory mean nothing there: a sanitizer and an emulator have memory of their own. */
#define HK_MEMORY_IS_OURS (HK_TEST_SLOWDOWN == 1)

#define HK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Checks and messages ---- */

/* snprintf never allocates for the integers and strings that are printed here. */
__attribute__((format(printf, 2, 0))) static inline void hk_vsay(int fd, const char *format, va_list arguments)
{
    char line[1024];
    int length = vsnprintf(line, sizeof line, format, arguments);
    if (length < 0)
        return;
    size_t n = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, line + done, n - done);
        if (k <= 0)
            return;
        done += (size_t)k;
    }
}

__attribute__((format(printf, 1, 2))) static inline void hk_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    hk_vsay(STDOUT_FILENO, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 4, 5), noreturn, cold)) static inline void hk_check_failed(const char *file, int line,
                                                                                         const char *condition,
                                                                                         const char *format, ...)
{
    char what[512];
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    char text[900];
    int length = snprintf(text, sizeof text, "%s:%d: failed: %s: %s (errno %d, pid %d)\n", file, line, condition, what,
                          saved, (int)getpid());
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0)
        _exit(2);
    _exit(1);
}

/* HK_CHECK(condition, format, ...): the program ends with status 1 and a message if the condition does not hold. */
#define HK_CHECK(condition, ...)                                          \
    do {                                                                  \
        if (__builtin_expect(!(condition), 0))                            \
            hk_check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

__attribute__((format(printf, 1, 2), noreturn)) static inline void hk_skip(const char *format, ...)
{
    hk_say("SKIP: ");
    va_list arguments;
    va_start(arguments, format);
    hk_vsay(STDOUT_FILENO, format, arguments);
    va_end(arguments);
    hk_say("\n");
    _exit(HK_EXIT_SKIP);
}

static inline void hk_watchdog_bites(int number)
{
    static const char text[] = "failed: no progress, probably a deadlock\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(2);
    abort();
}

/* A process that hangs is a failure of its own: the test runner's limit, 60 s, comes after ours and would say less.
 * A fork's child has no watchdog unless it starts one. */
static inline void hk_watchdog(unsigned seconds)
{
    signal(SIGALRM, hk_watchdog_bites);
    alarm(seconds * HK_TEST_SLOWDOWN);
}

/* ---- Figures ---- */

static inline double hk_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One line of /proc/self/smaps_rollup, for example "Rss:", in KiB. Exact, where /proc/self/statm lags behind. */
static inline long hk_memory_kib(const char *label)
{
    char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    HK_CHECK(fd >= 0, "/proc/self/smaps_rollup");
    size_t length = 0;
    for (ssize_t n; (n = read(fd, text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)n;
    close(fd);
    text[length] = '\0';
    const char *line = strstr(text, label);
    HK_CHECK(line != NULL, "no %s in /proc/self/smaps_rollup", label);
    long kib = 0;
    for (const char *c = line + strlen(label); *c != '\0' && *c != '\n'; c++)
        if (*c >= '0' && *c <= '9')
            kib = kib * 10 + (*c - '0');
    return kib;
}

static inline long hk_rss_kib(void) { return hk_memory_kib("Rss:"); }

/* ---- Memory that does not come from malloc ---- */

static inline void *hk_test_pages(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    HK_CHECK(p != MAP_FAILED, "mmap of %zu bytes for the test itself", size);
    return p;
}

/* ---- Threads and children ---- */

/* Stacks of 256 KiB: a thousand of them fit anywhere, and stay in libc's cache of stacks. */
static inline int hk_try_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    int error = pthread_create(thread, &attributes, body, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

static inline pthread_t hk_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int error = hk_try_thread(&thread, body, argument);
    HK_CHECK(error == 0, "pthread_create: %d", error);
    return thread;
}

static inline void hk_join(pthread_t thread)
{
    int error = pthread_join(thread, NULL);
    HK_CHECK(error == 0, "pthread_join: %d", error);
}

/* Waits for a child and returns its wait status. */
static inline int hk_wait(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        HK_CHECK(errno == EINTR, "waitpid of %d", (int)child);
    return status;
}

#define HK_WAIT_OK(child, ...)                                                                                      \
    do {                                                                                                            \
        int hk_status_ = hk_wait(child);                                                                            \
        if (hk_status_ != 0) {                                                                                      \
            hk_say("child %d: %s %d\n", (int)(child), WIFSIGNALED(hk_status_) ? "killed by signal" : "exit status", \
                   WIFSIGNALED(hk_status_) ? WTERMSIG(hk_status_) : WEXITSTATUS(hk_status_));                       \
            hk_check_failed(__FILE__, __LINE__, "child ends with status 0", __VA_ARGS__);                           \
        }                                                                                                           \
    } while (0)

/* ---- Random numbers (splitmix64) ---- */

static inline uint64_t hk_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t hk_random(uint64_t *state) { return hk_mix(*state += 0x9e3779b97f4a7c15u); }

static inline size_t hk_random_below(uint64_t *state, size_t n)
{
    return (size_t)(((unsigned __int128)hk_random(state) * n) >> 64);
}

/* 1 to 2^bits, every doubling from 16 as likely as every other. */
static inline size_t hk_random_size(uint64_t *state, unsigned bits)
{
    size_t top = (size_t)16 << hk_random_below(state, bits - 3);
    return 1 + hk_random_below(state, top);
}

/* A seed from the command line or the environment, or a fresh one: always printed, so that a run can be repeated. */
static inline uint64_t hk_seed(const char *given)
{
    if (given == NULL)
        given = getenv("HK_STRESS_SEED");
    uint64_t seed =
        given != NULL ? strtoull(given, NULL, 0) : hk_mix((uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32));
    hk_say("seed 0x%llx\n", (unsigned long long)seed);
    return seed;
}

/* ---- Patterns ----
 * A block's bytes are a function of its key, and the key of its address and a seed: two blocks that overlap spoil each
 * other, and so does whoever writes into a block that is not his. Blocks above 16 KiB are mostly filled sparsely (their
 * ends, and a word every half KiB); one in eight is filled completely, which the key decides. */

static inline uint64_t hk_key(const void *p, uint64_t seed) { return hk_mix((uint64_t)(uintptr_t)p ^ hk_mix(seed)); }

static inline uint64_t hk_word(uint64_t key, size_t index) { return key + (uint64_t)index * 0x9e3779b97f4a7c15u; }

/* The next word that the pattern covers after word i, of n whole words. */
static inline size_t hk_next_word(uint64_t key, size_t i, size_t n)
{
    const size_t edge = 64, stride = 64;
    if (n <= (16u << 10) / 8 || (key & 7) == 0 || i < edge || i + edge + stride >= n)
        return i + 1;
    return i + stride;
}

static inline void hk_fill(void *p, size_t size, uint64_t key)
{
    unsigned char *bytes = (unsigned char *)p;
    size_t n = size / 8;
    for (size_t i = 0; i < n; i = hk_next_word(key, i, n)) {
        uint64_t word = hk_word(key, i);
        memcpy(bytes + 8 * i, &word, 8);
    }
    uint64_t word = hk_word(key, n);
    memcpy(bytes + 8 * n, &word, size % 8);
}

/* Compares the first `size` bytes of a block that was filled with `filled` bytes; the offset of the first difference,
 * or `size`. */
static inline size_t hk_mismatch(const void *p, size_t size, size_t filled, uint64_t key)
{
    const unsigned char *bytes = (const unsigned char *)p;
    size_t n = filled / 8;
    for (size_t i = 0; i < n; i = hk_next_word(key, i, n)) {
        uint64_t word = hk_word(key, i);
        if (8 * i >= size)
            return size;
        size_t length = size - 8 * i < 8 ? size - 8 * i : 8;
        if (memcmp(bytes + 8 * i, &word, length) != 0)
            return 8 * i;
    }
    uint64_t word = hk_word(key, n);
    if (size > 8 * n && memcmp(bytes + 8 * n, &word, size - 8 * n) != 0)
        return 8 * n;
    return size;
}

#define HK_CHECK_CONTENT(p, size, filled, key)                                                                         \
    do {                                                                                                               \
        size_t hk_at_ = hk_mismatch(p, size, filled, key);                                                             \
        HK_CHECK(hk_at_ == (size), "block %p of %zu bytes is spoilt at offset %zu", (const void *)(p), (size_t)(size), \
                 hk_at_);                                                                                              \
    } while (0)

static inline bool hk_all_zero(const void *p, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)p;
    if (size < 16) {
        for (size_t i = 0; i < size; i++)
            if (bytes[i] != 0)
                return false;
        return true;
    }
    uint64_t head[2];
    memcpy(head, bytes, 16);
    return head[0] == 0 && head[1] == 0 && memcmp(bytes, bytes + 16, size - 16) == 0;
}

#endif
