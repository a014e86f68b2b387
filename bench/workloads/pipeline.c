/*
 * Some threads allocate, others free.
 *
 * Stands for pipelines with more than one thread at an end: readers that feed a pool of workers, workers that feed one
 * writer, stages between which any thread may pick up what any other has left. Every free is of a block of another
 * thread; with several threads at an end, also of blocks of several.
 *
 * Blocks go through one bounded queue in chains, as messages are batched, so that the queue's lock costs little beside
 * the allocator.
 *
 * Figure: blocks handed over per second (one malloc and one free each), by wall time. Check: what all consumers got, by
 * number and by sum, is what all producers made.
 *
 *     pipeline PRODUCERS CONSUMERS MIN MAX BLOCKS
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

enum { CHAIN = 64 };

struct block {
    struct block *next;
    uint64_t number;
};

static struct {
    size_t producers;
    struct bounds sizes;
    size_t chains_each; /* of a producer */
} wanted;

static struct channel queue;
static atomic_size_t producing;    /* how many producers still are */
static atomic_uint_fast64_t made;  /* the sum of all numbers made, */
static atomic_uint_fast64_t found; /* found, */
static atomic_size_t handed_over;  /* and how many were found */

static void produce(size_t producer)
{
    uint64_t state = producer + 1, sum = 0;
    for (size_t chain = 0; chain < wanted.chains_each; chain++) {
        struct block *first = NULL;
        for (size_t i = 0; i < CHAIN; i++) {
            size_t size = size_between(&state, wanted.sizes.min, wanted.sizes.max);
            struct block *block = malloc(size);
            if (!block)
                fail("malloc(%zu) returned NULL", size);
            *block = (struct block){first, state};
            sum += state;
            first = block;
        }
        channel_send(&queue, first);
    }
    atomic_fetch_add(&made, sum);
    if (atomic_fetch_sub(&producing, 1) == 1)
        channel_close(&queue);
}

static void consume(void)
{
    uint64_t sum = 0;
    size_t count = 0;
    for (struct block *block; (block = channel_receive(&queue)) != NULL;) {
        for (struct block *next; block; block = next) {
            next = block->next;
            sum += block->number;
            count++;
            free(block);
        }
    }
    atomic_fetch_add(&found, sum);
    atomic_fetch_add(&handed_over, count);
}

static void work(size_t number)
{
    if (number < wanted.producers)
        produce(number);
    else
        consume();
}

int main(int argc, char **argv)
{
    wanted.producers = argument_between(argc, argv, 1, "PRODUCERS", 1, 1024);
    size_t consumers = argument_between(argc, argv, 2, "CONSUMERS", 1, 1024);
    wanted.sizes = bounds_argument(argc, argv, 3, sizeof(struct block));
    wanted.chains_each = count_argument(argc, argv, 5, "BLOCKS") / (CHAIN * wanted.producers) + 1;
    size_t total = wanted.chains_each * wanted.producers * CHAIN;
    channel_open(&queue);
    atomic_store(&producing, wanted.producers);

    struct stopwatch elapsed = run_together(wanted.producers + consumers, work);
    if (handed_over != total || found != made)
        fail("%zu blocks were made and %zu, or others, handed over", total, (size_t)handed_over);
    report((double)total / elapsed.wall * 1e-6, "Mblocks/s", elapsed, "blocks=%zu", total);
    return 0;
}
