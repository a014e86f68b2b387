/* malloc_usable_size: at least what was asked for, and all of it the program's. */
#include "check.h"

#include <malloc.h>
#include <string.h>

enum { BLOCKS = 40 };

/* Neighbours filled to the last usable byte must not meet. */
static void all_of_it_is_writable(void)
{
    for (size_t n = 0; n <= (size_t)3 << 20; n += n < 600 ? 1 : n / 23) {
        uint8_t *blocks[BLOCKS];
        size_t usable[BLOCKS];
        int count = n <= 8192 ? BLOCKS : 4;
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(n);
            REQUIRE(blocks[i] != NULL);
            usable[i] = malloc_usable_size(blocks[i]);
            CHECK_MSG(usable[i] >= n, "malloc(%zu): %zu usable", n, usable[i]);
            memset(blocks[i], i + 1, usable[i]);
        }
        for (int i = 0; i < count; i++) {
            CHECK_MSG(malloc_usable_size(blocks[i]) == usable[i], "malloc(%zu): it changed", n);
            uint8_t other = 0;
            for (size_t k = 0; k < usable[i]; k++)
                other |= blocks[i][k] ^ (uint8_t)(i + 1);
            CHECK_MSG(other == 0, "malloc(%zu): %zu usable, and a neighbour wrote there", n, usable[i]);
        }
        for (int i = 0; i < count; i++)
            free(blocks[i]);
    }
}

static void large_blocks(void)
{
    for (size_t n = (size_t)3 << 20; n <= (size_t)300 << 20; n += n / 3) {
        uint8_t *a = malloc(n), *b = malloc(n);
        REQUIRE(a != NULL && b != NULL);
        size_t usable_a = malloc_usable_size(a), usable_b = malloc_usable_size(b);
        CHECK_MSG(usable_a >= n && usable_b >= n, "malloc(%zu): %zu and %zu usable", n, usable_a, usable_b);
        a[0] = b[0] = 1;
        memset(a + n - 1, 2, usable_a - n + 1);
        memset(b + n - 1, 3, usable_b - n + 1);
        CHECK(a[0] == 1 && b[0] == 1 && a[usable_a - 1] == 2 && b[usable_b - 1] == 3);
        free(a), free(b);
    }
}

/* Within what is usable realloc has no reason to fail, and the content is kept to the last byte. */
static void realloc_to_usable(void)
{
    for (size_t n = 1; n <= 100000; n += n / 7 + 1) {
        uint8_t *p = malloc(n);
        REQUIRE(p != NULL);
        size_t usable = malloc_usable_size(p);
        pattern_fill(p, 0, usable, n);
        p = realloc(p, usable);
        REQUIRE(p != NULL);
        CHECK_MSG(pattern_holds(p, 0, usable, n), "%zu bytes, %zu usable", n, usable);
        CHECK(malloc_usable_size(p) >= usable);
        free(p);
    }
}

int main(void)
{
    errno = EILSEQ;
    CHECK(malloc_usable_size(hide(NULL)) == 0);
    CHECK(errno == EILSEQ);
    all_of_it_is_writable();
    large_blocks();
    realloc_to_usable();
    return check_result();
}
