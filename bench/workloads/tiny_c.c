/*
 * The least that a program in C does: some blocks, a line of output. start_up runs it many times.
 *
 * With an argument it prints the file that its malloc comes from, and nothing else.
 *
 *     tiny_c [origin]
 */
#include "workload.h"

enum { BLOCKS = 50, SMALLEST = 16, STEP = 24 };

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        puts(origin_of("malloc"));
        return 0;
    }
    unsigned char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(SMALLEST + i * STEP);
        if (!blocks[i])
            fail("malloc(%zu) returned NULL", SMALLEST + i * STEP);
        memset(blocks[i], (int)i, SMALLEST + i * STEP);
    }
    size_t sum = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        sum += blocks[i][SMALLEST - 1];
        free(blocks[i]);
    }
    if (sum != BLOCKS * (BLOCKS - 1) / 2)
        fail("the blocks sum up to %zu", sum);
    printf("%zu\n", sum);
    return 0;
}
