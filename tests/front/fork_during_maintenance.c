/*
 * Symptom: a child forked while the maintenance thread worked lacked blocks, or hung at its first call.
 *
 * Two threads leave memory idle all the time: slabs of which a block in fifty lives. So the maintenance thread finds
 * pages to give back in each of its passes, and in each it holds blocks back for a moment, without the lock of their
 * heap. Meanwhile two threads fork, thousands of times. Each child checks blocks of all threads, allocates and frees;
 * some trim, start a thread, and fork again.
 * Usage: fork_during_maintenance [forks]
 */
#include "tasks.h"
#include <malloc.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { MAKERS = 2, FORKERS = 2, CHUNKS = 12, BLOCKS = 1500, EACH = 50 };

static unsigned forks = 2000;
static atomic_bool stop;
static atomic_int ready;
static atomic_uint forks_done, forks_in_a_pass;

/* ---- Memory that lies idle ---- */

/* Of a chunk only the blocks of which the number is a multiple of EACH live, but while it is made. */
struct chunk {
    void *blocks[BLOCKS];
    size_t size;
};
static struct chunk chunks[MAKERS][CHUNKS];

static void chunk_make(struct chunk *c, size_t size)
{
    c->size = size;
    for (size_t i = 0; i < BLOCKS; i++) {
        c->blocks[i] = malloc(size);
        HK_CHECK(c->blocks[i] != NULL, "malloc(%zu)", size);
        hk_fill(c->blocks[i], size, hk_key(c->blocks[i], 1));
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % EACH != 0)
            free(c->blocks[i]);
}

static void chunk_end(struct chunk *c)
{
    for (size_t i = 0; i < BLOCKS; i += EACH) {
        HK_CHECK_CONTENT(c->blocks[i], c->size, c->size, hk_key(c->blocks[i], 1));
        free(c->blocks[i]);
    }
}

static void *maker(void *argument)
{
    struct chunk *mine = chunks[(uintptr_t)argument];
    uint64_t random = (uintptr_t)argument;
    for (size_t i = 0; i < CHUNKS; i++)
        chunk_make(&mine[i], 200 + hk_random_below(&random, 2000));
    ready++;
    for (size_t i = 0; !stop; i = (i + 1) % CHUNKS) {
        usleep(100000); /* a chunk rests for 1.2 s */
        chunk_end(&mine[i]);
        chunk_make(&mine[i], 200 + hk_random_below(&random, 2000));
    }
    for (size_t i = 0; i < CHUNKS; i++)
        chunk_end(&mine[i]);
    return NULL;
}

/* ---- Blocks that children check and free ---- */

enum { KEPT = 200 };
static struct {
    void *p;
    size_t size;
} kept[FORKERS][KEPT];

static void make_kept(size_t part)
{
    uint64_t random = 100 + part;
    for (size_t i = 0; i < KEPT; i++) {
        size_t size = kept[part][i].size = hk_random_size(&random, 13);
        kept[part][i].p = malloc(size);
        HK_CHECK(kept[part][i].p != NULL, "malloc(%zu)", size);
        hk_fill(kept[part][i].p, size, hk_key(kept[part][i].p, 2));
    }
    ready++;
}

static void free_kept(size_t part)
{
    for (size_t i = 0; i < KEPT; i++) {
        HK_CHECK_CONTENT(kept[part][i].p, kept[part][i].size, kept[part][i].size, hk_key(kept[part][i].p, 2));
        free(kept[part][i].p);
    }
}

/* ---- Children ---- */

static void allocate_some(uint64_t seed)
{
    void *blocks[100];
    size_t sizes[HK_COUNT(blocks)];
    uint64_t random = seed;
    for (size_t i = 0; i < HK_COUNT(blocks); i++) {
        sizes[i] = hk_random_size(&random, i == 0 && seed % 8 == 0 ? 21 : 12);
        blocks[i] = malloc(sizes[i]);
        HK_CHECK(blocks[i] != NULL, "malloc(%zu)", sizes[i]);
        hk_fill(blocks[i], sizes[i], hk_key(blocks[i], seed));
    }
    for (size_t i = 0; i < HK_COUNT(blocks); i++) {
        HK_CHECK_CONTENT(blocks[i], sizes[i], sizes[i], hk_key(blocks[i], seed));
        free(blocks[i]);
    }
}

static void *allocates_some(void *seed)
{
    allocate_some((uintptr_t)seed);
    return NULL;
}

static void child(unsigned number, unsigned generation)
{
    hk_watchdog(30);
    HK_CHECK(hk_tasks().n == 1, "a child begins with %zu threads", hk_tasks().n);
    allocate_some(number);
    if (number % 16 == 1)
        malloc_trim(0);
    for (size_t part = 0; part < FORKERS; part++)
        free_kept(part);
    allocate_some(number + 1);
    if (number % 8 == 2)
        hk_join(hk_thread(allocates_some, (void *)(uintptr_t)number));
    if (number % 8 == 3 && generation < 3) {
        for (size_t part = 0; part < FORKERS; part++)
            make_kept(part);
        pid_t pid = fork();
        HK_CHECK(pid >= 0, "fork in a child");
        if (pid == 0) {
            child(number, generation + 1);
            _exit(0);
        }
        HK_WAIT_OK(pid, "generation %u of fork %u", generation, number);
        malloc_trim(0);
        allocate_some(number + 2);
    }
}

/* ---- */

/* Whether the kernel says that the thread runs, or could. */
static bool is_at_work(int task)
{
    char text[512];
    const char *state = hk_task_file(task, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    return state != NULL && state[2] == 'R';
}

/* Its passes are half a second apart at most. */
static void wait_until_at_work(int task)
{
    for (double start = hk_now(); !is_at_work(task) && hk_now() - start < 1;)
        ;
}

static void *forker(void *argument)
{
    size_t part = (uintptr_t)argument;
    make_kept(part);
    while (ready < MAKERS + FORKERS)
        usleep(1000);
    int task = hk_own_task_begun();
    setpriority(PRIO_PROCESS, (id_t)task, 15); /* so that its passes take longer */
    double start = hk_now();                   /* enough is enough, on a machine that has much else to do */
    for (unsigned i = 0; i < forks / FORKERS && hk_now() - start < 40; i++) {
        if (i % 64 == 0)
            wait_until_at_work(task);
        forks_in_a_pass += is_at_work(task);
        pid_t pid = fork();
        HK_CHECK(pid >= 0, "fork %u", i);
        if (pid == 0) {
            child(i, 1);
            _exit(0);
        }
        HK_WAIT_OK(pid, "fork %u", i);
        forks_done++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    hk_watchdog(110);
    if (argc > 1)
        forks = (unsigned)strtoul(argv[1], NULL, 0);
    pthread_t makers[MAKERS], forkers[FORKERS];
    double start = hk_now();
    for (size_t i = 0; i < MAKERS; i++)
        makers[i] = hk_thread(maker, (void *)i);
    for (size_t i = 0; i < FORKERS; i++)
        forkers[i] = hk_thread(forker, (void *)i);
    for (size_t i = 0; i < FORKERS; i++)
        hk_join(forkers[i]);
    stop = true;
    for (size_t i = 0; i < MAKERS; i++)
        hk_join(makers[i]);
    for (size_t part = 0; part < FORKERS; part++)
        free_kept(part);
    hk_say("%u forks in %.1f s, %u of them while the maintenance thread was at work\n", forks_done, hk_now() - start,
           forks_in_a_pass);
    HK_CHECK(forks_in_a_pass > 0, "the test shows nothing");
    return 0;
}
