/*
 * Threads that hand their blocks over to a new thread and end.
 *
 * Stands for servers that serve a connection with one thread after another: what a thread leaves is freed, piece by
 * piece, by its successor, while the successor allocates on. Several such chains run at once. An allocator that ties
 * blocks to the thread that made them sees frees for threads long gone.
 *
 * Each thread replaces blocks of its chain's table at random, STEPS times, starts the next thread, and ends.
 *
 * Figure: replacements (one free and one malloc) per second, of all chains, by wall time. Check: each block names its
 * chain and its place when it is freed.
 *
 *     hand_over CHAINS SLOTS MIN MAX THREADS_OF_EACH STEPS
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

static struct {
    size_t slots;
    struct bounds sizes;
    size_t threads;
    size_t steps;
} wanted;

struct chain {
    size_t number;
    uint64_t **slots;
    uint64_t state;
    size_t threads_left; /* that are still to come */
};

static sem_t ended; /* posted by each chain's last thread */

static void replace(struct chain *chain, size_t index)
{
    uint64_t name = (uint64_t)chain->number << 32 | index;
    if (chain->slots[index] && *chain->slots[index] != name)
        fail("chain %zu has at %zu the block named %llx", chain->number, index,
             (unsigned long long)*chain->slots[index]);
    free(chain->slots[index]);
    size_t size = size_between(&chain->state, wanted.sizes.min, wanted.sizes.max);
    uint64_t *block = malloc(size);
    if (!block)
        fail("malloc(%zu) returned NULL", size);
    *block = name;
    chain->slots[index] = block;
}

static void start_next(struct chain *chain);

static void *serve(void *argument)
{
    struct chain *chain = argument;
    for (size_t step = 0; step < wanted.steps; step++)
        replace(chain, size_between(&chain->state, 0, wanted.slots - 1));
    if (--chain->threads_left > 0)
        start_next(chain);
    else
        sem_post(&ended);
    return NULL;
}

static void start_next(struct chain *chain)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, chain) != 0)
        fail("no thread for chain %zu", chain->number);
    pthread_detach(thread);
}

int main(int argc, char **argv)
{
    size_t chains = argument_between(argc, argv, 1, "CHAINS", 1, 1024);
    wanted.slots = count_argument(argc, argv, 2, "SLOTS");
    wanted.sizes = bounds_argument(argc, argv, 3, sizeof(uint64_t));
    wanted.threads = count_argument(argc, argv, 5, "THREADS_OF_EACH");
    wanted.steps = count_argument(argc, argv, 6, "STEPS");
    struct chain *chain = table_of(chains, sizeof *chain);
    sem_init(&ended, 0, 0);
    for (size_t i = 0; i < chains; i++) {
        chain[i] = (struct chain){i, table_of(wanted.slots, sizeof *chain[i].slots), i + 1, wanted.threads};
        for (size_t slot = 0; slot < wanted.slots; slot++)
            replace(&chain[i], slot);
    }

    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < chains; i++)
        start_next(&chain[i]);
    for (size_t i = 0; i < chains; i++)
        while (sem_wait(&ended) != 0)
            ;
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < chains; i++)
        for (size_t slot = 0; slot < wanted.slots; slot++) {
            replace(&chain[i], slot);
            free(chain[i].slots[slot]);
        }
    double steps = (double)(chains * wanted.threads * wanted.steps);
    report(steps / elapsed.wall * 1e-6, "Mops/s", elapsed, "threads=%zu", chains * wanted.threads);
    return 0;
}
