/* malloc, free, calloc, realloc and reallocarray: zero sizes, overflow, sizes above PTRDIFF_MAX, errno. */
#include "check.h"

#include <malloc.h>
#include <string.h>

static const size_t too_large[] = {
    (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX + 4096, SIZE_MAX - 4096, SIZE_MAX - 15, SIZE_MAX - 1, SIZE_MAX};
/* Not above PTRDIFF_MAX, and more than any address space has. */
static const size_t never_there[] = {PTRDIFF_MAX, (size_t)PTRDIFF_MAX - 4096, (size_t)PTRDIFF_MAX / 2, (size_t)1 << 52};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void all_blocks_are_aligned_and_distinct(void)
{
    enum { BLOCKS = 64 };
    for (size_t n = 0; n <= 5000; n = n < 300 ? n + 1 : n + 37) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(n);
            REQUIRE(blocks[i] != NULL);
            CHECK_MSG(is_aligned(blocks[i], 16), "malloc(%zu) = %p", n, (void *)blocks[i]);
            memset(blocks[i], i, n);
        }
        for (int i = 0; i < BLOCKS; i++) {
            for (int j = 0; j < i; j++)
                CHECK_MSG(blocks[i] >= blocks[j] + n + (n == 0) || blocks[j] >= blocks[i] + n + (n == 0),
                          "two blocks of %zu bytes overlap", n);
            for (size_t k = 0; k < n; k++)
                CHECK_MSG(blocks[i][k] == (char)i, "byte %zu of %zu", k, n);
        }
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    for (size_t n = 4096; n <= (size_t)64 << 20; n += n / 5 + 1) {
        void *a = malloc(n), *b = calloc(1, n), *c = realloc(NULL, n);
        REQUIRE(a != NULL && b != NULL && c != NULL);
        CHECK_MSG(is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(c, 16), "%zu bytes", n);
        free(a), free(b), free(c);
    }
}

static void zero_sizes_give_blocks(void)
{
    void *blocks[] = {malloc(0),
                      malloc(0),
                      calloc(0, 8),
                      calloc(8, 0),
                      realloc(NULL, 0),
                      calloc(0, hide_size(SIZE_MAX)),
                      reallocarray(NULL, 0, 8),
                      reallocarray(NULL, 8, 0)};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        CHECK(blocks[i] != NULL);
        CHECK(is_aligned(blocks[i], 16));
        for (size_t j = 0; j < i; j++)
            CHECK_MSG(blocks[i] != blocks[j], "%zu and %zu are the same block", i, j);
    }
    for (size_t i = 0; i < COUNT(blocks); i++)
        free(blocks[i]);
}

static void realloc_to_zero_frees(void)
{
    static const size_t sizes[] = {0, 1, 100, 5000, 100000, 3000000, 100000000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        void *p = malloc(sizes[i]);
        REQUIRE(p != NULL);
        errno = 0;
        CHECK_MSG(realloc(p, hide_size(0)) == NULL, "a block of %zu bytes", sizes[i]);
        CHECK(errno == 0);
        p = malloc(sizes[i]);
        REQUIRE(p != NULL);
        CHECK_MSG(reallocarray(p, hide_size(0), 8) == NULL, "a block of %zu bytes", sizes[i]);
    }

    /* That the blocks are really freed shows in what is in use. */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 10000; i++)
        CHECK(realloc(malloc(1000), hide_size(0)) == NULL);
    CHECK_MSG(mallinfo2().uordblks < before + 1000000, "%zu, then %zu bytes in use", before, mallinfo2().uordblks);
}

static void expect_no_memory(void *got, const char *what, size_t n)
{
    CHECK_MSG(got == NULL, "%s of %zu bytes gave %p", what, n, got);
    CHECK_MSG(errno == ENOMEM, "%s of %zu bytes: errno %d", what, n, errno);
    free(got);
    errno = 0;
}

