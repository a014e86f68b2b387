/*
 * Proves: when memory runs out, malloc returns NULL with ENOMEM and nothing else happens: what was allocated keeps its
 * content, can be freed, and then as much can be allocated again, in blocks of any size; and most of what the
 * limit allows can be had.
 *   limits as      RLIMIT_AS from 64 MiB up, set in the running process, or before its start
 *   limits tight   RLIMIT_AS from 12 MiB up, in steps that leave now more, now less beside what is reserved ahead: some
 *                  blocks can be had at each; and from 48 MiB up, three threads with stacks of 8 MiB
 *   limits data    RLIMIT_DATA, likewise: address space can be had, but making it writable fails, which is also what
 *                  a commit beyond the limit of overcommit=2 looks like to the allocator
 *   limits commit  vm.overcommit_memory=2 itself. That is a setting of the whole machine: only root can make it, it is
 *                  restored, and nothing else that needs memory should run meanwhile
 * Each limit is met by one thread and by four at once.
 */
#include "check.h"
#include <sys/resource.h>

enum { THREADS = 4, MIB = 1 << 20 };

/* ---- What is allocated ---- */

struct kind {
    const char *name;
    size_t smallest, largest; /* sizes are spread evenly over the doublings between them */
    bool grow;                /* each block is grown by realloc, from a quarter of its size */
    size_t share;             /* one thread can have at least 1/share of the limit */
};
static const struct kind kinds[] = {
    {"small", 64, 64, false, 2},           {"medium", 3000, 3000, false, 2}, {"run", 200000, 200000, false, 2},
    {"large", 3 * MIB, 3 * MIB, false, 2}, {"mixed", 64, 1 * MIB, false, 3}, {"growing", 1000, 2 * MIB, true, 4},
};

static size_t size_of_kind(const struct kind *kind, uint64_t *random)
{
    size_t doublings = 0;
    while ((kind->smallest << (doublings + 1)) <= kind->largest)
        doublings++;
    size_t size = kind->smallest << hk_random_below(random, doublings + 1);
    return size + (doublings != 0 ? hk_random_below(random, size) : 0);
}

/* The head of each block; the rest is filled with a pattern. So the test needs no memory of its own, which a limit
 * would count. */
struct block {
    struct block *next;
    size_t size;
};

struct hoard {
    struct block *blocks;
    size_t bytes;
    const struct kind *kind;
    uint64_t random;
};

static void *allocate(struct hoard *h, size_t size)
{
    if (!h->kind->grow)
        return hk_random_below(&h->random, 2) ? malloc(size) : calloc(1, size);
    size_t quarter = size / 4;
    void *p = malloc(quarter);
    if (p == NULL)
        return NULL;
    uint64_t key = hk_key(p, 9);
    hk_fill(p, quarter, key);
    errno = 0;
    void *grown = realloc(p, size);
    if (grown == NULL) {
        int error = errno;
        HK_CHECK_CONTENT(p, quarter, quarter, key); /* a failed realloc leaves the block alone */
        free(p);
        errno = error;
        return NULL;
    }
    HK_CHECK_CONTENT(grown, quarter, quarter, key);
    return grown;
}

static void fill_up(struct hoard *h)
{
    for (;;) {
        size_t size = size_of_kind(h->kind, &h->random);
        errno = 0;
        struct block *b = allocate(h, size);
        if (b == NULL) {
            HK_CHECK(errno == ENOMEM, "errno when memory has run out");
            return;
        }
        b->next = h->blocks;
        b->size = size;
        hk_fill(b + 1, size - sizeof *b, hk_key(b, size));
        h->blocks = b;
        h->bytes += size;
    }
}

static void give_back(struct hoard *h)
{
    for (struct block *b = h->blocks, *next; b != NULL; b = next) {
        next = b->next;
        size_t rest = b->size - sizeof *b;
        HK_CHECK_CONTENT(b + 1, rest, rest, hk_key(b, b->size));
        free(b);
    }
    h->blocks = NULL;
    h->bytes = 0;
}

static void *fill_in_thread(void *argument)
{
    fill_up(argument);
    return NULL;
}

