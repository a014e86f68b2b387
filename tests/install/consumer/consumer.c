/*
 * consumer shared|archive VERSION: fails unless hakmem serves this program's malloc, and comes from where it should.
 * With ONLY_MALLOC it knows nothing of hakmem's interface and takes no arguments.
 */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        found = found || strstr(line, name) != NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

static int failed(const char *what)
{
    fprintf(stderr, "consumer: %s\n", what);
    return 1;
}

#ifdef ONLY_MALLOC

int main(void)
{
    char *block = malloc(100);
    /* The C library's malloc would give 104. */
    bool ours = malloc_usable_size(block) % 16 == 0;
    free(block);
    if (!ours)
        return failed("malloc is not hakmem's");
    return mapped("libhakmem.so") ? 0 : failed("libhakmem.so is not mapped");
}

#else

#include <hakmem/hakmem.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return failed("usage: consumer shared|archive VERSION");
    if (strcmp(hak_version(), argv[2]) != 0)
        return failed("another version is linked");

    /* Whose malloc this is: hakmem knows the sizes of the blocks that it handed out, and aborts on others. */
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        char *block = malloc(n);
        if (block == NULL || hak_usable_size(block) < hak_good_size(n))
            return failed("malloc is not hakmem's");
        memset(block, 1, hak_usable_size(block));
        hak_free(block);
    }
    /* The C library's own allocations come from hakmem too. */
    char *copy = strdup("what the C library allocates");
    if (copy == NULL || hak_usable_size(copy) != malloc_usable_size(copy))
        return failed("strdup does not use hakmem");
    free(copy);

    if (mapped("libhakmem.so") != (strcmp(argv[1], "shared") == 0))
        return failed("hakmem does not come from where it should");
    return 0;
}

#endif
