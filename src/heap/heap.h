/*
 * Heaps: the cold side of a thread. A heap owns slabs, keeps those with free blocks in bins by fullness, and collects
 * what others freed.
 *
 * Everything in a heap is guarded by its lock unless it says otherwise. The lock is taken on every slow path and on no
 * hot path; who holds it may work on behalf of the heap's thread, with one exception: a magazine's top is in the
 * thread's hands while the heap is RUNNING, so the magazines belong to that thread then, and to the lock when PARKED.
 * A heap's structure is never unmapped.
 *
 * Kinds: a thread's heap is RUNNING or PARKED; the guests' heap serves threads that have (yet, or any more) no heap of
 * their own; the orphans' heap owns slabs that nobody does.
 */
#ifndef HK_HEAP_HEAP_H
#define HK_HEAP_HEAP_H

#include "base/lock.h"
#include "heap/pool.h"

/* A magazine: a stack of free blocks' addresses in an aligned array. Its bottom entry is NULL and lies as high as the
 * capacity is small; so "empty" is a NULL on top and "full" is a top in the array's last place, whatever the
 * capacity. */
#define HK_MAGAZINE_WORDS 128u
#define HK_MAGAZINE_BYTES (HK_MAGAZINE_WORDS * sizeof(void *))
#define HK_MAGAZINE_BLOCKS_MAX (HK_MAGAZINE_WORDS - 1)

/* Bins by the part of a slab's blocks that is free; refills take from the fullest slabs first, and last of all blocks
 * that have no memory: never handed out, or on pages that were given back. */
enum hk_bin {
    HK_BIN_FULL,
    HK_BIN_QUARTER,
    HK_BIN_HALF,
    HK_BIN_MOST,
    HK_BIN_UNBACKED, /* no free block has memory */
    HK_NBINS,
    HK_BIN_CURRENT = HK_NBINS
};

enum hk_heap_state { HK_HEAP_RUNNING, HK_HEAP_PARKED, HK_HEAP_GUESTS, HK_HEAP_ORPHANS };

struct hk_heap_class {
    struct hk_slab *current;        /* the slab to refill from; in no bin */
    struct hk_slab *bins[HK_NBINS]; /* the other slabs with free blocks; bins[FULL] is not used */
    struct hk_parcel *reserve;      /* free blocks that the magazine has no room for, the youngest first */
    uint32_t nslabs;                /* may be read without the lock */
    uint32_t last_alloc;            /* heap's tick when malloc last took the slow path for it, for the budget */
    uint8_t capacity;     /* blocks that the magazine may hold; 0 until first used and, above 128 KiB, while not busy */
    uint32_t guest_since; /* the heap's exchanges when the count below began */
    uint8_t guest_allocs; /* allocations that were served from the guests' heap */
    uint8_t demand;       /* since the capacity last changed: refills, or flushes of a medium class, whose blocks
                                        are too large to be taken on the mere chance that they will be wanted */
    uint8_t held;         /* blocks in the magazine when malloc last took the slow path for it, or when it was
                                        flushed or counted; for statistics */
};

/* Blocks on their way to the heap that owns them (remote.h), or in reserve. */
#define HK_PARCEL_BLOCKS 61u
struct hk_parcel {
    struct hk_parcel *next; /* in a pending or returned stack, in the stock or in a reserve */
    struct hk_heap *home;   /* constant: to which it returns */
    uint32_t count;
    void *blocks[HK_PARCEL_BLOCKS];
};
#define HK_PARCELS 128u        /* of a heap */
#define HK_RESERVE_PARCELS 16u /* of these: in its reserves, all classes together, at most */

/* An outbox is sent when it holds HK_OUTBOX_BYTES. A small block is charged HK_OUTBOX_BYTES_LEAST, so the bytes run out
 * before the places do. */
#define HK_OUTBOX_BLOCKS (2 * HK_PARCEL_BLOCKS)
#define HK_OUTBOX_BYTES ((uint32_t)(64 * HK_KIB))
#define HK_OUTBOX_BYTES_LEAST (HK_OUTBOX_BYTES / (HK_OUTBOX_BLOCKS + 1) + 1)

