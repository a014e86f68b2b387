/*
 * hakmem: a general-purpose memory allocator for Linux.
 *
 * This header is the public C interface. A program that only wants a faster malloc needs none of it: preload or
 * link the library, and malloc, free and their kin are hakmem's. The hak_ functions below are the same allocator by
 * name, and what the C library's interface has no words for.
 *
 * Common to all functions unless a function says otherwise:
 *   - sizes and alignments are in bytes; every block is aligned to at least 16 bytes;
 *   - every function may be called from any thread, at any time, before constructors and after destructors ran;
 *     none may be called from a signal handler that interrupted one of them;
 *   - a block belongs to the program until it is given to a freeing function, from whatever thread;
 *     malloc, hak_malloc and operator new hand out the same kind of block, and each may be freed by any of them;
 *   - an allocation that fails returns NULL and sets errno to ENOMEM; a request above PTRDIFF_MAX always fails;
 *   - a freeing function keeps errno; a wrong pointer is handled as option on_error says (a message and abort).
 */
#ifndef HAKMEM_HAKMEM_H
#define HAKMEM_HAKMEM_H

#include <stdbool.h>
#include <stddef.h>

#define HAK_VERSION_MAJOR 0
#define HAK_VERSION_MINOR 1
#define HAK_VERSION_PATCH 0

#if defined(__GNUC__)
#define HAK_ATTR(...) __attribute__((__VA_ARGS__))
#else
#define HAK_ATTR(...)
#endif

