/*
 * Proves: libraries that are loaded with RTLD_DEEPBIND have the same malloc as the program.
 *   - What one allocates the other frees, and the C library in between; also what is allocated while they are loaded.
 *   - They find their own symbols first all the same, and what they load by their own run path.
 *   refused   Where the C library's symbols may not be changed, they find the program's first, and malloc with these.
 *   alone     Without preload, where hakmem is in the program only because a library needs it: the C library's malloc
 *             stays what it was.
 *
 *   deep_binding PLUGIN [refused | alone LIBHAKMEM]
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
    if (argc == 4) {
        alone(argv[1], argv[3]);
        return check_result();
    }
    if (refused) {
        free(malloc(100)); /* which needs pages that can be written to */
        refuse_writing();
    }
    plugin = open_library(argv[1], RTLD_DEEPBIND);
    share_malloc();
    if (!refused) { /* which lets no thread have a stack */
        share_malloc_in_threads();
        find_own_first();
    }
    return check_result();
}
