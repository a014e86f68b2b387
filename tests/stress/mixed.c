/*
 * Proves: whatever threads do to the allocator, a block belongs to one of them only, keeps its content, is aligned and
 * large enough, and is zero where that was asked for.
 *
 * Threads allocate by all functions, in sizes of all classes (and sometimes beyond), resize, free singly and in bulk
 * and in all orders, swap blocks with each other through mailboxes, die, and are replaced by new ones; what they leave
 * lives on in the mailboxes. Each block is filled with a pattern made of its address and a seed, which is checked
 * before the block is resized or freed, by whomever: blocks that overlap spoil each other's pattern.
 */
#include "../front/check.h"
#include "names.h"
#include "stress.h"
#include <stdatomic.h>

enum { SLOTS = 400, MAILBOXES = 64, MAILBOX_SIZE = 32, BULK = 200, MAX_SEATS = 64 };

struct record {
    void *block;
    size_t size;
    uint64_t key;
};

static struct mailbox {
    pthread_mutex_t lock;
    struct record records[MAILBOX_SIZE];
} mailboxes[MAILBOXES];

/* A seat is taken by one thread after another. */
struct seat {
    uint64_t random;
    double end;
    struct record slots[SLOTS];
    uint64_t steps, lives;
};
static struct seat seats[MAX_SEATS];

static size_t some_size(uint64_t *random)
{
    size_t dice = hk_random_below(random, 100000);
    if (dice < 5)
        return hk_random_size(random, 26);
    if (dice < 300)
        return hk_random_size(random, 22);
    if (dice < 3000)
        return hk_random_size(random, 18);
    if (dice < 15000)
        return hk_random_size(random, 15);
    return hk_random_size(random, 11);
}

/* Every other record's key has its own seed: a block that comes back at once at the same address differs. */
static void fill(struct record *r, uint64_t *random)
{
    r->key = hk_key(r->block, hk_random(random));
    hk_fill(r->block, r->size, r->key);
}

static void check_block(const struct record *r, size_t alignment)
{
    HK_CHECK(r->block != NULL, "%zu bytes", r->size);
    HK_CHECK((uintptr_t)r->block % alignment == 0, "%p is not a multiple of %zu", r->block, alignment);
    size_t usable = hk_names.usable_size(r->block);
    HK_CHECK(usable >= r->size, "%zu bytes usable of %zu", usable, r->size);
}

static void allocate(struct record *r, uint64_t *random)
{
    size_t alignment = 16;
    r->size = some_size(random);
    switch (hk_random_below(random, 8)) {
    case 0: {
        size_t n = 1 + hk_random_below(random, 16);
        r->size -= r->size % n;
        r->block = hk_names.calloc(r->size / n, n);
        HK_CHECK(r->block != NULL, "calloc(%zu, %zu)", r->size / n, n);
        HK_CHECK(hk_all_zero(r->block, r->size), "calloc(%zu, %zu) is not zero", r->size / n, n);
        break;
    }
    case 1:
        alignment = (size_t)16 << hk_random_below(random, hk_random_below(random, 50) == 0 ? 18 : 9);
        r->block = hk_names.aligned_alloc(alignment, r->size);
        break;
    case 2: r->block = hk_names.realloc(NULL, r->size); break;
    default: r->block = hk_names.malloc(r->size);
    }
    check_block(r, alignment);
    fill(r, random);
}

static void check_content(const struct record *r) { HK_CHECK_CONTENT(r->block, r->size, r->size, r->key); }

static void release(struct record *r)
{
    if (r->block == NULL)
        return;
    check_content(r);
    errno = 4711;
    hk_names.free(r->block);
    HK_CHECK(errno == 4711, "free changed errno");
    r->block = NULL;
}

static void resize(struct record *r, uint64_t *random)
{
    if (r->block == NULL)
        return;
    check_content(r);
    size_t old_size = r->size;
    switch (hk_random_below(random, 3)) {
    case 0: r->size += hk_random_below(random, r->size / 2 + 40); break;
    case 1: r->size -= hk_random_below(random, r->size); break;
    default: r->size = some_size(random);
    }
    r->size += r->size == 0;
    r->block = hk_names.realloc(r->block, r->size);
    check_block(r, 16);
    HK_CHECK_CONTENT(r->block, r->size < old_size ? r->size : old_size, old_size, r->key);
    fill(r, random);
}

