/* Blocks of a slab, by index and lowest first, as tests like to have them. Where it matters the caller holds the
 * owner's lock. */
#ifndef TESTS_HEAP_SLAB_BLOCKS_H
#define TESTS_HEAP_SLAB_BLOCKS_H

#include <algorithm>
#include <vector>

#include "c_begin.h"
#include "heap/slab.h"
#include "c_end.h"

/* What hk_slab_take gives, lowest address first. */
inline std::vector<void *> take_blocks(hk_slab *slab, unsigned want)
{
    std::vector<void *> blocks(want);
    unsigned got = hk_slab_take(slab, blocks.data() + want, want);
    blocks.erase(blocks.begin(), blocks.end() - got);
    std::reverse(blocks.begin(), blocks.end());
    return blocks;
}

inline bool put_block(hk_slab *slab, unsigned index)
{
    void *p = hk_slab_block(slab, index);
    return hk_slab_put(slab, hk_slab_class(slab), &p, 1) == 1;
}

#endif
