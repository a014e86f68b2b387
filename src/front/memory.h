/*
 * What a program, or a shortage, asks of all memory at once: to give what is idle back, to have some ready.
 */
#ifndef HK_FRONT_MEMORY_H
#define HK_FRONT_MEMORY_H

#include "heap/purge.h"

/* For when memory has run out: gives all that lies idle anywhere back to the OS, so that another try is worth while. */
void hk_reclaim(struct hk_fault *fault);
/* hk_pool_prewarm; of populated superslabs as many as the options let be cached, and they stay until
 * hk_trim(HK_PURGE_ALL). */
size_t hk_prewarm_superslabs(const struct hk_prewarm *wishes, unsigned nwishes, bool populate);
/* Makes memory ready for count blocks of n bytes. Returns for how many of them it is. */
size_t hk_prewarm(size_t n, size_t count);
/* Gives idle memory of all threads back to the OS, and with HK_PURGE_ALL first what the caller's magazines hold; `pad`
 * bytes may stay. With HK_PURGE_ALL and no pad address space and commit charge go as well. Returns bytes of memory. */
size_t hk_trim(enum hk_purge_level level, size_t pad);

#endif
