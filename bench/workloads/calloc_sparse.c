/*
 * Large zeroed blocks of which little is used.
 *
 * Stands for hash tables, bitmaps, frame buffers and sparse matrices: the program wants 1 MiB of zeros, looks at all
 * of it and writes to little. An allocator that knows which memory is still zero need not clear it; one that
 * maps and unmaps each block pays for the faults instead.
 *
 * A few blocks are live at a time. Each new one is read, one byte a page, and gets one byte written in a random
 * page, so that an allocator that hands out memory uncleared is found out.
 *
 * Figure: microseconds per block. Check: every byte read is zero, every byte written is there when the block is freed.
 *
 *     calloc_sparse BYTES LIVE BLOCKS
 */
#include "workload.h"

struct stamped {
    unsigned char *block;
    size_t at;
};

static void check_and_free(struct stamped *slot)
{
    if (slot->block && slot->block[slot->at] != 0xa5)
        fail("the byte written at %zu changed", slot->at);
    free(slot->block);
}

int main(int argc, char **argv)
{
    size_t size = argument(argc, argv, 1, "BYTES");
    size_t live = argument(argc, argv, 2, "LIVE");
    size_t blocks = argument(argc, argv, 3, "BLOCKS");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stamped *slots = table_of(live, sizeof *slots);
    uint64_t state = 1;

    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < blocks; i++) {
        struct stamped *slot = &slots[i % live];
        check_and_free(slot);
        slot->block = calloc(size / 16, 16);
        if (!slot->block)
            fail("calloc of %zu bytes returned NULL", size);
        /* The stamp of a former block lies on one of the bytes read: the first of some page. */
        for (size_t at = 0; at < size; at += page)
            if (slot->block[at] != 0)
                fail("byte %zu of a calloc block is not zero", at);
        slot->at = random_below((uint32_t)random_next(&state), size / page) * page;
        slot->block[slot->at] = 0xa5;
    }
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < live; i++)
        check_and_free(&slots[i]);
    report(elapsed.cpu / (double)blocks * 1e6, "us", elapsed, "blocks=%zu", blocks);
    return 0;
}
