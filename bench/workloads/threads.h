/*
 * What workloads of several threads share: starting together, staying on a processor, and a channel between threads.
 *
 * Threads are dealt out to the processors in turn and stay there. Left to the scheduler, two that talk much are put on
 * one processor for a while, and then no cache line travels; which run gets how much of that is chance.
 */
#ifndef THREADS_H
#define THREADS_H

#include "workload.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { CACHE_LINE = 64 };

/* Keeps the calling thread on the n-th of the processors that the program may use, counted round and round. */
static inline void stay_on_processor(size_t n)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return; /* more processors than the set holds: it works unpinned, too */
    size_t cpu = 0;
    for (n %= (size_t)CPU_COUNT(&allowed); !CPU_ISSET(cpu, &allowed) || n-- > 0; cpu++)
        ;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/* A crew of threads that begin together. */
struct crew {
    void (*body)(size_t number);
    sem_t ready;            /* posted once by each that is there */
    pthread_barrier_t gate; /* all of them, and who started them */
};

struct crew_member {
    struct crew *crew;
    size_t number;
    pthread_t thread;
};

static void *crew_member_run(void *argument)
{
    struct crew_member *self = argument;
    stay_on_processor(self->number);
    sem_post(&self->crew->ready);
    pthread_barrier_wait(&self->crew->gate);
    self->crew->body(self->number);
    return NULL;
}

/* Runs body(0) to body(threads - 1), each in its thread. What has passed from when all could begin until the last has
 * ended: that a thread's end tidies up belongs to what an allocator costs. */
static inline struct stopwatch run_together(size_t threads, void (*body)(size_t number))
{
    struct crew crew = {.body = body};
    struct crew_member *members = table_of(threads, sizeof *members);
    sem_init(&crew.ready, 0, 0);
    pthread_barrier_init(&crew.gate, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        members[i].crew = &crew;
        members[i].number = i;
        if (pthread_create(&members[i].thread, NULL, crew_member_run, &members[i]) != 0)
            fail("no thread number %zu", i);
    }
    for (size_t i = 0; i < threads; i++)
        while (sem_wait(&crew.ready) != 0)
            ;
    struct stopwatch start = stopwatch_start();
    pthread_barrier_wait(&crew.gate);
    for (size_t i = 0; i < threads; i++)
        pthread_join(members[i].thread, NULL);
    return stopwatch_read(start);
}

/* For a thread that waits for another's work: to be called as long as it is not there. The first looks only yield the
 * processor; true when it is time to sleep instead. Sleeping and waking at every turn would cost more than what the
 * workloads measure. */
enum { LOOKS_BEFORE_SLEEP = 100 };

static inline bool time_to_sleep(unsigned *looks)
{
    if (*looks == LOOKS_BEFORE_SLEEP)
        return true;
    ++*looks;
    sched_yield();
    return false;
}

/* A bounded first-in first-out queue of pointers, for any number of senders and receivers, who sleep when they cannot
 * go on for long. What is sent was written before it is received. */
enum { CHANNEL_ROOM = 64 };

struct channel {
    _Alignas(CACHE_LINE) pthread_mutex_t lock; /* of all that follows; count and closed are looked at without it */
    pthread_cond_t filled;
    pthread_cond_t emptied;
    size_t first;
    atomic_size_t count;
    atomic_bool closed;
    void *item[CHANNEL_ROOM];
};

static inline void channel_open(struct channel *channel)
{
    pthread_mutex_init(&channel->lock, NULL);
    pthread_cond_init(&channel->filled, NULL);
    pthread_cond_init(&channel->emptied, NULL);
    channel->first = 0;
    atomic_init(&channel->count, 0);
    atomic_init(&channel->closed, false);
}

static inline void channel_send(struct channel *channel, void *item)
{
    unsigned looks = 0;
    while (channel->count == CHANNEL_ROOM && !time_to_sleep(&looks))
        ;
    pthread_mutex_lock(&channel->lock);
    while (channel->count == CHANNEL_ROOM)
        pthread_cond_wait(&channel->emptied, &channel->lock);
    channel->item[(channel->first + channel->count++) % CHANNEL_ROOM] = item;
    pthread_mutex_unlock(&channel->lock);
    pthread_cond_signal(&channel->filled);
}

/* The next item; NULL when there will be none. */
static inline void *channel_receive(struct channel *channel)
{
    void *item = NULL;
    unsigned looks = 0;
    while (channel->count == 0 && !channel->closed && !time_to_sleep(&looks))
        ;
    pthread_mutex_lock(&channel->lock);
    while (channel->count == 0 && !channel->closed)
        pthread_cond_wait(&channel->filled, &channel->lock);
    if (channel->count > 0) {
        item = channel->item[channel->first];
        channel->first = (channel->first + 1) % CHANNEL_ROOM;
        channel->count--;
    }
    pthread_mutex_unlock(&channel->lock);
    pthread_cond_signal(&channel->emptied);
    return item;
}

/* Nothing will be sent any more. */
static inline void channel_close(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel->closed = true;
    pthread_mutex_unlock(&channel->lock);
    pthread_cond_broadcast(&channel->filled);
}

#endif
