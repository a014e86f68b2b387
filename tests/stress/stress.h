/*
 * What a stress is: one function that runs for a time with some threads, from a seed, and ends the process with a
 * message if a check fails. stress_main.c runs it from the command line.
 */
#ifndef HK_STRESS_H
#define HK_STRESS_H

#include <stdint.h>

struct hk_stress {
    double seconds;
    uint64_t seed;
    unsigned threads;
};

void hk_stress_run(const struct hk_stress *stress);

#endif
