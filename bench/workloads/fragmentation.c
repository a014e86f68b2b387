/*
 * Fragmentation: a program that runs for long while its blocks change, under a fixed amount of live data.
 *
 * Stands for caches, databases and application servers after days: most blocks live shortly, some for long, and what
 * is fashionable drifts: the median size moves slowly from 64 bytes to 2 KiB and back, once in a quarter of the run.
 * Long-lived blocks of sizes that are no longer asked for hold on to the slabs around them.
 *
 * A table of slots holds LIVE_MIB of blocks. Each step draws a slot, from the few hot ones nine times in ten; frees the
 * block in it; and puts a new one there unless LIVE_MIB are live. CHURN times as many bytes are allocated in all. Sizes
 * are log-normal around the median of the moment.
 *
 * Figure: the most that was resident over the most that was live. At the end: resident over live. Check: every byte of
 * every block, when it is freed.
 *
 *     fragmentation LIVE_MIB CHURN
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

enum { SMALLEST_MEDIAN = 64, TURNS = 4, LARGEST = 32 << 10, HOT_SHARE = 10, STEPS_A_LOOK = 256, MOST_MIB = 4096 };
enum { SLOTS_PER_MIB = (1 << 20) / SMALLEST_MEDIAN }; /* the blocks there can be, and some more that are empty */
static const double DOUBLINGS = 5, SPREAD_OCTAVES = 1;

/* Up and down, TURNS times, a doubling taking as long as any other. */
static size_t median_at(double progress)
{
    double turn = progress * TURNS;
    double phase = 2 * (turn - (double)(int)turn);
    return size_of_octaves(octaves_of(SMALLEST_MEDIAN) + DOUBLINGS * (phase < 1 ? phase : 2 - phase));
}

int main(int argc, char **argv)
{
    size_t mib = argument_between(argc, argv, 1, "LIVE_MIB", 1, MOST_MIB);
    size_t churn = count_argument(argc, argv, 2, "CHURN");
    scene_begin();
    size_t slots = mib * SLOTS_PER_MIB, limit = mib << 20, live = 0, most_live = 0, allocated = 0;
    uint64_t *blocks = own_table(slots, sizeof *blocks);
    uint64_t state = 1;

    struct stopwatch start = stopwatch_start();
    size_t median = median_at(0);
    double total = (double)churn * (double)limit;
    for (size_t step = 0; (double)allocated < total; step++) {
        uint64_t bits = random_next(&state);
        bool hot = bits % 10 != 0;
        size_t index = random_below((uint32_t)(bits >> 32), hot ? slots / HOT_SHARE : slots);
        if (blocks[index]) {
            live -= block_size(blocks[index]);
            block_check_and_free(blocks[index]);
            blocks[index] = 0;
        }
        if (live < limit) {
            size_t size = size_lognormal(&state, median, SPREAD_OCTAVES, BLOCK_MIN, LARGEST);
            blocks[index] = block_new(size);
            live += size;
            allocated += size;
            most_live = live > most_live ? live : most_live;
        }
        if (step % STEPS_A_LOOK == 0) {
            median = median_at((double)allocated / total);
            scene_sample_if_due(live);
        }
    }
    struct stopwatch elapsed = stopwatch_read(start);

    long peak = scene_peak_kib(), last = scene_resident_kib();
    struct page_set pages = page_set_new();
    page_set_add_blocks(&pages, blocks, slots);
    long floor_kib = page_set_finish(&pages);
    size_t live_at_end = live;
    for (size_t i = 0; i < slots; i++)
        if (blocks[i])
            block_check_and_free(blocks[i]);
    report((double)peak * 1024 / (double)most_live, "x live", elapsed,
           "scene_peak_kib=%ld most_live_kib=%zu last_kib=%ld live_kib=%zu floor_kib=%ld last_over_live=%.0f", peak,
           most_live / 1024, last, live_at_end / 1024, floor_kib, 100.0 * (double)last * 1024 / (double)live_at_end);
    return 0;
}
