/*
 * A program, or a tool that stands before hakmem, may have a realloc of its own: what reallocarray gives is freed and
 * grown by that one's kin, so it must come from there, as the C library's does.
 */
#include "check.h"

#include <stdlib.h>

void *__libc_realloc(void *p, size_t n);

static volatile unsigned calls; /* a compiler takes reallocarray for a leaf, which calls nobody here */

void *realloc(void *p, size_t n)
{
    calls++;
    return __libc_realloc(p, n);
}

int main(void)
{
    void *p = reallocarray(NULL, 10, 16);
    REQUIRE(p != NULL && calls == 1);
    p = reallocarray(p, 100, 16);
    REQUIRE(p != NULL && calls == 2);
    REQUIRE(reallocarray(p, (size_t)-1, 16) == NULL && calls == 2);
    free(p);
    return 0;
}
