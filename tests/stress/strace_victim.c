/*
 * What strace_faults.py runs: three threads of survivor.c, and then a look at whether memory can be had again. A call
 * of personality() marks the point from which system calls may fail; it lies before all constructors.
 * Usage: strace_victim [steps]
 */
#include "../front/check.h"
#include "survivor.h"
#include <sys/personality.h>

enum { THREADS = 3, ATTEMPTS = 200 };

/* Takes address space until a new window of the allocator's is near: so near that the threads come there, and so far
 * that it is mostly a block that moves, and not one that is new, which gets there first. */
static void approach_window(void)
{
    const uintptr_t window = (uintptr_t)4 << 30, room = 384 << 20;
    uintptr_t here = (uintptr_t)hk_test_pages(1);
    mmap(NULL, (here - room) % window, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void mark(int argc, char **argv, char **environment)
{
    (void)argc, (void)argv, (void)environment;
    approach_window();
    personality(0xffffffff);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = mark;

static unsigned steps;

static void *thread_body(void *argument)
{
    hk_survive(argument, steps);
    return NULL;
}

int main(int argc, char **argv)
{
    steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 150;
    hk_watchdog(30);
    static struct hk_survivor survivors[THREADS];
    pthread_t ids[THREADS];
    bool started[THREADS];
    unsigned refused = 0;
    for (unsigned i = 0; i < THREADS; i++)
        survivors[i].random = i + 1;
    /* A thread takes a mapping for its stack, and so may be refused, too. */
    for (unsigned i = 1; i < THREADS; i++)
        started[i] = hk_try_thread(&ids[i], thread_body, &survivors[i]) == 0;
    hk_survive(&survivors[0], steps);
    for (unsigned i = 1; i < THREADS; i++)
        if (started[i])
            hk_join(ids[i]);
    for (unsigned i = 0; i < THREADS; i++)
        refused += survivors[i].refused;
    hk_survivor_recover(ATTEMPTS); /* calls may still fail, but not all of them */
    hk_say("%u requests refused\n", refused);
    return 0;
}
