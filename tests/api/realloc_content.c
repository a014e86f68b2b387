/* realloc keeps what a block holds, up to the smaller size, whatever boundary it crosses and in both directions. */
#include "check.h"

#include <malloc.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Where an allocator of any form changes its ways: around powers of two, and in the quarters between them. */
static size_t boundaries(size_t *sizes, size_t from, size_t to)
{
    size_t count = 0;
    for (size_t power = 16; power <= to; power *= 2) {
        for (size_t quarter = 0; quarter < 4; quarter++) {
            size_t base = power + quarter * (power / 4);
            for (size_t d = 0; d <= 2; d++) {
                size_t n = base + d - 1;
                if (n >= from && n <= to)
                    sizes[count++] = n;
            }
        }
    }
    return count;
}

static uint8_t *step(uint8_t *p, size_t from, size_t to, uint64_t seed)
{
    p = realloc(p, to);
    REQUIRE(p != NULL);
    CHECK_MSG(is_aligned(p, 16), "from %zu to %zu: %p", from, to, (void *)p);
    CHECK_MSG(malloc_usable_size(p) >= to, "from %zu to %zu: %zu usable", from, to, malloc_usable_size(p));
    CHECK_MSG(pattern_holds(p, 0, from < to ? from : to, seed), "from %zu to %zu: content lost", from, to);
    pattern_fill(p, from, to, seed); /* nothing to do when it shrank */
    return p;
}

/* From every boundary to every other one. */
static void all_pairs(void)
{
    size_t sizes[512], count = boundaries(sizes, 1, 10 * KIB);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            uint8_t *p = step(NULL, 0, sizes[i], i);
            free(step(p, sizes[i], sizes[j], i));
        }
    }
}

static void up_and_down(void)
{
    size_t sizes[512], count = boundaries(sizes, 1, 3 * MIB);
    uint8_t *p = NULL;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        p = step(p, n, sizes[i], 1);
        n = sizes[i];
    }
    while (count-- > 0) {
        p = step(p, n, sizes[count], 1);
        n = sizes[count];
    }
    free(p);
}

/* The same with a neighbour allocated after each step, so that no block can grow where it is by luck. */
static void up_and_down_with_neighbours(void)
{
    size_t sizes[512], count = boundaries(sizes, 1, 1 * MIB);
    uint8_t *p = NULL, *neighbours[512];
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        p = step(p, n, sizes[i], 2);
        n = sizes[i];
        neighbours[i] = malloc(n);
        REQUIRE(neighbours[i] != NULL);
        memset(neighbours[i], (int)i, n);
    }
    for (size_t i = count; i-- > 0;) {
        p = step(p, n, sizes[i], 2);
        n = sizes[i];
        for (size_t k = 0; k < n; k++)
            CHECK_MSG(neighbours[i][k] == (uint8_t)i, "the neighbour of %zu bytes was written to", n);
        free(neighbours[i]);
    }
    free(p);
}

static void large_steps(void)
{
    static const size_t sizes[] = {
        1 * MIB,  200 * MIB,      3 * MIB, 64 * MIB - 1, 64 * MIB,    64 * MIB + 1, 100 * KIB,
        90 * MIB, 33 * MIB + 777, 50,      130 * MIB,    66 * MIB,    5 * MIB,      4 * MIB - 100,
        4 * MIB,  20 * MIB,       2 * MIB, 2 * MIB + 1,  1 * MIB + 1, 100 * MIB,    1};
    uint8_t *p = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        p = step(p, n, sizes[i], 3);
        n = sizes[i];
    }
    free(p);
}

/* A large mapping that shrinks must keep its head and give its tail back, and stay a block that can grow again. */
static void shrink_of_a_large_mapping(void)
{
    enum { BLOCKS = 8 };
    uint8_t *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(200 * MIB);
        REQUIRE(blocks[i] != NULL);
        pattern_fill(blocks[i], 0, 100 * KIB, (uint64_t)i);
        blocks[i][150 * MIB] = 1;
    }
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = realloc(blocks[i], 100 * KIB);
        REQUIRE(blocks[i] != NULL);
    }
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK_MSG(after + BLOCKS * 190 * MIB < before, "in use: %zu before, %zu after", before, after);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK_MSG(pattern_holds(blocks[i], 0, 100 * KIB, (uint64_t)i), "block %d", i);
        blocks[i] = realloc(blocks[i], 70 * MIB);
        REQUIRE(blocks[i] != NULL);
        CHECK_MSG(pattern_holds(blocks[i], 0, 100 * KIB, (uint64_t)i), "block %d", i);
        blocks[i][70 * MIB - 1] = 1;
        free(blocks[i]);
    }
}

/* A buffer that grows by half again each time, as vectors and string builders do. */
static void growing_buffer(void)
{
    uint8_t *p = NULL;
    size_t n = 0;
    for (size_t to = 1; to <= 100 * MIB; to += to / 2 + 1) {
        uint8_t *moved = realloc(p, to);
        REQUIRE(moved != NULL);
        p = moved;
        pattern_fill(p, n, to, 4);
        n = to;
    }
    CHECK(pattern_holds(p, 0, n, 4));
    free(p);
}

static void random_sizes(void)
{
    enum { BLOCKS = 200, STEPS = 30000 };
    static struct {
        uint8_t *p;
        size_t n;
    } blocks[BLOCKS];
    uint64_t random = 5;
    for (int i = 0; i < STEPS; i++) {
        size_t at = next_random(&random) % BLOCKS;
        size_t to = next_random(&random) % ((size_t)1 << (4 + next_random(&random) % 14)) + 1;
        blocks[at].p = step(blocks[at].p, blocks[at].n, to, at);
        blocks[at].n = to;
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i].p);
}

int main(void)
{
    all_pairs();
    up_and_down();
    up_and_down_with_neighbours();
    large_steps();
    shrink_of_a_large_mapping();
    growing_buffer();
    random_sizes();
    return check_result();
}
