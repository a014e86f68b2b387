/* What runs when the library is loaded and when the process ends. Allocation works before the one and after the
 * other. */
#ifndef HK_API_START_H
#define HK_API_START_H

/* Reads the options and does what they ask for at start, registers the fork handlers, and asks the kernel what a
 * sandbox may refuse later; once. Called by a constructor in each file that programs are linked by: an object of an
 * archive is linked only if another refers to it. */
void hk_start(void);

/* The same, in libc.c: the linker takes malloc and its kin out of an archive for whoever refers to it. */
void hk_start_with_libc_names(void);

#endif
