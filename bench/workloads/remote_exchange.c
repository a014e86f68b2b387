/*
 * All blocks are freed by another thread, and all threads do both.
 *
 * Stands for actors, peers in a mesh, pools whose workers hand results to each other: each thread allocates for its
 * neighbour and frees what the other neighbour sent. It is the worst case for allocators that keep blocks with their
 * thread, since no thread ever frees one of its own.
 *
 * The threads form a ring. In each turn a thread sends a chain of blocks to the right and frees one from the left;
 * some chains are on the way all the time, so that nobody waits for a slow neighbour at once.
 *
 * Figure: blocks exchanged per second (one malloc and one free each), of all threads, by wall time. Check: each block
 * names its maker and its turn.
 *
 *     remote_exchange THREADS MIN MAX BLOCKS_OF_EACH
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

enum { CHAIN = 100, AHEAD = 16 };
/* A channel that is full makes its sender wait for the right neighbour; all could not be full at once. */
_Static_assert((int)AHEAD < (int)CHANNEL_ROOM, "the chains on the way fit into the channels");

struct block {
    struct block *next;
    uint32_t maker;
    uint32_t turn;
};

static struct {
    size_t threads;
    struct bounds sizes;
    size_t turns;
} wanted;

static struct channel *from; /* [thread]: what it sends to the next one */

static void send(size_t thread, size_t turn, uint64_t *state)
{
    struct block *first = NULL;
    for (size_t i = 0; i < CHAIN; i++) {
        size_t size = size_by_octaves(state, wanted.sizes.min, wanted.sizes.max);
        struct block *block = malloc(size);
        if (!block)
            fail("malloc(%zu) returned NULL", size);
        *block = (struct block){first, (uint32_t)thread, (uint32_t)turn};
        first = block;
    }
    channel_send(&from[thread], first);
}

static void receive(size_t left, size_t turn)
{
    size_t count = 0;
    for (struct block *block = channel_receive(&from[left]), *next; block; block = next, count++) {
        next = block->next;
        if (block->maker != left || block->turn != turn)
            fail("turn %u of thread %u where turn %zu of %zu was expected", block->turn, block->maker, turn, left);
        free(block);
    }
    if (count != CHAIN)
        fail("a chain of %zu blocks, not %d", count, CHAIN);
}

static void take_turns(size_t thread)
{
    uint64_t state = thread + 1;
    size_t left = (thread + wanted.threads - 1) % wanted.threads;
    for (size_t turn = 0; turn < wanted.turns + AHEAD; turn++) {
        if (turn < wanted.turns)
            send(thread, turn, &state);
        if (turn >= AHEAD)
            receive(left, turn - AHEAD);
    }
}

int main(int argc, char **argv)
{
    wanted.threads = threads_argument(argc, argv, 1);
    wanted.sizes = bounds_argument(argc, argv, 2, sizeof(struct block));
    wanted.turns = count_argument(argc, argv, 4, "BLOCKS_OF_EACH") / CHAIN + AHEAD;
    from = table_of(wanted.threads, sizeof *from);
    for (size_t i = 0; i < wanted.threads; i++)
        channel_open(&from[i]);
    struct stopwatch elapsed = run_together(wanted.threads, take_turns);
    double blocks = (double)(wanted.threads * wanted.turns * CHAIN);
    report(blocks / elapsed.wall * 1e-6, "Mblocks/s", elapsed, "threads=%zu", wanted.threads);
    return 0;
}
