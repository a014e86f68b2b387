/* A library that has a lock, and handlers that hold it across a fork: registered by its constructor, which allocates
 * nothing, as early as a library can. */
#ifndef HK_TEST_FORK_LIBRARY_H
#define HK_TEST_FORK_LIBRARY_H

#include <stdint.h>

/* Calls work with the lock held. */
void fork_library_locked(void (*work)(uint64_t *random), uint64_t *random);
/* How often the handler before a fork has run. */
int fork_library_handled(void);

#endif
