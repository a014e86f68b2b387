/* Fork: the handlers that make the heap whole on both sides. */
#ifndef HK_FRONT_FORK_H
#define HK_FRONT_FORK_H

/* Registers the handlers; once, outside all locks (the C library allocates for it). */
void hk_fork_init(void);

#endif
