/*
 * Every error that hakmem reports: its exact message, the abort, and what HAKMEM_ON_ERROR makes of it.
 *
 *   fatal             runs each fault below as a child, in every mode, and checks what it wrote and how it ended
 *   fatal NAME        makes that fault, in this process
 *
 * A fault tells on stdout which pointers and sizes it is about (P=0x..., N=64) before it makes the error; the expected
 * message is an extended regular expression in which @P, @Q, @N and @M stand for them. @L stands for " (noticed late)"
 * where the default build may notice at once or in a later batch; the hardened profile always notices at once.
 */
#include "check.h"
#include "child.h"

#include <hakmem/hakmem.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#pragma weak hak_free_batch
extern void free_sized(void *ptr, size_t n) __attribute__((weak));
extern void free_aligned_sized(void *ptr, size_t alignment, size_t n) __attribute__((weak));

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* More frees of one class than a magazine that has not grown to its largest takes before it is flushed. */
enum { FLUSH = 200 };

static void *tell(const char *name, const void *p)
{
    dprintf(STDOUT_FILENO, "%s=%p\n", name, p);
    return hide(p);
}

static size_t tell_size(const char *name, size_t n)
{
    dprintf(STDOUT_FILENO, "%s=%zu\n", name, n);
    return n;
}

static void *allocate(size_t n)
{
    void *p = malloc(n);
    REQUIRE(p != NULL);
    return hide(p);
}

/* The block that the message is about. */
static char *told_block(size_t n)
{
    char *p = allocate(n);
    tell_size("N", malloc_usable_size(p));
    return tell("P", p);
}

static void allocate_all(void **blocks, size_t count, size_t n)
{
    for (size_t i = 0; i < count; i++)
        blocks[i] = allocate(n);
}

static void free_all(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
}

/* So many blocks of the size that the thread has magazines of its own for it. */
static void warm_up(size_t n)
{
    static void *blocks[2 * FLUSH];
    allocate_all(blocks, 2 * FLUSH, n);
    free_all(blocks, 2 * FLUSH);
}

static void in_another_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, run, argument) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

static void *free_it(void *p)
{
    free(p);
    return NULL;
}

static void *free_it_twice(void *p)
{
    free(p);
    free(p);
    return NULL;
}

/* ---- Double frees ---- */

static void at_once(size_t n)
{
    char *p = told_block(n);
    free(p);
    free(p);
}

static void at_once_when_warm(size_t n)
{
    warm_up(n);
    at_once(n);
}

/* Each of many blocks twice, so that the magazine is in every state when it happens. */
static void at_once_in_every_state(size_t n)
{
    static void *blocks[2 * FLUSH];
    allocate_all(blocks, 2 * FLUSH, n);
    tell("P", blocks[0]);
    tell_size("N", malloc_usable_size(blocks[0]));
    for (int i = 0; i < 2 * FLUSH; i++) {
        free(blocks[i]);
        free(blocks[i]);
    }
}

static void with_frees_between(size_t n)
{
    static void *blocks[FLUSH];
    allocate_all(blocks, FLUSH, n);
    char *p = told_block(n), *other = allocate(n);
    free(p);
    free(other);
    free(p);
    free_all(blocks, FLUSH);
}

static void with_a_trim_after_it(size_t n)
{
    warm_up(n);
    char *p = told_block(n), *other = allocate(n);
    free(p);
    free(other);
    free(p);
    malloc_trim(0);
}

static void of_a_guest(size_t n)
{
    char *p = told_block(n), *other = allocate(n);
    free(p);
    free(other);
    free(p);
    malloc_trim(0);
}

/* The first free has long reached the slab when the second comes. */
static void long_after(size_t n)
{
    static void *blocks[3 * FLUSH];
    allocate_all(blocks, 3 * FLUSH, n);
    char *p = told_block(n);
    free(p);
    free_all(blocks, FLUSH);
    free(p);
    free_all(blocks + FLUSH, FLUSH);
}

