/*
 * Arguments of workloads that must be in a range, or one of a few words. What is wrong is named, with what was
 * expected, and the workload ends with status 2.
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "workload.h"

static inline size_t argument_between(int argc, char **argv, int index, const char *name, size_t least, size_t most)
{
    size_t value = argument(argc, argv, index, name);
    if (value < least || value > most) {
        fprintf(stderr, "%s: expected %zu <= %s <= %zu, not %zu\n", argv[0], least, name, most, value);
        exit(2);
    }
    return value;
}

/* Of threads, slots, rounds: at least one, and few enough for their product with anything to fit a word. */
static inline size_t count_argument(int argc, char **argv, int index, const char *name)
{
    return argument_between(argc, argv, index, name, 1, UINT32_MAX);
}

static inline size_t threads_argument(int argc, char **argv, int index)
{
    return argument_between(argc, argv, index, "THREADS", 1, 1024);
}

struct bounds {
    size_t min;
    size_t max;
};

/* MIN at index and MAX after it: the smallest and the largest block. */
static inline struct bounds bounds_argument(int argc, char **argv, int index, size_t least)
{
    struct bounds sizes;
    sizes.min = argument_between(argc, argv, index, "MIN", least, UINT32_MAX);
    sizes.max = argument_between(argc, argv, index + 1, "MAX", sizes.min, UINT32_MAX);
    return sizes;
}

/* Which of count words the argument is. */
static inline size_t word_argument(int argc, char **argv, int index, const char *name, const char *const *words,
                                   size_t count)
{
    for (size_t i = 0; index < argc && i < count; i++)
        if (strcmp(argv[index], words[i]) == 0)
            return i;
    fprintf(stderr, "%s: %s must be", argv[0], name);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s %s", i ? " or" : "", words[i]);
    if (index < argc)
        fprintf(stderr, ", not '%s'\n", argv[index]);
    else
        fputs(", and is missing\n", stderr);
    exit(2);
}

#endif
