/*
 * Proves the one principle: the allocator never writes into a free block.
 *
 * Blocks of all sizes from 16 bytes to 4 MiB are filled with a pattern and freed in every way there is; then their
 * memory is read back through /proc/self/mem. A page that is still resident must hold the pattern. Pages that were
 * returned to the kernel are left out: they are not resident, or, if returned while we looked, zero from end to end.
 * How much was seen is printed, and must not be nothing; a way of which too little was seen, as the machine is busy and
 * memory goes back before it is read, is gone again.
 *
 * One way (untouched) proves more: blocks that the program never touched are allocated and freed without one of their
 * pages becoming resident.
 *
 * Each way runs in a process of its own. A malloc that links its free blocks through themselves, as glibc's, fails.
 * Usage: never_writes [way]
 */
#include "check.h"
#include <malloc.h>
#include <semaphore.h>

enum { MAX_BLOCKS = 80000, PER_SIZE = 512 << 10, LARGEST = 4 << 20 };
enum { SAW_TOO_LITTLE = 3, TRIES = 8 }; /* the exit code; how often a way is gone */

static void *block[MAX_BLOCKS];
static size_t size[MAX_BLOCKS];
static bool is_free[MAX_BLOCKS];
static size_t count;

/* A key whose pattern covers all bytes. */
static uint64_t dense_key(const void *p) { return hk_key(p, 11) & ~(uint64_t)7; }

static void allocate_size(size_t n)
{
    size_t blocks = PER_SIZE / n;
    blocks = blocks < 4 ? 4 : blocks > 2000 ? 2000 : blocks;
    for (size_t i = 0; i < blocks; i++, count++) {
        HK_CHECK(count < MAX_BLOCKS, "too many blocks");
        block[count] = malloc(n);
        HK_CHECK(block[count] != NULL, "malloc(%zu)", n);
        size[count] = malloc_usable_size(block[count]);
        HK_CHECK(size[count] >= n, "usable size of %zu", n);
        hk_fill(block[count], size[count], dense_key(block[count]));
    }
}

/* Eight sizes a doubling, which meets every size class. */
static void allocate_all(void)
{
    for (size_t base = 16; base < LARGEST; base *= 2)
        for (size_t i = 0; i < 8; i++)
            if (base >= 128 || base * i / 8 % 16 == 0)
                allocate_size(base + base * i / 8);
    allocate_size(LARGEST);
}

/* ---- Reading free memory ---- */

static int memory_fd, pagemap_fd;
static size_t page_size;

static bool is_resident(uintptr_t address)
{
    uint64_t entry = 0;
    return pread(pagemap_fd, &entry, sizeof entry, (off_t)(address / page_size * sizeof entry)) == sizeof entry &&
           entry >> 62 != 0; /* present, or swapped out */
}

/* Whether the memory is gone (unmapped, or its page given back), seen again after a difference was found. */
static bool page_was_returned(uintptr_t address)
{
    static unsigned char page[64 << 10];
    ssize_t n = pread(memory_fd, page, page_size, (off_t)(address / page_size * page_size));
    return n != (ssize_t)page_size || hk_all_zero(page, page_size);
}

/* Checks one free block; returns how many of its bytes were resident and intact. */
static size_t verify_block(const char *when, size_t i)
{
    static unsigned char bytes[64 << 10];
    uintptr_t start = (uintptr_t)block[i], end = start + size[i];
    uint64_t key = dense_key(block[i]);
    size_t seen = 0;
    for (uintptr_t at = start, next; at < end; at = next) {
        next = at / page_size * page_size + page_size;
        if (next > end)
            next = end;
        if (!is_resident(at))
            continue;
        size_t n = next - at;
        if (pread(memory_fd, bytes, n, (off_t)at) != (ssize_t)n)
            continue;
        for (size_t j = 0; j < n; j += 8) {
            uint64_t word = hk_word(key, (at + j - start) / 8);
            size_t length = n - j < 8 ? n - j : 8;
            if (memcmp(bytes + j, &word, length) == 0)
                continue;
            if (page_was_returned(at))
                goto next_page;
            uint64_t found = 0;
            memcpy(&found, bytes + j, length);
            HK_CHECK(false, "%s: free block %p of %zu bytes was written at offset %zu: 0x%llx", when, block[i], size[i],
                     (size_t)(at + j - start), (unsigned long long)found);
        }
        seen += n;
    next_page:;
    }
    return seen;
}

static void verify(const char *when)
{
    size_t seen = 0, freed = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_free[i]) {
            seen += verify_block(when, i);
            freed += size[i];
        } else {
            HK_CHECK_CONTENT(block[i], size[i], size[i], dense_key(block[i]));
        }
    }
    hk_say("%-32s %3zu of %3zu MiB free were resident, and intact\n", when, seen >> 20, freed >> 20);
    if (seen < freed / 50) {
        hk_say("%s: too little was resident to prove anything\n", when);
        _exit(SAW_TOO_LITTLE);
    }
}

