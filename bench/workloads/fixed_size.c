/*
 * Blocks of one fixed size that come and go at random, a few dozen at a time.
 *
 * Stands for I/O buffers, pages of a database or of a decoder, network packets and thread stacks: a program settles
 * on one size between 4 KiB and 1 MiB and keeps a pool's worth of them in flight. Sizes of this range fall between
 * what allocators keep in per-thread caches and what they map, so each has its own cliff somewhere.
 *
 * Each step draws a slot. An occupied slot is freed, without reading the block; an empty one gets a block, whose first
 * byte is written. Of the slots about half are occupied at any time.
 *
 * Figure: steps (calls of malloc or free) per second. Check: first bytes, and that no two blocks overlap.
 *
 *     fixed_size BYTES SLOTS STEPS
 */
#include "workload.h"

static void check_and_free(unsigned char **slots, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (!slots[i])
            continue;
        if (*slots[i] != (unsigned char)i)
            fail("the first byte of slot %zu changed", i);
        for (size_t j = 0; j < i; j++)
            if (slots[j] && slots[i] < slots[j] + size && slots[j] < slots[i] + size)
                fail("slots %zu and %zu overlap", i, j);
    }
    for (size_t i = 0; i < count; i++)
        free(slots[i]);
}

int main(int argc, char **argv)
{
    size_t size = argument(argc, argv, 1, "BYTES");
    size_t count = argument(argc, argv, 2, "SLOTS");
    size_t steps = argument(argc, argv, 3, "STEPS");
    unsigned char **slots = table_of(count, sizeof *slots);

    uint64_t state = 1;
    struct stopwatch start = stopwatch_start();
    for (size_t step = 0; step < steps; step++) {
        size_t index = random_below((uint32_t)(random_next(&state) >> 32), count);
        if (slots[index]) {
            free(slots[index]);
            slots[index] = NULL;
        } else {
            unsigned char *block = malloc(size);
            if (!block)
                fail("malloc(%zu) returned NULL", size);
            *block = (unsigned char)index;
            slots[index] = block;
        }
    }
    struct stopwatch elapsed = stopwatch_read(start);
    check_and_free(slots, count, size);
    report((double)steps / elapsed.cpu * 1e-6, "Mops/s", elapsed, "steps=%zu", steps);
    return 0;
}
