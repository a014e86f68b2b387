/*
 * A self-check of an allocator that tools/peers built, run under its preload: that the whole family of malloc and of
 * operator new comes from that one file, and that it works where threads hand blocks to each other.
 *
 *     peers-check LIBRARY
 *
 * Ends with 1 and what is wrong. What malloc_stats() says goes to stderr; some allocators name their mode there.
 */
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace
{
constexpr int kThreads = 4;
constexpr int kRounds = 20000;    // blocks that each thread allocates
constexpr size_t kInFlight = 500; // blocks that wait for the thread that frees them

struct Block {
    unsigned char *data;
    size_t size;
    unsigned char fill;
    bool from_new;
};

/* What one thread hands to the next one. */
struct Queue {
    std::mutex mutex;
    std::vector<Block> blocks;
};

Queue queues[kThreads];
std::atomic<const char *> wrong{nullptr};

void expect(bool holds, const char *otherwise)
{
    if (!holds) {
        wrong = otherwise;
    }
}

bool filled_with(const Block &block, unsigned char value)
{
    for (size_t i = 0; i < block.size; i++) {
        if (block.data[i] != value) {
            return false;
        }
    }
    return true;
}

bool is_aligned(const void *data, size_t alignment) { return reinterpret_cast<uintptr_t>(data) % alignment == 0; }

uint32_t random_next(uint32_t &state)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

Block allocate(uint32_t &state)
{
    // Mostly small, some of 64 KiB, few of up to 1 MiB.
    const uint32_t kind = random_next(state) % 1000;
    const size_t limit = kind < 950 ? 1024 : kind < 998 ? 65536 : 1048576;
    const size_t size = 1 + random_next(state) % limit;
    const size_t alignment = size_t{16} << random_next(state) % 9;
    void *data = nullptr;
    bool from_new = false;
    switch (random_next(state) % 6) {
    case 0: data = malloc(size); break;
    case 1:
        data = calloc(1, size);
        expect(data && filled_with({static_cast<unsigned char *>(data), size, 0, false}, 0), "calloc: not zeroed");
        break;
    case 2: {
        const size_t before = size / 2 + 1;
        data = malloc(before);
        if (data) {
            memset(data, 0x5a, before);
        }
        data = realloc(data, size);
        const Block kept = {static_cast<unsigned char *>(data), before < size ? before : size, 0x5a, false};
        expect(data && filled_with(kept, kept.fill), "realloc: lost what was in the block");
        break;
    }
    case 3:
        data = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        expect(is_aligned(data, alignment), "aligned_alloc: not aligned");
        break;
    case 4:
        expect(posix_memalign(&data, alignment, size) == 0, "posix_memalign: failed");
        expect(is_aligned(data, alignment), "posix_memalign: not aligned");
        break;
    case 5:
        data = operator new(size);
        from_new = true;
        break;
    }
    if (!data) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    expect(malloc_usable_size(data) >= size, "malloc_usable_size: less than was asked for");
    const Block block = {static_cast<unsigned char *>(data), size, static_cast<unsigned char>(random_next(state)),
                         from_new};
    memset(block.data, block.fill, block.size);
    return block;
}

void release(const Block &block)
{
    expect(filled_with(block, block.fill), "a block changed while nobody wrote to it");
    if (block.from_new) {
        operator delete(block.data);
    } else {
        free(block.data);
    }
}

/* Allocates, hands what it allocated to the next thread, and frees what the one before handed over. */
void work(int self)
{
    uint32_t state = 0x9e3779b9u * static_cast<uint32_t>(self + 1);
    Queue &outgoing = queues[(self + 1) % kThreads];
    Queue &incoming = queues[self];
    for (int round = 0; round < kRounds && !wrong; round++) {
        const Block fresh = allocate(state);
        {
            const std::lock_guard<std::mutex> guard(outgoing.mutex);
            outgoing.blocks.push_back(fresh);
        }
        std::vector<Block> due;
        {
            const std::lock_guard<std::mutex> guard(incoming.mutex);
            if (incoming.blocks.size() > kInFlight) {
                due.swap(incoming.blocks);
            }
        }
        for (const Block &block : due) {
            release(block);
        }
    }
}

/* Whether each entry point that a program may call is found in the library. */
bool all_from(const char *library)
{
    static const char *const kNames[] = {"malloc",
                                         "free",
                                         "calloc",
                                         "realloc",
                                         "posix_memalign",
                                         "memalign",
                                         "valloc",
                                         "aligned_alloc",
                                         "malloc_usable_size",
                                         "_Znwm",
                                         "_Znam",
                                         "_ZdlPv",
                                         "_ZdaPv",
                                         "_ZdlPvm",
                                         "_ZnwmSt11align_val_t",
                                         "_ZdlPvSt11align_val_t",
                                         "_ZnwmRKSt9nothrow_t"};
    bool all = true;
    for (const char *name : kNames) {
        void *entry = dlsym(RTLD_DEFAULT, name);
        Dl_info info;
        char path[PATH_MAX] = "nowhere";
        if (entry && dladdr(entry, &info) && !realpath(info.dli_fname, path)) {
            snprintf(path, sizeof path, "%s", info.dli_fname);
        }
        if (strcmp(path, library) != 0) {
            fprintf(stderr, "%s comes from %s\n", name, path);
            all = false;
        }
    }
    return all;
}
} // namespace

int main(int argc, char **argv)
{
    char library[PATH_MAX];
    if (argc != 2 || !realpath(argv[1], library)) {
        fprintf(stderr, "usage: peers-check LIBRARY, a file that exists\n");
        return 2;
    }
    if (!all_from(library)) {
        return 1;
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
        threads.emplace_back(work, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const Queue &queue : queues) {
        for (const Block &block : queue.blocks) {
            release(block);
        }
    }
    if (wrong) {
        fprintf(stderr, "%s\n", wrong.load());
        return 1;
    }
    malloc_stats();
    return 0;
}
