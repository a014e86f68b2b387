/*
 * Proves: the thread that the allocator makes for itself is there when it is of use, and disturbs nobody.
 *   alone    a program with one thread never has it, nor one whose other threads allocate nothing, but free;
 *   large    it is there as well if both threads allocate nothing but large blocks;
 *   begins   it is there, by name, when a second thread's first allocation returns; all its signals are blocked; it is
 *            the same for good, however many threads come and go; errno is kept;
 *   vforks   it is made by the process that it works for, not by the child of a vfork that allocates first;
 *   inherits nothing of the processors, and of the real-time policy, that the thread has whose call makes it;
 *   rests    when nothing is to be done it does not run at all, and it comes back when there is;
 *   leaves   it keeps no process alive: that ends when the last thread of the program does, whether the allocator's is
 *            at work or at rest; and exit handlers, which may then run on it, find all that a thread may rely on;
 *   forks    a fork's child has none until it has threads itself, and allocates and frees all the same;
 *   storm    children forked while other threads have pages given back find all blocks as they were.
 * Each is a process of its own. Usage: maintenance [scene]
 */
#include "tasks.h"
#include <malloc.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        ;
}

/* ---- Threads that do as they are told ---- */

struct helper {
    pthread_t thread;
    sem_t go, done;
    size_t allocate; /* so many blocks, when it is told to go; 0: end */
    int errno_after;
};

static void allocate_and_free(size_t n)
{
    enum { AT_ONCE = 500 };
    static _Thread_local void *blocks[AT_ONCE];
    static _Thread_local uint64_t random;
    for (size_t done = 0; done < n;) {
        size_t batch = n - done < AT_ONCE ? n - done : AT_ONCE;
        for (size_t i = 0; i < batch; i++) {
            size_t size = hk_random_size(&random, 12);
            blocks[i] = malloc(size);
            HK_CHECK(blocks[i] != NULL, "malloc(%zu)", size);
            hk_fill(blocks[i], size, hk_key(blocks[i], size));
        }
        for (size_t i = 0; i < batch; i++)
            free(blocks[i]);
        done += batch;
    }
}

static void *helper_body(void *argument)
{
    struct helper *h = argument;
    for (;;) {
        wait_for(&h->go);
        if (h->allocate == 0)
            return NULL;
        errno = 77;
        allocate_and_free(h->allocate);
        h->errno_after = errno;
        sem_post(&h->done);
    }
}

static void helper_start(struct helper *h)
{
    sem_init(&h->go, 0, 0);
    sem_init(&h->done, 0, 0);
    h->thread = hk_thread(helper_body, h);
}

static void helper_allocates(struct helper *h, size_t n)
{
    h->allocate = n;
    sem_post(&h->go);
    wait_for(&h->done);
}

static void helper_end(struct helper *h)
{
    h->allocate = 0;
    sem_post(&h->go);
    hk_join(h->thread);
}

/* ---- Scenes ---- */

static void *frees(void *argument)
{
    void **blocks = argument;
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    HK_CHECK(hk_tasks().n == 2, "%zu threads while one frees", hk_tasks().n);
    return NULL;
}

static void run_alone(void)
{
    allocate_and_free(20000);
    HK_CHECK(hk_tasks().n == 1, "%zu threads in a program that made none", hk_tasks().n);
    static struct helper idle;
    helper_start(&idle);
    allocate_and_free(20000);
    HK_CHECK(hk_tasks().n == 2, "%zu threads beside one that allocates nothing", hk_tasks().n - 1);
    helper_end(&idle);
    void *blocks[100];
    for (size_t i = 0; i < HK_COUNT(blocks); i++)
        blocks[i] = malloc(10 * i);
    hk_join(hk_thread(frees, blocks));
    allocate_and_free(20000);
    HK_CHECK(hk_own_task() == 0, "the allocator has a thread");
}

static void *allocates_and_ends(void *argument)
{
    (void)argument;
    allocate_and_free(20);
    return NULL;
}

/* The child runs in this process's memory, as this thread. */
static void *allocates_in_a_child_first(void *argument)
{
    volatile size_t size = 100;
    (void)argument;
    pid_t child = vfork();
    if (child == 0) {
        void *p = malloc(size);
        free(p);
        _exit(p == NULL);
    }
    HK_WAIT_OK(child, "child that allocates");
    HK_CHECK(hk_own_task() == 0, "the allocator has a thread before this one has allocated");
    allocate_and_free(20);
    hk_own_task_begun();
    return NULL;
}