/* ---- Ways of freeing ---- */

static void mark_free(size_t i) { is_free[i] = true; }

static void free_from(size_t first, size_t step)
{
    for (size_t i = first; i < count; i += step)
        if (!is_free[i]) {
            free(block[i]);
            mark_free(i);
        }
}

static void own_thread(void)
{
    allocate_all();
    free_from(0, 2);
    verify("own thread, every other block");
    free_from(0, 1);
    verify("own thread, all");
}

static void reverse_order(void)
{
    allocate_all();
    for (size_t i = count; i-- > 0;) {
        free(block[i]);
        mark_free(i);
    }
    verify("own thread, last block first");
}

/* Returned pages are no longer resident; what is left must be intact. Half the blocks stay alive between the others. */
static void trim_and_quiet(void)
{
    allocate_all();
    free_from(0, 2);
    malloc_trim(0);
    verify("own thread, trimmed");
    free_from(1, 4);
    struct timespec pause = {1, 500000000};
    nanosleep(&pause, NULL);
    verify("own thread, after a quiet time");
}

/* Threads are made before anything is freed, since libc allocates for a new thread. */
struct freer {
    pthread_t id;
    sem_t go, done, end;
    size_t first, step;
};

static void *freer_body(void *argument)
{
    struct freer *h = argument;
    sem_wait(&h->go);
    free_from(h->first, h->step);
    sem_post(&h->done);
    sem_wait(&h->end);
    return NULL;
}

static void freer_start(struct freer *h, size_t first, size_t step)
{
    h->first = first;
    h->step = step;
    sem_init(&h->go, 0, 0);
    sem_init(&h->done, 0, 0);
    sem_init(&h->end, 0, 0);
    h->id = hk_thread(freer_body, h);
}

static void other_thread(void)
{
    struct freer h;
    freer_start(&h, 0, 2);
    allocate_all();
    sem_post(&h.go);
    sem_wait(&h.done);
    verify("other thread, every other block");
    free_from(1, 2); /* the owner collects what the other has freed */
    verify("then the owner frees the rest");
    sem_post(&h.end);
    hk_join(h.id);
    verify("then the other thread ends");
}

static void two_others(void)
{
    struct freer h[2];
    freer_start(&h[0], 0, 2);
    freer_start(&h[1], 1, 2);
    allocate_all();
    for (int i = 0; i < 2; i++)
        sem_post(&h[i].go);
    for (int i = 0; i < 2; i++)
        sem_wait(&h[i].done);
    verify("two other threads at once, all");
    for (int i = 0; i < 2; i++) {
        sem_post(&h[i].end);
        hk_join(h[i].id);
    }
    malloc_trim(0);
    /* Everything is free, so a trim may return it all: there is no lower bound to what is seen. */
    for (size_t i = 0; i < count; i++)
        verify_block("all threads ended, trimmed", i);
}

static void *allocating_body(void *argument)
{
    struct freer *h = argument;
    allocate_all();
    free_from(h->first, h->step); /* in the thread's caches when it ends */
    return NULL;
}

static void thread_exit(void)
{
    struct freer h = {.first = 0, .step = 3};
    hk_join(hk_thread(allocating_body, &h));
    verify("thread that owned them has ended");
    free_from(1, 3);
    verify("then others free what it left");
    malloc_trim(0);
    verify("then trimmed");
}

static pthread_key_t key;

static void *late_body(void *argument)
{
    pthread_setspecific(key, argument);
    allocate_all();
    return NULL;
}

static void late_destructor(void *argument)
{
    static _Thread_local bool again;
    if (!again) {
        again = true;
        pthread_setspecific(key, argument);
        return;
    }
    free_from(0, 2);
}

static void in_late_destructor(void)
{
    pthread_key_create(&key, late_destructor);
    hk_join(hk_thread(late_body, &key));
    verify("in a destructor after ours");
}

static void fork_child(void)
{
    allocate_all();
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        hk_watchdog(55);
        memory_fd = open("/proc/self/mem", O_RDONLY); /* of the child */
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY);
        free_from(0, 2);
        verify("child of a fork, every other");
        free_from(0, 1);
        verify("child of a fork, all");
        _exit(0);
    }
    HK_WAIT_OK(child, "child that frees");
    free_from(0, 2);
    verify("the parent afterwards");
}

