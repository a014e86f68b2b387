/* A batch that memory is too short for: what was to be had is handed out, and the rest is said to be missing. */
#include "check.h"

#include <hakmem/hakmem.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 100000 };
static void *blocks[BLOCKS];

static void limit_to(size_t more)
{
    size_t pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    REQUIRE(statm != NULL && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + more;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void partial_batch(size_t n, size_t least)
{
    errno = 0;
    size_t got = hak_malloc_batch(n, BLOCKS, blocks);
    CHECK_MSG(errno == ENOMEM, "errno %d", errno);
    CHECK_MSG(got < BLOCKS && got * n >= least, "%zu blocks of %zu bytes", got, n);
    for (size_t i = 0; i < got; i++) {
        REQUIRE(blocks[i] != NULL);
        CHECK(hak_usable_size(blocks[i]) >= n);
        *(size_t *)blocks[i] = i;
        ((char *)blocks[i])[n - 1] = 1;
    }
    for (size_t i = got; i < BLOCKS; i++)
        CHECK_MSG(blocks[i] == NULL, "block %zu was not promised", i);
    for (size_t i = 0; i < got; i++)
        CHECK_MSG(*(size_t *)blocks[i] == i, "block %zu of %zu is also another", i, got);
    /* A failed batch leaves a heap that works; so does freeing it. */
    hak_free_batch(blocks, BLOCKS);
    memset(blocks, 0, sizeof blocks);
    void *p = hak_malloc(n);
    CHECK(p != NULL);
    hak_free(p);
}

int main(void)
{
    limit_to(64 * MIB);
    for (int round = 0; round < 3; round++) {
        partial_batch(8 * MIB, 16 * MIB);
        partial_batch(1 * MIB, 16 * MIB);
        partial_batch(64 * 1024, 32 * MIB);
        partial_batch(5000, 32 * MIB);
        partial_batch(1000, 32 * MIB);
    }
    /* One at a time, with the same limit. */
    size_t count = 0;
    while (count < BLOCKS && (blocks[count] = hak_malloc(100 * 1024)) != NULL)
        count++;
    CHECK_MSG(errno == ENOMEM && count < BLOCKS && count > 300, "%zu blocks", count);
    CHECK(hak_realloc(blocks[0], 60 * MIB) == NULL && errno == ENOMEM);
    CHECK(hak_realloc_zero(blocks[0], 10, 60 * MIB) == NULL && errno == ENOMEM);
    errno = EILSEQ;
    CHECK(!hak_expand(blocks[0], 60 * MIB) && errno == EILSEQ);
    hak_free_batch(blocks, count);
    return check_result();
}
