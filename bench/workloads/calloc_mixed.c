/*
 * Zeroed blocks of mixed sizes that come and go, and are used.
 *
 * Stands for programs that ask for all their memory zeroed: objects of C libraries and of language runtimes when the
 * blocks are small, hash tables, bitmaps and frames when they are large. Blocks are dirty when they are freed, so one
 * that is used again has to be cleared, and only one that is known to be untouched need not be.
 *
 * Each step draws a slot. An occupied one is freed; an empty one gets a block of a size between MIN and MAX, every
 * octave as likely as another, of which one word in each page and the last are written.
 *
 * Figure: microseconds per step (call of calloc or free). Check: the words to be written are zero before; at the end,
 * not timed, all blocks are filled and freed, and every byte of as many new ones must be zero.
 *
 *     calloc_mixed SLOTS MIN MAX STEPS
 */
#include "arguments.h"
#include "sizes.h"

struct slot {
    uint64_t *block;
    size_t words;
};

static uint64_t *zeroed(size_t words)
{
    uint64_t *block = calloc(words, sizeof *block);
    if (!block)
        fail("calloc of %zu words returned NULL", words);
    return block;
}

static void use(uint64_t *block, size_t at)
{
    if (block[at] != 0)
        fail("word %zu of a calloc block is not zero", at);
    block[at] = ~(uint64_t)0;
}

static void check_all_zero(struct slot *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i].block)
            memset(slots[i].block, 0xff, slots[i].words * sizeof *slots[i].block);
    for (size_t i = 0; i < count; i++)
        free(slots[i].block);
    for (size_t i = 0; i < count; i++) {
        if (!slots[i].block)
            continue;
        slots[i].block = zeroed(slots[i].words);
        for (size_t at = 0; at < slots[i].words; at++)
            use(slots[i].block, at);
    }
    for (size_t i = 0; i < count; i++)
        free(slots[i].block);
}

int main(int argc, char **argv)
{
    size_t count = count_argument(argc, argv, 1, "SLOTS");
    struct bounds sizes = bounds_argument(argc, argv, 2, 2 * sizeof(uint64_t));
    size_t steps = count_argument(argc, argv, 4, "STEPS");
    size_t page_words = (size_t)sysconf(_SC_PAGESIZE) / sizeof(uint64_t);
    struct slot *slots = table_of(count, sizeof *slots);
    uint64_t state = 1;

    struct stopwatch start = stopwatch_start();
    for (size_t step = 0; step < steps; step++) {
        struct slot *slot = &slots[size_between(&state, 0, count - 1)];
        if (slot->block) {
            free(slot->block);
            slot->block = NULL;
        } else {
            slot->words = size_by_octaves(&state, sizes.min, sizes.max) / sizeof *slot->block;
            slot->block = zeroed(slot->words);
            for (size_t at = 0; at + 1 < slot->words; at += page_words)
                use(slot->block, at);
            use(slot->block, slot->words - 1);
        }
    }
    struct stopwatch elapsed = stopwatch_read(start);
    check_all_zero(slots, count);
    report(elapsed.cpu / (double)steps * 1e6, "us", elapsed, "steps=%zu", steps);
    return 0;
}