static void too_much_is_enomem(void)
{
    char *kept = malloc(100);
    REQUIRE(kept != NULL);
    pattern_fill(kept, 0, 100, 7);
    errno = 0;
    for (size_t i = 0; i < COUNT(too_large) + COUNT(never_there); i++) {
        size_t n = hide_size(i < COUNT(too_large) ? too_large[i] : never_there[i - COUNT(too_large)]);
        expect_no_memory(malloc(n), "malloc", n);
        expect_no_memory(calloc(1, n), "calloc(1, n)", n);
        expect_no_memory(calloc(n, 1), "calloc(n, 1)", n);
        expect_no_memory(realloc(NULL, n), "realloc(NULL, n)", n);
        expect_no_memory(realloc(hide(kept), n), "realloc", n);
        expect_no_memory(reallocarray(hide(kept), n, 1), "reallocarray(p, n, 1)", n);
        expect_no_memory(reallocarray(hide(kept), 1, n), "reallocarray(p, 1, n)", n);
        expect_no_memory(reallocarray(NULL, 1, n), "reallocarray(NULL, 1, n)", n);
    }
    CHECK(pattern_holds(kept, 0, 100, 7));
    free(kept);
}

static void products_that_overflow_are_enomem(void)
{
    const size_t half = (size_t)1 << 32;
    const size_t pairs[][2] = {{half, half},           {half, half + 1},  {half + 1, half - 1},
                               {SIZE_MAX, 2},          {2, SIZE_MAX},     {SIZE_MAX, SIZE_MAX},
                               {SIZE_MAX / 2 + 1, 2},  {SIZE_MAX / 3, 4}, {SIZE_MAX / 16 + 1, 16},
                               {(half >> 1) + 1, half}};
    char *kept = malloc(100);
    REQUIRE(kept != NULL);
    pattern_fill(kept, 0, 100, 8);
    for (size_t i = 0; i < COUNT(pairs); i++) {
        size_t a = hide_size(pairs[i][0]), b = hide_size(pairs[i][1]);
        errno = 0;
        expect_no_memory(calloc(a, b), "calloc", a);
        expect_no_memory(reallocarray(NULL, a, b), "reallocarray(NULL)", a);
        expect_no_memory(reallocarray(hide(kept), a, b), "reallocarray", a);
    }
    CHECK(pattern_holds(kept, 0, 100, 8));
    kept = reallocarray(kept, 50, 20);
    REQUIRE(kept != NULL);
    CHECK(pattern_holds(kept, 0, 100, 8));
    CHECK(malloc_usable_size(kept) >= 1000);
    free(kept);
}

static void free_keeps_errno(void)
{
    enum { BLOCKS = 300 };
    static void *blocks[BLOCKS];
    for (size_t n = 1; n <= (size_t)256 << 20; n *= 4) {
        int count = n <= 65536 ? BLOCKS : 3;
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(n);
            REQUIRE(blocks[i] != NULL);
        }
        for (int i = 0; i < count; i++) {
            errno = 1000 + i;
            free(blocks[i]);
            CHECK_MSG(errno == 1000 + i, "free of %zu bytes left errno %d", n, errno);
        }
    }
    errno = EILSEQ;
    free(hide(NULL));
    CHECK(errno == EILSEQ);
}

/* A successful call may set errno by the standard; glibc's do not where no system call failed, and programs that test
 * errno after strtol and the like have come to rely on it. */
static void success_keeps_errno(void)
{
    for (size_t n = 1; n <= (size_t)64 << 20; n *= 2) {
        errno = EILSEQ;
        void *p = malloc(n);
        REQUIRE(p != NULL);
        CHECK_MSG(errno == EILSEQ, "malloc(%zu) left errno %d", n, errno);
        p = realloc(p, n + n / 2);
        REQUIRE(p != NULL);
        CHECK_MSG(errno == EILSEQ, "realloc from %zu left errno %d", n, errno);
        void *q = calloc(1, n);
        REQUIRE(q != NULL);
        CHECK_MSG(errno == EILSEQ, "calloc of %zu left errno %d", n, errno);
        free(p), free(q);
    }
}

int main(void)
{
    all_blocks_are_aligned_and_distinct();
    zero_sizes_give_blocks();
    realloc_to_zero_frees();
    too_much_is_enomem();
    products_that_overflow_are_enomem();
    free_keeps_errno();
    success_keeps_errno();
    return check_result();
}
