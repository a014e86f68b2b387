/*
 * Proves: libraries that are loaded with RTLD_DEEPBIND have the same malloc as the program.
 *   - What one allocates the other frees, and the C library in between; also what is allocated while they are loaded.
 *   - They find their own symbols first all the same, and what they load by their own run path.
 *   - Blocks that the program had of the C library's own malloc before are freed by that.
 *   refused   Where the C library's symbols may not be changed, they find the program's first, and malloc with these.
 *   alone     Without preload, where hakmem is in the program only because a library needs it: the C library's malloc
 *             stays what it was.
 *   needed    Likewise, and the C library stands before hakmem: a library that calls our dlopen gets the C library's.
 *
 *   deep_binding PLUGIN [refused | needed | alone LIBHAKMEM]
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

const char *which(void);
const char *which(void) { return "the program's"; }

static void *plugin;

#define PLUGIN(type, name) ((__typeof__(type) *)(uintptr_t)plugin_symbol(name))
static void *plugin_symbol(const char *name)
{
    void *address = dlsym(plugin, name);
    REQUIRE(address != NULL);
    return address;
}

static void *open_library(const char *path, int flags)
{
    void *handle = dlopen(path, RTLD_NOW | flags);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(handle != NULL);
    return handle;
}

static void *use(void *unused)
{
    for (int i = 0; i < 1000; i++) {
        char *p = PLUGIN(void *(size_t), "plugin_allocate")(100);
        memset(p, 1, 100);
        free(p);
        PLUGIN(void(void *), "plugin_free")(malloc(100));
    }
    return unused;
}

static void share_malloc(void)
{
    CHECK(PLUGIN(void *(void), "plugin_malloc_address")() == dlsym(RTLD_DEFAULT, "malloc"));
    CHECK(PLUGIN(bool(void), "plugin_passes_strings")());
    CHECK(PLUGIN(bool(void), "plugin_calls_all")());
    char *made_at_load = PLUGIN(char *(void), "plugin_made_at_load")();
    CHECK(strcmp(made_at_load, "made while the library was loaded") == 0);
    free(made_at_load);
    use(NULL);
}

static void share_malloc_in_threads(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, use, NULL) == 0);
    use(NULL);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

/* What a program can have that asks the C library itself, before and after. */
static struct libc {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*realloc)(void *, size_t);
    size_t (*usable_size)(void *);
} libc_then, libc_now;

static void ask_libc(struct libc *libc)
{
    void *handle = open_library("libc.so.6", RTLD_NOLOAD);
    *(void **)&libc->malloc = dlsym(handle, "malloc");
    *(void **)&libc->free = dlsym(handle, "free");
    *(void **)&libc->realloc = dlsym(handle, "realloc");
    *(void **)&libc->usable_size = dlsym(handle, "malloc_usable_size");
}

static void pass_on_libcs_blocks(char *block, char *other)
{
    CHECK(libc_now.malloc != libc_then.malloc && libc_now.malloc == malloc);
    CHECK(libc_now.usable_size(block) == libc_then.usable_size(block));
    block = libc_now.realloc(block, 3000);
    CHECK(block != NULL && strcmp(block, "the C library's") == 0);
    libc_now.free(block);
    PLUGIN(void(void *), "plugin_free")(other);
    libc_now.free(libc_now.realloc(libc_now.malloc(100), 200));
    libc_now.free(NULL);
    CHECK(libc_now.usable_size(NULL) == 0);
}

static void find_own_first(void)
{
    CHECK(strcmp(which(), "the program's") == 0);
    CHECK(strcmp(PLUGIN(const char *(void), "plugin_which")(), "the library's") == 0);
    CHECK(PLUGIN(int(const char *), "plugin_asks_friend")("libapi_deep_friend.so") == 42);
    CHECK(dlopen("libapi_deep_friend.so", RTLD_NOW) == NULL);
    CHECK(dlerror() != NULL);
    CHECK(dlopen("libapi_deep_nobody.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    CHECK(dlerror() != NULL);
}

/* No page becomes writable any more that was not. */
static void refuse_writing(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void alone(const char *path, const char *hakmem)
{
    void *libc = open_library("libc.so.6", RTLD_NOLOAD);
    void *libc_malloc = dlsym(libc, "malloc");
    CHECK(dlsym(RTLD_DEFAULT, "malloc") == libc_malloc);
    void *library = open_library(hakmem, RTLD_LOCAL);
    void *(*our_dlopen)(const char *, int) = (void *(*)(const char *, int))(uintptr_t)dlsym(library, "dlopen");
    REQUIRE(our_dlopen != NULL && our_dlopen != dlopen);
    plugin = our_dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    REQUIRE(plugin != NULL);
    CHECK(dlsym(libc, "malloc") == libc_malloc);
    share_malloc();
    share_malloc_in_threads();
    find_own_first();
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 2);
    bool refused = argc == 3 && strcmp(argv[2], "refused") == 0;
    if (argc == 3 && strcmp(argv[2], "needed") == 0) {
        plugin = open_library(argv[1], RTLD_DEEPBIND);
        CHECK(PLUGIN(void *(void), "plugin_malloc_address")() != dlsym(RTLD_DEFAULT, "malloc"));
        find_own_first();
        return check_result();
    }
    if (argc == 4) {
        alone(argv[1], argv[3]);
        return check_result();
    }
    if (refused) {
        free(malloc(100)); /* which needs pages that can be written to */
        refuse_writing();
    }
    ask_libc(&libc_then);
    char *block = strcpy(libc_then.malloc(100), "the C library's");
    char *other = libc_then.malloc(100);
    plugin = open_library(argv[1], RTLD_DEEPBIND);
    share_malloc();
    ask_libc(&libc_now);
    if (!refused)
        pass_on_libcs_blocks(block, other);
    if (!refused) { /* the filter denies the stacks of threads, too */
        share_malloc_in_threads();
        find_own_first();
    }
    return check_result();
}
