/*
 * Limits on the memory of the process's heap, by options limit_soft and limit_hard or hak_limit_set.
 *
 * What counts is what may be resident: slots in use and EMPTY ones, cached superslabs, large blocks, cached mappings;
 * and not hakmem's own structures. Above the soft limit idle memory goes before more is taken; above the hard limit
 * allocations fail.
 */
#ifndef HK_HEAP_LIMIT_H
#define HK_HEAP_LIMIT_H

#include "base/base.h"

/* True if `more` bytes may be taken. If they exceed the soft limit, may note that a purge is due. The caller keeps the
 * pool's lock until it has counted the bytes, or two threads could take the same room; what is counted is read without
 * a lock. */
bool hk_limit_admit(size_t more);
/* True if `more` bytes would stay within both limits. For what need not be taken: nothing is purged for it. */
bool hk_limit_has_room(size_t more);
/* The soft limit was exceeded: a purge is due, by whoever takes this back with hk_limit_take_pressing. */
extern _Atomic bool hk_limit_pressing;
HK_INLINE bool hk_limit_is_pressing(void) { return hk_get(&hk_limit_pressing); }
bool hk_limit_take_pressing(void);

/* Bytes that count. */
size_t hk_limit_in_use(void);
/* Those of them in mappings: of live blocks, cached, about to be made and about to go. No lock guards them, so that who
 * looks at the limits need not wait for who unmaps. */
void hk_mapped_add(size_t more);
size_t hk_mapped_bytes(void);
void hk_mapped_set(size_t bytes);

/* Makes limits that are percentages of the cgroup's into bytes; a warning on standard error if its limit cannot be
 * read. A cgroup without a limit gives none. Reads files under `root`, which is "" but for tests. */
void hk_limit_resolve(const char *root);

#endif
