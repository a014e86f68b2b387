/*
 * Aligned blocks of many alignments that come and go in no order.
 *
 * Stands for numerical libraries, media codecs, databases and concurrent containers: vectors of SSE, AVX and AVX-512,
 * structures that must not share a cache line, sector buffers, pages for direct I/O. An allocator that pads each
 * request wastes memory; one that searches for a place loses time.
 *
 * Each step draws a slot. An occupied one is freed; an empty one gets a block of one of the kinds below.
 *
 * Figure: steps (calls of posix_memalign or free) per second. Check: alignment; each block carries its slot's number at
 * both ends.
 *
 *     aligned SLOTS STEPS
 */
#include "arguments.h"
#include "sizes.h"

/* Sizes are multiples of the alignment, as aligned_alloc and the hardware want them. */
static const struct kind {
    size_t alignment;
    size_t most; /* alignments in a block */
} kinds[] = {
    {16, 32},  /* complex numbers, quaternions, SSE */
    {32, 32},  /* AVX */
    {64, 1},   /* a lock or a counter with a cache line of its own */
    {64, 8},   /* nodes of concurrent containers */
    {64, 64},  /* AVX-512, small matrices */
    {128, 16}, /* as a pair of lines, which processors fetch together */
    {512, 8},  /* sectors */
    {4096, 4}, /* pages for direct I/O */
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct slot {
    unsigned char *block;
    size_t size;
};

static void take(struct slot *slot, uint64_t *state, unsigned char name)
{
    const struct kind *kind = &kinds[size_between(state, 0, KINDS - 1)];
    void *block;
    slot->size = kind->alignment * size_between(state, 1, kind->most);
    if (posix_memalign(&block, kind->alignment, slot->size) != 0)
        fail("posix_memalign(%zu, %zu) failed", kind->alignment, slot->size);
    if ((uintptr_t)block % kind->alignment != 0)
        fail("a block at %p, asked to be aligned to %zu", block, kind->alignment);
    slot->block = block;
    slot->block[0] = slot->block[slot->size - 1] = name;
}

static void check_and_free(struct slot *slot, unsigned char name)
{
    if (slot->block[0] != name || slot->block[slot->size - 1] != name)
        fail("a block of %zu bytes changed", slot->size);
    free(slot->block);
    slot->block = NULL;
}

int main(int argc, char **argv)
{
    size_t count = count_argument(argc, argv, 1, "SLOTS");
    size_t steps = count_argument(argc, argv, 2, "STEPS");
    struct slot *slots = table_of(count, sizeof *slots);
    uint64_t state = 1;

    struct stopwatch start = stopwatch_start();
    for (size_t step = 0; step < steps; step++) {
        size_t index = size_between(&state, 0, count - 1);
        if (slots[index].block)
            check_and_free(&slots[index], (unsigned char)index);
        else
            take(&slots[index], &state, (unsigned char)index);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < count; i++)
        if (slots[i].block)
            check_and_free(&slots[i], (unsigned char)i);
    report((double)steps / elapsed.cpu * 1e-6, "Mops/s", elapsed, "steps=%zu", steps);
    return 0;
}