#ifdef __cplusplus
#define HAK_NOEXCEPT noexcept
extern "C" {
#else
#define HAK_NOEXCEPT
#endif

/* ---- The C library's allocations, by name (ISO C23 7.24.3, POSIX.1-2024) ---- */

/* n bytes of indeterminate content. n == 0 gives a unique block, as in glibc. */
void *hak_malloc(size_t n) HAK_NOEXCEPT HAK_ATTR(malloc, alloc_size(1), warn_unused_result);

/* Ends the life of a block. NULL is allowed and does nothing. Keeps errno. */
void hak_free(void *ptr) HAK_NOEXCEPT;

/* count * n zero bytes; fails with ENOMEM if the product overflows. */
void *hak_calloc(size_t count, size_t n) HAK_NOEXCEPT HAK_ATTR(malloc, alloc_size(1, 2), warn_unused_result);

/* Changes the size of a block, moving it if need be; the content up to the smaller size is kept. NULL allocates;
 * n == 0 frees and returns NULL, as in glibc. On failure the old block is untouched. */
void *hak_realloc(void *ptr, size_t n) HAK_NOEXCEPT HAK_ATTR(alloc_size(2), warn_unused_result);

/* n bytes at a multiple of alignment, a power of two; otherwise NULL and EINVAL. n need not be a multiple. */
void *hak_aligned_alloc(size_t alignment, size_t n) HAK_NOEXCEPT HAK_ATTR(malloc, alloc_size(2), warn_unused_result);

/* Bytes that may be used at ptr, at least what was asked for; 0 for NULL. */
size_t hak_usable_size(const void *ptr) HAK_NOEXCEPT;

/* As hak_free, by a caller that knows the size it asked for (C23 free_sized). A size above the block's usable size is
 * an error and handled as option on_error says; a smaller one is not noticed. */
void hak_free_sized(void *ptr, size_t n) HAK_NOEXCEPT;
/* The same; the alignment is not looked at. */
void hak_free_aligned_sized(void *ptr, size_t alignment, size_t n) HAK_NOEXCEPT;

/* ---- What the C library has no words for ---- */

/* The usable size that a request of n bytes gets at least (it may be given a free block of the next larger size); n
 * itself if it can never be satisfied. */
size_t hak_good_size(size_t n) HAK_NOEXCEPT HAK_ATTR(const);

/* As hak_malloc; if usable is not NULL, *usable becomes the block's usable size (0 on failure). */
void *hak_malloc_usable(size_t n, size_t *usable) HAK_NOEXCEPT HAK_ATTR(malloc, warn_unused_result);

/* As hak_realloc, and bytes [old_size, n) of the result are zero. old_size is what the caller uses of ptr and must
 * not be above its usable size (0 for NULL). */
void *hak_realloc_zero(void *ptr, size_t old_size, size_t n) HAK_NOEXCEPT HAK_ATTR(alloc_size(3), warn_unused_result);

/* Tries to make at least n bytes usable at ptr without moving it. True on success; false, with errno kept, if not. A
 * compiler that checks accesses (_FORTIFY_SOURCE) takes a block still to be as large as it was asked for where it sees
 * the call that allocated it; there use what hak_malloc_usable says, or hak_realloc. */
bool hak_expand(void *ptr, size_t n) HAK_NOEXCEPT;

/* Allocates up to count blocks of n bytes each into out[0..], in one visit to the heap; returns how many it got,
 * fewer than count only when memory ran out (errno is ENOMEM then, and the rest of out is NULL). Each block is freed
 * like any other. */
size_t hak_malloc_batch(size_t n, size_t count, void **out) HAK_NOEXCEPT;

/* Frees ptrs[0..count), which may be of any sizes, from any function, in any order; NULLs are skipped. */
void hak_free_batch(void *const *ptrs, size_t count) HAK_NOEXCEPT;

/* ---- Memory (docs/memory.md says what is kept without being asked) ---- */

/* How much of the idle memory hak_purge gives back to the OS. */
enum hak_purge_level {
    HAK_PURGE_DECAY, /* what has lain idle for a second, but for the warm budget of a program at work */
    HAK_PURGE_QUIET, /* what has lain idle for a second */
    HAK_PURGE_ALL    /* all, as malloc_trim(0): other running threads' magazines excepted */
};

/* Gives idle memory of the whole process back, for all threads. Returns how many bytes went. */
size_t hak_purge(enum hak_purge_level level) HAK_NOEXCEPT;

/* For a thread that is about to wait for long, as the threads of a pool: gives what its magazines hold back to the
 * heap, where others, and hak_purge, can reach it. Its next allocations take a slow path each, as a new thread's do. */
void hak_thread_idle(void) HAK_NOEXCEPT;

/* Makes memory for count blocks of n bytes ready: mapped, faulted in, and kept though it is idle until HAK_PURGE_ALL or
 * malloc_trim; no more than options superslab_max_cached and superslab_max_memory_mb allow to be kept. What is idle and
 * ready already counts towards it. Returns for how many blocks it is ready; less than count if there is not so much
 * memory, 0 if n is above 1 MiB + 64 bytes or n * count above SIZE_MAX. */
size_t hak_prewarm(size_t n, size_t count) HAK_NOEXCEPT;

/* Limits on the memory of the process's heap, in bytes; 0 for none. Above soft, idle memory is given back before more
 * is taken; above hard, allocations fail with ENOMEM after a purge. Also options limit_soft and limit_hard, which know
 * the cgroup's limit. Returns 0, or -1 and EINVAL if hard is not 0 and below soft, or one is above PTRDIFF_MAX. */
int hak_limit_set(size_t soft, size_t hard) HAK_NOEXCEPT;

/* ---- The library itself ---- */

/* "major.minor.patch" of the library that is loaded; static, never freed. */
const char *hak_version(void) HAK_NOEXCEPT;

/* Options by their name in the table that HAKMEM_HELP=1 prints (for example "on_error"), values as text, as the
 * environment variables take them.
 * get: writes the value and a NUL to buf (len bytes) and returns its length; if that is >= len, buf was too small.
 *      Returns -1 and sets errno to ENOENT for an unknown name, to EINVAL for NULL (buf may be, if len is 0).
 * set: returns 0, or -1 with errno ENOENT (unknown name), EINVAL (a bad value, NULL) or EPERM (help and the options of
 *      prewarming, which are read only at start). */
int hak_option_get(const char *name, char *buf, size_t len) HAK_NOEXCEPT;
int hak_option_set(const char *name, const char *value) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
