/* aligned_alloc, memalign, posix_memalign, valloc, pvalloc: every alignment, and every wrong one. */
#include "check.h"

#include <malloc.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ALIGNMENT_MAX ((size_t)64 << 20)

static const size_t sizes[] = {0,     1,      15,     16,      17,      24,      48,      63,      64,       65,
                               100,   127,    128,    192,     255,     256,     1000,    1024,    2047,     3000,
                               4095,  4096,   4097,   5000,    8192,    10000,   16384,   30000,   65535,    65536,
                               65537, 100000, 262144, 1000000, 1048576, 1048577, 2097152, 3000000, 10000000, 70000000};

typedef void *aligned_function(size_t alignment, size_t n);

static void *by_posix_memalign(size_t alignment, size_t n)
{
    void *p = NULL;
    int error = posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment, n);
    CHECK_MSG(error == 0, "posix_memalign(%zu, %zu) = %d", alignment, n, error);
    return p;
}

/* Blocks of the same shape that live at the same time, filled to the last usable byte. */
static void every_alignment_and_size(aligned_function *allocate, const char *name)
{
    enum { BLOCKS = 3 };
    for (size_t alignment = 1; alignment <= ALIGNMENT_MAX; alignment *= 2) {
        for (size_t s = 0; s < COUNT(sizes); s++) {
            void *blocks[BLOCKS];
            size_t usable[BLOCKS];
            for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = allocate(alignment, sizes[s]);
                CHECK_MSG(blocks[i] != NULL, "%s(%zu, %zu) failed", name, alignment, sizes[s]);
                CHECK_MSG(is_aligned(blocks[i], alignment) && is_aligned(blocks[i], 16), "%s(%zu, %zu) = %p", name,
                          alignment, sizes[s], blocks[i]);
                usable[i] = malloc_usable_size(blocks[i]);
                CHECK_MSG(usable[i] >= sizes[s], "%s(%zu, %zu): %zu usable", name, alignment, sizes[s], usable[i]);
                if (usable[i] > 0 && usable[i] < 200000) {
                    memset(blocks[i], 0x11 * (i + 1), usable[i]);
                } else if (usable[i] > 0) {
                    memset(blocks[i], 0x11 * (i + 1), 64);
                    memset((char *)blocks[i] + usable[i] - 64, 0x11 * (i + 1), 64);
                }
            }
            for (int i = 0; i < BLOCKS; i++) {
                const unsigned char *bytes = blocks[i];
                if (usable[i] > 0)
                    CHECK_MSG(bytes[0] == 0x11 * (i + 1) && bytes[usable[i] - 1] == 0x11 * (i + 1),
                              "%s(%zu, %zu): overlap", name, alignment, sizes[s]);
                free(blocks[i]);
            }
        }
    }
}

/* Aligned blocks are blocks like any other for realloc, whose result need not keep the alignment. */
static void realloc_of_aligned_blocks(void)
{
    for (size_t alignment = 16; alignment <= (size_t)4 << 20; alignment *= 4) {
        for (size_t n = 10; n < 3000000; n = n * 5 + 3) {
            for (int grow = 0; grow <= 1; grow++) {
                size_t to = grow ? n * 3 + 1000 : n / 2 + 1, common = grow ? n : to;
                uint8_t *p = memalign(alignment, n);
                REQUIRE(p != NULL);
                pattern_fill(p, 0, n, n);
                p = realloc(p, to);
                REQUIRE(p != NULL);
                CHECK_MSG(pattern_holds(p, 0, common, n), "alignment %zu, from %zu to %zu", alignment, n, to);
                CHECK(malloc_usable_size(p) >= to);
                free(p);
            }
        }
    }
}

