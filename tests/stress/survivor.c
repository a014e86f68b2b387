#include "survivor.h"
#include "../front/check.h"
#include <malloc.h>

enum { SMALL = 60, MEDIUM = 30, RUNS = 20, LARGE = 8, HUGE = 1, SLOTS = SMALL + MEDIUM + RUNS + LARGE + HUGE };
enum { WHOLE = 64 << 10 }; /* blocks above this size are filled and looked at in some places only */
enum { PLACES = 32, BURST = 2000 };

struct record {
    void *block;
    size_t size;
    uint64_t key;
};

static size_t place(size_t size, size_t i) { return ((size - 8) / (PLACES - 1) * i) & ~(size_t)7; }

static void fill(struct record *r, uint64_t *random)
{
    r->key = hk_key(r->block, hk_random(random));
    if (r->size <= WHOLE) {
        hk_fill(r->block, r->size, r->key);
        return;
    }
    for (size_t i = 0; i < PLACES; i++) {
        uint64_t word = hk_word(r->key, i);
        memcpy((char *)r->block + place(r->size, i), &word, 8);
    }
}

/* Checks the first `kept` bytes at p, where `r` says what was filled. */
static void check(const struct record *r, const void *p, size_t kept)
{
    if (r->size <= WHOLE) {
        HK_CHECK_CONTENT(p, kept, r->size, r->key);
        return;
    }
    for (size_t i = 0; i < PLACES && place(r->size, i) + 8 <= kept; i++) {
        uint64_t word = hk_word(r->key, i);
        HK_CHECK(memcmp((const char *)p + place(r->size, i), &word, 8) == 0,
                 "block %p of %zu bytes is spoilt at offset %zu", p, r->size, place(r->size, i));
    }
}

static void check_zero(const void *p, size_t size)
{
    HK_CHECK(hk_all_zero(p, size < WHOLE ? size : WHOLE), "calloc of %zu bytes is not zero", size);
    for (size_t at = WHOLE; at < size; at += size < (2 << 20) ? 4096 : WHOLE)
        HK_CHECK(((const char *)p)[at] == 0, "calloc of %zu bytes is not zero at %zu", size, at);
}

static size_t size_of_slot(size_t slot, uint64_t *random)
{
    if (slot < SMALL)
        return hk_random_size(random, 10);
    if (slot < SMALL + MEDIUM)
        return hk_random_size(random, 15);
    if (slot < SMALL + MEDIUM + RUNS)
        return (32 << 10) + hk_random_size(random, 20);
    if (slot < SLOTS - HUGE)
        return (1 << 20) + hk_random_size(random, 23);
    return (60 << 20) + hk_random_size(random, 25);
}

static void release(struct record *r)
{
    if (r->block == NULL)
        return;
    check(r, r->block, r->size);
    errno = 4711;
    free(r->block);
    HK_CHECK(errno == 4711, "free changed errno");
    r->block = NULL;
}

static void refused(struct hk_survivor *s)
{
    HK_CHECK(errno == ENOMEM, "errno of a refusal");
    s->refused++;
}

static void allocate(struct hk_survivor *s, struct record *r, size_t size)
{
    r->size = size;
    errno = 0;
    switch (hk_random_below(&s->random, 5)) {
    case 0:
    case 1:
        r->block = calloc(1, size);
        if (r->block != NULL)
            check_zero(r->block, size);
        break;
    case 2: r->block = aligned_alloc((size_t)4096 << hk_random_below(&s->random, 10), size); break;
    default: r->block = malloc(size);
    }
    if (r->block == NULL)
        refused(s);
    else
        fill(r, &s->random);
}

static void resize(struct hk_survivor *s, struct record *r, size_t size)
{
    check(r, r->block, r->size);
    errno = 0;
    void *resized = realloc(r->block, size);
    if (resized == NULL) {
        refused(s);
        check(r, r->block, r->size); /* as it was */
        return;
    }
    check(r, resized, size < r->size ? size : r->size);
    r->block = resized;
    r->size = size;
    fill(r, &s->random);
}

