/*
 * Large blocks of many sizes that come and go in no order, and are used.
 *
 * Stands for images and video frames, columns and pages of a database, network and file buffers, tensors and matrices:
 * blocks from some KiB to some MiB, small ones being the most, each written by whoever asked for it. An allocator that
 * gives every such block back to the system pays for its pages again and again; one that keeps all needs memory.
 *
 * Each step draws a slot. An occupied one is freed; an empty one gets a block of a size between MIN and MAX, every
 * octave as likely as another, of which one word in each page and the last are written. Every thread has its own
 * slots. About half of the slots are occupied at any time.
 *
 * Figure: microseconds per step (call of malloc or free); with one thread of processor time, with several of wall
 * time. Check: the first and the last word of each block name its owner when it is freed.
 *
 *     large_mixed THREADS SLOTS MIN MAX STEPS
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

struct slot {
    uint64_t *block;
    size_t words;
};

static struct {
    size_t slots;
    struct bounds sizes;
    size_t steps;
    size_t page_words;
} wanted;

static void take(struct slot *slot, size_t size, uint64_t owner)
{
    slot->block = malloc(size);
    if (!slot->block)
        fail("malloc(%zu) returned NULL", size);
    slot->words = size / sizeof *slot->block;
    for (size_t at = 0; at < slot->words; at += wanted.page_words)
        slot->block[at] = owner;
    slot->block[slot->words - 1] = owner;
}

static void check_and_free(struct slot *slot, uint64_t owner)
{
    if (slot->block[0] != owner || slot->block[slot->words - 1] != owner)
        fail("a block of %zu words does not carry its owner's name", slot->words);
    free(slot->block);
    slot->block = NULL;
}

static void run_steps(size_t thread)
{
    struct slot *slots = table_of(wanted.slots, sizeof *slots);
    uint64_t state = thread + 1;
    uint64_t first_name = (uint64_t)(thread + 1) << 32;
    for (size_t step = 0; step < wanted.steps; step++) {
        size_t index = size_between(&state, 0, wanted.slots - 1);
        if (slots[index].block)
            check_and_free(&slots[index], first_name + index);
        else
            take(&slots[index], size_by_octaves(&state, wanted.sizes.min, wanted.sizes.max), first_name + index);
    }
    for (size_t i = 0; i < wanted.slots; i++)
        if (slots[i].block)
            check_and_free(&slots[i], first_name + i);
}

int main(int argc, char **argv)
{
    size_t threads = threads_argument(argc, argv, 1);
    wanted.slots = count_argument(argc, argv, 2, "SLOTS");
    wanted.sizes = bounds_argument(argc, argv, 3, sizeof(uint64_t));
    wanted.steps = count_argument(argc, argv, 5, "STEPS");
    wanted.page_words = (size_t)sysconf(_SC_PAGESIZE) / sizeof(uint64_t);

    struct stopwatch elapsed;
    if (threads > 1) {
        elapsed = run_together(threads, run_steps);
    } else {
        struct stopwatch start = stopwatch_start();
        run_steps(0);
        elapsed = stopwatch_read(start);
    }
    double seconds = threads > 1 ? elapsed.wall : elapsed.cpu;
    report(seconds / (double)(threads * wanted.steps) * 1e6, "us", elapsed, "steps=%zu", threads * wanted.steps);
    return 0;
}
