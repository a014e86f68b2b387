/*
 * Random mixed in several threads, each with its own blocks.
 *
 * Stands for parallel programs whose threads have nothing to do with each other: workers of a server between two
 * requests, parallel compilers, map phases. No block ever leaves its thread, so the work ought to scale with the
 * processors; what does not is locks, shared counters and cache lines of the allocator.
 *
 * Each step of a thread draws one of its slots. An occupied slot is freed; an empty one gets a block of a random size.
 *
 * Figure: steps (calls of malloc or free) per second, of all threads, by wall time. Check: each block names its thread
 * and its slot when it is freed.
 *
 *     private_mixed THREADS SLOTS MIN MAX STEPS_OF_EACH
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

static struct {
    size_t slots;
    struct bounds sizes;
    size_t steps;
} wanted;

static void check_and_free(uint64_t *block, uint64_t name)
{
    if (*block != name)
        fail("a block of thread %llu, slot %llu carries %llx", (unsigned long long)(name >> 32),
             (unsigned long long)(name & UINT32_MAX), (unsigned long long)*block);
    free(block);
}

static void run_steps(size_t thread)
{
    uint64_t **slots = table_of(wanted.slots, sizeof *slots);
    uint64_t state = thread + 1;
    uint64_t first_name = (uint64_t)thread << 32;
    for (size_t step = 0; step < wanted.steps; step++) {
        uint64_t bits = random_next(&state);
        size_t index = random_below((uint32_t)(bits >> 32), wanted.slots);
        if (slots[index]) {
            check_and_free(slots[index], first_name + index);
            slots[index] = NULL;
        } else {
            size_t size = wanted.sizes.min + random_below((uint32_t)bits, wanted.sizes.max - wanted.sizes.min + 1);
            slots[index] = malloc(size);
            if (!slots[index])
                fail("malloc(%zu) returned NULL", size);
            *slots[index] = first_name + index;
        }
    }
    for (size_t i = 0; i < wanted.slots; i++)
        if (slots[i])
            check_and_free(slots[i], first_name + i);
}

int main(int argc, char **argv)
{
    size_t threads = threads_argument(argc, argv, 1);
    wanted.slots = count_argument(argc, argv, 2, "SLOTS");
    wanted.sizes = bounds_argument(argc, argv, 3, sizeof(uint64_t));
    wanted.steps = count_argument(argc, argv, 5, "STEPS_OF_EACH");
    struct stopwatch elapsed = run_together(threads, run_steps);
    report((double)(threads * wanted.steps) / elapsed.wall * 1e-6, "Mops/s", elapsed, "threads=%zu", threads);
    return 0;
}
