/*
 * A library for deep_binding.c to load. It knows nothing of hakmem, and is linked with the C library alone. Its
 * functions return what the program is to check.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *made_at_load;

__attribute__((constructor)) static void load(void) { made_at_load = strdup("made while the library was loaded"); }

/* The program has a function of this name, too. */
const char *which(void);
const char *which(void) { return "the library's"; }
const char *plugin_which(void);
const char *plugin_which(void) { return which(); }

char *plugin_made_at_load(void);
char *plugin_made_at_load(void) { return made_at_load; }

void *plugin_malloc_address(void);
void *plugin_malloc_address(void) { return (void *)(uintptr_t)malloc; }

void *plugin_allocate(size_t n);
void *plugin_allocate(size_t n) { return malloc(n); }

void plugin_free(void *p);
void plugin_free(void *p) { free(p); }

/* Frees, or has others free, what the C library has allocated. */
bool plugin_passes_strings(void);
bool plugin_passes_strings(void)
{
    bool right = true;
    for (int i = 0; i < 1000; i++) {
        char *text = NULL;
        int length = asprintf(&text, "%*d", i, i);
        right = right && length >= i && malloc_usable_size(text) > (size_t)length;
        text = realloc(text, 2000);
        free(strdup(text));
        free(text);
    }
    FILE *file = tmpfile();
    fputs("a line\nanother\n", file);
    rewind(file);
    char *line = malloc(1);
    size_t size = 1;
    while (getline(&line, &size, file) > 0) {}
    right = right && strcmp(line, "another\n") == 0;
    free(line);
    fclose(file);
    char *here = getcwd(NULL, 0);
    right = right && here != NULL && realpath(here, NULL) != NULL;
    free(here);
    return right;
}

bool plugin_calls_all(void);
bool plugin_calls_all(void)
{
    void *blocks[] = {malloc(100),
                      calloc(10, 10),
                      realloc(NULL, 100),
                      reallocarray(NULL, 10, 10),
                      aligned_alloc(64, 128),
                      memalign(64, 100),
                      valloc(100),
                      pvalloc(100),
                      NULL};
    const size_t count = sizeof blocks / sizeof *blocks;
    if (posix_memalign(&blocks[count - 1], 256, 100) != 0)
        return false;
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        right = right && malloc_usable_size(blocks[i]) >= 100;
        memset(blocks[i], 1, 100);
        free(blocks[i]);
    }
    malloc_trim(0);
    return right && mallinfo2().uordblks != 0;
}

/* Loads what is found by this library's run path and by no other, and returns what it answers; 0 if it is not found. */
int plugin_asks_friend(const char *name);
int plugin_asks_friend(const char *name)
{
    void *friend = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (friend == NULL)
        return 0;
    int answer = ((int (*)(void))(uintptr_t)dlsym(friend, "friend_answers"))();
    dlclose(friend);
    return answer;
}
