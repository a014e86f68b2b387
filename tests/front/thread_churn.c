/*
 * Proves: threads may come and go for ever. 5,000 short threads, one after another, each freeing what its predecessor
 * left: the resident size is the same at the 100th thread and at the last. Four ways of handing over, since each takes
 * another path through thread exit:
 *   body        the successor frees in its body
 *   destructor  the successor frees in a key destructor, which runs after the allocator's
 *   main        the main thread frees all after each thread has ended
 *   overlap     predecessor and successor live at the same time
 * Usage: thread_churn [threads]
 */
#include "check.h"
#include <semaphore.h>

enum { BLOCKS = 200, EARLY = 100 };
static const long may_grow_kib = 512;

struct hand {
    void *block[BLOCKS];
    size_t size[BLOCKS];
    uint64_t seed;
};

static struct hand hands[2];
static pthread_key_t key;
static bool frees_in_destructor;

static void take_all(struct hand *hand)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (hand->block[i] == NULL)
            continue;
        HK_CHECK_CONTENT(hand->block[i], hand->size[i], hand->size[i], hk_key(hand->block[i], hand->seed));
        free(hand->block[i]);
        hand->block[i] = NULL;
    }
}

/* The same sizes for every thread: what differs between the 100th thread and the last is the allocator's doing. */
static void leave_all(struct hand *hand, uint64_t seed)
{
    uint64_t random = 1;
    hand->seed = seed;
    for (int i = 0; i < BLOCKS; i++) {
        hand->size[i] = i == 0 ? 100000 : hk_random_size(&random, 12);
        hand->block[i] = malloc(hand->size[i]);
        HK_CHECK(hand->block[i] != NULL, "malloc(%zu)", hand->size[i]);
        hk_fill(hand->block[i], hand->size[i], hk_key(hand->block[i], seed));
    }
}

static void *thread_body(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    struct hand *theirs = &hands[number % 2], *mine = &hands[(number + 1) % 2];
    if (frees_in_destructor)
        pthread_setspecific(key, theirs);
    else
        take_all(theirs);
    leave_all(mine, number);
    return NULL;
}

/* Runs twice: in the second round, and so after destructors of keys that do not ask for a second round. */
static void destructor(void *value)
{
    static _Thread_local bool again;
    if (!again) {
        again = true;
        pthread_setspecific(key, value);
        return;
    }
    take_all(value);
}

static void report(const char *way, size_t threads, long early, long late, double seconds)
{
    hk_say("%-10s %zu threads in %.2f s: resident %ld KiB after %d threads, %ld KiB after all\n", way, threads, seconds,
           early, EARLY, late);
    HK_CHECK(late - early <= may_grow_kib, "%s: resident size grew by %ld KiB", way, late - early);
}

static void one_after_another(const char *way, size_t threads)
{
    long early = 0;
    double start = hk_now();
    for (size_t i = 0; i < threads; i++) {
        if (i == EARLY)
            early = hk_rss_kib();
        hk_join(hk_thread(thread_body, (void *)(uintptr_t)i));
        if (strcmp(way, "main") == 0)
            take_all(&hands[(i + 1) % 2]);
    }
    long late = hk_rss_kib();
    take_all(&hands[0]);
    take_all(&hands[1]);
    report(way, threads, early, late, hk_now() - start);
}

/* ---- Predecessor and successor at once: a chain in which each thread starts the next one and then ends ---- */

struct link {
    struct hand hand;
    size_t number;
    pthread_t previous;
};

static struct link links[3];
static size_t chain_length;
static long chain_early;
static pthread_t chain_last;
static sem_t chain_done;

static void *chain_body(void *argument)
{
    struct link *self = argument, *next = &links[(self->number + 1) % HK_COUNT(links)];
    if (self->number > 0) {
        take_all(&links[(self->number - 1) % HK_COUNT(links)].hand);
        hk_join(self->previous);
    }
    if (self->number == EARLY)
        chain_early = hk_rss_kib();
    leave_all(&self->hand, self->number);
    if (self->number + 1 == chain_length) {
        chain_last = pthread_self();
        sem_post(&chain_done);
        return NULL;
    }
    next->number = self->number + 1;
    next->previous = pthread_self();
    hk_thread(chain_body, next);
    return NULL;
}

static void overlapping(size_t threads)
{
    double start = hk_now();
    chain_length = threads;
    sem_init(&chain_done, 0, 0);
    hk_thread(chain_body, &links[0]);
    sem_wait(&chain_done);
    hk_join(chain_last);
    report("overlap", threads, chain_early, hk_rss_kib(), hk_now() - start);
}

int main(int argc, char **argv)
{
    size_t threads = argc > 1 ? strtoul(argv[1], NULL, 0) : 5000;
    HK_CHECK(threads > EARLY, "usage: thread_churn [threads]");
    hk_watchdog((unsigned)(5 + threads / 100));
    pthread_key_create(&key, destructor);
    one_after_another("body", threads);
    frees_in_destructor = true;
    one_after_another("destructor", threads);
    frees_in_destructor = false;
    one_after_another("main", threads);
    overlapping(threads);
    return 0;
}