static void run_vforks(void)
{
    allocate_and_free(20000);
    hk_join(hk_thread(allocates_in_a_child_first, NULL));
}

static void *allocates_apart(void *argument)
{
    cpu_set_t *one = argument;
    const struct sched_param first = {.sched_priority = 1};
    HK_CHECK(sched_setaffinity(0, sizeof *one, one) == 0, "sched_setaffinity");
    bool real_time = sched_setscheduler(0, SCHED_FIFO, &first) == 0; /* not everybody may */
    allocate_and_free(20);
    pid_t own = hk_own_task_begun();
    cpu_set_t of_own;
    for (double start = hk_now();; usleep(1000)) {
        HK_CHECK(sched_getaffinity(own, sizeof of_own, &of_own) == 0, "sched_getaffinity");
        int policy = sched_getscheduler(own);
        if (CPU_COUNT(&of_own) > 1 && (!real_time || policy == SCHED_OTHER))
            return NULL;
        HK_CHECK(hk_now() - start < 10, "it may use %d processors, by policy %d", CPU_COUNT(&of_own), policy);
    }
}

static void run_inherits(void)
{
    cpu_set_t all, one;
    HK_CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    if (CPU_COUNT(&all) < 2) {
        hk_say("inherits: nothing can be seen with one processor\n");
        return;
    }
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    allocate_and_free(20000);
    hk_join(hk_thread(allocates_apart, &one));
}

static void *allocates_large(void *argument)
{
    errno = 77;
    void *p = malloc((size_t)4 << 20);
    HK_CHECK(p != NULL && errno == 77, "malloc of 4 MiB; errno became %d", errno);
    HK_CHECK((hk_own_task() != 0) == (argument != NULL), "the allocator has thread %d", hk_own_task());
    free(p);
    return NULL;
}

static void run_large(void)
{
    allocates_large(NULL);
    hk_join(hk_thread(allocates_large, &(char){0}));
}

static void run_begins(void)
{
    allocate_and_free(10);
    static struct helper h;
    helper_start(&h);
    HK_CHECK(hk_own_task() == 0, "the allocator has a thread before there is another that allocates");
    helper_allocates(&h, 1);
    HK_CHECK(h.errno_after == 77, "errno became %d", h.errno_after);
    HK_CHECK(hk_tasks().n == 3, "%zu threads", hk_tasks().n);
    int task = hk_own_task_begun();

    /* All but those that cannot be blocked: SIGKILL, SIGSTOP, and the C library's two. */
    const uint64_t never = 1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1) | 1ull << 31 | 1ull << 32;
    uint64_t blocked = hk_task_status(task, "\nSigBlk:", 16);
    HK_CHECK((blocked | never) == UINT64_MAX, "signals are blocked: %llx", (unsigned long long)blocked);
    HK_CHECK((hk_task_status((int)getpid(), "\nSigBlk:", 16) & ~never) == 0, "and of the program's threads none");

    for (int round = 0; round < 100; round++) {
        pthread_t threads[3];
        for (size_t i = 0; i < HK_COUNT(threads); i++)
            threads[i] = hk_thread(allocates_and_ends, NULL);
        for (size_t i = 0; i < HK_COUNT(threads); i++)
            hk_join(threads[i]);
    }
    HK_CHECK(hk_own_task() == task, "thread %d is now %d", task, hk_own_task());
    helper_end(&h);
    allocate_and_free(20000);
    HK_CHECK(hk_own_task() == task, "it ended with the program's last other thread");
}

static uint64_t switches_of(int task) { return hk_task_status(task, "\nvoluntary_ctxt_switches:", 10); }

enum { PATIENCE_S = 25 };

/* Until it has not run for longer than its passes are apart. */
static void wait_until_it_rests(int task)
{
    double start = hk_now(), since = start;
    uint64_t seen = switches_of(task);
    while (hk_now() - since < 1.5) {
        uint64_t now = switches_of(task);
        if (now != seen)
            since = hk_now();
        seen = now;
        HK_CHECK(hk_now() - start < PATIENCE_S, "it still runs after %d s in which nobody allocated", PATIENCE_S);
        usleep(50000);
    }
}

