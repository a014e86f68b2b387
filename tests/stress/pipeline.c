/*
 * Proves: blocks that some threads allocate and others free arrive intact, and the resident size stays flat and in
 * proportion, for 1 to 1, 1 to n, n to 1 and n to n threads through one bounded queue. Sizes range from 1 byte to
 * 1 MiB; some consumers resize before they free; some hand back a block of their own through a second queue, so that
 * memory flows both ways.
 */
#include "../front/check.h"
#include "names.h"
#include "stress.h"

enum { QUEUE = 256, MAX_SIDE = 16 };
static const long may_grow_kib = 8 << 10;
static const long of_thread_kib = 2 << 10; /* thread_budget: what its magazines may hold, and need not do early */
static const long bound_kib = 64 << 10;    /* some 2 MiB are live */

struct message {
    void *block;
    size_t size;
    uint64_t key;
};

static struct queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    struct message messages[QUEUE];
    size_t head, count;
    bool closed;
} forth, back;

static void queue_open(struct queue *q)
{
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, NULL);
    pthread_cond_init(&q->not_full, NULL);
}

static void queue_put(struct queue *q, struct message m)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == QUEUE)
        pthread_cond_wait(&q->not_full, &q->lock);
    q->messages[(q->head + q->count++) % QUEUE] = m;
    pthread_cond_signal(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

static void take_locked(struct queue *q, struct message *m)
{
    *m = q->messages[q->head];
    q->head = (q->head + 1) % QUEUE;
    q->count--;
    pthread_cond_signal(&q->not_full);
}

/* False when the queue is empty for good. */
static bool queue_take(struct queue *q, struct message *m)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed)
        pthread_cond_wait(&q->not_empty, &q->lock);
    bool got = q->count != 0;
    if (got)
        take_locked(q, m);
    pthread_mutex_unlock(&q->lock);
    return got;
}

static bool queue_try_put(struct queue *q, struct message m)
{
    pthread_mutex_lock(&q->lock);
    bool room = q->count != QUEUE;
    if (room)
        q->messages[(q->head + q->count++) % QUEUE] = m;
    pthread_mutex_unlock(&q->lock);
    return room;
}

static bool queue_try_take(struct queue *q, struct message *m)
{
    pthread_mutex_lock(&q->lock);
    bool got = q->count != 0;
    if (got)
        take_locked(q, m);
    pthread_mutex_unlock(&q->lock);
    return got;
}

static void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

struct worker {
    pthread_t id;
    uint64_t random;
    double end;
    uint64_t messages;
};

static struct message make_message(uint64_t *random)
{
    struct message m = {.size = hk_random_size(random, hk_random_below(random, 200) == 0 ? 20 : 12)};
    m.block = hk_names.malloc(m.size);
    HK_CHECK(m.block != NULL, "malloc(%zu)", m.size);
    m.key = hk_key(m.block, hk_random(random));
    hk_fill(m.block, m.size, m.key);
    return m;
}

static void end_message(struct message *m)
{
    HK_CHECK_CONTENT(m->block, m->size, m->size, m->key);
    hk_names.free(m->block);
}

static void *produce(void *argument)
{
    struct worker *w = argument;
    while (hk_now() < w->end)
        for (int i = 0; i < 64; i++) {
            queue_put(&forth, make_message(&w->random));
            struct message m;
            if (i % 8 == 0 && queue_try_take(&back, &m))
                end_message(&m);
            w->messages++;
        }
    return NULL;
}

static void *consume(void *argument)
{
    struct worker *w = argument;
    for (struct message m; queue_take(&forth, &m); w->messages++) {
        if (w->messages % 16 == 0) {
            HK_CHECK_CONTENT(m.block, m.size, m.size, m.key);
            size_t old_size = m.size;
            m.size += m.size / 2 + 1;
            m.block = hk_names.realloc(m.block, m.size);
            HK_CHECK(m.block != NULL, "realloc to %zu", m.size);
            HK_CHECK_CONTENT(m.block, old_size, old_size, m.key);
            hk_fill(m.block, m.size, m.key);
        }
        end_message(&m);
        if (w->messages % 8 == 0) {
            struct message answer = make_message(&w->random);
            if (!queue_try_put(&back, answer))
                end_message(&answer);
        }
    }
    return NULL;
}

static void run(const struct hk_stress *stress, unsigned producers, unsigned consumers, double seconds)
{
    static struct worker makers[MAX_SIDE], takers[MAX_SIDE];
    queue_open(&forth);
    queue_open(&back);
    double start = hk_now();
    for (unsigned i = 0; i < producers; i++) {
        makers[i] = (struct worker){.random = hk_mix(stress->seed + i), .end = start + seconds};
        makers[i].id = hk_thread(produce, &makers[i]);
    }
    for (unsigned i = 0; i < consumers; i++) {
        takers[i] = (struct worker){.random = hk_mix(stress->seed + MAX_SIDE + i)};
        takers[i].id = hk_thread(consume, &takers[i]);
    }
    usleep((useconds_t)(seconds * 0.3e6));
    long early = hk_rss_kib();
    uint64_t sent = 0, received = 0;
    for (unsigned i = 0; i < producers; i++) {
        hk_join(makers[i].id);
        sent += makers[i].messages;
    }
    long late = hk_rss_kib();
    queue_close(&forth);
    for (unsigned i = 0; i < consumers; i++) {
        hk_join(takers[i].id);
        received += takers[i].messages;
    }
    for (struct message m; queue_try_take(&back, &m);)
        end_message(&m);
    hk_say("%2u to %2u: %8llu messages, resident %ld KiB early, %ld KiB late\n", producers, consumers,
           (unsigned long long)sent, early, late);
    HK_CHECK(sent == received, "%llu sent, %llu received", (unsigned long long)sent, (unsigned long long)received);
    if (!HK_MEMORY_IS_OURS)
        return;
    HK_CHECK(late - early <= may_grow_kib + (long)(producers + consumers) * of_thread_kib,
             "%u to %u: resident size grew by %ld KiB", producers, consumers, late - early);
    HK_CHECK(late <= bound_kib, "%u to %u: resident size is %ld KiB", producers, consumers, late);
}

void hk_stress_run(const struct hk_stress *stress)
{
    unsigned n = stress->threads;
    HK_CHECK(n <= MAX_SIDE, "at most %d threads a side", MAX_SIDE);
    const unsigned shapes[][2] = {{1, 1}, {1, n}, {n, 1}, {n, n}};
    for (size_t i = 0; i < HK_COUNT(shapes); i++)
        run(stress, shapes[i][0], shapes[i][1], stress->seconds / HK_COUNT(shapes));
}
