/*
 * Proves: a program that knows nothing of hakmem can dlopen a library that is linked with it, and dlclose it.
 *   - The static TLS of both fits into what the C library keeps for such cases, also when threads run already.
 *   - The library allocates in the main thread, in threads older and younger than itself, and in a forked child.
 *   - Threads that used it may end after dlclose; blocks it allocated are still there when it is opened again.
 *   - With RTLD_DEEPBIND the library's own malloc is hakmem's, while the program's stays the C library's.
 * Under LD_PRELOAD, the same with malloc being hakmem's for all.
 * Usage: dlopen_host plugin.so libhakmem.so
 */
#include "check.h"
#include <link.h>
#include <semaphore.h>

static const size_t tls_bound = 1280;

static struct plugin {
    void *handle;
    void (*work)(uint64_t);
    void *(*allocate)(size_t);
    void (*free)(void *);
    bool (*malloc_is_hakmem)(void);
} plugin;

static void *symbol(void *handle, const char *name)
{
    void *p = dlsym(handle, name);
    HK_CHECK(p != NULL, "%s: %s", name, dlerror());
    return p;
}

static void *open_library(const char *path, int flags)
{
    void *handle = dlopen(path, flags);
    HK_CHECK(handle != NULL, "%s", dlerror());
    return handle;
}

static void open_plugin(const char *path, int flags)
{
    plugin.handle = open_library(path, RTLD_NOW | RTLD_LOCAL | flags);
    *(void **)&plugin.work = symbol(plugin.handle, "plugin_work");
    *(void **)&plugin.allocate = symbol(plugin.handle, "plugin_allocate");
    *(void **)&plugin.free = symbol(plugin.handle, "plugin_free");
    *(void **)&plugin.malloc_is_hakmem = symbol(plugin.handle, "plugin_malloc_is_hakmem");
}

static void close_plugin(void)
{
    HK_CHECK(dlclose(plugin.handle) == 0, "dlclose: %s", dlerror());
    memset(&plugin, 0, sizeof plugin);
}

struct thread {
    pthread_t id;
    sem_t work, done, end;
    void *left;
};

static void *thread_body(void *argument)
{
    struct thread *t = argument;
    sem_wait(&t->work);
    plugin.work((uint64_t)(uintptr_t)t);
    t->left = plugin.allocate(5000);
    sem_post(&t->done);
    sem_wait(&t->end); /* the plugin is closed meanwhile */
    return NULL;
}

static void start(struct thread *t)
{
    sem_init(&t->work, 0, 0);
    sem_init(&t->done, 0, 0);
    sem_init(&t->end, 0, 0);
    t->id = hk_thread(thread_body, t);
}

static void fork_and_work(void)
{
    pid_t child = fork();
    HK_CHECK(child >= 0, "fork");
    if (child == 0) {
        hk_watchdog(20);
        plugin.work(77);
        static struct thread t;
        start(&t);
        sem_post(&t.work);
        sem_post(&t.end);
        hk_join(t.id);
        plugin.free(t.left);
        _exit(0);
    }
    HK_WAIT_OK(child, "child of a program that opened the plugin");
}

static void with_threads(const char *path, int flags)
{
    struct thread older, younger;
    start(&older);
    open_plugin(path, flags);
    plugin.work(1);
    start(&younger);
    sem_post(&older.work);
    sem_post(&younger.work);
    sem_wait(&older.done);
    sem_wait(&younger.done);
    fork_and_work();
    close_plugin();
    sem_post(&older.end);
    sem_post(&younger.end);
    hk_join(older.id);
    hk_join(younger.id);

    open_plugin(path, flags);
    struct thread *threads[] = {&older, &younger};
    for (size_t i = 0; i < HK_COUNT(threads); i++) {
        HK_CHECK_CONTENT(threads[i]->left, 5000, 5000, hk_key(threads[i]->left, 5000));
        plugin.free(threads[i]->left);
    }
    plugin.work(2);
    if (flags & RTLD_DEEPBIND)
        HK_CHECK(plugin.malloc_is_hakmem(), "malloc of a plugin that binds to its own libraries first");
    close_plugin();
}

/* The library itself, by dlopen. */
static void hakmem_alone(const char *path)
{
    void *handle = open_library(path, RTLD_NOW | RTLD_LOCAL);
    void *(*hak_malloc)(size_t);
    void (*hak_free)(void *);
    *(void **)&hak_malloc = symbol(handle, "hak_malloc");
    *(void **)&hak_free = symbol(handle, "hak_free");
    void *p = hak_malloc(100);
    HK_CHECK(p != NULL, "hak_malloc");
    HK_CHECK(dlclose(handle) == 0, "dlclose: %s", dlerror());
    hak_free(p);
}

static int check_tls(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (strstr(info->dlpi_name, "libhakmem") == NULL)
        return 0;
    size_t tls = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            tls = info->dlpi_phdr[i].p_memsz;
    hk_say("%s has %zu bytes of static TLS\n", info->dlpi_name, tls);
    HK_CHECK(tls <= tls_bound, "%zu bytes of static TLS", tls);
    *(bool *)found = true;
    return 0;
}

int main(int argc, char **argv)
{
    HK_CHECK(argc == 3, "usage: dlopen_host plugin.so libhakmem.so");
    hk_watchdog(55);
    with_threads(argv[1], 0);
    bool found = false;
    dl_iterate_phdr(check_tls, &found);
    HK_CHECK(found, "libhakmem is not loaded: it must stay when the plugin goes");
    for (int i = 0; i < 50; i++)
        with_threads(argv[1], i % 2 == 0 ? 0 : RTLD_DEEPBIND);
    hakmem_alone(argv[2]);
    hk_say("opened, used and closed\n");
    return 0;
}
