/*
 * Proves: blocks keep their content while a heap of tens of MiB grows and shrinks, again and again: while superslabs
 * are populated with huge pages and lose them, holes and empty slots are given back and taken, by several threads that
 * free what others have allocated, and trim in between. What calloc gives is zero.
 */
#include "../front/check.h"
#include "names.h"
#include "stress.h"

enum { BLOCKS = 50000, MAX_SEATS = 8, RUN = 100, STAYS = 20 };
static const size_t least = 16, most = 700;

struct record {
    void *block;
    size_t size;
    uint64_t key;
};

struct shore {
    struct record records[BLOCKS];
};

static struct shore shores[MAX_SEATS + 1];
static struct {
    pthread_mutex_t lock;
    struct shore *shore;
} left_behind = {PTHREAD_MUTEX_INITIALIZER, &shores[MAX_SEATS]};

static pthread_barrier_t turn; /* of the tide */
static bool over;              /* written before a turn, read after it */

struct seat {
    struct shore *shore;
    uint64_t random;
    double end;
    uint64_t tides;
    bool leads;
};

static void flood(struct seat *seat)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        struct record *r = &seat->shore->records[i];
        if (r->block != NULL)
            continue;
        r->size = least + hk_random_below(&seat->random, most - least);
        bool zero = hk_random_below(&seat->random, 8) == 0;
        r->block = zero ? hk_names.calloc(1, r->size) : hk_names.malloc(r->size);
        HK_CHECK(r->block != NULL, "%zu bytes", r->size);
        HK_CHECK(!zero || hk_all_zero(r->block, r->size), "calloc(1, %zu) is not zero", r->size);
        r->key = hk_key(r->block, hk_random(&seat->random));
        hk_fill(r->block, r->size, r->key);
    }
}

/* Runs of neighbours go, one in so many stays; none if that is 0. */
static void ebb(struct shore *shore, uint64_t *random, size_t stays)
{
    bool keep = false;
    for (size_t i = 0; i < BLOCKS; i++) {
        struct record *r = &shore->records[i];
        if (i % RUN == 0)
            keep = stays != 0 && hk_random_below(random, stays) == 0;
        if (keep || r->block == NULL)
            continue;
        HK_CHECK_CONTENT(r->block, r->size, r->size, r->key);
        hk_names.free(r->block);
        r->block = NULL;
    }
}

static void swap_shores(struct seat *seat)
{
    pthread_mutex_lock(&left_behind.lock);
    struct shore *other = left_behind.shore;
    left_behind.shore = seat->shore;
    seat->shore = other;
    pthread_mutex_unlock(&left_behind.lock);
}

static void *live(void *argument)
{
    struct seat *seat = argument;
    for (bool ends = false; !ends; seat->tides++) {
        flood(seat);
        if (seat->leads)
            over = hk_now() >= seat->end;
        pthread_barrier_wait(&turn);
        ends = over;
        swap_shores(seat);
        ebb(seat->shore, &seat->random, seat->tides % 4 == 0 ? STAYS : 0);
        pthread_barrier_wait(&turn);
        if (seat->leads)
            hk_names.trim(); /* while the others' flood begins */
    }
    return NULL;
}

void hk_stress_run(const struct hk_stress *stress)
{
    static struct seat seats[MAX_SEATS];
    pthread_t threads[MAX_SEATS];
    unsigned n = stress->threads;
    HK_CHECK(n <= MAX_SEATS, "at most %d threads", MAX_SEATS);
    double end = hk_now() + stress->seconds;
    pthread_barrier_init(&turn, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        seats[i] = (struct seat){&shores[i], hk_mix(stress->seed + i), end, 0, i == 0};
        threads[i] = hk_thread(live, &seats[i]);
    }
    uint64_t tides = 0;
    for (unsigned i = 0; i < n; i++) {
        hk_join(threads[i]);
        tides += seats[i].tides;
    }
    for (size_t i = 0; i <= MAX_SEATS; i++)
        ebb(&shores[i], &seats[0].random, 0);
    hk_say("%llu tides\n", (unsigned long long)tides);
}
