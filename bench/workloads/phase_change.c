/*
 * Phase change: a program whose blocks of today have another size than those of yesterday.
 *
 * Stands for compilers (tokens, trees, code), data pipelines with a stage after the other, servers after a change of
 * load: each of PHASES phases fills MIB with blocks of a size of its own and then frees all but one run of RUN
 * consecutive blocks in twenty, which stay for good. An allocator that keeps pages for the size they were first used
 * for needs the peak of every phase at once; the survivors keep it from taking back whole slabs, the more so the
 * shorter their runs are.
 *
 * Figure: the most that was resident over the most that was live. Check: every byte of every survivor.
 *
 *     phase_change PHASES RUN MIB
 */
#include "arguments.h"
#include "scene.h"

/* Neither powers of two nor in order, as sizes of data structures are. */
static const size_t sizes[] = {96, 24, 448, 160, 16, 1000, 64, 304, 40, 720};
enum { MOST_PHASES = sizeof sizes / sizeof *sizes, KEPT = 20, STEPS_A_LOOK = 1024, MOST_MIB = 4096 };

static bool stays(size_t index, size_t run) { return index / run % KEPT == 0; }

/* Room for the index: the most that is in it, the survivors so far and the blocks of a phase. */
static size_t most_blocks(size_t phases, size_t run, size_t bytes)
{
    size_t most = 0, survivors = 0;
    for (size_t phase = 0; phase < phases; phase++) {
        size_t count = bytes / sizes[phase];
        most = survivors + count > most ? survivors + count : most;
        for (size_t i = 0; i < count; i++)
            survivors += stays(i, run);
    }
    return most;
}

int main(int argc, char **argv)
{
    size_t phases = argument_between(argc, argv, 1, "PHASES", 1, MOST_PHASES);
    size_t run = count_argument(argc, argv, 2, "RUN");
    size_t mib = argument_between(argc, argv, 3, "MIB", 1, MOST_MIB);
    scene_begin();
    size_t bytes = mib << 20;
    uint64_t *blocks = own_table(most_blocks(phases, run, bytes), sizeof *blocks); /* survivors first */
    size_t survivors = 0, live = 0, most_live = 0;

    struct stopwatch start = stopwatch_start();
    for (size_t phase = 0; phase < phases; phase++) {
        size_t count = bytes / sizes[phase];
        uint64_t *mine = blocks + survivors;
        for (size_t i = 0; i < count; i++) {
            mine[i] = block_new(sizes[phase]);
            live += sizes[phase];
            if (i % STEPS_A_LOOK == 0)
                scene_sample_if_due(live);
        }
        scene_sample(live);
        most_live = live > most_live ? live : most_live;
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            if (stays(i, run)) {
                mine[kept++] = mine[i];
            } else {
                free(block_address(mine[i]));
                live -= sizes[phase];
            }
            if (i % STEPS_A_LOOK == 0)
                scene_sample_if_due(live);
        }
        survivors += kept;
        scene_sample(live);
    }
    struct stopwatch elapsed = stopwatch_read(start);

    long peak = scene_peak_kib(), last = scene_resident_kib();
    struct page_set pages = page_set_new();
    page_set_add_blocks(&pages, blocks, survivors);
    long floor = page_set_finish(&pages);
    for (size_t i = 0; i < survivors; i++)
        block_check_and_free(blocks[i]);
    report((double)peak * 1024 / (double)most_live, "x live", elapsed,
           "scene_peak_kib=%ld most_live_kib=%zu last_kib=%ld live_kib=%zu floor_kib=%ld", peak, most_live / 1024, last,
           live / 1024, floor);
    return 0;
}
