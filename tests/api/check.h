/*
 * Checks for plain C and C++ test programs: a failed check is printed and counted, the program goes on, and main
 * returns check_result(). Such a program runs under the system's malloc as well as under hakmem, so that what it
 * expects can be compared with glibc.
 */
#ifndef TESTS_API_CHECK_H
#define TESTS_API_CHECK_H

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK_SKIPPED 77
#define CHECK_SHOWN_MAX 20

static int check_failures;

#define CHECK_MSG(cond, ...)                                                   \
    do {                                                                       \
        if (!(cond) && ++check_failures <= CHECK_SHOWN_MAX) {                  \
            fprintf(stderr, "%s:%d: not true: %s", __FILE__, __LINE__, #cond); \
            fprintf(stderr, " -- " __VA_ARGS__);                               \
            fputc('\n', stderr);                                               \
        }                                                                      \
    } while (0)

#define CHECK(cond) CHECK_MSG(cond, "errno %d", errno)

/* For what the rest of the program cannot do without. */
#define REQUIRE(cond)                                                                            \
    do {                                                                                         \
        if (!(cond)) {                                                                           \
            fprintf(stderr, "%s:%d: needed: %s (errno %d)\n", __FILE__, __LINE__, #cond, errno); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static inline int check_result(void)
{
    if (check_failures > 0)
        fprintf(stderr, "%d checks failed\n", check_failures);
    return check_failures > 0;
}

/* What the compiler must not know the value of: it warns of, and optimises by, what it knows of malloc. */
static inline void *hide(const void *p)
{
    __asm__ volatile("" : "+r"(p));
    return (void *)(uintptr_t)p;
}

static inline size_t hide_size(size_t n)
{
    __asm__ volatile("" : "+r"(n));
    return n;
}

static inline bool is_aligned(const void *p, size_t alignment) { return ((uintptr_t)p & (alignment - 1)) == 0; }

/* A program that hakmem is linked into says so by the macro: its symbols cannot be looked up by name. */
static inline bool under_hakmem(void)
{
#ifdef LINKED_WITH_HAKMEM
    return true;
#else
    return dlsym(RTLD_DEFAULT, "hak_version") != NULL;
#endif
}

/* Without hakmem, says why the test has nothing to check: it is to return CHECK_SKIPPED then. */
static inline bool skipped_without_hakmem(const char *why)
{
    if (under_hakmem())
        return false;
    fprintf(stderr, "skipped: %s\n", why);
    return true;
}

/* hakmem has the semantics of glibc 2.41 on every system; the system's malloc those of its own version. */
static inline bool has_semantics_of(int major, int minor)
{
    int have_major = 0, have_minor = 0;
    if (under_hakmem())
        return true;
    REQUIRE(sscanf(gnu_get_libc_version(), "%d.%d", &have_major, &have_minor) == 2);
    return have_major > major || (have_major == major && have_minor >= minor);
}

/* Content that differs from word to word and from seed to seed, so that data in a wrong place is seen. */
static inline uint8_t pattern_byte(size_t at, uint64_t seed)
{
    uint64_t x = ((uint64_t)(at / 8) + seed * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return (uint8_t)((x ^ (x >> 32)) >> (8 * (at % 8) / 2));
}

static inline void pattern_fill(void *p, size_t from, size_t to, uint64_t seed)
{
    for (size_t i = from; i < to; i++)
        ((uint8_t *)p)[i] = pattern_byte(i, seed);
}

static inline bool pattern_holds(const void *p, size_t from, size_t to, uint64_t seed)
{
    uint8_t wrong = 0;
    for (size_t i = from; i < to; i++)
        wrong |= (uint8_t)(((const uint8_t *)p)[i] ^ pattern_byte(i, seed));
    return wrong == 0;
}

static inline bool is_zero(const void *p, size_t from, size_t to)
{
    uint8_t any = 0;
    for (size_t i = from; i < to; i++)
        any |= ((const uint8_t *)p)[i];
    return any == 0;
}

/* A fixed sequence of numbers: a failure repeats. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
