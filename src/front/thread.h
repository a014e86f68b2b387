/*
 * Threads: the thread-local state that the hot path works on, and how a thread comes by a heap and leaves it.
 *
 * NEW      has not called yet, or cannot have a destructor: all keys are taken.
 * GUEST    no heap, no magazines; draws from the guests' heap under its lock. Our thread destructor will run, unless
 *          the program has taken the first 32 keys (docs/threads.md).
 * RUNNING  has made enough requests for a heap to pay; the heap's magazines are in its hands.
 * EXITED   our thread destructor has run; the heap is parked. The C library and other destructors still free (and
 *          allocate): the thread is served like a guest, to its end.
 */
#ifndef HK_FRONT_THREAD_H
#define HK_FRONT_THREAD_H

#include "heap/heap.h"

enum hk_thread_state { HK_THREAD_NEW, HK_THREAD_GUEST, HK_THREAD_RUNNING, HK_THREAD_EXITED };

/* Touched by its thread alone. A thread that has no heap has magazines that are empty and full at once, and an owner
 * key that matches no slab, so that the hot path needs no test for it. */
struct hk_thread {
    void **top[HK_NCLASSES]; /* of each magazine: the block that malloc hands out next */
    hk_key owner_key;        /* the heap's key, or NOBODY if each free is to be checked */
    uint8_t state;
    bool end_is_told;           /* our destructor will run */
    bool counted;               /* by the maintenance thread, as one that it works for */
    uint32_t outbox_room;       /* bytes that the heap's outbox may still take; 0 if it is not to be used */
    void *_Atomic *outbox_next; /* its next place; NULL if none has been used */
    uint32_t guest_requests;
    struct hk_heap *heap; /* NULL unless RUNNING */
};

_Static_assert(sizeof(struct hk_thread) <= 1024, "static TLS is scarce for libraries that are loaded with dlopen");

extern HK_TLS struct hk_thread hk_self;

/* The calling thread's heap, for a request that takes the slow path; NULL if the thread is a guest. */
struct hk_heap *hk_thread_heap(void);
/* Counts the calling thread for maintenance, at its first allocation that takes a slow path, whatever the size. No lock
 * held. */
void hk_thread_register(void);
/* Option checked is set: a heap that the calling thread has already gets it, too. No lock held. */
void hk_thread_check_frees(void);
/* True if p is the block that the calling thread has put into its outbox last. The outbox has been used. */
HK_INLINE bool hk_outbox_ends_with(const void *p) { return hk_get(hk_self.outbox_next - 1) == p; }
/* In the child of a fork: a key that another thread was making is made anew. */
void hk_thread_after_fork(void);
/* Sends what the calling thread's outbox holds. The lock of the thread's heap is held. */
void hk_thread_send(struct hk_fault *fault);
/* Takes the youngest block of the class that belongs to the guests back out of the calling thread's outbox; NULL if
 * there is none, or if it cannot be told whether it was freed twice. The lock of the thread's heap is held. */
void *hk_thread_take_back(unsigned cls, struct hk_fault *fault);
/* Gives what the calling thread's magazines and outbox hold back to the slabs, and its warm slots to the pool. */
void hk_thread_flush(struct hk_fault *fault);
/* The same, for the program (hak_thread_idle). No lock held. */
void hk_thread_idle(void);

#endif
