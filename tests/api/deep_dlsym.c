/*
 * A dlsym that is preloaded before hakmem, as tools that trace other libraries have it, for deep_binding.c. RTLD_NEXT
 * means what comes after this library, so it finds hakmem's dlopen for hakmem.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#if defined(__x86_64__)
static const char *const first_version = "GLIBC_2.2.5";
#else
static const char *const first_version = "GLIBC_2.17";
#endif

void *dlsym(void *restrict handle, const char *restrict name)
{
    void *(*next)(void *, const char *);
    *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", first_version);
    void *address = next(handle, name);
    __asm__ volatile("" ::: "memory"); /* no jump: the call comes from here */
    return address;
}