/* Fills up with `threads` threads, gives back, fills up again. Returns the bytes had the second time. */
static size_t exhaust(const struct kind *kind, size_t threads)
{
    static struct hoard hoards[THREADS];
    size_t bytes[2] = {0, 0};
    for (int round = 0; round < 2; round++) {
        pthread_t ids[THREADS];
        bool started[THREADS];
        for (size_t t = 0; t < threads; t++) {
            hoards[t].kind = kind;
            hoards[t].random = t;
        }
        /* No thread may be had if the others were quick to take everything. */
        for (size_t t = 1; t < threads; t++)
            started[t] = hk_try_thread(&ids[t], fill_in_thread, &hoards[t]) == 0;
        fill_up(&hoards[0]);
        for (size_t t = 1; t < threads; t++)
            if (started[t])
                hk_join(ids[t]);
        for (size_t t = 0; t < threads; t++)
            bytes[round] += hoards[t].bytes;
        for (size_t t = 0; t < threads; t++)
            give_back(&hoards[t]);
    }
    /* Of several threads, each stops at its first failure, and that is a matter of luck. */
    HK_CHECK(bytes[1] >= bytes[0] / (threads > 1 ? 4 : 2),
             "%s: %zu MiB the first time, but %zu MiB when they had been given back", kind->name, bytes[0] / MIB,
             bytes[1] / MIB);
    return bytes[1];
}

/* ---- RLIMIT_AS and RLIMIT_DATA ---- */

/* What the limit counts, now: address space, or the private writable part of it. */
static size_t in_use(int resource)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    HK_CHECK(n > 0, "/proc/self/status");
    text[n] = '\0';
    const char *label = resource == RLIMIT_AS ? "VmSize:" : "VmData:";
    const char *line = strstr(text, label);
    HK_CHECK(line != NULL, "no %s in /proc/self/status", label);
    return strtoul(line + strlen(label), NULL, 10) * 1024;
}

static int run_limited(const char *name, int resource, size_t limit)
{
    hk_watchdog(55);
    struct rlimit r = {limit, limit};
    HK_CHECK(setrlimit(resource, &r) == 0, "setrlimit to %zu", limit);
    size_t used = in_use(resource);
    HK_CHECK(used < limit, "%zu MiB are in use before anything is allocated", used / MIB);
    for (size_t threads = 1; threads <= THREADS; threads += THREADS - 1)
        for (size_t i = 0; i < HK_COUNT(kinds); i++) {
            size_t had = exhaust(&kinds[i], threads);
            hk_say("%s %zu MiB, %zu in use, %zu thread%s, %-7s: had %zu MiB\n", name, limit / MIB, used / MIB, threads,
                   threads > 1 ? "s" : "", kinds[i].name, had / MIB);
            /* Four threads at the limit hold back, each for itself, what the others would need. */
            size_t share = kinds[i].share * (threads > 1 ? 3 : 1);
            HK_CHECK(had >= (limit - used) / share, "%s: only %zu of %zu free MiB could be had", kinds[i].name,
                     had / MIB, (limit - used) / MIB);
        }
    return 0;
}

static void in_child(char *program, const char *name, int resource, size_t limit, bool before_start)
{
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        if (!before_start)
            _exit(run_limited(name, resource, limit));
        char text[32];
        snprintf(text, sizeof text, "%zu", limit);
        struct rlimit r = {limit, limit};
        HK_CHECK(setrlimit(resource, &r) == 0, "setrlimit to %zu", limit);
        execl("/proc/self/exe", program, name, text, (char *)NULL);
        _exit(127);
    }
    HK_WAIT_OK(child, "%s of %zu MiB, set %s the start", name, limit / MIB, before_start ? "before" : "after");
}

/* ---- Little address space ---- */

enum { TIGHT_FIRST = 12 * MIB, TIGHT_LAST = 96 * MIB, TIGHT_STEP = MIB / 4, TIGHT_STACKS = 48 * MIB };

static void *take_a_block(void *unused)
{
    (void)unused;
    void *p = malloc(5000);
    HK_CHECK(p != NULL, "5000 bytes in a thread");
    free(p);
    return NULL;
}

