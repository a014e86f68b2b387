/*
 * A small program: what an allocator needs beyond the blocks, where there are few.
 *
 * Stands for the commands of a shell script, daemons that mostly wait, the many small processes of a desktop: KIB of
 * small blocks, half of them below 64 bytes, in one thread. The lab runs the same program with KIB 0 and subtracts.
 *
 * Figure: KiB resident. Check: every byte of every block.
 *
 *     small_program KIB
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

enum { MEDIAN = 64, LARGEST = 4096, MOST_KIB = 1 << 20 };
static const double SPREAD_OCTAVES = 1.5;

int main(int argc, char **argv)
{
    size_t bytes = argument_between(argc, argv, 1, "KIB", 0, MOST_KIB) * 1024;
    scene_begin();
    uint64_t *blocks = own_table(bytes / BLOCK_MIN + 1, sizeof *blocks);
    size_t count = 0, live = 0;
    uint64_t state = 1;
    struct stopwatch start = stopwatch_start();
    while (live < bytes) {
        size_t size = size_lognormal(&state, MEDIAN, SPREAD_OCTAVES, BLOCK_MIN, LARGEST);
        blocks[count++] = block_new(size);
        live += size;
    }
    struct stopwatch elapsed = stopwatch_read(start);
    long resident = scene_resident_kib();

    struct page_set pages = page_set_new();
    page_set_add_blocks(&pages, blocks, count);
    long floor = page_set_finish(&pages);
    for (size_t i = 0; i < count; i++)
        block_check_and_free(blocks[i]);
    report((double)resident, "KiB", elapsed, "resident_kib=%ld live_kib=%zu floor_kib=%ld", resident, live / 1024,
           floor);
    return 0;
}
