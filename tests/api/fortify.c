/*
 * Proves: what the header says of sizes holds for a compiler that checks accesses (_FORTIFY_SOURCE): all that
 * hak_malloc_usable says may be used, and a block that hak_expand has made grow.
 */
#include "check.h"
#include <hakmem/hakmem.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    for (size_t n = 1; n < 300000; n += n / 3 + 1) {
        size_t usable;
        char *p = hak_malloc_usable(n, &usable);
        REQUIRE(p != NULL && usable >= n);
        memset(p, 'x', usable);
        CHECK(p[usable - 1] == 'x');
        hak_free(p);
        p = hak_malloc_usable(n, &usable);
        REQUIRE(p != NULL);
        if (hak_expand(p, n + n / 8)) {
            memset(p, 'y', n + n / 8);
            CHECK(p[n + n / 8 - 1] == 'y');
        }
        hak_free(p);
    }
    return check_result();
}