struct hk_heap_counts {
#define HK_HEAP_COUNTER(name, doc) size_t name;
#include "base/stats.def"
#undef HK_HEAP_COUNTER
};

#define HK_WARM_SLOTS 4u      /* that a heap's warm pool has room for */
#define HK_WARM_SLOTS_MAX 16u /* the same, where heaps contend for the shared pool */

/* Slots between two slabs of the heap, without a visit to the shared pool. */
struct hk_warm {
    struct hk_slab *slots[HK_WARM_SLOTS_MAX];
    uint8_t n;
    uint8_t doubled; /* how often its room was doubled */
};

/* How large the magazines of a heap may be, and whether it is busy enough for that (magazine.c). */
struct hk_magazine_budget {
    size_t bytes;       /* what it is spent on: capacity beyond the first, and reserves */
    uint64_t busy_step; /* hk_os_now_ms, in whose current step busy_count refills and flushes were made */
    uint64_t busy_at;   /* hk_os_now_ms, when the heap was last busy, or last shrank */
    uint32_t busy_count;
    uint32_t may_borrow; /* how many blocks of one class may serve the next smaller one until a later step is seen */
    uint32_t tended_at;  /* hk_clock, when it was last looked whether the heap has been busy */
    uint32_t exchanges;  /* refills, and flushes, but for those that make room for what others free */
    uint32_t victim;     /* class at which the search for capacity to take stands */
};

struct hk_heap {
    struct hk_lock lock;
    hk_key key;      /* id << 8; constant */
    uint8_t state;   /* enum hk_heap_state; changes under hk_heaps_lock and the heap's; may be read without */
    bool released;   /* a slab since the slow path was entered: there may be something to purge */
    bool dissolving; /* PARKED, magazines flushed: its slabs are to become orphans */
    bool vacant;   /* PARKED, without slabs, slots and blocks, and its tail given back; may be read without the lock */
    uint32_t tick; /* slow paths; may be read without the lock, to see whether it stands still */
    uint32_t tended_tick; /* tick when the heap was last tended. Written without the lock, by whoever tends: if two do
                             at once, a heap may be tended a pass later */
    uint32_t parked_at;   /* hk_clock; while PARKED; may be read without the lock */
    size_t grown_bytes;   /* handed out for the first time since the heap last paid for growth */
    size_t idle_bytes;    /* in idle blocks of its slabs; may be read without the lock */
    size_t slab_bytes;    /* in the slots of its slabs */
    struct hk_magazine_budget budget;
    struct hk_heap *next;        /* all heaps; constant once linked */
    struct hk_heap *next_parked; /* by hk_heaps_lock */
    void *thread;                /* whose magazines these are, for the fork child and for hk_heap_obtain; by
                                    hk_heaps_lock */

    /* Pushed by anybody, taken as a whole by lock holders. */
    HK_CACHE_ALIGNED struct hk_parcel *_Atomic pending; /* parcels for this heap */
    struct hk_parcel *_Atomic returned;                 /* its own, opened by their receivers */

    HK_CACHE_ALIGNED struct hk_parcel *stock; /* its own, ready to be filled */
    uint32_t parcels_begun;                   /* how many of its own were ever used */
    uint32_t parcels_reserved;                /* how many are in reserves */
    struct hk_warm warm;
    struct hk_heap_counts counts;
    void **parked_top[HK_NCLASSES]; /* while PARKED: the tops of the magazines */

    /* From here on, a thread's heap becomes zero, page by page, while it is vacant. */
    HK_CACHE_ALIGNED struct hk_heap_class classes[HK_NCLASSES];
};

/* A thread's heap; the guests' and orphans' have no magazines, and send nothing. */
struct hk_thread_heap {
    struct hk_heap heap;
    void *magazines[HK_NCLASSES][HK_MAGAZINE_WORDS] __attribute__((aligned(HK_MAGAZINE_WORDS * sizeof(void *))));
    /* Stored to by the heap's thread, emptied by lock holders; [0] stays NULL. */
    void *_Atomic outbox[1 + HK_OUTBOX_BLOCKS];
    struct hk_parcel parcels[HK_PARCELS];
};

