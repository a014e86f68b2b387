/*
 * A thousand threads that hold a few blocks and sleep.
 *
 * Stands for servers with one thread a connection, language runtimes with large pools, desktop programs: most threads
 * have allocated a little and do nothing. What an allocator sets aside for each thread is then most of the
 * memory it uses.
 *
 * Each thread allocates the first BLOCKS of four sizes, fills them and sleeps; when all have, the resident size is
 * taken. The lab runs the same program with BLOCKS 0 and subtracts.
 *
 * Figure: KiB resident. Check: every block holds its thread's pattern when the thread wakes up.
 *
 *     idle_threads THREADS BLOCKS
 */
#include "workload.h"

#include <pthread.h>
#include <semaphore.h>

enum { STACK_BYTES = 64 << 10 };
static const size_t sizes[] = {24, 72, 160, 480};
enum { MOST_BLOCKS = sizeof sizes / sizeof *sizes };

static size_t blocks_each;
static sem_t settled;
static sem_t wake;

static void *hold_and_sleep(void *number)
{
    unsigned char pattern = (unsigned char)(uintptr_t)number;
    unsigned char *block[MOST_BLOCKS];
    for (size_t i = 0; i < blocks_each; i++) {
        block[i] = malloc(sizes[i]);
        if (!block[i])
            fail("malloc(%zu) returned NULL", sizes[i]);
        memset(block[i], pattern, sizes[i]);
    }
    sem_post(&settled);
    while (sem_wait(&wake) != 0)
        ;
    for (size_t i = 0; i < blocks_each; i++) {
        for (size_t byte = 0; byte < sizes[i]; byte++)
            if (block[i][byte] != pattern)
                fail("byte %zu of a block of %zu changed while its thread slept", byte, sizes[i]);
        free(block[i]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    size_t threads = argument(argc, argv, 1, "THREADS");
    blocks_each = argument(argc, argv, 2, "BLOCKS");
    if (blocks_each > MOST_BLOCKS) {
        fprintf(stderr, "%s: expected at most %d BLOCKS\n", argv[0], MOST_BLOCKS);
        return 2;
    }
    pthread_t *thread = table_of(threads, sizeof *thread);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sem_init(&settled, 0, 0);
    sem_init(&wake, 0, 0);

    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&thread[i], &attributes, hold_and_sleep, (void *)(uintptr_t)i) != 0)
            fail("no thread number %zu", i);
    for (size_t i = 0; i < threads; i++)
        while (sem_wait(&settled) != 0)
            ;
    struct stopwatch elapsed = stopwatch_read(start);
    long resident = resident_kib();
    for (size_t i = 0; i < threads; i++)
        sem_post(&wake);
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    report((double)resident, "KiB", elapsed, "threads=%zu", threads);
    return 0;
}