static void swap_with_mailbox(struct record *r, uint64_t *random)
{
    struct mailbox *m = &mailboxes[hk_random_below(random, MAILBOXES)];
    struct record *theirs = &m->records[hk_random_below(random, MAILBOX_SIZE)];
    pthread_mutex_lock(&m->lock);
    struct record swapped = *theirs;
    *theirs = *r;
    pthread_mutex_unlock(&m->lock);
    *r = swapped;
}

static void shuffle(struct record *records, size_t n, uint64_t *random)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = hk_random_below(random, i);
        struct record swapped = records[i - 1];
        records[i - 1] = records[j];
        records[j] = swapped;
    }
}

/* Many blocks of one size, all together in one of several orders. */
static void bulk(uint64_t *random)
{
    struct record records[BULK];
    void *blocks[BULK];
    size_t n = 1 + hk_random_below(random, BULK), size = hk_random_size(random, 11);
    size_t got = hk_names.malloc_batch(size, n, blocks);
    HK_CHECK(got == n, "%zu of %zu blocks of %zu bytes", got, n, size);
    for (size_t i = 0; i < n; i++) {
        records[i] = (struct record){blocks[i], size, 0};
        check_block(&records[i], 16);
        fill(&records[i], random);
    }
    switch (hk_random_below(random, 5)) {
    case 0:
        for (size_t i = 0; i < n; i++)
            check_content(&records[i]);
        hk_names.free_batch(blocks, n);
        return;
    case 1:
        for (size_t i = n; i-- > 0;)
            release(&records[i]);
        return;
    case 2: shuffle(records, n, random); break;
    case 3:
        for (size_t i = 0; i < n; i++)
            swap_with_mailbox(&records[i], random);
        break;
    default: break;
    }
    for (size_t i = 0; i < n; i++)
        release(&records[i]);
}

static void step(struct seat *s)
{
    struct record *r = &s->slots[hk_random_below(&s->random, SLOTS)];
    size_t dice = hk_random_below(&s->random, 10000);
    if (dice < 1200)
        resize(r, &s->random);
    else if (dice < 2200)
        swap_with_mailbox(r, &s->random);
    else if (dice < 2220)
        bulk(&s->random);
    else if (dice < 2222)
        hk_names.trim();
    else if (r->block != NULL)
        release(r);
    else
        allocate(r, &s->random);
    s->steps++;
}

static void *life(void *argument)
{
    struct seat *s = argument;
    size_t steps = 200 + hk_random_below(&s->random, hk_random_below(&s->random, 4) == 0 ? 50000 : 2000);
    for (size_t i = 0; i < steps && (i % 64 != 0 || hk_now() < s->end); i++)
        step(s);
    /* Half of what is left goes to the others, half stays in the slots for the successor. */
    for (size_t i = 0; i < SLOTS; i += 2)
        swap_with_mailbox(&s->slots[i], &s->random);
    return NULL;
}

static void *seat_of_lives(void *argument)
{
    struct seat *s = argument;
    while (hk_now() < s->end) {
        hk_join(hk_thread(life, s));
        s->lives++;
    }
    return NULL;
}

void hk_stress_run(const struct hk_stress *stress)
{
    HK_CHECK(stress->threads <= MAX_SEATS, "at most %d threads", MAX_SEATS);
    for (size_t i = 0; i < MAILBOXES; i++)
        pthread_mutex_init(&mailboxes[i].lock, NULL);
    pthread_t threads[MAX_SEATS];
    for (unsigned i = 0; i < stress->threads; i++) {
        seats[i].random = hk_mix(stress->seed + i);
        seats[i].end = hk_now() + stress->seconds;
        threads[i] = hk_thread(seat_of_lives, &seats[i]);
    }
    uint64_t steps = 0, lives = 0;
    for (unsigned i = 0; i < stress->threads; i++) {
        hk_join(threads[i]);
        steps += seats[i].steps;
        lives += seats[i].lives;
        for (size_t j = 0; j < SLOTS; j++)
            release(&seats[i].slots[j]);
    }
    for (size_t i = 0; i < MAILBOXES; i++)
        for (size_t j = 0; j < MAILBOX_SIZE; j++)
            release(&mailboxes[i].records[j]);
    hk_say("%llu steps of %llu threads, %u at once\n", (unsigned long long)steps, (unsigned long long)lives,
           stress->threads);
}