static void run_rests(void)
{
    allocate_and_free(10);
    static struct helper h;
    helper_start(&h);
    helper_allocates(&h, 10000);
    int task = hk_own_task_begun();
    for (int round = 0; round < 2; round++) {
        wait_until_it_rests(task);
        uint64_t before = switches_of(task);
        double start = hk_now();
        while (switches_of(task) - before < 3) {
            helper_allocates(&h, 10000);
            HK_CHECK(hk_now() - start < PATIENCE_S, "it does not wake");
            usleep(10000);
        }
    }
    HK_CHECK(hk_own_task() == task, "thread %d is now %d", task, hk_own_task());
    helper_end(&h);
}

enum { LEFT = 42 }; /* the status of a process whose exit handler ran and found nothing wrong */

static void at_exit(void)
{
    volatile char frame[200 << 10];
    for (size_t i = 0; i < sizeof frame; i += 1024)
        frame[i] = 1;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    HK_CHECK(!sigismember(&blocked, SIGTERM) && !sigismember(&blocked, SIGSEGV), "a handler runs with signals blocked");
    allocate_and_free(1000);
    _exit(LEFT);
}

static void run_leaves(bool at_rest, bool last)
{
    atexit(at_exit);
    allocate_and_free(10);
    static struct helper h;
    helper_start(&h);
    helper_allocates(&h, 1000);
    hk_own_task_begun();
    if (at_rest)
        wait_until_it_rests(hk_own_task_begun());
    if (last) {
        helper_end(&h);
    } else {
        pthread_detach(h.thread);
        h.allocate = 0;
        sem_post(&h.go);
    }
    pthread_exit(NULL);
}

/* ---- Fork ---- */

enum { KEPT = 3000 };
static struct {
    void *p;
    size_t size;
} kept[KEPT];

static void make_kept(size_t from, size_t to)
{
    uint64_t random = from;
    for (size_t i = from; i < to; i++) {
        kept[i].size = hk_random_size(&random, 13);
        kept[i].p = malloc(kept[i].size);
        HK_CHECK(kept[i].p != NULL, "malloc(%zu)", kept[i].size);
        hk_fill(kept[i].p, kept[i].size, hk_key(kept[i].p, 2));
    }
}

static void check_kept(void)
{
    for (size_t i = 0; i < KEPT; i++)
        HK_CHECK_CONTENT(kept[i].p, kept[i].size, kept[i].size, hk_key(kept[i].p, 2));
}

static void free_kept(void)
{
    for (size_t i = 0; i < KEPT; i++)
        free(kept[i].p);
}

static void *makes_half(void *argument)
{
    (void)argument;
    make_kept(KEPT / 2, KEPT);
    return NULL;
}

/* A child of a process that has the thread. */
static void child(bool with_threads)
{
    hk_watchdog(25);
    HK_CHECK(hk_tasks().n == 1, "a child begins with %zu threads", hk_tasks().n);
    check_kept();
    allocate_and_free(2000);
    HK_CHECK(hk_tasks().n == 1, "a child without threads has %zu", hk_tasks().n);
    if (with_threads) {
        static struct helper h;
        helper_start(&h);
        helper_allocates(&h, 2000);
        hk_own_task_begun();
        HK_CHECK(hk_tasks().n == 3, "a child with two threads has %zu", hk_tasks().n);
        check_kept();
        helper_end(&h);
    }
    malloc_trim(0);
    check_kept();
    free_kept();
    allocate_and_free(2000);
}

static void run_forks(void)
{
    allocate_and_free(10);
    make_kept(0, KEPT / 2);
    hk_join(hk_thread(makes_half, NULL));
    int task = hk_own_task_begun();
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        HK_CHECK(pid >= 0, "fork");
        if (pid == 0) {
            child(i % 2 == 0);
            if (i % 3 == 0)
                exit(0);
            if (i % 3 == 1)
                pthread_exit(NULL);
            _exit(0);
        }
        HK_WAIT_OK(pid, "child %d", i);
    }
    HK_CHECK(hk_own_task() == task, "the parent's thread %d is now %d", task, hk_own_task());
    check_kept();
    free_kept();
}

static _Atomic bool stop;

/* Has everything given back that can be, all the time. */
static void *trims(void *argument)
{
    (void)argument;
    while (!stop)
        malloc_trim(0);
    return NULL;
}