static void by_owner_then_another(size_t n)
{
    warm_up(n);
    char *p = told_block(n);
    free(p);
    in_another_thread(free_it, p);
    malloc_trim(0);
}

static void by_another_then_owner(size_t n)
{
    warm_up(n);
    char *p = told_block(n);
    in_another_thread(free_it, p);
    free(p);
    malloc_trim(0);
}

static void twice_by_another(size_t n)
{
    warm_up(n);
    char *p = told_block(n);
    in_another_thread(free_it_twice, p);
    malloc_trim(0);
}

static void by_two_others(size_t n)
{
    warm_up(n);
    char *p = told_block(n);
    in_another_thread(free_it, p);
    in_another_thread(free_it, p);
    malloc_trim(0);
}

static void *allocate_and_tell(void *n)
{
    warm_up((size_t)n);
    return told_block((size_t)n);
}

/* The thread that allocated it is gone. */
static void of_a_dead_thread(size_t n)
{
    pthread_t thread;
    void *p;
    REQUIRE(pthread_create(&thread, NULL, allocate_and_tell, (void *)n) == 0);
    REQUIRE(pthread_join(thread, &p) == 0);
    free_it_twice(p);
    malloc_trim(0);
}

static void by_delete(size_t n)
{
    void (*operator_delete)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, "_ZdlPv");
    REQUIRE(operator_delete != NULL);
    char *p = told_block(n);
    operator_delete(p);
    operator_delete(p);
}

static void in_a_batch(size_t n)
{
    static void *blocks[FLUSH];
    REQUIRE(hak_free_batch != NULL);
    allocate_all(blocks, FLUSH, n);
    blocks[5] = blocks[77] = told_block(n);
    hak_free_batch(blocks, FLUSH);
    malloc_trim(0);
}

/* A signal handler that allocates, as those of virtual machines and crash reporters do. */
static void allocate_and_say_so(int signal)
{
    (void)signal;
    for (size_t n = 1; n < 4 * MIB; n *= 2)
        free(malloc(n));
    dprintf(STDOUT_FILENO, "the handler ran\n");
}

static void with_a_handler(size_t n)
{
    signal(SIGABRT, allocate_and_say_so);
    static void *blocks[FLUSH];
    allocate_all(blocks, FLUSH, n);
    char *p = told_block(n), *other = allocate(n);
    free(p);
    free(other);
    free(p);
    free_all(blocks, FLUSH);
}

/* ---- Pointers into a block ---- */

static void inside(size_t n, size_t offset)
{
    warm_up(n < 300 * KIB ? n : 1);
    char *p = told_block(n);
    free(tell("Q", p + offset));
    malloc_trim(0);
    free(p);
}

static void inside_at_8(size_t n) { inside(n, 8); }
static void inside_at_1(size_t n) { inside(n, 1); }
static void inside_at_half(size_t n) { inside(n, n / 2); }
static void inside_at_a_page(size_t n) { inside(n, 4 * KIB); }
static void inside_at_a_slot(size_t n) { inside(n, 64 * KIB); }

static void inside_then_flush(size_t n)
{
    static void *blocks[FLUSH];
    allocate_all(blocks, FLUSH, n);
    char *p = told_block(n);
    free(tell("Q", p + n / 2));
    free_all(blocks, FLUSH);
}

static void inside_by_another_thread(size_t n)
{
    warm_up(n);
    char *p = told_block(n);
    in_another_thread(free_it, tell("Q", p + n / 2));
}

/* An aligned block, by the address of the header that other allocators have there. */
static void inside_of_aligned(size_t n)
{
    char *p = memalign(4096, n);
    REQUIRE(p != NULL);
    tell_size("N", malloc_usable_size(p));
    tell("P", p);
    free(tell("Q", p + 16));
    malloc_trim(0);
}

static void realloc_inside(size_t n)
{
    char *p = told_block(n);
    (void)!realloc(tell("Q", p + 16), 2 * n);
}

/* ---- Pointers that are not ours ---- */

static char static_bytes[64] = "not from malloc";

static void foreign(const void *p) { free(tell("P", p)); }

