/*
 * A burst: many small blocks, then none.
 *
 * Stands for loading a file, a query's intermediate result, a simulation step, a garbage-free language's large
 * container going out of scope: everything is allocated before anything is freed. When it is freed, the first blocks of
 * very many have long left the caches; in which order decides how much of the allocator's own data is touched in vain.
 * Of a few hundred, a request's or a frame's, all stay in the caches, and the instructions count.
 *
 * Burst follows burst, of AT_ONCE blocks each, until BLOCKS have been there; they are freed in the order they were
 * allocated in, reversed, or shuffled. Shuffling and checking are not timed.
 *
 * Figure: nanoseconds per block, one malloc and one free; build_ns and drop_ns are its halves. Check: every block
 * carries its number when all have been allocated.
 *
 *     burst MIN MAX in-order|reversed|shuffled AT_ONCE BLOCKS
 */
#include "arguments.h"
#include "sizes.h"

enum order { IN_ORDER, REVERSED, SHUFFLED };
static const char *const orders[] = {[IN_ORDER] = "in-order", [REVERSED] = "reversed", [SHUFFLED] = "shuffled"};

static void build(uint32_t **block, size_t count, struct bounds sizes, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = size_between(state, sizes.min, sizes.max);
        block[i] = malloc(size);
        if (!block[i])
            fail("malloc(%zu) returned NULL", size);
        *block[i] = (uint32_t)i;
    }
}

static void check(uint32_t *const *block, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (*block[i] != (uint32_t)i)
            fail("block %zu carries %u", i, *block[i]);
}

static void swap(uint32_t **a, uint32_t **b)
{
    uint32_t *was = *a;
    *a = *b;
    *b = was;
}

static void arrange(uint32_t **block, size_t count, enum order order, uint64_t *state)
{
    if (order == REVERSED)
        for (size_t i = 0; i < count / 2; i++)
            swap(&block[i], &block[count - 1 - i]);
    if (order == SHUFFLED)
        for (size_t i = count - 1; i > 0; i--)
            swap(&block[i], &block[size_between(state, 0, i)]);
}

int main(int argc, char **argv)
{
    struct bounds sizes = bounds_argument(argc, argv, 1, sizeof(uint32_t));
    enum order order = (enum order)word_argument(argc, argv, 3, "the order", orders, sizeof orders / sizeof *orders);
    size_t at_once = count_argument(argc, argv, 4, "AT_ONCE");
    size_t blocks = count_argument(argc, argv, 5, "BLOCKS");
    uint32_t **block = table_of(at_once, sizeof *block);
    uint64_t state = 1;

    double building = 0, dropping = 0;
    struct stopwatch start = stopwatch_start();
    for (size_t left = blocks, count; left > 0; left -= count) {
        count = left < at_once ? left : at_once;
        struct stopwatch phase = stopwatch_start();
        build(block, count, sizes, &state);
        building += stopwatch_read(phase).cpu;
        check(block, count);
        arrange(block, count, order, &state);
        phase = stopwatch_start();
        for (size_t i = 0; i < count; i++)
            free(block[i]);
        dropping += stopwatch_read(phase).cpu;
    }
    struct stopwatch elapsed = stopwatch_read(start);
    double each = 1e9 / (double)blocks;
    report((building + dropping) * each, "ns", elapsed, "build_ns=%.1f drop_ns=%.1f", building * each, dropping * each);
    return 0;
}
