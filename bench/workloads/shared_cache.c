/*
 * A table of values that all threads read and replace.
 *
 * Stands for memcached, shared caches of web servers, interned data: a value is allocated by the thread that stores it
 * and freed by the one that replaces it, some time later, which may be any of them. Local and remote frees are mixed,
 * and lifetimes span everything else the threads do.
 *
 * Each step draws a key. Half of the steps store a new value, of a log-normal size and written throughout; the others
 * read the value at both ends. Values are allocated and freed outside the lock.
 *
 * Figure: steps per second, of all threads, by wall time. Check: both ends of each value name its key, when it is read
 * and when it goes.
 *
 *     shared_cache THREADS KEYS STEPS_OF_EACH
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

enum { SHARDS = 256, MEDIAN_VALUE = 200, MOST_VALUE = 32 << 10 };
static const double VALUE_OCTAVES = 1.5;

struct value {
    size_t size; /* of bytes */
    unsigned char bytes[];
};

static struct shard {
    _Alignas(CACHE_LINE) pthread_mutex_t lock; /* of the values whose key, by SHARDS, is the shard's number */
} shards[SHARDS];

static struct value **values;
static size_t keys;
static size_t steps_each;

static void check(const struct value *value, size_t key)
{
    if (value->bytes[0] != (unsigned char)key || value->bytes[value->size - 1] != (unsigned char)key)
        fail("the value of key %zu changed", key);
}

static struct value *value_new(size_t key, uint64_t *state)
{
    size_t size = size_lognormal(state, MEDIAN_VALUE, VALUE_OCTAVES, 1, MOST_VALUE);
    struct value *value = malloc(sizeof *value + size);
    if (!value)
        fail("no memory for a value of %zu bytes", size);
    value->size = size;
    memset(value->bytes, (unsigned char)key, size);
    return value;
}

static void store(size_t key, struct value *value)
{
    struct shard *shard = &shards[key % SHARDS];
    pthread_mutex_lock(&shard->lock);
    struct value *old = values[key];
    values[key] = value;
    pthread_mutex_unlock(&shard->lock);
    if (old)
        check(old, key);
    free(old);
}

static void read_value(size_t key)
{
    struct shard *shard = &shards[key % SHARDS];
    pthread_mutex_lock(&shard->lock);
    if (values[key])
        check(values[key], key);
    pthread_mutex_unlock(&shard->lock);
}

static void work(size_t number)
{
    uint64_t state = number + 1;
    for (size_t step = 0; step < steps_each; step++) {
        uint64_t bits = random_next(&state);
        size_t key = random_below((uint32_t)(bits >> 32), keys);
        if (bits & 1)
            store(key, value_new(key, &state));
        else
            read_value(key);
    }
}

int main(int argc, char **argv)
{
    size_t threads = threads_argument(argc, argv, 1);
    keys = count_argument(argc, argv, 2, "KEYS");
    steps_each = count_argument(argc, argv, 3, "STEPS_OF_EACH");
    values = table_of(keys, sizeof *values);
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&shards[i].lock, NULL);
    struct stopwatch elapsed = run_together(threads, work);
    for (size_t key = 0; key < keys; key++)
        store(key, NULL);
    report((double)(threads * steps_each) / elapsed.wall * 1e-6, "Mops/s", elapsed, "threads=%zu", threads);
    return 0;
}