static void of_the_stack(size_t n)
{
    char bytes[64];
    (void)n;
    foreign(hide(bytes));
}

static void *free_own_stack(void *unused)
{
    of_the_stack(0);
    return unused;
}

static void of_a_thread_stack(size_t n)
{
    (void)n;
    free(allocate(100)); /* there are superslabs near by */
    in_another_thread(free_own_stack, NULL);
}

static void of_static_memory(size_t n) { foreign(static_bytes + n); }

static void of_code(size_t n)
{
    (void)n;
    foreign((const void *)(uintptr_t)of_code);
}

static void of_stdout(size_t n)
{
    (void)n;
    foreign(stdout);
}

static void of_a_mapping(size_t offset)
{
    free(allocate(100));
    char *p = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    foreign(p + offset);
}

/* Where a superslab could begin. */
static void of_an_aligned_mapping(size_t n)
{
    (void)n;
    char *p = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    foreign((char *)(((uintptr_t)p + 4 * MIB) & ~(4 * MIB - 1)));
}

/* What the C library's own malloc gave out, before hakmem came or behind its back. */
static void of_libc_malloc(size_t n)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(libc != NULL);
    void *(*libc_malloc)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(libc, "malloc");
    REQUIRE(libc_malloc != NULL && (uintptr_t)libc_malloc != (uintptr_t)dlsym(RTLD_DEFAULT, "malloc"));
    foreign(libc_malloc(n));
}

static void of_a_number(size_t value) { foreign((void *)value); }

/* A block's address with a bit set above those that lead to its slab. */
static void of_a_tagged_pointer(size_t n)
{
    warm_up(n);
    foreign((void *)((uintptr_t)allocate(n) | (uintptr_t)1 << 48));
    malloc_trim(0);
}

/* ---- realloc ---- */

static void realloc_freed(size_t n)
{
    char *p = told_block(n);
    free(p);
    (void)!realloc(p, 2 * n);
}

/* Where it lies it would be large enough, and others of its slab are in use. */
static void realloc_freed_to_less(size_t n)
{
    static void *before[FLUSH], *behind[FLUSH];
    allocate_all(before, FLUSH, n);
    char *p = told_block(n);
    allocate_all(behind, FLUSH, n);
    free(p);
    (void)!realloc(p, n - n / 10);
}

static void realloc_freed_long_ago(size_t n)
{
    static void *blocks[3 * FLUSH];
    allocate_all(blocks, 3 * FLUSH, n);
    char *p = told_block(n);
    free(p);
    for (int i = 0; i < 2 * FLUSH; i += 2)
        free(blocks[i]);
    (void)!realloc(p, 2 * n);
}

static void realloc_of_the_stack(size_t n)
{
    char bytes[64];
    (void)!realloc(tell("P", hide(bytes)), n);
}

static void realloc_of_static_memory(size_t n) { (void)!realloc(tell("P", static_bytes), n); }
static void realloc_of_a_number(size_t value) { (void)!realloc(tell("P", (void *)value), 100); }
static void realloc_of_a_tagged_pointer(size_t n)
{
    warm_up(n);
    char *p = allocate(n);
    (void)!realloc(tell("P", (char *)((uintptr_t)p | (uintptr_t)1 << 56)), 2 * n);
}

static void reallocarray_of_static_memory(size_t n) { (void)!reallocarray(tell("P", static_bytes), n, 2); }

/* ---- Sized frees ---- */

static void sized_too_large(size_t n)
{
    REQUIRE(free_sized != NULL);
    char *p = told_block(n);
    free_sized(p, tell_size("M", malloc_usable_size(p) + 1));
}

static void aligned_sized_too_large(size_t n)
{
    REQUIRE(free_aligned_sized != NULL);
    char *p = aligned_alloc(64, n);
    REQUIRE(p != NULL);
    size_t usable = tell_size("N", malloc_usable_size(p));
    free_aligned_sized(tell("P", p), 64, tell_size("M", usable + 1));
}

