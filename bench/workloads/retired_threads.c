/*
 * Threads that have worked once and now sleep: what each of them still holds.
 *
 * Stands for the pools of application servers and language runtimes, sized for the worst hour: each of THREADS threads
 * has once served a request, with BURST blocks of 16 to 1,040 bytes, of which four are left, and waits for the next.
 * What their caches keep adds up over all threads.
 *
 * The threads work one after the other, in the order in which they were made; a first look is taken when all are there
 * and have not yet worked.
 *
 * Figure: KiB that a thread's one request has left, after 2.5 s of sleep. Also after malloc_trim, and the floor. Check:
 * every byte of every block.
 *
 *     retired_threads THREADS BURST
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

#include <pthread.h>
#include <semaphore.h>

enum { MIN = BLOCK_MIN, MAX = 1040, KEPT = 4, MOST_BURST = 1 << 16, STACK_BYTES = 64 << 10, THREADS_A_LOOK = 50 };

struct worker {
    sem_t turn; /* posted to work, and again to leave */
    pthread_t thread;
    uint64_t kept[KEPT];
};

static struct worker *workers;
static uint64_t *burst; /* the blocks of the one that is at work */
static size_t burst_length;
static sem_t done;
static size_t live;

static size_t live_bytes(void) { return live; }

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        ;
}

static void serve(struct worker *worker)
{
    uint64_t state = (uint64_t)(worker - workers);
    for (size_t i = 0; i < burst_length; i++)
        burst[i] = block_new(size_between(&state, MIN, MAX));
    for (size_t i = 0; i < burst_length; i++) {
        if (i % (burst_length / KEPT) == 0 && i / (burst_length / KEPT) < KEPT)
            worker->kept[i / (burst_length / KEPT)] = burst[i];
        else
            block_check_and_free(burst[i]);
    }
}

static void *worker_main(void *argument_of_it)
{
    struct worker *worker = argument_of_it;
    sem_post(&done);
    wait_for(&worker->turn);
    serve(worker);
    sem_post(&done);
    wait_for(&worker->turn);
    for (size_t i = 0; i < KEPT; i++)
        block_check_and_free(worker->kept[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    size_t threads = argument_between(argc, argv, 1, "THREADS", 1, 1 << 14);
    burst_length = argument_between(argc, argv, 2, "BURST", KEPT, MOST_BURST);
    scene_begin();
    workers = own_table(threads, sizeof *workers);
    burst = own_table(burst_length, sizeof *burst);
    sem_init(&done, 0, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (size_t i = 0; i < threads; i++) {
        sem_init(&workers[i].turn, 0, 0);
        if (pthread_create(&workers[i].thread, &attributes, worker_main, &workers[i]) != 0)
            fail("no thread number %zu", i);
    }
    for (size_t i = 0; i < threads; i++)
        wait_for(&done);
    long before = scene_resident_kib();

    struct page_set pages = page_set_new();
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < threads; i++) {
        sem_post(&workers[i].turn);
        wait_for(&done);
        for (size_t kept = 0; kept < KEPT; kept++)
            live += block_size(workers[i].kept[kept]);
        if (i % THREADS_A_LOOK == 0)
            scene_sample(live);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    struct settled settled = scene_settle(live_bytes);
    settled.idle_kib -= before;
    settled.trimmed_kib -= before;
    long peak = scene_peak_kib();
    for (size_t i = 0; i < threads; i++)
        page_set_add_blocks(&pages, workers[i].kept, KEPT);
    long floor = page_set_finish(&pages);
    for (size_t i = 0; i < threads; i++) {
        sem_post(&workers[i].turn);
        pthread_join(workers[i].thread, NULL);
    }
    scene_report((double)settled.idle_kib / (double)threads, "KiB/thread", elapsed, settled, live, floor, peak);
    return 0;
}
