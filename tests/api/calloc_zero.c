/* calloc's memory is zero, also when it is memory that was dirtied and freed before, by whatever way it comes back. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 64 };

/* Blocks of n bytes, dirtied to the last usable byte, freed, and asked for again. */
static void dirty_then_calloc(size_t n)
{
    void *blocks[BLOCKS];
    int count = n <= 4096 ? BLOCKS : n <= 65536 ? 12 : 3;
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(n);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 0xa5, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < count; i++)
        free(blocks[i]);
    for (int i = 0; i < count; i++) {
        blocks[i] = i % 2 == 0 ? calloc(1, n) : calloc(n, 1);
        REQUIRE(blocks[i] != NULL);
        CHECK_MSG(is_zero(blocks[i], 0, n), "calloc of %zu bytes, block %d", n, i);
        memset(blocks[i], 0x5a, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < count; i++)
        free(blocks[i]);
}

static void same_size(void)
{
    for (size_t n = 1; n <= 2 * MIB; n += n < 1100 ? 1 : n / 29)
        dirty_then_calloc(n);
}

/* From large to small and back: memory changes its class and its kind in between. */
static void other_sizes(void)
{
    for (size_t n = 2 * MIB; n >= 16; n /= 2) {
        dirty_then_calloc(n);
        dirty_then_calloc(n - n / 4);
    }
    for (size_t n = 16; n <= 2 * MIB; n *= 2) {
        dirty_then_calloc(n + n / 8);
        malloc_trim(0);
    }
}

static void large(void)
{
    static const size_t sizes[] = {3 * MIB, 10 * MIB, 63 * MIB, 64 * MIB, 65 * MIB, 150 * MIB, 40 * MIB, 5 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i];
        for (int round = 0; round < 2; round++) {
            uint8_t *p = calloc(n / 1024, 1024);
            REQUIRE(p != NULL);
            CHECK_MSG(is_zero(p, 0, n), "calloc of %zu bytes, round %d", n, round);
            memset(p, 0xff, malloc_usable_size(p));
            free(p);
        }
    }
}

/* A block grown by realloc leaves dirty memory behind, and mremap moves fresh pages next to dirty ones. */
static void after_realloc(void)
{
    for (size_t n = 1000; n <= 40 * MIB; n *= 3) {
        uint8_t *p = malloc(n);
        REQUIRE(p != NULL);
        memset(p, 0xee, n);
        p = realloc(p, n * 2);
        REQUIRE(p != NULL);
        memset(p + n, 0xdd, n);
        p = realloc(p, n / 2);
        REQUIRE(p != NULL);
        uint8_t *other = calloc(2, n), *same = calloc(1, n / 2);
        REQUIRE(other != NULL && same != NULL);
        CHECK_MSG(is_zero(other, 0, 2 * n) && is_zero(same, 0, n / 2), "%zu bytes", n);
        memset(other, 0xcc, 2 * n);
        free(other), free(same), free(p);
    }
}

/* Blocks dirtied here, freed by another thread. */
static void *free_all(void *blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        free(((void **)blocks)[i]);
    return NULL;
}

static void freed_by_another_thread(void)
{
    for (size_t n = 16; n <= MIB; n *= 4) {
        void *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(n);
            REQUIRE(blocks[i] != NULL);
            memset(blocks[i], 0x77, n);
        }
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, free_all, blocks) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = calloc(n / 8, 8);
            REQUIRE(blocks[i] != NULL);
            CHECK_MSG(is_zero(blocks[i], 0, n), "calloc of %zu bytes", n);
        }
        free_all(blocks);
    }
}

static void random_sizes(void)
{
    enum { SLOTS = 500, STEPS = 40000 };
    static void *slots[SLOTS];
    uint64_t random = 9;
    for (int i = 0; i < STEPS; i++) {
        size_t at = next_random(&random) % SLOTS;
        size_t n = next_random(&random) % ((size_t)1 << (4 + next_random(&random) % 12)) + 1;
        free(slots[at]);
        slots[at] = calloc(n, 1);
        REQUIRE(slots[at] != NULL);
        CHECK_MSG(is_zero(slots[at], 0, n), "calloc of %zu bytes in step %d", n, i);
        memset(slots[at], 0x99, malloc_usable_size(slots[at]));
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
}

int main(void)
{
    same_size();
    other_sizes();
    large();
    after_realloc();
    freed_by_another_thread();
    random_sizes();
    return check_result();
}
