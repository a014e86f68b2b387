/*
 * Small blocks of different threads on one cache line?
 *
 * Stands for counters, locks, accumulators and small objects that each thread has for itself and writes all the time.
 * If two threads' blocks share a cache line, each write takes the line away from the other processor, and the program
 * is slower by a factor that no profile of the allocator shows.
 *
 * Active: every thread allocates a block, writes it many times and frees it, over and over. Passive: the same, but
 * first every thread frees a block that the main thread allocated for it beside the others'; an allocator that lets
 * it keep that memory shares the line for good.
 *
 * Figure: nanoseconds per write, by wall time. Check: each block holds as many as were added.
 *
 *     false_sharing active|passive THREADS BYTES BLOCKS WRITES
 */
#include "arguments.h"
#include "threads.h"

enum mode { ACTIVE, PASSIVE };
static const char *const modes[] = {[ACTIVE] = "active", [PASSIVE] = "passive"};

static struct {
    size_t size;
    size_t blocks;
    size_t writes;
} wanted;

static uint64_t **given; /* [thread]: what the main thread allocated for it, or NULL */

static uint64_t *block_new(void)
{
    uint64_t *block = malloc(wanted.size);
    if (!block)
        fail("malloc(%zu) returned NULL", wanted.size);
    *block = 0;
    return block;
}

static void write_and_free(size_t thread)
{
    free(given[thread]);
    for (size_t i = 0; i < wanted.blocks; i++) {
        volatile uint64_t *block = block_new();
        for (size_t write = 0; write < wanted.writes; write++)
            ++*block;
        if (*block != wanted.writes)
            fail("%zu writes left %llu", wanted.writes, (unsigned long long)*block);
        free((void *)block);
    }
}

int main(int argc, char **argv)
{
    enum mode mode = (enum mode)word_argument(argc, argv, 1, "the mode", modes, sizeof modes / sizeof *modes);
    size_t threads = threads_argument(argc, argv, 2);
    wanted.size = argument_between(argc, argv, 3, "BYTES", sizeof(uint64_t), CACHE_LINE);
    wanted.blocks = count_argument(argc, argv, 4, "BLOCKS");
    wanted.writes = count_argument(argc, argv, 5, "WRITES");
    given = table_of(threads, sizeof *given);
    for (size_t i = 0; mode == PASSIVE && i < threads; i++)
        given[i] = block_new();
    struct stopwatch elapsed = run_together(threads, write_and_free);
    report(elapsed.wall / (double)(wanted.blocks * wanted.writes) * 1e9, "ns", elapsed, "threads=%zu", threads);
    return 0;
}