static void aligned_alloc_wants_a_power_of_two(void)
{
    static const size_t wrong[] = {
        0, 3, 5, 6, 7, 12, 24, 48, 100, 4095, 4097, 3 << 20, SIZE_MAX / 2, SIZE_MAX / 2 + 2, SIZE_MAX};
    if (!has_semantics_of(2, 38)) {
        printf("aligned_alloc with a wrong alignment: not tested, this libc is older than 2.38\n");
        return;
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        for (size_t n = 0; n <= 100; n += 50) {
            errno = 0;
            void *p = aligned_alloc(hide_size(wrong[i]), n);
            CHECK_MSG(p == NULL && errno == EINVAL, "aligned_alloc(%zu, %zu) = %p, errno %d", wrong[i], n, p, errno);
        }
    }
    /* The size need not be a multiple of the alignment, as C11 asked for at first. */
    void *p = aligned_alloc(64, hide_size(1));
    CHECK(p != NULL && is_aligned(p, 64));
    free(p);
}

static void memalign_rounds_up(void)
{
    static const size_t odd[][2] = {{0, 16},         {3, 16},          {17, 32},           {24, 32},
                                    {33, 64},        {48, 64},         {65, 128},          {100, 128},
                                    {1000, 1024},    {4095, 4096},     {4097, 8192},       {5000, 8192},
                                    {65537, 131072}, {100000, 131072}, {1000000, 1048576}, {3 << 20, 4 << 20}};
    for (size_t i = 0; i < COUNT(odd); i++) {
        for (size_t n = 0; n < 200000; n = n * 3 + 1) {
            void *p = memalign(hide_size(odd[i][0]), n);
            REQUIRE(p != NULL);
            CHECK_MSG(is_aligned(p, odd[i][1]), "memalign(%zu, %zu) = %p", odd[i][0], n, p);
            memset(p, 1, n);
            free(p);
        }
    }
    errno = 0;
    CHECK(memalign(hide_size(SIZE_MAX / 2 + 2), 1) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(memalign(hide_size(SIZE_MAX), 1) == NULL && errno == EINVAL);
}

static void posix_memalign_reports_by_its_result(void)
{
    static const size_t wrong[] = {0, 1, 2, 4, 7, 12, 24, 40, 48, 100, 4095, 4097, 3 << 20, SIZE_MAX / 2 + 2, SIZE_MAX};
    void *const mark = (void *)0x1234;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        void *p = mark;
        errno = EILSEQ;
        int error = posix_memalign(&p, hide_size(wrong[i]), 100);
        CHECK_MSG(error == EINVAL, "posix_memalign(%zu) = %d", wrong[i], error);
        CHECK_MSG(p == mark, "posix_memalign(%zu) wrote %p", wrong[i], p);
        CHECK_MSG(errno == EILSEQ, "posix_memalign(%zu): errno %d", wrong[i], errno);
    }
    static const size_t too_large[] = {(size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX, SIZE_MAX - 64, SIZE_MAX};
    for (size_t i = 0; i < COUNT(too_large); i++) {
        for (size_t alignment = sizeof(void *); alignment <= ALIGNMENT_MAX; alignment *= 8) {
            void *p = mark;
            errno = EILSEQ;
            int error = posix_memalign(&p, alignment, hide_size(too_large[i]));
            CHECK_MSG(error == ENOMEM && p == mark, "posix_memalign(%zu, %zu) = %d", alignment, too_large[i], error);
            CHECK_MSG(errno == ENOMEM, "posix_memalign(%zu, %zu): errno %d", alignment, too_large[i], errno);
        }
    }
    void *a = NULL, *b = NULL;
    CHECK(posix_memalign(&a, sizeof(void *), 0) == 0);
    CHECK(posix_memalign(&b, 4096, 0) == 0);
    CHECK(a != NULL && b != NULL && a != b && is_aligned(b, 4096));
    free(a), free(b);
}

static void too_much_is_enomem(void)
{
    static const size_t too_large[] = {PTRDIFF_MAX,     (size_t)PTRDIFF_MAX + 1, SIZE_MAX / 2 + 5000, SIZE_MAX - 8192,
                                       SIZE_MAX - 4095, SIZE_MAX - 15,           SIZE_MAX - 1,        SIZE_MAX};
    for (size_t i = 0; i < COUNT(too_large); i++) {
        size_t n = hide_size(too_large[i]);
        for (size_t alignment = 1; alignment <= ALIGNMENT_MAX; alignment *= 2) {
            errno = 0;
            CHECK_MSG(memalign(alignment, n) == NULL && errno == ENOMEM, "memalign(%zu, %zu)", alignment, n);
            errno = 0;
            CHECK_MSG(aligned_alloc(alignment, n) == NULL && errno == ENOMEM, "aligned_alloc(%zu, %zu)", alignment, n);
        }
        errno = 0;
        CHECK_MSG(valloc(n) == NULL && errno == ENOMEM, "valloc(%zu)", n);
        errno = 0;
        CHECK_MSG(pvalloc(n) == NULL && errno == ENOMEM, "pvalloc(%zu)", n);
    }
    /* An alignment that is a power of two and that no address space can satisfy. */
    for (int bit = 56; bit <= 63; bit++) {
        size_t alignment = hide_size((size_t)1 << bit);
        errno = 0;
        CHECK_MSG(memalign(alignment, 1) == NULL && errno == ENOMEM, "memalign(2^%d), errno %d", bit, errno);
        errno = 0;
        CHECK_MSG(aligned_alloc(alignment, 1) == NULL && errno == ENOMEM, "aligned_alloc(2^%d), errno %d", bit, errno);
        void *p = NULL;
        CHECK_MSG(posix_memalign(&p, alignment, 1) == ENOMEM && p == NULL, "posix_memalign(2^%d)", bit);
    }
}

static void pages(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t n = 0; n < 3000000; n = n * 2 + 1) {
        for (size_t d = 0; d <= 2; d++) {
            size_t asked = n + d;
            void *v = valloc(asked), *w = pvalloc(asked);
            REQUIRE(v != NULL && w != NULL);
            CHECK_MSG(v != w && is_aligned(v, page), "valloc(%zu) = %p", asked, v);
            CHECK_MSG(is_aligned(w, page), "pvalloc(%zu) = %p", asked, w);
            CHECK(malloc_usable_size(v) >= asked);
            size_t rounded = (asked + page - 1) & ~(page - 1);
            CHECK_MSG(malloc_usable_size(w) >= rounded, "pvalloc(%zu): %zu usable", asked, malloc_usable_size(w));
            memset(v, 1, asked);
            memset(w, 2, rounded);
            CHECK(asked == 0 || (((char *)v)[0] == 1 && ((char *)v)[asked - 1] == 1));
            free(v), free(w);
        }
    }
}

