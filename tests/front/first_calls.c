/*
 * Proves: any function of malloc's family may be the first that a process or a thread calls, at any time of its life:
 * before all constructors (.preinit_array), in a constructor, in main, in a new thread, in a thread's last destructor,
 * in an atexit handler, in the last destructor of the process. Afterwards malloc works as ever.
 *
 * The program starts itself once for every pair of a call and a time; the pair is handed over in the environment,
 * since a function in .preinit_array sees no command line options that would not disturb main.
 */
#include "check.h"
#include <malloc.h>
#include <spawn.h>

extern char **environ;

/* ---- The calls ---- */

static void works_afterwards(void)
{
    for (size_t size = 1; size < 3u << 20; size = size * 3 + 1) {
        char *p = malloc(size);
        HK_CHECK(p != NULL, "malloc(%zu)", size);
        memset(p, 0x5a, size);
        p = realloc(p, 2 * size);
        HK_CHECK(p != NULL && p[0] == 0x5a && p[size - 1] == 0x5a, "realloc to %zu", 2 * size);
        free(p);
        p = calloc(1, size);
        HK_CHECK(p != NULL && hk_all_zero(p, size), "calloc of %zu", size);
        free(p);
    }
}

static void *block_of_main; /* allocated by the main thread, for the threads whose first call gets it */

static void check_block(void *p, size_t alignment, size_t size)
{
    HK_CHECK(p != NULL && (uintptr_t)p % alignment == 0, "%zu bytes at a multiple of %zu", size, alignment);
    HK_CHECK(malloc_usable_size(p) >= size, "usable size of %zu", size);
    memset(p, 0xa5, size);
    free(p);
}

static void call_free_null(void) { free(NULL); }
static void call_malloc(void) { check_block(malloc(100), 16, 100); }
static void call_malloc_zero(void) { check_block(malloc(0), 16, 0); }
static void call_malloc_large(void) { check_block(malloc(5u << 20), 16, 5u << 20); }
static void call_malloc_huge(void)
{
    errno = 0;
    volatile size_t too_much = SIZE_MAX - 4096;
    HK_CHECK(malloc(too_much) == NULL && errno == ENOMEM, "malloc(SIZE_MAX - 4096)");
}
static void call_calloc(void)
{
    unsigned char *p = calloc(10, 100);
    HK_CHECK(p != NULL && hk_all_zero(p, 1000), "calloc(10, 100)");
    free(p);
}
static void call_realloc_null(void) { check_block(realloc(NULL, 300), 16, 300); }
static void call_realloc_null_zero(void) { free(realloc(NULL, 0)); }
static void call_reallocarray(void) { check_block(reallocarray(NULL, 30, 10), 16, 300); }
static void call_memalign(void) { check_block(memalign(4096, 200), 4096, 200); }
static void call_aligned_alloc(void) { check_block(aligned_alloc(64, 640), 64, 640); }
static void call_posix_memalign(void)
{
    void *p = NULL;
    HK_CHECK(posix_memalign(&p, 1u << 20, 100) == 0, "posix_memalign to 1 MiB");
    check_block(p, 1u << 20, 100);
}
static void call_valloc(void) { check_block(valloc(100), (size_t)sysconf(_SC_PAGESIZE), 100); }
static void call_usable_size_null(void) { HK_CHECK(malloc_usable_size(NULL) == 0, "malloc_usable_size(NULL)"); }
static void call_malloc_trim(void) { malloc_trim(0); }
static void call_mallinfo2(void) { (void)mallinfo2(); }

/* The block is one of the main thread's if there is a thread, else the call is as good as malloc then free. */
static void call_free_block(void)
{
    free(block_of_main != NULL ? block_of_main : malloc(48));
    block_of_main = NULL;
}
static void call_realloc_block(void)
{
    void *p = realloc(block_of_main != NULL ? block_of_main : malloc(48), 100000);
    block_of_main = NULL;
    check_block(p, 16, 100000);
}

