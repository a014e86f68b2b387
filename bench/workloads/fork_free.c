/*
 * A child after fork frees what it inherited.
 *
 * Stands for servers that fork to save a snapshot, pre-forking servers, language runtimes that fork workers and let
 * them clean up: the child frees blocks that its parent still uses. Freeing need not write to a block, but an allocator
 * that keeps its lists in the free blocks, or its marks beside them, copies each page that it touches.
 *
 * The parent makes BLOCKS blocks of SIZE bytes and forks, FORKS times, one after the other; each child reads each block
 * and frees it. Looked at now and then while it does is what it has of its own.
 *
 * Figure: milliseconds a child takes. copied_kib: the most that a child's private memory grew. Check: every byte of
 * every block, in the children and, after they have ended, in the parent.
 *
 *     fork_free SIZE BLOCKS FORKS
 */
#include "arguments.h"
#include "scene.h"

#include <sys/wait.h>

enum { LOOKS = 20 };

/* What a child finds out, in memory that it shares with the parent. */
struct finding {
    long copied_kib;
    struct stopwatch elapsed; /* without the looks */
    bool complete;
};

static long private_kib(void) { return proc_number("/proc/self/smaps_rollup", "Private_Dirty:"); }

static void free_all(const uint64_t *blocks, size_t count, struct finding *finding)
{
    long before = private_kib();
    for (size_t look = 0; look < LOOKS; look++) {
        struct stopwatch start = stopwatch_start();
        for (size_t i = count * look / LOOKS; i < count * (look + 1) / LOOKS; i++)
            block_check_and_free(blocks[i]);
        struct stopwatch passed = stopwatch_read(start);
        finding->elapsed.wall += passed.wall;
        finding->elapsed.cpu += passed.cpu;
        long copied = private_kib() - before;
        finding->copied_kib = copied > finding->copied_kib ? copied : finding->copied_kib;
    }
    finding->complete = true;
}

static void fork_and_free(const uint64_t *blocks, size_t count, struct finding *finding)
{
    int status;
    finding->complete = false;
    pid_t child = fork();
    if (child < 0)
        fail("cannot fork: %s", strerror(errno));
    if (child == 0) {
        free_all(blocks, count, finding);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0 || !finding->complete)
        fail("the child ended with status %#x", (unsigned)status);
}

int main(int argc, char **argv)
{
    size_t size = argument_between(argc, argv, 1, "SIZE", BLOCK_MIN, BLOCK_MAX);
    size_t count = count_argument(argc, argv, 2, "BLOCKS");
    size_t forks = count_argument(argc, argv, 3, "FORKS");
    uint64_t *blocks = own_table(count, sizeof *blocks);
    struct finding *finding = mmap(NULL, sizeof *finding, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (finding == MAP_FAILED)
        fail("no shared memory");
    for (size_t i = 0; i < count; i++)
        blocks[i] = block_new(size);
    for (size_t i = 0; i < forks; i++)
        fork_and_free(blocks, count, finding);
    for (size_t i = 0; i < count; i++)
        block_check_and_free(blocks[i]);
    report(finding->elapsed.wall / (double)forks * 1e3, "ms", finding->elapsed, "copied_kib=%ld inherited_kib=%zu",
           finding->copied_kib, count * size / 1024);
    return 0;
}
