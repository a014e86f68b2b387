/*
 * The heads of equal buffers.
 *
 * Stands for pools of I/O buffers, frames or matrices whose headers are visited in turn: if every buffer begins at a
 * multiple of 64 KiB, all heads fall into the same few sets of the processor's cache and push each other out. An
 * allocator can avoid that by placing the buffers unevenly.
 *
 * Figure: nanoseconds per touch of the first word. Check: each first word counts the passes.
 *
 *     buffer_heads BYTES BUFFERS PASSES
 */
#include "workload.h"

int main(int argc, char **argv)
{
    size_t size = argument(argc, argv, 1, "BYTES");
    size_t count = argument(argc, argv, 2, "BUFFERS");
    size_t passes = argument(argc, argv, 3, "PASSES");
    uint64_t *volatile *head = table_of(count, sizeof *head);
    for (size_t i = 0; i < count; i++) {
        head[i] = malloc(size);
        if (!head[i])
            fail("malloc(%zu) returned NULL", size);
        *head[i] = i;
    }
    struct stopwatch start = stopwatch_start();
    for (size_t pass = 0; pass < passes; pass++)
        for (size_t i = 0; i < count; i++)
            ++*head[i];
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < count; i++) {
        if (*head[i] != i + passes)
            fail("the head of buffer %zu changed", i);
        free(head[i]);
    }
    report(elapsed.cpu / (double)(passes * count) * 1e9, "ns", elapsed, "touches=%zu", passes * count);
    return 0;
}
