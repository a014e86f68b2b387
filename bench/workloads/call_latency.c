/*
 * Single calls: how long the slowest ones take.
 *
 * Stands for games, audio, trading, request servers with a promise for one in ten thousand: the mean says nothing
 * there, but the call that refills, purges, takes a lock or goes to the kernel does. THREADS threads, each alone on its
 * slots, free and allocate blocks of 16 bytes to 256 KiB, most of them small; every hundred thousand steps the number
 * of live blocks swings between all slots and a quarter of them, so that there is something to give back and to take
 * again. With one thread the process has no other; with two, an allocator's own thread is at work if it has one.
 *
 * Each call is timed by the processor's counter, in order with what is around it. What reading the counter takes, the
 * least that was seen of nothing between two reads, is subtracted. A block is touched outside the timed part: faults on
 * it are the program's, those inside the call are the allocator's. The longest few are the scheduler's and the
 * hypervisor's too. Counters move in steps, of up to 10 ns on x86-64 and often of 10 to 40 ns on AArch64, and medians
 * are as coarse.
 *
 * Figure: the time below which 99.9 % of all calls stay, in ns. Keys: the same for malloc and free by themselves.
 * Check: every byte of every block when it is freed.
 *
 *     call_latency THREADS SLOTS STEPS
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"
#include "threads.h"

enum { MEDIAN = 100, LARGEST = 256 << 10, SWING_STEPS = 100000, KEPT_SHARE = 4, ROOM_FOR_ZERO_TRIES = 10000 };
static const double SPREAD_OCTAVES = 2.2;

#if defined(__x86_64__)
/* The fences keep the timed call between the two reads. */
static inline uint64_t ticks_now(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}
#elif defined(__aarch64__)
static inline uint64_t ticks_now(void)
{
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
}
#else
#error "a counter is known for x86-64 and AArch64 only"
#endif

/* Counts by duration: each power of two of ticks in 32 equal parts, so that a duration is known to 3 %. */
enum { PART_BITS = 5, PARTS = 1 << PART_BITS, BUCKETS = (64 - PART_BITS + 1) * PARTS };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t most;
};

static size_t bucket_of(uint64_t ticks)
{
    if (ticks < PARTS)
        return ticks;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ticks) - PART_BITS;
    return (size_t)(shift + 1) * PARTS + (ticks >> shift) - PARTS;
}

/* The middle of a bucket. */
static double ticks_of(size_t bucket)
{
    if (bucket < PARTS)
        return (double)bucket;
    unsigned shift = (unsigned)(bucket / PARTS) - 1;
    return ((double)(bucket % PARTS + PARTS) + 0.5) * (double)((uint64_t)1 << shift);
}

static void count(struct histogram *histogram, uint64_t ticks)
{
    histogram->counts[bucket_of(ticks)]++;
    if (ticks > histogram->most)
        histogram->most = ticks;
}

static void add(struct histogram *sum, const struct histogram *part)
{
    for (size_t i = 0; i < BUCKETS; i++)
        sum->counts[i] += part->counts[i];
    sum->most = part->most > sum->most ? part->most : sum->most;
}

static double quantile(const struct histogram *histogram, double share)
{
    uint64_t total = 0, below = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        total += histogram->counts[i];
    for (size_t i = 0; i < BUCKETS; i++) {
        below += histogram->counts[i];
        if ((double)below >= share * (double)total)
            return ticks_of(i) < (double)histogram->most ? ticks_of(i) : (double)histogram->most;
    }
    return (double)histogram->most;
}

struct worker {
    struct histogram mallocs;
    struct histogram frees;
    uint64_t *blocks;
};

static struct worker *workers;
static size_t slots;
static size_t steps;
static uint64_t zero_ticks; /* what two reads take with nothing between them */

static uint64_t since(uint64_t start)
{
    uint64_t ticks = ticks_now() - start;
    return ticks > zero_ticks ? ticks - zero_ticks : 0;
}

static void measure_zero(void)
{
    zero_ticks = UINT64_MAX;
    for (int i = 0; i < ROOM_FOR_ZERO_TRIES; i++) {
        uint64_t start = ticks_now(), ticks = ticks_now() - start;
        zero_ticks = ticks < zero_ticks ? ticks : zero_ticks;
    }
}

static void free_timed(struct worker *worker, size_t index)
{
    uint64_t block = worker->blocks[index];
    if (!block)
        return;
    block_check(block);
    worker->blocks[index] = 0;
    void *address = block_address(block);
    uint64_t start = ticks_now();
    free(address);
    count(&worker->frees, since(start));
}

static void malloc_timed(struct worker *worker, size_t index, size_t size)
{
    uint64_t start = ticks_now();
    void *address = malloc(size);
    count(&worker->mallocs, since(start));
    worker->blocks[index] = block_adopt(address, size);
}

static void work(size_t number)
{
    struct worker *worker = &workers[number];
    uint64_t state = number;
    for (size_t step = 0; step < steps; step++) {
        bool ebb = step / SWING_STEPS % 2 == 1;
        size_t index = random_below((uint32_t)random_next(&state), slots);
        free_timed(worker, index);
        if (!ebb || index % KEPT_SHARE == 0)
            malloc_timed(worker, index, size_lognormal(&state, MEDIAN, SPREAD_OCTAVES, BLOCK_MIN, LARGEST));
    }
    for (size_t i = 0; i < slots; i++)
        if (worker->blocks[i])
            block_check_and_free(worker->blocks[i]);
}

/* Room for the keys of one histogram, written as text. */
struct keys {
    char text[256];
};

static struct keys keys_of(const char *prefix, const struct histogram *histogram, double ns)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}};
    struct keys keys;
    int length = 0;
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        length += snprintf(keys.text + length, sizeof keys.text - (size_t)length, "%s%s_ns=%.1f ", prefix,
                           quantiles[i].name, quantile(histogram, quantiles[i].share) * ns);
    snprintf(keys.text + length, sizeof keys.text - (size_t)length, "%smax_ns=%.1f", prefix,
             (double)histogram->most * ns);
    return keys;
}

int main(int argc, char **argv)
{
    size_t threads = threads_argument(argc, argv, 1);
    slots = count_argument(argc, argv, 2, "SLOTS");
    steps = count_argument(argc, argv, 3, "STEPS");
    workers = own_table(threads, sizeof *workers);
    for (size_t i = 0; i < threads; i++)
        workers[i].blocks = own_table(slots, sizeof *workers[i].blocks);
    measure_zero();

    double begin = clock_seconds(CLOCK_MONOTONIC);
    uint64_t first = ticks_now();
    struct stopwatch elapsed;
    if (threads == 1) {
        struct stopwatch start = stopwatch_start();
        stay_on_processor(0);
        work(0);
        elapsed = stopwatch_read(start);
    } else {
        elapsed = run_together(threads, work);
    }
    double ns = (clock_seconds(CLOCK_MONOTONIC) - begin) * 1e9 / (double)(ticks_now() - first);

    struct histogram *all = own_table(3, sizeof *all), *mallocs = &all[1], *frees = &all[2];
    for (size_t i = 0; i < threads; i++) {
        add(mallocs, &workers[i].mallocs);
        add(frees, &workers[i].frees);
    }
    add(all, mallocs);
    add(all, frees);
    report(quantile(all, 0.999) * ns, "ns", elapsed, "%s %s %s counter_mhz=%.1f counter_ns=%.1f",
           keys_of("", all, ns).text, keys_of("malloc_", mallocs, ns).text, keys_of("free_", frees, ns).text, 1e3 / ns,
           (double)zero_ticks * ns);
    return 0;
}
