/*
 * Random mixed: a program whose small objects come and go in no order.
 *
 * Stands for interpreters, object caches, session tables and parsers in steady state: many sizes at once, lifetimes
 * without pattern, one thread. The working set decides what is measured: 400 slots stay in the nearest cache and
 * show the length of the code path; 4,096 are about 1 MiB; 100,000 exceed the nearer caches and show how often the
 * allocator touches memory that the program does not.
 *
 * Each step draws a slot. An occupied slot is freed, without reading the block; an empty one gets a block of a random
 * size, whose first byte is written. Size and address share one word, so that the table costs the cache no more
 * than an array of pointers would.
 *
 * Figure: steps (calls of malloc or free) per second. Check: first bytes; then every live block is filled to its
 * size and read back, so that blocks that overlap are noticed.
 *
 *     random_mixed SLOTS MIN MAX STEPS
 */
#include "workload.h"

enum { ADDRESS_BITS = 48 };

static unsigned char *block_of(uint64_t slot)
{
    return (unsigned char *)(uintptr_t)(slot & (((uint64_t)1 << ADDRESS_BITS) - 1));
}

static size_t size_of(uint64_t slot) { return (size_t)(slot >> ADDRESS_BITS); }

static void run_steps(uint64_t *slots, size_t count, size_t min, size_t max, size_t steps)
{
    uint64_t state = 1;
    for (size_t step = 0; step < steps; step++) {
        uint64_t bits = random_next(&state);
        size_t index = random_below((uint32_t)(bits >> 32), count);
        if (slots[index]) {
            free(block_of(slots[index]));
            slots[index] = 0;
        } else {
            size_t size = min + random_below((uint32_t)bits, max - min + 1);
            unsigned char *block = malloc(size);
            if (!block)
                fail("malloc(%zu) returned NULL", size);
            *block = (unsigned char)index;
            slots[index] = (uint64_t)(uintptr_t)block | (uint64_t)size << ADDRESS_BITS;
        }
    }
}

static void check_and_free(const uint64_t *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i] && *block_of(slots[i]) != (unsigned char)i)
            fail("the first byte of slot %zu changed", i);
    for (size_t i = 0; i < count; i++)
        if (slots[i])
            memset(block_of(slots[i]), (int)(i % 251), size_of(slots[i]));
    for (size_t i = 0; i < count; i++) {
        for (size_t byte = 0; slots[i] && byte < size_of(slots[i]); byte++)
            if (block_of(slots[i])[byte] != i % 251)
                fail("byte %zu of slot %zu changed", byte, i);
        free(block_of(slots[i]));
    }
}

int main(int argc, char **argv)
{
    size_t count = argument(argc, argv, 1, "SLOTS");
    size_t min = argument(argc, argv, 2, "MIN");
    size_t max = argument(argc, argv, 3, "MAX");
    size_t steps = argument(argc, argv, 4, "STEPS");
    if (count == 0 || min == 0 || min > max || max >= (size_t)1 << (64 - ADDRESS_BITS)) {
        fprintf(stderr, "%s: expected SLOTS >= 1 and 1 <= MIN <= MAX < 65536\n", argv[0]);
        return 2;
    }
    uint64_t *slots = table_of(count, sizeof *slots);
    struct stopwatch start = stopwatch_start();
    run_steps(slots, count, min, max, steps);
    struct stopwatch elapsed = stopwatch_read(start);
    check_and_free(slots, count);
    report((double)steps / elapsed.cpu * 1e-6, "Mops/s", elapsed, "steps=%zu", steps);
    return 0;
}
