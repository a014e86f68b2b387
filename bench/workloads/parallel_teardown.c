/*
 * Large structures that one thread builds and another takes apart, in parallel.
 *
 * Stands for data that is loaded by workers and dropped by others: documents parsed in a pool and released where they
 * were shown, results that the caller throws away, collectors that sweep with other threads than those that allocated.
 * A few hundred thousand remote frees come in a row, of blocks that have left the caches, while the owners are busy
 * with the same.
 *
 * In each round every thread builds a list of nodes with names; when all have, each takes its neighbour's apart.
 *
 * Figure: nodes (two malloc and two free each) per second, of all threads, by wall time. Check: number and names of the
 * nodes taken apart.
 *
 *     parallel_teardown THREADS NODES_OF_EACH ROUNDS
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

enum { MEDIAN_NAME = 24, MOST_NAME = 400 };
static const double NAME_OCTAVES = 1.0;

struct node {
    struct node *next;
    size_t length;
    char *name;
    uint64_t number;
};

static size_t threads;
static size_t nodes_each;
static size_t rounds;
static struct node **list; /* [thread]: what it has built */
static pthread_barrier_t all;

static struct node *build(size_t thread, uint64_t *state)
{
    struct node *first = NULL;
    for (size_t i = 0; i < nodes_each; i++) {
        struct node *node = malloc(sizeof *node);
        size_t length = size_lognormal(state, MEDIAN_NAME, NAME_OCTAVES, 1, MOST_NAME);
        char *name = malloc(length);
        if (!node || !name)
            fail("no memory for a node with a name of %zu bytes", length);
        name[0] = name[length - 1] = (char)thread;
        *node = (struct node){first, length, name, i};
        first = node;
    }
    return first;
}

static void tear_down(struct node *node, size_t builder)
{
    size_t left = nodes_each;
    for (struct node *next; node; node = next) {
        next = node->next;
        if (node->number != --left || node->name[0] != (char)builder || node->name[node->length - 1] != (char)builder)
            fail("node %zu of thread %zu changed", left, builder);
        free(node->name);
        free(node);
    }
    if (left != 0)
        fail("%zu nodes of thread %zu are missing", left, builder);
}

static void work(size_t number)
{
    uint64_t state = number + 1;
    size_t neighbour = (number + 1) % threads;
    for (size_t round = 0; round < rounds; round++) {
        list[number] = build(number, &state);
        pthread_barrier_wait(&all);
        tear_down(list[neighbour], neighbour);
        pthread_barrier_wait(&all);
    }
}

int main(int argc, char **argv)
{
    threads = threads_argument(argc, argv, 1);
    nodes_each = count_argument(argc, argv, 2, "NODES_OF_EACH");
    rounds = count_argument(argc, argv, 3, "ROUNDS");
    list = table_of(threads, sizeof *list);
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    struct stopwatch elapsed = run_together(threads, work);
    double nodes = (double)(threads * nodes_each * rounds);
    report(nodes / elapsed.wall * 1e-6, "Mnodes/s", elapsed, "threads=%zu", threads);
    return 0;
}
