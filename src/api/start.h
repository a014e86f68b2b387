/* What runs when the library is loaded and when the process ends. Allocation works before the one and after the
 * other. */
#ifndef HK_API_START_H
#define HK_API_START_H

#include "base/base.h"

/* The library is linked such that its constructors run before all others in the process (-z initfirst), if the loader
 * does as it is told: our fork handlers must be the last to run before a fork and the first after it, since those of
 * other libraries take locks under which their threads allocate. So the C library may not have set environ yet; the
 * loader passes the environment. In a program that is linked with the archive they run before its own constructors. */
#define HK_CONSTRUCTOR __attribute__((constructor(101)))
#define HK_CONSTRUCTOR_ARGUMENTS \
    __attribute__((unused)) int argc, __attribute__((unused)) char **argv, char **environment

/* Reads the options and does what they ask for at start, registers the fork handlers, and asks the kernel what a
 * sandbox may refuse later; once. Called by a constructor in each file that programs are linked by: an object of an
 * archive is linked only if another refers to it. */
void hk_start(char **environment);

/* The same, in libc.c: the linker takes malloc and its kin out of an archive for whoever refers to it. */
void hk_start_with_libc_names(HK_CONSTRUCTOR_ARGUMENTS);

#endif