/* Many at once, of mixed alignments, freed in another order. */
static void mixed(void)
{
    enum { BLOCKS = 2000 };
    static struct {
        uint8_t *p;
        size_t n;
    } blocks[BLOCKS];
    uint64_t random = 1;
    for (int i = 0; i < BLOCKS; i++) {
        size_t alignment = (size_t)1 << (next_random(&random) % 17);
        blocks[i].n = next_random(&random) % 5000;
        blocks[i].p = memalign(alignment, blocks[i].n);
        REQUIRE(blocks[i].p != NULL);
        CHECK_MSG(is_aligned(blocks[i].p, alignment), "memalign(%zu, %zu)", alignment, blocks[i].n);
        pattern_fill(blocks[i].p, 0, blocks[i].n, (uint64_t)i);
    }
    for (int i = 0; i < BLOCKS; i++) {
        int at = (int)((unsigned)i * 1237u % BLOCKS);
        CHECK_MSG(pattern_holds(blocks[at].p, 0, blocks[at].n, (uint64_t)at), "block %d", at);
        free(blocks[at].p);
    }
}

int main(void)
{
    every_alignment_and_size(memalign, "memalign");
    every_alignment_and_size(aligned_alloc, "aligned_alloc");
    every_alignment_and_size(by_posix_memalign, "posix_memalign");
    realloc_of_aligned_blocks();
    aligned_alloc_wants_a_power_of_two();
    memalign_rounds_up();
    posix_memalign_reports_by_its_result();
    too_much_is_enomem();
    pages();
    mixed();
    return check_result();
}
