/*
 * Maintenance: who purges, and when.
 *
 * A process with several threads gets one more, which purges twice a second while there is something to purge, four
 * times when the process is quiet, and sleeps when there is nothing to do; the next slow path wakes it. It is made when
 * a second thread allocates for the first time, so that it is there before the program goes into a sandbox that forbids
 * more threads; never in a free, which the C library makes with locks held that pthread_create needs. It does not keep
 * a process alive whose other threads have ended, and a fork's child has none until it has threads itself. In all other
 * processes slow paths purge.
 */
#ifndef HK_FRONT_MAINTENANCE_H
#define HK_FRONT_MAINTENANCE_H

#include "base/fault.h"

enum hk_maintenance_state {
    HK_MAINTENANCE_NONE,
    HK_MAINTENANCE_STARTING,
    HK_MAINTENANCE_AWAKE,
    HK_MAINTENANCE_ASLEEP,
    HK_MAINTENANCE_UNAVAILABLE, /* a thread could not be made: not tried again */
};

extern _Atomic uint32_t hk_maintenance_state;

HK_INLINE bool hk_maintenance_is_asleep(void) { return hk_get(&hk_maintenance_state) == HK_MAINTENANCE_ASLEEP; }

/* What is due on a slow path; no lock held. Wakes the thread, or does a bounded part of its work. */
void hk_maintain(struct hk_fault *fault);

/* This process is the one to work for: at start, and in the child of a fork. */
void hk_maintenance_begin(void);
/* A thread with a destructor of ours makes its first slow allocation. No lock held. False if it is to be asked again at
 * the next, as this one is made by the child of a vfork, in its parent's memory: a thread made now would be the child's,
 * and go with it. */
bool hk_maintenance_thread_allocates(void);
/* Such a thread has ended. No lock held. */
void hk_maintenance_thread_ends(void);
/* In the child of a fork: alive tells whether the surviving thread has been counted. */
void hk_maintenance_after_fork(bool alive);

#endif
