/* C23's free_sized and free_aligned_sized, which glibc has since 2.43. */
#include "check.h"

#include <malloc.h>

extern void free_sized(void *ptr, size_t n) __attribute__((weak));
extern void free_aligned_sized(void *ptr, size_t alignment, size_t n) __attribute__((weak));

int main(void)
{
    if (free_sized == NULL || free_aligned_sized == NULL) {
        CHECK_MSG(!under_hakmem(), "not there");
        fprintf(stderr, "skipped: this malloc has no free_sized\n");
        return check_failures > 0 ? 1 : CHECK_SKIPPED;
    }
    errno = EILSEQ;
    free_sized(NULL, 0);
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 0);
    free_aligned_sized(NULL, 64, 128);
    for (size_t n = 0; n < (size_t)300 << 20; n = n < 5000 ? n + 1 : n + n / 3) {
        free_sized(malloc(n), n);
        free_sized(calloc(1, n), n);
        free_sized(realloc(NULL, n), n);
        /* A block may have shrunk in place, and the program may know its usable size: neither is an error. */
        void *p = malloc(n);
        free_sized(p, malloc_usable_size(p));
        p = realloc(malloc(2 * n + 100), n + 1);
        free_sized(p, n + 1);
        for (size_t alignment = 16; alignment <= (size_t)4 << 20; alignment *= 32)
            free_aligned_sized(aligned_alloc(alignment, n), alignment, n);
        CHECK_MSG(errno == EILSEQ, "%zu bytes: errno %d", n, errno);
        errno = EILSEQ;
    }
    /* They do free: this would need 1.6 GB otherwise. */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 1000000; i++) {
        free_sized(malloc(800), 800);
        free_aligned_sized(aligned_alloc(64, 800), 64, 800);
    }
    CHECK_MSG(mallinfo2().uordblks < before + 1000000, "%zu, then %zu bytes in use", before, mallinfo2().uordblks);
    return check_result();
}