/* The heap's lock is held. */
HK_INLINE void hk_heap_count_tick(struct hk_heap *heap) { hk_set_visibly(&heap->tick, heap->tick + 1); }

/* The slab in whose slots p lies; false, with fault saying why, if it is in none. No lock needed while the block
 * lives. */
bool hk_slab_of_or_fault(const void *p, struct hk_slab **slab, struct hk_fault *fault);
/* The heap that owns the slab in which p lies; NULL, with the fault, if none does. */
struct hk_heap *hk_block_owner(const void *p, struct hk_fault *fault);
/* True if p is a block in use, as far as the bitmap of its slab tells. */
bool hk_block_in_use(const void *p);

/* ---- Slabs; the heap's lock is held ---- */

/* How many slabs of a class the heap has. Read without the lock, it only tells whether to look closer. */
HK_INLINE uint32_t hk_heap_nslabs(const struct hk_heap *heap, unsigned cls)
{
    return hk_look(&heap->classes[cls].nslabs);
}
/* Puts a slab where its free blocks belong, after they changed; releases it if it is empty. */
void hk_slab_settle(struct hk_heap *heap, struct hk_slab *slab);
/* Puts the slab that was refilled from back into its bin, and takes one with free blocks from the fullest bin in its
 * place; NULL, and there is none to refill from, if no slab of the class has any. */
struct hk_slab *hk_heap_next_slab(struct hk_heap *heap, unsigned cls);
/* Makes a slab another heap's, and counts it there. Both locks are held, and no magazine or reserve of `from` holds a
 * block of it. Afterwards it is in no bin: the caller settles it, or refills from it. */
void hk_slab_change_owner(struct hk_heap *from, struct hk_slab *slab, struct hk_heap *to);
/* Releases the slabs of a class that were kept though they are empty. */
void hk_heap_release_empty(struct hk_heap *heap, unsigned cls);
/* Gives the warm slots back to the pool. */
void hk_heap_release_warm(struct hk_heap *heap);

/* ---- Blocks; the heap's lock is held ---- */

/* True if slabs of a class have idle blocks: free ones that have memory. */
bool hk_heap_has_idle_blocks(const struct hk_heap *heap, unsigned cls);

/* Takes up to want blocks of a class from the heap's slabs, opening or adopting one if it has none, and stores them
 * below end, the lowest next to it. Blocks that have no memory are taken only if no slab has others, and then from one
 * slab. Returns how many: 0 without memory.
 * *fresh, if not NULL, is set if the one block asked for was never handed out and is zero. */
unsigned hk_heap_take(struct hk_heap *heap, unsigned cls, void **end, unsigned want, bool *fresh,
                      struct hk_fault *fault);
/* Takes one block, straight for the program; NULL without memory. */
void *hk_heap_take_one(struct hk_heap *heap, unsigned cls, bool *fresh, struct hk_fault *fault);
/* Puts the first of n blocks into its slab, which belongs to the heap and is of the class, and then those after it for
 * as long as they are blocks in use of the same slab. Returns how many are dealt with: at least one, since a first
 * block that is refused counts. */
unsigned hk_heap_put(struct hk_heap *heap, const struct hk_class *cls, void *const *blocks, unsigned n, uint32_t now,
                     struct hk_fault *fault);
/* Puts n blocks of one class into their slabs. They are the heap's: slabs change their owner only when neither magazine
 * nor reserve holds a block of them. So a block that is another heap's by now was freed twice. */
void hk_heap_put_class(struct hk_heap *heap, unsigned cls, void *const *blocks, unsigned n, struct hk_fault *fault);
/* True if a class is too little used to have slabs in this heap: its blocks come from the guests' heap. Counts the
 * allocation that asks, and so may decide otherwise the next time. */
bool hk_heap_count_guest_alloc(struct hk_heap *heap, unsigned cls);

HK_INLINE void *_Atomic *hk_outbox_of(struct hk_heap *heap)
{
    return ((struct hk_thread_heap *)(void *)heap)->outbox + 1;
}
HK_INLINE struct hk_parcel *hk_parcels_of(struct hk_heap *heap)
{
    return ((struct hk_thread_heap *)(void *)heap)->parcels;
}

void hk_heap_check(struct hk_heap *heap);

#endif
