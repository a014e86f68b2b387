/*
 * Work in bursts: memory that is needed again a moment after it was freed.
 *
 * Stands for frames of a game or of a video, batches, requests that each build and drop a large result, collections of
 * a garbage collector: THREADS threads together allocate MIB of blocks of 16 to 1,040 bytes, touch all of it and free
 * it, CYCLES times, each cycle PAUSE_MS after the beginning of the one before. An allocator that gives everything back
 * in the pause pays for it with page faults in the next cycle; one that keeps everything holds the peak through the
 * pauses.
 *
 * Figure: page faults from the first cycle to the last. Also the threads' processor time, and what is resident at the
 * end of a pause, on average. Check: every byte of every block.
 *
 *     cycles THREADS CYCLES MIB PAUSE_MS
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { MIN = BLOCK_MIN, MAX = 1040, MOST_MIB = 1 << 14 };

static size_t cycles;
static size_t bytes_each;
static double pause_seconds;

struct worker {
    _Alignas(64) atomic_size_t live_bytes;
    uint64_t *blocks;
    uint64_t seed;
    double begin; /* of the first cycle */
    double cpu;   /* processor time of its cycles, without the pauses */
    long paused_kib;
    bool samples; /* one worker takes the samples and sums what is resident at the ends of the pauses */
    pthread_t thread;
};

static struct worker *workers;
static size_t threads;

static size_t live_bytes(void)
{
    size_t sum = 0;
    for (size_t i = 0; i < threads; i++)
        sum += atomic_load_explicit(&workers[i].live_bytes, memory_order_relaxed);
    return sum;
}

static void build_and_free(struct worker *worker, uint64_t *state)
{
    size_t count = 0;
    for (size_t live = 0; live < bytes_each;) {
        size_t size = size_between(state, MIN, MAX);
        worker->blocks[count++] = block_new(size);
        live += size;
        atomic_store_explicit(&worker->live_bytes, live, memory_order_relaxed);
    }
    if (worker->samples)
        scene_sample(live_bytes());
    for (size_t i = 0; i < count; i++)
        block_check_and_free(worker->blocks[i]);
    atomic_store_explicit(&worker->live_bytes, 0, memory_order_relaxed);
}

static void *work(void *argument_of_it)
{
    struct worker *worker = argument_of_it;
    uint64_t state = worker->seed;
    for (size_t cycle = 0; cycle < cycles; cycle++) {
        double before = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
        build_and_free(worker, &state);
        worker->cpu += clock_seconds(CLOCK_THREAD_CPUTIME_ID) - before;
        if (worker->samples)
            scene_sample(live_bytes());
        double rest = worker->begin + (double)(cycle + 1) * pause_seconds - clock_seconds(CLOCK_MONOTONIC);
        if (rest > 0)
            sleep_seconds(rest);
        if (worker->samples) {
            worker->paused_kib += scene_resident_kib();
            scene_sample(live_bytes());
        }
    }
    return NULL;
}

static long faults_so_far(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

int main(int argc, char **argv)
{
    threads = threads_argument(argc, argv, 1);
    cycles = count_argument(argc, argv, 2, "CYCLES");
    size_t mib = argument_between(argc, argv, 3, "MIB", threads, MOST_MIB);
    pause_seconds = (double)argument(argc, argv, 4, "PAUSE_MS") / 1000;
    scene_begin();
    bytes_each = (mib << 20) / threads;
    workers = own_table(threads, sizeof *workers);
    for (size_t i = 0; i < threads; i++) {
        workers[i].blocks = own_table(bytes_each / (MIN + (MAX - MIN) * 2 / 5) + 1024, sizeof(uint64_t));
        workers[i].seed = i;
        workers[i].samples = i == 0;
    }
    long faults = faults_so_far();
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < threads; i++)
        workers[i].begin = clock_seconds(CLOCK_MONOTONIC);
    if (threads == 1)
        work(&workers[0]); /* a process with one thread, in which nothing runs during the pauses */
    else
        for (size_t i = 0; i < threads; i++)
            if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
                fail("no thread");
    double cpu = 0;
    for (size_t i = 0; i < threads; i++) {
        if (threads > 1)
            pthread_join(workers[i].thread, NULL);
        cpu += workers[i].cpu;
    }
    struct stopwatch elapsed = stopwatch_read(start);
    faults = faults_so_far() - faults;
    report((double)faults, "page faults", elapsed, "cycle_faults=%ld work_ms=%.3f paused_kib=%ld scene_peak_kib=%ld",
           faults, cpu * 1000, workers[0].paused_kib / (long)cycles, scene_peak_kib());
    return 0;
}
