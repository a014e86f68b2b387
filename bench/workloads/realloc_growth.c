/*
 * A buffer that grows by half again and again.
 *
 * Stands for vectors, string builders, log and network buffers, files read into memory: the program does not know
 * the size beforehand, reallocs, and fills what is new. An allocator that moves pages instead of copying bytes does a
 * fraction of the work.
 *
 * From 4 KiB by x 1.5 up to the final size; one word is written in every new page.
 *
 * Figure: milliseconds for the growth, without the final free. Check: every word written is there at the end.
 *
 *     realloc_growth FINAL_MIB
 */
#include "pages.h"

enum { FIRST = 4096 };

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

int main(int argc, char **argv)
{
    size_t largest = argument(argc, argv, 1, "FINAL_MIB") << 20;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stopwatch start = stopwatch_start();
    unsigned char *buffer = NULL;
    size_t moves = 0;
    for (size_t old = 0, size = FIRST; old < largest; old = size, size = smaller(size + size / 2, largest)) {
        unsigned char *grown = realloc(buffer, size);
        if (!grown)
            fail("realloc to %zu returned NULL", size);
        moves += grown != buffer;
        buffer = grown;
        touch_pages(buffer, old, size, page);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    check_pages(buffer, largest, page);
    free(buffer);
    report(elapsed.cpu * 1e3, "ms", elapsed, "moves=%zu", moves);
    return 0;
}