/* A buffer that grows by half again each time. */
static void grow(struct hk_survivor *s)
{
    struct record r = {.block = NULL};
    allocate(s, &r, 4096);
    for (size_t size = 4096; r.block != NULL && size < (size_t)100 << 20; size += size / 2)
        resize(s, &r, size);
    release(&r);
}

/* Small and large blocks at once of which the small ones are aligned so coarsely that they may get mappings, too, when
 * nothing else is to be had: then they lie close to each other. */
static void neighbours(struct hk_survivor *s)
{
    enum { PAIRS = 12 };
    struct record records[2 * PAIRS] = {{0}};
    for (size_t i = 0; i < 2 * PAIRS; i++) {
        struct record *r = &records[i];
        r->size = i % 2 == 0 ? hk_random_size(&s->random, 16) : (1 << 20) + hk_random_size(&s->random, 20);
        errno = 0;
        r->block = i % 2 == 0 ? aligned_alloc(2 << 20, r->size) : malloc(r->size);
        if (r->block == NULL)
            refused(s);
        else
            fill(r, &s->random);
    }
    for (size_t i = 0; i < 2 * PAIRS; i += 2)
        release(&records[i]);
    for (size_t i = 1; i < 2 * PAIRS; i += 2)
        release(&records[i]);
}

/* Many small blocks at once, which need new slabs. */
static void burst(struct hk_survivor *s)
{
    struct node {
        struct node *next;
        size_t size;
    } *list = NULL;
    size_t base = (size_t)32 << hk_random_below(&s->random, 6);
    for (int i = 0; i < BURST; i++) {
        size_t size = base + hk_random_below(&s->random, base);
        errno = 0;
        struct node *n = malloc(size);
        if (n == NULL) {
            refused(s);
            continue;
        }
        *n = (struct node){list, size};
        hk_fill(n + 1, size - sizeof *n, hk_key(n, size));
        list = n;
    }
    while (list != NULL) {
        struct node *n = list;
        list = n->next;
        HK_CHECK_CONTENT(n + 1, n->size - sizeof *n, n->size - sizeof *n, hk_key(n, n->size));
        free(n);
    }
}

void hk_survive(struct hk_survivor *s, unsigned steps)
{
    struct record slots[SLOTS] = {{0}};
    for (unsigned step = 0; step < steps; step++) {
        size_t slot = hk_random_below(&s->random, SLOTS);
        struct record *r = &slots[slot];
        size_t size = size_of_slot(slot, &s->random);
        if (r->block == NULL)
            allocate(s, r, size);
        else if (hk_random_below(&s->random, 2) == 0)
            resize(s, r, size);
        else
            release(r);
        if (step % 128 == 37)
            burst(s);
        if (step % 128 == 75)
            malloc_trim(0);
        if (step % 128 == 100)
            neighbours(s);
        if (step % 256 == 111)
            grow(s);
    }
    for (size_t i = 0; i < SLOTS; i++)
        release(&slots[i]);
    malloc_trim(0);
}

void hk_survivor_recover(unsigned attempts)
{
    enum { SIZES = 27, EACH = 3 };
    void *blocks[SIZES][EACH];
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 0; j < EACH; j++) {
            size_t size = (size_t)1 << i;
            blocks[i][j] = NULL;
            for (unsigned attempt = 0; attempt < attempts && blocks[i][j] == NULL; attempt++)
                blocks[i][j] = j == 0 ? calloc(1, size) : malloc(size);
            HK_CHECK(blocks[i][j] != NULL, "%zu bytes could not be had afterwards", size);
            if (j == 0)
                check_zero(blocks[i][j], size);
            memset(blocks[i][j], 0xab, size < WHOLE ? size : WHOLE);
        }
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 0; j < EACH; j++)
            free(blocks[i][j]);
}
