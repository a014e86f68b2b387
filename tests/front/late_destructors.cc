/*
 * Proves: threads may allocate and free in destructors that run after the allocator's own, and nothing leaks by it.
 *
 * 20,000 threads, eight at a time. Each allocates and frees in C++ thread_local destructors; in pthread-key destructors
 * that set their key again and so run in all four rounds, before and after the allocator's; and lets libc free its own
 * per-thread buffers (strerror, dlerror), which it does after all of that. Some threads allocate for the first time in
 * the last round. Blocks pass from the dead to the living. The resident size stays flat.
 *
 * Dozens of keys are taken before the allocator can have one, so that its pthread_setspecific allocates, too.
 */
#include "check.h"
#include <atomic>
#include <climits>
#include <memory>
#include <string>
#include <vector>

namespace
{

constexpr int kThreads = 20000;
constexpr int kAtOnce = 8;
constexpr int kWarmUp = 1000;
/* Random sizes touch another page now and then for a long time; a leak of one small block a thread would be more. */
constexpr long kMayGrowKib = 4096;

void take_keys(int, char **, char **)
{
    pthread_key_t key;
    for (int i = 0; i < 40; i++)
        pthread_key_create(&key, nullptr);
}
__attribute__((section(".preinit_array"), used)) void (*const preinit)(int, char **, char **) = take_keys;

/* One block a place, left by a thread in its last destructor for whoever comes next. */
struct Legacy {
    void *block;
    size_t size;
};
std::atomic<Legacy *> legacies[16];

void leave_legacy(uint64_t *random)
{
    size_t size = 16 + hk_random_below(random, 2000);
    auto *legacy = static_cast<Legacy *>(malloc(sizeof(Legacy)));
    *legacy = {malloc(size), size};
    hk_fill(legacy->block, size, hk_key(legacy->block, size));
    legacy = legacies[hk_random_below(random, HK_COUNT(legacies))].exchange(legacy);
    if (legacy == nullptr)
        return;
    HK_CHECK_CONTENT(legacy->block, legacy->size, legacy->size, hk_key(legacy->block, legacy->size));
    free(legacy->block);
    free(legacy);
}

void allocate_and_free(uint64_t *random, int blocks)
{
    void *block[64];
    size_t size[64];
    for (int i = 0; i < blocks; i++) {
        size[i] = hk_random_size(random, 11);
        block[i] = malloc(size[i]);
        HK_CHECK(block[i] != nullptr, "malloc(%zu)", size[i]);
        hk_fill(block[i], size[i], hk_key(block[i], size[i]));
    }
    for (int i = blocks - 1; i >= 0; i--) {
        HK_CHECK_CONTENT(block[i], size[i], size[i], hk_key(block[i], size[i]));
        free(block[i]);
    }
}

/* ---- The destructors ---- */

enum class Kind { kBusy, kIdleUntilTheEnd, kFirstCallIsFree };

struct PerThread {
    uint64_t random;
    int rounds;
    Kind kind;
    bool together; /* all threads of a batch are to be at work at once */
};
pthread_barrier_t all_at_work;

pthread_key_t keys[3];
std::atomic<int> last_rounds{0};

/* Keeps setting its key, so that it is called in every round that the C library grants. */
void key_destructor(void *value, pthread_key_t key)
{
    auto *self = static_cast<PerThread *>(value);
    if (key == keys[0])
        self->rounds++;
    if (self->kind != Kind::kBusy && self->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, value);
        return;
    }
    if (self->kind == Kind::kFirstCallIsFree)
        free(nullptr);
    /* What calls for the first time now is a guest for its first 32 calls; its heap, if it got one, would be parked by
     * nobody (docs/threads.md). */
    allocate_and_free(&self->random, self->kind == Kind::kBusy ? 20 : 3);
    if (self->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, value);
        return;
    }
    leave_legacy(&self->random);
    if (key == keys[2])
        last_rounds++;
}

void key_destructor_0(void *value) { key_destructor(value, keys[0]); }
void key_destructor_1(void *value) { key_destructor(value, keys[1]); }
void key_destructor_2(void *value) { key_destructor(value, keys[2]); }

struct ThreadLocal {
    std::vector<std::string> strings;
    std::unique_ptr<uint64_t> random;
    ~ThreadLocal()
    {
        for (int i = 0; i < 20; i++)
            strings.push_back(std::string(static_cast<size_t>(10 * i), 'x'));
        allocate_and_free(random.get(), 30);
    }
};
thread_local ThreadLocal thread_local_object;

void *thread_body(void *argument)
{
    auto *self = static_cast<PerThread *>(argument);
    for (pthread_key_t key : keys)
        pthread_setspecific(key, self);
    if (self->kind == Kind::kBusy)
        allocate_and_free(&self->random, 64);
    if (self->together)
        pthread_barrier_wait(&all_at_work);
    if (self->kind != Kind::kBusy)
        return nullptr;
    thread_local_object.random = std::make_unique<uint64_t>(self->random);
    /* Buffers that libc keeps for the thread and frees when all destructors have run. */
    HK_CHECK(strlen(strerror(98765)) > 0, "strerror");
    HK_CHECK(dlsym(RTLD_DEFAULT, "no_such_symbol_anywhere") == nullptr && dlerror() != nullptr, "dlerror");
    return nullptr;
}

} // namespace

int main()
{
    hk_watchdog(55);
    pthread_key_create(&keys[0], key_destructor_0);
    pthread_key_create(&keys[1], key_destructor_1);
    pthread_key_create(&keys[2], key_destructor_2);

    pthread_barrier_init(&all_at_work, nullptr, kAtOnce);
    static PerThread threads[kAtOnce];
    pthread_t ids[kAtOnce];
    long early = 0;
    for (int done = 0; done < kThreads; done += kAtOnce) {
        if (done == kWarmUp)
            early = hk_rss_kib();
        for (int i = 0; i < kAtOnce; i++) {
            Kind kind = i == 0 ? Kind::kIdleUntilTheEnd : i == 1 ? Kind::kFirstCallIsFree : Kind::kBusy;
            threads[i] = {static_cast<uint64_t>(done + i), 0, kind, done < kWarmUp};
            ids[i] = hk_thread(thread_body, &threads[i]);
        }
        for (pthread_t id : ids)
            hk_join(id);
    }
    long late = hk_rss_kib();
    hk_say("%d threads with late destructors: resident %ld KiB after %d threads, %ld KiB after all\n", kThreads, early,
           kWarmUp, late);
    HK_CHECK(last_rounds == kThreads, "%d of %d threads ran their last destructor", last_rounds.load(), kThreads);
    HK_CHECK(late - early <= kMayGrowKib, "resident size grew by %ld KiB", late - early);
    return 0;
}