/* Makes holes: pages of blocks that go but for a few, which are checked later. */
static void *makes_holes(void *argument)
{
    enum { ROUNDS = 8, BLOCKS = 600, EACH = 40 };
    static void *blocks[4][ROUNDS][BLOCKS];
    size_t self = (size_t)(uintptr_t)argument;
    const size_t sizes[ROUNDS] = {16, 48, 100, 250, 512, 1000, 4000, 20000};
    for (unsigned turn = 0; !stop; turn++) {
        unsigned round = turn % ROUNDS;
        size_t size = sizes[round];
        void **mine = blocks[self][round];
        for (size_t i = 0; i < BLOCKS; i++)
            if (mine[i] != NULL && i % EACH == 0) { /* a survivor of its last turn */
                HK_CHECK_CONTENT(mine[i], size, size, hk_key(mine[i], 3));
                free(mine[i]);
            }
        for (size_t i = 0; i < BLOCKS; i++) {
            mine[i] = malloc(size);
            HK_CHECK(mine[i] != NULL, "malloc(%zu)", size);
            hk_fill(mine[i], size, hk_key(mine[i], 3));
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            HK_CHECK_CONTENT(mine[i], size, size, hk_key(mine[i], 3));
            if (i % EACH != 0)
                free(mine[i]);
        }
    }
    return NULL;
}

static void *forks_often(void *argument)
{
    unsigned n = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < n; i++) {
        pid_t pid = fork();
        HK_CHECK(pid >= 0, "fork %u", i);
        if (pid == 0) {
            child(i % 8 == 0);
            _exit(0);
        }
        HK_WAIT_OK(pid, "fork %u", i);
        check_kept();
    }
    return NULL;
}

static void run_storm(void)
{
    enum { MAKERS = 3, FORKS = 60 };
    make_kept(0, KEPT / 2);
    hk_join(hk_thread(makes_half, NULL));
    pthread_t threads[MAKERS + 2];
    for (size_t i = 0; i < MAKERS; i++)
        threads[i] = hk_thread(makes_holes, (void *)i);
    threads[MAKERS] = hk_thread(trims, NULL);
    threads[MAKERS + 1] = hk_thread(forks_often, (void *)(uintptr_t)FORKS);
    forks_often((void *)(uintptr_t)FORKS);
    hk_join(threads[MAKERS + 1]);
    stop = true;
    for (size_t i = 0; i < MAKERS + 1; i++)
        hk_join(threads[i]);
    check_kept();
    free_kept();
}

/* ---- */

static void run(const char *scene)
{
    hk_watchdog(55);
    if (strcmp(scene, "alone") == 0)
        run_alone();
    else if (strcmp(scene, "large") == 0)
        run_large();
    else if (strcmp(scene, "begins") == 0)
        run_begins();
    else if (strcmp(scene, "vforks") == 0)
        run_vforks();
    else if (strcmp(scene, "inherits") == 0)
        run_inherits();
    else if (strcmp(scene, "rests") == 0)
        run_rests();
    else if (strcmp(scene, "leaves") == 0)
        run_leaves(false, false);
    else if (strcmp(scene, "leaves_last") == 0)
        run_leaves(false, true);
    else if (strcmp(scene, "leaves_at_rest") == 0)
        run_leaves(true, true);
    else if (strcmp(scene, "forks") == 0)
        run_forks();
    else if (strcmp(scene, "storm") == 0)
        run_storm();
    else
        HK_CHECK(false, "no scene is called %s", scene);
}

int main(int argc, char **argv)
{
    static const char *const scenes[] = {"alone", "large", "begins",      "vforks",         "inherits", "leaves",
                                         "rests", "forks", "leaves_last", "leaves_at_rest", "storm"};
    if (argc > 1) {
        run(argv[1]);
        return 0;
    }
    pid_t children[HK_COUNT(scenes)];
    double start = hk_now();
    for (size_t i = 0; i < HK_COUNT(scenes); i++) { /* all at once: most of them wait */
        children[i] = fork();
        HK_CHECK(children[i] >= 0, "fork");
        if (children[i] == 0) {
            execl("/proc/self/exe", argv[0], scenes[i], (char *)NULL);
            _exit(127);
        }
    }
    for (size_t i = 0; i < HK_COUNT(scenes); i++) {
        if (strncmp(scenes[i], "leaves", 6) == 0) {
            int status = hk_wait(children[i]);
            HK_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == LEFT, "scene %s: wait status %d", scenes[i], status);
        } else {
            HK_WAIT_OK(children[i], "scene %s", scenes[i]);
        }
        hk_say("%s: %.1f s\n", scenes[i], hk_now() - start);
    }
    return 0;
}