static const struct call {
    const char *name;
    void (*run)(void);
} calls[] = {
    {"free_null", call_free_null},
    {"malloc", call_malloc},
    {"malloc_zero", call_malloc_zero},
    {"malloc_large", call_malloc_large},
    {"malloc_huge", call_malloc_huge},
    {"calloc", call_calloc},
    {"realloc_null", call_realloc_null},
    {"realloc_null_zero", call_realloc_null_zero},
    {"reallocarray", call_reallocarray},
    {"memalign", call_memalign},
    {"aligned_alloc", call_aligned_alloc},
    {"posix_memalign", call_posix_memalign},
    {"valloc", call_valloc},
    {"usable_size_null", call_usable_size_null},
    {"malloc_trim", call_malloc_trim},
    {"mallinfo2", call_mallinfo2},
    {"free_block", call_free_block},
    {"realloc_block", call_realloc_block},
};

/* ---- The times ---- */

static const char *const times[] = {"preinit", "constructor", "main",       "thread",
                                    "key",     "atexit",      "destructor", "exit_in_thread"};

static const char *selected_time;
static const struct call *selected_call;

#define HK_CALLED_FD 3 /* a pipe to the parent, which sees whether the call was made at all */

static void at(const char *time)
{
    if (selected_time == NULL || strcmp(time, selected_time) != 0)
        return;
    selected_call->run();
    works_afterwards();
    HK_CHECK(write(HK_CALLED_FD, "x", 1) == 1, "report to the parent");
}

static void select_from(char **environment)
{
    static const char name[] = "HK_FIRST_CALL=";
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, sizeof name - 1) != 0)
            continue;
        selected_time = *environment + sizeof name - 1;
        char *slash = strchr(selected_time, '/');
        *slash = '\0';
        for (size_t i = 0; i < HK_COUNT(calls); i++)
            if (strcmp(calls[i].name, slash + 1) == 0)
                selected_call = &calls[i];
    }
}

static void before_constructors(int argc, char **argv, char **environment)
{
    (void)argc, (void)argv;
    select_from(environment);
    at("preinit");
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **,
                                                                              char **) = before_constructors;

__attribute__((constructor(101))) static void first_constructor(void) { at("constructor"); }
__attribute__((destructor(101))) static void last_destructor(void) { at("destructor"); }
static void at_exit(void) { at("atexit"); }

static void key_destructor(void *value)
{
    (void)value;
    at("key");
}

static void *thread_body(void *key)
{
    if (key != NULL)
        pthread_setspecific(*(pthread_key_t *)key, key);
    at("thread");
    if (strcmp(selected_time, "exit_in_thread") == 0) {
        at("exit_in_thread");
        exit(0);
    }
    return NULL;
}

static bool selected(const char *time) { return strcmp(selected_time, time) == 0; }

static int run_selected(void)
{
    at("main");
    if (selected("atexit"))
        atexit(at_exit);
    if (selected("thread") || selected("key") || selected("exit_in_thread")) {
        static pthread_key_t key;
        block_of_main = malloc(48);
        pthread_key_create(&key, key_destructor);
        hk_join(hk_thread(thread_body, selected("key") ? &key : NULL));
    }
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    if (selected_time != NULL)
        return run_selected();

    hk_watchdog(55);
    /* The environment of the children: ours, plus the pair. */
    static char pair[100];
    static char *environment[1000];
    size_t n = 0;
    for (; environ[n] != NULL && n < HK_COUNT(environment) - 2; n++)
        environment[n] = environ[n];
    environment[n] = pair;

    char *arguments[] = {argv[0], NULL};
    int made = 0;
    for (size_t t = 0; t < HK_COUNT(times); t++)
        for (size_t c = 0; c < HK_COUNT(calls); c++) {
            snprintf(pair, sizeof pair, "HK_FIRST_CALL=%s/%s", times[t], calls[c].name);
            int ends[2];
            HK_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe");
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            posix_spawn_file_actions_adddup2(&actions, ends[1], HK_CALLED_FD);
            pid_t child;
            int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environment);
            HK_CHECK(error == 0, "posix_spawn: %d", error);
            posix_spawn_file_actions_destroy(&actions);
            close(ends[1]);
            HK_WAIT_OK(child, "first call %s", pair);
            char byte;
            HK_CHECK(read(ends[0], &byte, 1) == 1, "first call %s was never made", pair);
            close(ends[0]);
            made++;
        }
    hk_say("%d first calls\n", made);
    return 0;
}
