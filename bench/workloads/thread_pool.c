/*
 * A pool of threads that live on messages to each other.
 *
 * Stands for actor systems, task schedulers, event loops in several threads: a message is made by one worker, freed by
 * the one that handles it, which makes the next. Most are small; now and then one carries a buffer.
 *
 * Each worker has a mailbox, which it empties at once. Messages hop from worker to worker, chosen at random; the number
 * on the way stays the same until their hops are used up.
 *
 * Figure: messages handled per second, by wall time. Check: the buffers that messages carry, and that every message
 * that set out has arrived at its last hop.
 *
 *     thread_pool THREADS MESSAGES HOPS
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

enum { MEDIAN_MESSAGE = 96, MOST_MESSAGE = 2048, BUFFER_IN = 64, MIN_BUFFER = 4 << 10, MAX_BUFFER = 32 << 10 };
static const double MESSAGE_OCTAVES = 1.0;

struct message {
    struct message *next;
    uint32_t origin; /* which of the messages it began as */
    uint32_t hops;   /* that are left */
    char *buffer;    /* its size is in its first bytes; or NULL */
};

struct mailbox {
    _Alignas(CACHE_LINE) pthread_mutex_t lock; /* of all that follows; first and closed are looked at without it */
    pthread_cond_t filled;
    struct message *_Atomic first; /* newest first */
    atomic_bool closed;
};

static struct mailbox *mailboxes;
static size_t threads;
static atomic_size_t under_way;

static void put(struct mailbox *mailbox, struct message *message)
{
    pthread_mutex_lock(&mailbox->lock);
    bool was_empty = !mailbox->first;
    message->next = mailbox->first;
    mailbox->first = message;
    pthread_mutex_unlock(&mailbox->lock);
    if (was_empty)
        pthread_cond_signal(&mailbox->filled);
}

/* All that is there; NULL when there will be no more. */
static struct message *take_all(struct mailbox *mailbox)
{
    unsigned looks = 0;
    while (!mailbox->first && !mailbox->closed && !time_to_sleep(&looks))
        ;
    pthread_mutex_lock(&mailbox->lock);
    while (!mailbox->first && !mailbox->closed)
        pthread_cond_wait(&mailbox->filled, &mailbox->lock);
    struct message *all = mailbox->first;
    mailbox->first = NULL;
    pthread_mutex_unlock(&mailbox->lock);
    return all;
}

static void close_all(void)
{
    for (size_t i = 0; i < threads; i++) {
        pthread_mutex_lock(&mailboxes[i].lock);
        mailboxes[i].closed = true;
        pthread_mutex_unlock(&mailboxes[i].lock);
        pthread_cond_signal(&mailboxes[i].filled);
    }
}

static void *allocate(size_t size)
{
    void *block = malloc(size);
    if (!block)
        fail("malloc(%zu) returned NULL", size);
    return block;
}

static struct message *message_new(uint32_t origin, uint32_t hops, uint64_t *state)
{
    size_t size = size_lognormal(state, MEDIAN_MESSAGE, MESSAGE_OCTAVES, sizeof(struct message), MOST_MESSAGE);
    struct message *message = allocate(size);
    *message = (struct message){.origin = origin, .hops = hops};
    if (size_between(state, 1, BUFFER_IN) == 1) {
        size_t room = size_by_octaves(state, MIN_BUFFER, MAX_BUFFER);
        message->buffer = allocate(room);
        memcpy(message->buffer, &room, sizeof room);
        message->buffer[room - 1] = (char)origin;
    }
    return message;
}

static void check_and_free(struct message *message)
{
    if (message->buffer) {
        size_t room;
        memcpy(&room, message->buffer, sizeof room);
        if (room < MIN_BUFFER || room > MAX_BUFFER || message->buffer[room - 1] != (char)message->origin)
            fail("the buffer of message %u changed", message->origin);
        free(message->buffer);
    }
    free(message);
}

static void work(size_t number)
{
    uint64_t state = number + 1;
    for (struct message *message; (message = take_all(&mailboxes[number])) != NULL;) {
        for (struct message *next; message; message = next) {
            next = message->next;
            if (message->hops > 0) {
                struct message *onward = message_new(message->origin, message->hops - 1, &state);
                put(&mailboxes[size_between(&state, 0, threads - 1)], onward);
            } else if (atomic_fetch_sub(&under_way, 1) == 1) {
                close_all();
            }
            check_and_free(message);
        }
    }
}

int main(int argc, char **argv)
{
    threads = threads_argument(argc, argv, 1);
    size_t messages = count_argument(argc, argv, 2, "MESSAGES");
    size_t hops = count_argument(argc, argv, 3, "HOPS");
    mailboxes = table_of(threads, sizeof *mailboxes);
    for (size_t i = 0; i < threads; i++) {
        pthread_mutex_init(&mailboxes[i].lock, NULL);
        pthread_cond_init(&mailboxes[i].filled, NULL);
    }
    uint64_t state = 0;
    atomic_store(&under_way, messages);
    for (size_t i = 0; i < messages; i++)
        put(&mailboxes[i % threads], message_new((uint32_t)i, (uint32_t)hops, &state));

    struct stopwatch elapsed = run_together(threads, work);
    if (under_way != 0)
        fail("%zu messages have not arrived", (size_t)under_way);
    report((double)(messages * (hops + 1)) / elapsed.wall * 1e-6, "Mmessages/s", elapsed, "threads=%zu", threads);
    return 0;
}