static int run_tight(size_t limit)
{
    void *blocks[64];
    for (size_t i = 0; i < HK_COUNT(blocks); i++)
        HK_CHECK((blocks[i] = malloc(1000)) != NULL, "block %zu of 1000 bytes, with %zu KiB", i, limit / 1024);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 8 * MIB);
    pthread_t threads[3];
    for (size_t i = 0; i < HK_COUNT(threads) && limit >= TIGHT_STACKS; i++) {
        int error = pthread_create(&threads[i], &attributes, take_a_block, NULL);
        HK_CHECK(error == 0, "thread %zu with %zu KiB: %s", i, limit / 1024, strerror(error));
    }
    for (size_t i = 0; i < HK_COUNT(threads) && limit >= TIGHT_STACKS; i++)
        hk_join(threads[i]);
    for (size_t i = 0; i < HK_COUNT(blocks); i++)
        free(blocks[i]);
    return 0;
}

/* ---- Overcommit ---- */

static long kernel_setting(const char *path, const char *new_value)
{
    char text[32] = "";
    int fd = open(path, new_value != NULL ? O_RDWR : O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 ||
        (new_value != NULL && pwrite(fd, new_value, strlen(new_value), 0) < 0))
        hk_skip("%s cannot be %s", path, new_value != NULL ? "set" : "read");
    close(fd);
    return strtol(text, NULL, 10);
}

static size_t meminfo_kib(const char *label)
{
    char text[8192];
    int fd = open("/proc/meminfo", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    HK_CHECK(n > 0, "/proc/meminfo");
    text[n] = '\0';
    const char *line = strstr(text, label);
    HK_CHECK(line != NULL, "no %s in /proc/meminfo", label);
    return strtoul(line + strlen(label), NULL, 10);
}

#define HK_OVERCOMMIT_MEMORY "/proc/sys/vm/overcommit_memory"
#define HK_OVERCOMMIT_KBYTES "/proc/sys/vm/overcommit_kbytes"
#define HK_OVERCOMMIT_RATIO "/proc/sys/vm/overcommit_ratio"

/* The limit is set 256 MiB above what the machine has committed already. */
static int run_overcommit(void)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", meminfo_kib("Committed_AS:") + (256 << 10));
    long ratio = kernel_setting(HK_OVERCOMMIT_RATIO, NULL);
    long kbytes = kernel_setting(HK_OVERCOMMIT_KBYTES, text);
    long mode = kernel_setting(HK_OVERCOMMIT_MEMORY, "2");
    pid_t child = fork();
    if (child == 0) {
        hk_watchdog(50);
        for (size_t threads = 1; threads <= THREADS; threads += THREADS - 1)
            for (size_t i = 0; i < HK_COUNT(kinds); i++)
                hk_say("overcommit=2, %zu threads, %-7s: had %zu MiB\n", threads, kinds[i].name,
                       exhaust(&kinds[i], threads) / MIB);
        _exit(0);
    }
    int status = hk_wait(child);
    snprintf(text, sizeof text, "%ld", mode);
    kernel_setting(HK_OVERCOMMIT_MEMORY, text);
    /* Setting one of these two clears the other. */
    snprintf(text, sizeof text, "%ld", kbytes != 0 ? kbytes : ratio);
    kernel_setting(kbytes != 0 ? HK_OVERCOMMIT_KBYTES : HK_OVERCOMMIT_RATIO, text);
    HK_CHECK(status == 0, "under overcommit=2: wait status %d", status);
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "as";
    if (strcmp(name, "commit") == 0)
        return run_overcommit();
    bool tight = strcmp(name, "tight") == 0;
    int resource = tight || strcmp(name, "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
    if (argc > 2 && tight)
        return run_tight(strtoul(argv[2], NULL, 10));
    if (argc > 2)
        return run_limited(name, resource, strtoul(argv[2], NULL, 10));
    hk_watchdog(55);
    if (tight) {
        for (size_t limit = TIGHT_FIRST; limit <= TIGHT_LAST; limit += TIGHT_STEP)
            in_child(argv[0], name, resource, limit, true);
        return 0;
    }
    in_child(argv[0], name, resource, 64 * MIB, true);
    in_child(argv[0], name, resource, 64 * MIB, false);
    in_child(argv[0], name, resource, 150 * MIB, true);
    return 0;
}
