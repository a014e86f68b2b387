/*
 * A cache of large buffers is dropped.
 *
 * Stands for image viewers, video tools, column stores and anything that holds some dozens of buffers of megabytes and
 * lets them go together: COUNT buffers of 1 to MOST_MIB MiB are allocated, written and freed, with another thread that
 * has allocated something and sleeps all the while (THREADS 2), or without (1). Then all is quiet. Large buffers are
 * what allocators like to keep, because to map them anew costs much.
 *
 * Figure: MiB resident after 2.5 s. Also after malloc_trim. Nothing is live then. Check: every byte of every buffer.
 *
 *     dropped_buffers THREADS COUNT MOST_MIB
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

#include <pthread.h>
#include <semaphore.h>

enum { MIB = 1 << 20, MOST_COUNT = 4096 };

static sem_t leave;
static size_t live;

static size_t live_bytes(void) { return live; }

static void *sleep_through(void *unused)
{
    void *volatile something = malloc(100);
    free(something);
    while (sem_wait(&leave) != 0)
        ;
    return unused;
}

int main(int argc, char **argv)
{
    bool alone = argument_between(argc, argv, 1, "THREADS", 1, 2) == 1;
    size_t count = argument_between(argc, argv, 2, "COUNT", 1, MOST_COUNT);
    size_t most = argument_between(argc, argv, 3, "MOST_MIB", 1, 1024) * MIB;
    scene_begin();
    unsigned char **buffers = own_table(count, sizeof *buffers);
    size_t *sizes = own_table(count, sizeof *sizes);
    pthread_t sleeper;
    sem_init(&leave, 0, 0);
    if (!alone && pthread_create(&sleeper, NULL, sleep_through, NULL) != 0)
        fail("no thread");
    scene_sample(0);

    uint64_t state = 1;
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < count; i++) {
        sizes[i] = size_between(&state, MIB, most);
        buffers[i] = malloc(sizes[i]);
        if (!buffers[i])
            fail("malloc(%zu) returned NULL", sizes[i]);
        memset(buffers[i], (int)(i % 255 + 1), sizes[i]);
        live += sizes[i];
        scene_sample_if_due(live);
    }
    scene_sample(live);
    for (size_t i = 0; i < count; i++) {
        if (buffers[i][0] != i % 255 + 1 || memcmp(buffers[i], buffers[i] + 1, sizes[i] - 1) != 0)
            fail("buffer %zu of %zu bytes changed", i, sizes[i]);
        free(buffers[i]);
        live -= sizes[i];
    }
    struct stopwatch elapsed = stopwatch_read(start);
    struct settled settled = scene_settle(live_bytes);
    long peak = scene_peak_kib();
    if (!alone) {
        sem_post(&leave);
        pthread_join(sleeper, NULL);
    }
    report((double)settled.idle_kib / 1024, "MiB", elapsed,
           "settled_kib=%ld trimmed_kib=%ld trims=%d scene_peak_kib=%ld", settled.idle_kib, settled.trimmed_kib,
           settled.trims, peak);
    return 0;
}
