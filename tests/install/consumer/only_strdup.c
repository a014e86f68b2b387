/* A program for which only the C library allocates. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    (void)argc;
    return puts(strdup(argv[0])) < 0;
}
