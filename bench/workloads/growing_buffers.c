/*
 * Buffers that grow, are used up and dropped, again and again.
 *
 * Stands for programs that read one file or message after another into a buffer whose final size they do not know,
 * and for lists and vectors that a loop fills anew in each round. What a buffer was is there for the next: an allocator
 * that gives it back, or cannot grow into it, has the kernel make the memory again.
 *
 * As many buffers as AT_ONCE are in use; each is filled in pieces from 4 KiB on, growing by half when it is full, to a
 * final size between MIN and MAX, every octave as likely as another. One word is written in every page that is new.
 * The oldest is then checked and dropped, and another begun.
 *
 * Figure: microseconds per MiB of final size. Check: every word written is there at the end.
 *
 *     growing_buffers AT_ONCE MIN MAX BUFFERS
 */
#include "arguments.h"
#include "pages.h"
#include "sizes.h"

enum { FIRST = 4096 };

struct buffer {
    unsigned char *bytes;
    size_t size;
};

static size_t page;

static void fill(struct buffer *buffer, size_t full_size)
{
    for (size_t old = 0, size = FIRST; old < full_size; old = size, size += size / 2) {
        if (size > full_size)
            size = full_size;
        unsigned char *grown = realloc(buffer->bytes, size);
        if (!grown)
            fail("realloc to %zu returned NULL", size);
        touch_pages(grown, old, size, page);
        *buffer = (struct buffer){grown, size};
    }
}

static void check_and_drop(struct buffer *buffer)
{
    check_pages(buffer->bytes, buffer->size, page);
    free(buffer->bytes);
    *buffer = (struct buffer){NULL, 0};
}

int main(int argc, char **argv)
{
    size_t at_once = count_argument(argc, argv, 1, "AT_ONCE");
    struct bounds sizes = bounds_argument(argc, argv, 2, FIRST);
    size_t buffers = count_argument(argc, argv, 4, "BUFFERS");
    struct buffer *ring = table_of(at_once, sizeof *ring);
    page = (size_t)sysconf(_SC_PAGESIZE);

    uint64_t state = 1;
    double total = 0;
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < buffers; i++) {
        struct buffer *buffer = &ring[i % at_once];
        check_and_drop(buffer);
        size_t full_size = size_by_octaves(&state, sizes.min, sizes.max);
        fill(buffer, full_size);
        total += (double)full_size;
    }
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < at_once; i++)
        check_and_drop(&ring[i]);
    report(elapsed.cpu * 1e6 / (total * 0x1p-20), "us", elapsed, "mib=%.0f", total * 0x1p-20);
    return 0;
}
