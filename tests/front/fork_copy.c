/*
 * Proves: a forked child that frees does not copy the pages it frees. The parent fills 200 MiB with blocks of all small
 * and medium sizes; the child frees them all, in the order of allocation or at random, and afterwards owns at most a
 * few MiB of memory of its own. An allocator that keeps its lists inside free blocks copies all of it.
 */
#include "check.h"

static const size_t total = (size_t)200 << 20;
static const long bound_kib = 12 << 10;
enum { MAX_BLOCKS = 2 << 20 };

static void **blocks;
static size_t block_count;

static void free_in_order(void)
{
    for (size_t i = 0; i < block_count; i++)
        free(blocks[i]);
}

/* A prime stride visits each block once. */
static void free_at_random(void)
{
    const size_t stride = 1000003;
    HK_CHECK(block_count % stride != 0, "stride divides the number of blocks");
    for (size_t i = 0, at = 0; i < block_count; i++, at = (at + stride) % block_count)
        free(blocks[at]);
}

static void *free_in_thread(void *argument)
{
    (void)argument;
    free_in_order();
    return NULL;
}

static void free_by_thread(void) { hk_join(hk_thread(free_in_thread, NULL)); }

static void measure(const char *how, void (*free_all)(void))
{
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        hk_watchdog(55);
        long before = hk_memory_kib("Private_Dirty:");
        free_all();
        long copied = hk_memory_kib("Private_Dirty:") - before;
        hk_say("%s: the child freed %zu MiB in %zu blocks and copied %ld KiB\n", how, total >> 20, block_count, copied);
        HK_CHECK(copied <= bound_kib, "%s: %ld KiB copied", how, copied);
        _exit(0);
    }
    HK_WAIT_OK(child, "%s", how);
}

int main(void)
{
    hk_watchdog(55);
    blocks = hk_test_pages(MAX_BLOCKS * sizeof *blocks);
    uint64_t random = 1;
    for (size_t sum = 0; sum < total && block_count < MAX_BLOCKS;) {
        size_t size = hk_random_size(&random, 12);
        blocks[block_count] = malloc(size);
        HK_CHECK(blocks[block_count] != NULL, "malloc(%zu)", size);
        memset(blocks[block_count], 0x77, size);
        block_count++;
        sum += size;
    }
    measure("in order", free_in_order);
    measure("at random", free_at_random);
    measure("by another thread", free_by_thread);
    return 0;
}
