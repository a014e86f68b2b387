/*
 * Many small vectors that grow at the same time.
 *
 * Stands for adjacency lists, postings of an index, tokens by line, children of nodes: thousands of arrays are
 * appended to in turn, most stay short, and each doubles when it is full. Every step up is a realloc of a small block
 * whose neighbour is another vector's, so it can hardly grow in place.
 *
 * Each step appends to one of the open vectors, chosen at random. A vector that has reached the length it was drawn for
 * is read and dropped, and an empty one takes its place.
 *
 * Figure: elements appended per second. Check: every element, when its vector is dropped.
 *
 *     small_vectors VECTORS APPENDS
 */
#include "arguments.h"
#include "sizes.h"

enum { FIRST_ROOM = 4, MEDIAN_LENGTH = 12, MOST_LENGTH = 4096 };
static const double LENGTH_OCTAVES = 1.5;

struct vector {
    uint64_t *element;
    uint32_t length;
    uint32_t room;
    uint32_t full_length;
    uint32_t name;
};

static uint64_t element_of(const struct vector *vector, size_t at) { return (uint64_t)vector->name << 32 | at; }

static void begin(struct vector *vector, uint32_t name, uint64_t *state)
{
    size_t full_length = size_lognormal(state, MEDIAN_LENGTH, LENGTH_OCTAVES, 1, MOST_LENGTH);
    *vector = (struct vector){.full_length = (uint32_t)full_length, .name = name};
}

static void append(struct vector *vector)
{
    if (vector->length == vector->room) {
        uint32_t room = vector->room ? 2 * vector->room : FIRST_ROOM;
        uint64_t *grown = realloc(vector->element, room * sizeof *grown);
        if (!grown)
            fail("realloc to %u elements returned NULL", room);
        vector->element = grown;
        vector->room = room;
    }
    vector->element[vector->length] = element_of(vector, vector->length);
    vector->length++;
}

static void check_and_drop(struct vector *vector)
{
    for (size_t i = 0; i < vector->length; i++)
        if (vector->element[i] != element_of(vector, i))
            fail("element %zu of a vector of %u changed", i, vector->length);
    free(vector->element);
}

int main(int argc, char **argv)
{
    size_t count = count_argument(argc, argv, 1, "VECTORS");
    size_t appends = count_argument(argc, argv, 2, "APPENDS");
    struct vector *vectors = table_of(count, sizeof *vectors);
    uint64_t state = 1;
    uint32_t names = 0;
    for (size_t i = 0; i < count; i++)
        begin(&vectors[i], names++, &state);

    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < appends; i++) {
        struct vector *vector = &vectors[size_between(&state, 0, count - 1)];
        append(vector);
        if (vector->length == vector->full_length) {
            check_and_drop(vector);
            begin(vector, names++, &state);
        }
    }
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < count; i++)
        check_and_drop(&vectors[i]);
    report((double)appends / elapsed.cpu * 1e-6, "Mappends/s", elapsed, "vectors=%u", names);
    return 0;
}