/* A block that realloc moved away from is free, but only until the next allocation: it is looked at at once. */
static void by_realloc(void)
{
    allocate_all();
    size_t moves = 0, seen = 0;
    for (size_t i = 0; i < count; i += 2) {
        size_t new_size = i % 4 == 0 ? 2 * size[i] + 100 : size[i] / 8 + 1;
        size_t kept = new_size < size[i] ? new_size : size[i];
        void *moved = realloc(block[i], new_size);
        HK_CHECK(moved != NULL, "realloc to %zu", new_size);
        HK_CHECK_CONTENT(moved, kept, size[i], dense_key(block[i]));
        if (moved != block[i]) {
            moves++;
            seen += verify_block("moved away from by realloc", i);
        }
        block[i] = moved;
        size[i] = malloc_usable_size(moved);
        hk_fill(moved, size[i], dense_key(moved));
    }
    hk_say("%-32s %3zu MiB in %zu blocks were resident, and intact\n", "moved away from by realloc", seen >> 20, moves);
    for (size_t i = 1; i < count; i += 2) {
        void *nothing = realloc(block[i], 0);
        HK_CHECK(nothing == NULL, "realloc to 0");
        mark_free(i);
    }
    verify("realloc to 0");
}

static void by_batch(void)
{
    void (*free_batch)(void *const *, size_t);
    *(void **)&free_batch = dlsym(RTLD_DEFAULT, "hak_free_batch");
    if (free_batch == NULL) {
        hk_say("hak_free_batch is not there\n");
        return;
    }
    allocate_all();
    free_batch(block, count / 2);
    for (size_t i = 0; i < count / 2; i++)
        mark_free(i);
    verify("hak_free_batch");
}

static void by_free_sized(void)
{
    void (*free_sized)(void *, size_t);
    *(void **)&free_sized = dlsym(RTLD_DEFAULT, "free_sized");
    if (free_sized == NULL) {
        hk_say("free_sized is not there\n");
        return;
    }
    allocate_all();
    for (size_t i = 0; i < count; i += 2) {
        free_sized(block[i], size[i]);
        mark_free(i);
    }
    verify("free_sized");
}

static void untouched(void)
{
    for (int round = 0; round < 2; round++) {
        count = 0;
        for (size_t n = 3 << 12; n <= LARGEST; n += n / 4)
            for (size_t i = 0; i < 16; i++, count++) {
                block[count] = malloc(n);
                HK_CHECK(block[count] != NULL, "malloc(%zu)", n);
                size[count] = n;
            }
        for (size_t i = 0; i < count; i++)
            free(block[(i * 7919) % count]);
        size_t pages = 0, resident = 0;
        for (size_t i = 0; i < count; i++)
            for (uintptr_t at = (uintptr_t)block[i]; at < (uintptr_t)block[i] + size[i]; at += page_size) {
                pages++;
                resident += is_resident(at);
            }
        hk_say("untouched: %zu of %zu pages became resident\n", resident, pages);
        HK_CHECK(resident <= pages / 500, "%zu pages became resident that the program never touched", resident);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"untouched", untouched},         {"own_thread", own_thread},
    {"reverse_order", reverse_order}, {"trim_and_quiet", trim_and_quiet},
    {"other_thread", other_thread},   {"two_others", two_others},
    {"thread_exit", thread_exit},     {"in_late_destructor", in_late_destructor},
    {"fork_child", fork_child},       {"by_realloc", by_realloc},
    {"by_batch", by_batch},           {"by_free_sized", by_free_sized},
};

/* Goes a way in a process of its own; returns its wait status. */
static int go(char *program, const char *way)
{
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        execl("/proc/self/exe", program, way, (char *)NULL);
        _exit(127);
    }
    return hk_wait(child);
}

int main(int argc, char **argv)
{
    hk_watchdog(55);
    if (argc > 1) {
        page_size = (size_t)sysconf(_SC_PAGESIZE);
        memory_fd = open("/proc/self/mem", O_RDONLY);
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY);
        if (memory_fd < 0 || pagemap_fd < 0)
            hk_skip("/proc/self/mem or /proc/self/pagemap cannot be read");
        for (size_t i = 0; i < HK_COUNT(ways); i++)
            if (strcmp(ways[i].name, argv[1]) == 0)
                ways[i].run();
        return 0;
    }
    int failed = 0;
    for (size_t i = 0; i < HK_COUNT(ways); i++) {
        int status = go(argv[0], ways[i].name);
        for (int tries = 1; tries < TRIES && WIFEXITED(status) && WEXITSTATUS(status) == SAW_TOO_LITTLE; tries++)
            status = go(argv[0], ways[i].name);
        if (WIFEXITED(status) && WEXITSTATUS(status) == HK_EXIT_SKIP)
            continue;
        if (status != 0) {
            hk_say("%s failed: wait status 0x%x\n", ways[i].name, status);
            failed++;
        }
    }
    HK_CHECK(failed == 0, "%d ways of %zu", failed, HK_COUNT(ways));
    return 0;
}
