/* realloc, and growth in place. Both keep errno, except that an allocation that fails sets it to ENOMEM. */
#ifndef HK_FRONT_REALLOC_H
#define HK_FRONT_REALLOC_H

#include "base/base.h"

/* As realloc: NULL allocates, n == 0 frees. `call` names the public function, for messages. */
void *hk_realloc_any(void *p, size_t n, const char *call);
/* True if the block that starts at p holds n bytes after the call, without having moved. */
bool hk_expand(void *p, size_t n);

#endif
