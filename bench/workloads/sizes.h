/*
 * Sizes as programs draw them.
 *
 * Three distributions: every size as likely as another; every octave as likely as another, for sizes that span orders
 * of magnitude; and log-normal, which is what measurements of strings, messages and cached values come close to.
 * No libm: the logarithm and its inverse are straight between powers of two, which is near enough for a size.
 */
#ifndef SIZES_H
#define SIZES_H

#include "workload.h"

static inline size_t size_between(uint64_t *state, size_t min, size_t max)
{
    return min + random_below((uint32_t)(random_next(state) >> 32), max - min + 1);
}

static inline double octaves_of(size_t size)
{
    int whole = 63 - __builtin_clzll(size);
    return whole + (double)(size - ((size_t)1 << whole)) / (double)((size_t)1 << whole);
}

static inline size_t size_of_octaves(double octaves)
{
    size_t whole = (size_t)1 << (int)octaves;
    return whole + (size_t)((octaves - (int)octaves) * (double)whole);
}

/* min and max are 1 or more. */
static inline size_t size_by_octaves(uint64_t *state, size_t min, size_t max)
{
    double low = octaves_of(min), high = octaves_of(max);
    double part = (double)(random_next(state) >> 11) * 0x1p-53;
    size_t size = size_of_octaves(low + part * (high - low));
    return size < min ? min : size > max ? max : size;
}

/* Half of all sizes are below the median; two thirds within so many octaves of it. The normal distribution is made of
 * four uniform ones, whose sum ends at 3.5 standard deviations. */
static inline size_t size_lognormal(uint64_t *state, size_t median, double octaves, size_t min, size_t max)
{
    uint64_t bits = random_next(state);
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    double deviation = ((double)sum * 0x1p-16 - 2) * 1.7320508;
    double wanted = octaves_of(median) + octaves * deviation;
    size_t size = wanted < 0 ? 1 : size_of_octaves(wanted);
    return size < min ? min : size > max ? max : size;
}

#endif
