/*
 * A tree of nodes with names, built level by level and torn down branch by branch.
 *
 * Stands for file trees, documents, syntax trees and configurations: small blocks of a few sizes that live together
 * and die together. It is torn down in another order than it was built in, when most of it has left the caches, so a
 * free that touches more than it must is dear.
 *
 * Each node has a name of its own and, if it has children, a vector of them, made to measure. Tree follows tree until
 * NODES have been there.
 *
 * Figure: nanoseconds per node, building and tearing down; build_ns and drop_ns are its halves. Check: the nodes that
 * are torn down, and the sum of their names' bytes, are those that were built.
 *
 *     string_tree NODES_OF_EACH NODES
 */
#include "arguments.h"
#include "sizes.h"

enum { MEDIAN_NAME = 14, MOST_NAME = 250, MOST_CHILDREN = 9 };
static const double NAME_OCTAVES = 0.8;

struct node {
    char *name;
    struct node **child;
    uint32_t children;
    uint32_t number;
};

struct tally {
    size_t nodes;
    uint64_t bytes;
};

static void *allocate(size_t size)
{
    void *block = malloc(size);
    if (!block)
        fail("malloc(%zu) returned NULL", size);
    return block;
}

static void count_node(struct tally *tally, const struct node *node)
{
    tally->nodes++;
    for (const char *at = node->name; *at; at++)
        tally->bytes += (unsigned char)*at * (uint64_t)(node->number + 1);
}

static struct node *node_new(size_t number, uint64_t *state)
{
    struct node *node = allocate(sizeof *node);
    size_t length = size_lognormal(state, MEDIAN_NAME, NAME_OCTAVES, 1, MOST_NAME);
    *node = (struct node){.name = allocate(length + 1), .number = (uint32_t)number};
    memset(node->name, (int)('a' + number % 26), length);
    node->name[length] = '\0';
    return node;
}

/* level is room for all nodes: those before `parent` have their children, those from there on wait for them. */
static struct node *build(struct node **level, size_t nodes, uint64_t *state, struct tally *tally)
{
    size_t made = 0;
    level[made] = node_new(made, state);
    count_node(tally, level[made++]);
    for (size_t parent = 0; made < nodes; parent++) {
        struct node *node = level[parent];
        size_t children = size_between(state, 0, MOST_CHILDREN);
        if (parent + 1 == made && children == 0)
            children = 1; /* or the tree would end here */
        if (children > nodes - made)
            children = nodes - made;
        if (children == 0)
            continue;
        node->child = allocate(children * sizeof *node->child);
        node->children = (uint32_t)children;
        for (size_t i = 0; i < children; i++) {
            level[made] = node->child[i] = node_new(made, state);
            count_node(tally, level[made++]);
        }
    }
    return level[0];
}

static void drop(struct node *node, struct tally *tally)
{
    for (size_t i = 0; i < node->children; i++)
        drop(node->child[i], tally);
    count_node(tally, node);
    free(node->child);
    free(node->name);
    free(node);
}

int main(int argc, char **argv)
{
    size_t nodes_each = count_argument(argc, argv, 1, "NODES_OF_EACH");
    size_t nodes = count_argument(argc, argv, 2, "NODES");
    struct node **level = table_of(nodes_each, sizeof *level);
    uint64_t state = 1;

    double building = 0, dropping = 0;
    struct stopwatch start = stopwatch_start();
    for (size_t left = nodes, count; left > 0; left -= count) {
        count = left < nodes_each ? left : nodes_each;
        struct tally built = {0}, dropped = {0};
        struct stopwatch phase = stopwatch_start();
        struct node *root = build(level, count, &state, &built);
        building += stopwatch_read(phase).cpu;
        phase = stopwatch_start();
        drop(root, &dropped);
        dropping += stopwatch_read(phase).cpu;
        if (built.nodes != dropped.nodes || built.bytes != dropped.bytes)
            fail("%zu nodes were built and %zu, or others, torn down", built.nodes, dropped.nodes);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    double each = 1e9 / (double)nodes;
    report((building + dropping) * each, "ns", elapsed, "build_ns=%.1f drop_ns=%.1f", building * each, dropping * each);
    return 0;
}