static void sized_of_static_memory(size_t n)
{
    REQUIRE(free_sized != NULL);
    free_sized(tell("P", static_bytes), n);
}

static void sized_twice(size_t n)
{
    REQUIRE(free_sized != NULL);
    char *p = told_block(n);
    free_sized(p, n);
    free_sized(p, n);
}

/* ---- The table ---- */

#define DOUBLE_FREE "\\(@P\\): double free: a block of @N bytes that is free already"
#define USE_AFTER_FREE "\\(@P\\): use after free: a block of @N bytes that is free already"
#define NOT_OURS "\\(@P\\): invalid pointer: not memory of hakmem"
#define INSIDE "\\(@Q\\): invalid pointer: inside a block of @N bytes at @P"
/* Of a large block only the beginning is marked; and what was a mapping is the system's once it is freed. */
#define INSIDE_OR_NOT_OURS "\\(@Q\\): invalid pointer: (inside a block of @N bytes at @P|not memory of hakmem)"
#define EITHER(a, b) "(" a "|" b ")"
/* Where several threads freed, the one that notices may be any of them. */
#define LATE_OR_NOT "( \\(noticed late\\))?"
#define WRONG_SIZE "wrong size: the block has @N usable bytes"

static const struct fault {
    const char *name;
    void (*make)(size_t n);
    size_t n;
    const char *message;
    int times; /* that it is reported where the program goes on; 0 means once */
} faults[] = {
    {"double-free-16", at_once, 16, "free" DOUBLE_FREE, 0},
    {"double-free-64", at_once, 64, "free" DOUBLE_FREE, 0},
    {"double-free-1000", at_once, 1000, "free" DOUBLE_FREE, 0},
    {"double-free-4K", at_once, 4 * KIB, "free" DOUBLE_FREE, 0},
    {"double-free-20K", at_once, 20 * KIB, "free" DOUBLE_FREE, 0},
    {"double-free-100K", at_once, 100 * KIB, "free" DOUBLE_FREE, 0},
    {"double-free-1M", at_once, 1 * MIB, "free" DOUBLE_FREE, 0},
    {"double-free-2M", at_once, 2 * MIB, "free" DOUBLE_FREE, 0},
    {"double-free-10M", at_once, 10 * MIB, "free" DOUBLE_FREE, 0},
    {"double-free-200M", at_once, 200 * MIB, "free" EITHER(DOUBLE_FREE, NOT_OURS), 0},
    {"double-free-warm-64", at_once_when_warm, 64, "free" DOUBLE_FREE, 0},
    {"double-free-warm-1000", at_once_when_warm, 1000, "free" DOUBLE_FREE, 0},
    {"double-free-warm-20K", at_once_when_warm, 20 * KIB, "free" DOUBLE_FREE, 0},
    {"double-free-warm-100K", at_once_when_warm, 100 * KIB, "free" DOUBLE_FREE, 0},
    {"double-free-in-every-state", at_once_in_every_state, 64,
     "free\\(0x[0-9a-f]+\\): double free: a block of @N bytes that is free already", 2 * FLUSH},
    {"double-free-frees-between-64", with_frees_between, 64, "free" DOUBLE_FREE "@L", 0},
    {"double-free-frees-between-1000", with_frees_between, 1000, "free" DOUBLE_FREE "@L", 0},
    {"double-free-frees-between-20K", with_frees_between, 20 * KIB, "free" DOUBLE_FREE "@L", 0},
    {"double-free-trim", with_a_trim_after_it, 64, "free" DOUBLE_FREE "@L", 0},
    {"double-free-guest", of_a_guest, 64, "free" DOUBLE_FREE "@L", 0},
    {"double-free-long-after", long_after, 64, "free" DOUBLE_FREE "@L", 0},
    {"double-free-owner-then-other", by_owner_then_another, 64, "free" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-other-then-owner", by_another_then_owner, 64, "free" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-other-twice", twice_by_another, 64, "free" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-other-twice-20K", twice_by_another, 20 * KIB, "free" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-two-others", by_two_others, 64, "free" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-dead-thread", of_a_dead_thread, 64, "free" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-delete", by_delete, 64, "(free|operator delete)" DOUBLE_FREE, 0},
    {"double-free-batch", in_a_batch, 64, "(free|hak_free_batch)" DOUBLE_FREE LATE_OR_NOT, 0},
    {"double-free-abort-handler", with_a_handler, 64, "free" DOUBLE_FREE "@L", 0},

    {"inside-64", inside_at_half, 64, "free" INSIDE "@L", 0},
    {"inside-64-at-8", inside_at_8, 64, "free" INSIDE "@L", 0},
    {"inside-64-at-1", inside_at_1, 64, "free" INSIDE "@L", 0},
    {"inside-1000", inside_at_half, 1000, "free" INSIDE "@L", 0},
    {"inside-20K", inside_at_half, 20 * KIB, "free" INSIDE "@L", 0},
    {"inside-200K", inside_at_a_page, 200 * KIB, "free" INSIDE "@L", 0},
    {"inside-200K-at-a-slot", inside_at_a_slot, 200 * KIB, "free" INSIDE "@L", 0},
    {"inside-10M", inside_at_a_page, 10 * MIB, "free" INSIDE "@L", 0},
    {"inside-10M-at-half", inside_at_half, 10 * MIB, "free" INSIDE_OR_NOT_OURS "@L", 0},
    {"inside-200M", inside_at_a_page, 200 * MIB, "free" INSIDE "@L", 0},
    {"inside-200M-at-half", inside_at_half, 200 * MIB, "free" INSIDE_OR_NOT_OURS "@L", 0},
    {"inside-flush", inside_then_flush, 64, "free" INSIDE "@L", 0},
    {"inside-other-thread-64", inside_by_another_thread, 64, "free" INSIDE, 0},
    {"inside-other-thread-1000", inside_by_another_thread, 1000, "free" INSIDE, 0},
    {"inside-other-thread-100K", inside_by_another_thread, 100 * KIB, "free" INSIDE, 0},
    {"inside-aligned", inside_of_aligned, 100, "free" INSIDE "@L", 0},
    {"inside-realloc", realloc_inside, 64, "realloc" INSIDE, 0},

    {"stack", of_the_stack, 0, "free" NOT_OURS, 0},
    {"stack-of-thread", of_a_thread_stack, 0, "free" NOT_OURS, 0},
    {"static", of_static_memory, 0, "free" NOT_OURS, 0},
    {"static-unaligned", of_static_memory, 3, "free" NOT_OURS, 0},
    {"code", of_code, 0, "free" NOT_OURS, 0},
    {"stdout", of_stdout, 0, "free" NOT_OURS, 0},
    {"mapping", of_a_mapping, 0, "free" NOT_OURS, 0},
    {"mapping-middle", of_a_mapping, 9 * MIB + 64, "free" NOT_OURS, 0},
    {"mapping-aligned", of_an_aligned_mapping, 0, "free" NOT_OURS, 0},
    {"libc-malloc", of_libc_malloc, 100, "free" NOT_OURS, 0},
    {"number-1", of_a_number, 1, "free" NOT_OURS, 0},
    {"number-8", of_a_number, 8, "free" NOT_OURS, 0},
    {"number-64K", of_a_number, 64 * KIB, "free" NOT_OURS, 0},
    {"number-minus-1", of_a_number, SIZE_MAX, "free" NOT_OURS, 0},
    {"number-minus-16", of_a_number, SIZE_MAX - 15, "free" NOT_OURS, 0},
    {"non-canonical", of_a_number, (size_t)0xdead << 48, "free" NOT_OURS, 0},
    {"non-canonical-filled", of_a_number, (size_t)0xdeadbeefdeadbee0, "free" NOT_OURS, 0},
    {"non-canonical-half", of_a_number, (size_t)1 << 63, "free" NOT_OURS, 0},
    {"tagged-pointer", of_a_tagged_pointer, 64, "free" NOT_OURS "@L", 0},

    {"realloc-freed-64", realloc_freed, 64, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-1000", realloc_freed, 1000, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-20K", realloc_freed, 20 * KIB, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-100K", realloc_freed, 100 * KIB, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-10M", realloc_freed, 10 * MIB, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-200M", realloc_freed, 200 * MIB, "realloc" EITHER(USE_AFTER_FREE, NOT_OURS), 0},
    {"realloc-freed-to-less-64", realloc_freed_to_less, 64, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-to-less-20K", realloc_freed_to_less, 20 * KIB, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-to-less-300K", realloc_freed_to_less, 300 * KIB, "realloc" USE_AFTER_FREE, 0},
    {"realloc-freed-long-ago", realloc_freed_long_ago, 64, "realloc" USE_AFTER_FREE, 0},
    {"realloc-stack", realloc_of_the_stack, 100, "realloc" NOT_OURS, 0},
    {"realloc-static", realloc_of_static_memory, 100, "realloc" NOT_OURS, 0},
    {"realloc-number", realloc_of_a_number, 8, "realloc" NOT_OURS, 0},
    {"realloc-tagged-pointer", realloc_of_a_tagged_pointer, 64, "realloc" NOT_OURS, 0},
    {"realloc-tagged-pointer-medium", realloc_of_a_tagged_pointer, 20000, "realloc" NOT_OURS, 0},
    {"realloc-non-canonical", realloc_of_a_number, (size_t)0xdead << 48, "realloc" NOT_OURS, 0},
    {"reallocarray-static", reallocarray_of_static_memory, 100, "realloc(array)?" NOT_OURS, 0},

    {"sized-64", sized_too_large, 64, "free_sized\\(@P, @M\\): " WRONG_SIZE, 0},
    {"sized-1000", sized_too_large, 1000, "free_sized\\(@P, @M\\): " WRONG_SIZE, 0},
    {"sized-100K", sized_too_large, 100 * KIB, "free_sized\\(@P, @M\\): " WRONG_SIZE, 0},
    {"sized-10M", sized_too_large, 10 * MIB, "free_sized\\(@P, @M\\): " WRONG_SIZE, 0},
    {"sized-200M", sized_too_large, 200 * MIB, "free_sized\\(@P, @M\\): " WRONG_SIZE, 0},
    {"aligned-sized-64", aligned_sized_too_large, 64, "free_aligned_sized\\(@P, (64, )?@M\\): " WRONG_SIZE, 0},
    {"aligned-sized-100K", aligned_sized_too_large, 100 * KIB, "free_aligned_sized\\(@P, (64, )?@M\\): " WRONG_SIZE, 0},
    {"sized-static", sized_of_static_memory, 64, "free_sized\\(@P(, 64)?\\): invalid pointer: not memory of hakmem", 0},
    {"sized-twice", sized_twice, 64,
     "free(_sized)?\\(@P(, 64)?\\): double free: a block of @N bytes that is free already", 0},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };

/* ---- The child ---- */

/* Blocks handed out after an error that was let pass are whole and their own. */
static void heap_still_works(void)
{
    enum { BLOCKS = 1200 };
    static char *blocks[BLOCKS];
    static const size_t sizes[] = {16, 64, 64, 1000, 5000, 50};
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t n = sizes[i % 6];
        blocks[i] = allocate(n);
        pattern_fill(blocks[i], 0, n, i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_MSG(pattern_holds(blocks[i], 0, sizes[i % 6], i), "block %zu overlaps another", i);
        free(blocks[i]);
    }
}

static int make_fault(const char *name, bool close_stderr)
{
    for (int i = 0; i < FAULTS; i++) {
        if (strcmp(faults[i].name, name) != 0)
            continue;
        alarm(30); /* a deadlock is a failure, not a wait */
        if (close_stderr)
            close(STDERR_FILENO);
        faults[i].make(faults[i].n);
        heap_still_works();
        dprintf(STDOUT_FILENO, "end\n");
        return check_result();
    }
    fprintf(stderr, "no fault is called %s\n", name);
    return 2;
}

/* ---- The parent ---- */

/* The value that the child told under a name, or NULL. */
static const char *told(const struct child *child, char name)
{
    static char value[32];
    const char prefix[] = {name, '=', 0};
    for (const char *line = child->out; line != NULL && *line != 0;) {
        if (strncmp(line, prefix, 2) == 0) {
            size_t length = strcspn(line + 2, "\n");
            REQUIRE(length < sizeof value);
            memcpy(value, line + 2, length);
            value[length] = 0;
            return value;
        }
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return NULL;
}

static bool expand(const struct child *child, const char *message, const char *late, char *to, size_t size)
{
    size_t length = (size_t)snprintf(to, size, "^hakmem: ");
    for (; *message != 0; message++) {
        const char *value = NULL;
        if (*message == '@') {
            message++;
            value = *message == 'L' ? late : told(child, *message);
            if (value == NULL)
                return false;
        }
        size_t more = value != NULL ? strlen(value) : 1;
        REQUIRE(length + more + 2 < size);
        memcpy(to + length, value != NULL ? value : message, more);
        length += more;
    }
    memcpy(to + length, "$", 2);
    return true;
}

static const struct mode {
    const char *name;
    const char *environment[3];
    const char *late; /* what @L is */
    bool aborts, is_silent;
} modes[] = {
    {"by default", {NULL}, LATE_OR_NOT, true, false},
    {"abort", {"HAKMEM_ON_ERROR=abort", NULL}, LATE_OR_NOT, true, false},
    {"warn", {"HAKMEM_ON_ERROR=warn", NULL}, LATE_OR_NOT, false, false},
    {"ignore", {"HAKMEM_ON_ERROR=ignore", NULL}, LATE_OR_NOT, false, true},
    {"hardened", {"HAKMEM_PROFILE=hardened", "HAKMEM_ON_ERROR=abort", NULL}, "", true, false},
};

static struct child child;

static bool as_expected(const struct fault *fault, const struct mode *mode)
{
    char expected[512];
    bool has_end = strstr(child.out, "end\n") != NULL;

    if (mode->aborts) {
        if (!child_was_killed(&child, SIGABRT) || has_end)
            return false;
    } else if (!child_exited(&child, 0) || !has_end) {
        return false;
    }
    if (mode->is_silent)
        return child.err[0] == 0;
    int times = mode->aborts || fault->times == 0 ? 1 : fault->times;
    return expand(&child, fault->message, mode->late, expected, sizeof expected) && count_lines(child.err) == times &&
           count_lines_matching(child.err, expected) == times;
}

/* Makes a fault in a child; `option` is an argument besides its name. */
static void run_fault(const char *name, const char *option, const char *const *environment)
{
    const char *const arguments[] = {name, option, NULL};
    child_run(&child, "/proc/self/exe", arguments, environment);
}

static void try_fault(const struct fault *fault, const struct mode *mode)
{
    run_fault(fault->name, NULL, mode->environment);
    bool right = as_expected(fault, mode);
    CHECK_MSG(right, "%s (%s): expected %s", fault->name, mode->name, fault->message);
    if (!right)
        child_show(&child, fault->name);
}

static const char *const no_variables[] = {NULL};

static void handler_of_sigabrt_can_allocate(void)
{
    run_fault("double-free-abort-handler", NULL, no_variables);
    CHECK(child_was_killed(&child, SIGABRT));
    CHECK(count_lines_equal(child.out, "the handler ran") == 1);
}

static void closed_stderr_does_no_harm(void)
{
    run_fault("static", "close-stderr", no_variables);
    CHECK(child_was_killed(&child, SIGABRT));
    CHECK(child.err[0] == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return make_fault(argv[1], argc > 2 && strcmp(argv[2], "close-stderr") == 0);
    if (skipped_without_hakmem("these are messages of hakmem"))
        return CHECK_SKIPPED;
    for (int i = 0; i < FAULTS; i++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
            try_fault(&faults[i], &modes[m]);
    handler_of_sigabrt_can_allocate();
    closed_stderr_does_no_harm();
    return check_result();
}
