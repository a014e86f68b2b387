/* A program without libstdc++: hakmem brings the C++ operators with it, and needs no C++ library for that. */
#include "check.h"

#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_mapped(const char *library)
{
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        found |= strstr(line, library) != NULL;
    fclose(maps);
    return found;
}

#define FUNCTION(type, name) ((type *)(uintptr_t)dlsym(RTLD_DEFAULT, name))

typedef void *new_function(size_t);
typedef void *new_nothrow_function(size_t, const void *);
typedef void *new_aligned_function(size_t, size_t);
typedef void delete_function(void *);

static void operators_work(void)
{
    new_function *plain_new = FUNCTION(new_function, "_Znwm");
    new_nothrow_function *nothrow_new = FUNCTION(new_nothrow_function, "_ZnwmRKSt9nothrow_t");
    new_aligned_function *aligned_new = FUNCTION(new_aligned_function, "_ZnwmSt11align_val_t");
    delete_function *plain_delete = FUNCTION(delete_function, "_ZdlPv");
    REQUIRE(plain_new != NULL && nothrow_new != NULL && aligned_new != NULL && plain_delete != NULL);
    const char nothrow = 0;
    for (size_t n = 0; n < 3000000; n = n * 2 + 1) {
        void *a = plain_new(n), *b = nothrow_new(n, &nothrow), *c = aligned_new(n, 256);
        CHECK(a != NULL && b != NULL && c != NULL && is_aligned(c, 256));
        CHECK(malloc_usable_size(a) >= n && malloc_usable_size(b) >= n && malloc_usable_size(c) >= n);
        plain_delete(a), plain_delete(b), plain_delete(c);
    }
    CHECK(nothrow_new(hide_size(SIZE_MAX), &nothrow) == NULL);
}

/* Where nobody can throw bad_alloc, the end is abort, not a NULL that new may not return, nor a jump to address 0. */
static void failing_new_aborts(void)
{
    new_function *plain_new = FUNCTION(new_function, "_Znwm");
    int status;
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        void *p = plain_new(hide_size(SIZE_MAX));
        _exit(p == NULL);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", (unsigned)status);
}

int main(void)
{
    if (skipped_without_hakmem("a C program has no operators of C++ without hakmem"))
        return CHECK_SKIPPED;
    CHECK(!is_mapped("libstdc++") && !is_mapped("libgcc_s") && !is_mapped("libc++"));
    operators_work();
    failing_new_aborts();
    CHECK(!is_mapped("libstdc++") && !is_mapped("libgcc_s"));
    return check_result();
}
