/*
 * A server's day: peaks of load, and lulls in which little is asked for.
 *
 * Stands for web and application servers, whose sessions come and go by the thousand while the load is high and are
 * few at night. THREADS workers keep sessions, each of some blocks of many sizes; a request drops a session that its
 * draw hits and opens one, some of whose blocks another worker will free, some of which come from calloc,
 * aligned_alloc or realloc; now and then it needs a large buffer for a moment. In a peak, of PEAK_MS, sessions of
 * 128 MiB are live together; then all but those of 3 MiB, which are any, end; and in the lull, of LULL_MS, requests are
 * rare and 12 MiB live. At its end all rest for REST_MS: what the last requests happened to use is gone then, if it is
 * ever given back. After that half of the workers are replaced by new threads, which take over the sessions. Who keeps
 * the memory of a peak for the next one, keeps it for most of the time in vain.
 *
 * At the end of each rest a line is printed for the soak (bench/soak) to read:
 *     lull n=1 resident_kib=23456 live_kib=12288 floor_kib=19876
 *
 * Figure: resident over live at the ends of the rests, on average. Check: every byte of every block when it is freed,
 * and what calloc and aligned_alloc promise.
 *
 *     server_day THREADS DAYS PEAK_MS LULL_MS REST_MS
 */
#include "arguments.h"
#include "scene.h"
#include "sizes.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { PEAK_MIB = 128, LULL_MIB = 12, STAYING_MIB = 3 };
enum { SESSION_BLOCKS = 16, MEDIAN = 128, LARGEST = 32 << 10, ALIGNMENT = 64 };
enum { BUFFER_FIRST = 4 << 10, BUFFER_LARGEST = 1 << 20, REQUESTS_A_BUFFER = 64 };
enum { INBOX_ROOM = 1024, LULL_REST_MS = 5, MOST_MS = 24 * 3600 * 1000 };
static const double SPREAD_OCTAVES = 1.5;

struct session {
    uint64_t blocks[SESSION_BLOCKS]; /* 0 where there is none; the first is there if the session is */
};

/* Blocks that others want a worker to free. */
struct inbox {
    pthread_mutex_t lock;
    size_t count;
    uint64_t blocks[INBOX_ROOM];
};

struct worker {
    _Alignas(64) atomic_size_t live_bytes; /* of its sessions; written by the worker, as all that follows */
    atomic_size_t requests;                /* served in peaks */
    struct session *sessions;
    uint64_t state;
    struct worker *neighbour;
    bool cooled; /* in a lull: the sessions of the peak have ended */
    struct inbox inbox;
    pthread_t thread;
};

enum order { PEAK, LULL, REST, RETIRE };

static struct worker *workers;
static size_t threads;
static size_t session_room; /* of a worker */
static _Atomic enum order order;
static sem_t resting; /* posted by each worker that rests or has retired */
static sem_t go_on;

static void add_live(struct worker *worker, long bytes)
{
    size_t live = atomic_load_explicit(&worker->live_bytes, memory_order_relaxed);
    atomic_store_explicit(&worker->live_bytes, live + (size_t)bytes, memory_order_relaxed);
}

static size_t live_bytes(void)
{
    size_t sum = 0;
    for (size_t i = 0; i < threads; i++)
        sum += atomic_load_explicit(&workers[i].live_bytes, memory_order_relaxed);
    return sum;
}

static void *zeroed(size_t size)
{
    unsigned char *bytes = calloc(1, size);
    if (bytes && (bytes[0] != 0 || memcmp(bytes, bytes + 1, size - 1) != 0))
        fail("calloc(1, %zu) is not zeroed", size);
    return bytes;
}

static void *aligned(size_t size)
{
    void *address = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if ((uintptr_t)address % ALIGNMENT != 0)
        fail("aligned_alloc(%d, %zu) returned %p", ALIGNMENT, size, address);
    return address;
}

static void *regrown(size_t size)
{
    unsigned char *half = malloc(size / 2);
    if (!half)
        return NULL;
    memset(half, 1, size / 2);
    unsigned char *whole = realloc(half, size);
    if (whole && (whole[0] != 1 || memcmp(whole, whole + 1, size / 2 - 1) != 0))
        fail("realloc to %zu changed what was there", size);
    return whole;
}

static uint64_t draw_block(uint64_t *state)
{
    size_t size = size_lognormal(state, MEDIAN, SPREAD_OCTAVES, BLOCK_MIN, LARGEST);
    switch (random_next(state) % 16) {
    case 0: return block_adopt(zeroed(size), size);
    case 1: return block_adopt(aligned(size), size);
    case 2: return block_adopt(regrown(size), size);
    default: return block_new(size);
    }
}

static void open_session(struct worker *worker, struct session *session)
{
    size_t count = size_between(&worker->state, SESSION_BLOCKS / 4, SESSION_BLOCKS);
    for (size_t i = 0; i < count; i++) {
        session->blocks[i] = draw_block(&worker->state);
        add_live(worker, (long)block_size(session->blocks[i]));
    }
}

static bool hand_over(struct inbox *inbox, uint64_t block)
{
    pthread_mutex_lock(&inbox->lock);
    bool room = inbox->count < INBOX_ROOM;
    if (room)
        inbox->blocks[inbox->count++] = block;
    pthread_mutex_unlock(&inbox->lock);
    return room;
}

static void empty_inbox(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    while (inbox->count > 0)
        block_check_and_free(inbox->blocks[--inbox->count]);
    pthread_mutex_unlock(&inbox->lock);
}

static void drop_session(struct worker *worker, struct session *session)
{
    for (size_t i = 0; i < SESSION_BLOCKS && session->blocks[i]; i++) {
        add_live(worker, -(long)block_size(session->blocks[i]));
        if (i % 4 != 1 || !hand_over(&worker->neighbour->inbox, session->blocks[i]))
            block_check_and_free(session->blocks[i]);
        session->blocks[i] = 0;
    }
}

/* A buffer that grows by doubling, and is dropped. */
static void use_buffer(uint64_t *state)
{
    size_t goal = size_by_octaves(state, BUFFER_FIRST, BUFFER_LARGEST);
    unsigned char *buffer = NULL;
    for (size_t old = 0, size = BUFFER_FIRST; old < goal; old = size, size *= 2) {
        buffer = realloc(buffer, size);
        if (!buffer)
            fail("realloc to %zu returned NULL", size);
        memset(buffer + old, (int)(goal % 255), size - old);
        if (memcmp(buffer, buffer + 1, size - 1) != 0)
            fail("a buffer of %zu bytes changed", size);
    }
    free(buffer);
}

static struct session *draw_session(struct worker *worker)
{
    return &worker->sessions[random_below((uint32_t)random_next(&worker->state), session_room)];
}

/* One request, which leaves at most as many bytes live as there were, or as limit says. */
static void serve(struct worker *worker, size_t limit)
{
    empty_inbox(&worker->inbox);
    struct session *session = draw_session(worker);
    drop_session(worker, session);
    if (worker->live_bytes < limit)
        open_session(worker, session);
    if (random_next(&worker->state) % REQUESTS_A_BUFFER == 0)
        use_buffer(&worker->state);
}

static size_t share_of(size_t mib) { return (mib << 20) / threads; }

static void cool(struct worker *worker)
{
    while (worker->live_bytes > share_of(STAYING_MIB)) {
        drop_session(worker, draw_session(worker));
        empty_inbox(&worker->inbox);
    }
    while (worker->live_bytes < share_of(LULL_MIB))
        serve(worker, share_of(LULL_MIB));
    worker->cooled = true;
}

static void *work(void *argument_of_it)
{
    struct worker *worker = argument_of_it;
    for (;;) {
        switch (order) {
        case PEAK:
            worker->cooled = false;
            serve(worker, share_of(PEAK_MIB));
            atomic_fetch_add_explicit(&worker->requests, 1, memory_order_relaxed);
            break;
        case LULL:
            if (!worker->cooled)
                cool(worker);
            serve(worker, share_of(LULL_MIB));
            sleep_seconds(LULL_REST_MS * 1e-3);
            break;
        case REST:
            sem_post(&resting);
            while (sem_wait(&go_on) != 0)
                ;
            if ((worker - workers) % 2 == 0)
                break;
            return NULL; /* the main thread starts a successor */
        case RETIRE:
            for (size_t i = 0; i < session_room; i++)
                drop_session(worker, &worker->sessions[i]);
            return NULL;
        }
    }
}

static void start(struct worker *worker)
{
    if (pthread_create(&worker->thread, NULL, work, worker) != 0)
        fail("no thread");
}

struct lull {
    long resident_kib;
    long live_kib;
    long floor_kib;
};

/* To be called while all workers rest. */
static struct lull look(long resident_kib)
{
    struct page_set pages = page_set_new();
    size_t live = live_bytes();
    for (size_t i = 0; i < threads; i++) {
        for (size_t session = 0; session < session_room; session++)
            page_set_add_blocks(&pages, workers[i].sessions[session].blocks, SESSION_BLOCKS);
        page_set_add_blocks(&pages, workers[i].inbox.blocks, workers[i].inbox.count);
        for (size_t block = 0; block < workers[i].inbox.count; block++)
            live += block_size(workers[i].inbox.blocks[block]);
    }
    return (struct lull){resident_kib, (long)(live / 1024), page_set_finish(&pages)};
}

static struct lull end_of_lull(size_t day, double rest_seconds)
{
    order = REST;
    for (size_t i = 0; i < threads; i++)
        while (sem_wait(&resting) != 0)
            ;
    scene_watch(rest_seconds, live_bytes);
    struct lull lull = look(scene_resident_kib());
    char text[128];
    int length = snprintf(text, sizeof text, "lull n=%zu resident_kib=%ld live_kib=%ld floor_kib=%ld\n", day,
                          lull.resident_kib, lull.live_kib, lull.floor_kib);
    if (write(STDOUT_FILENO, text, (size_t)length) != length)
        fail("cannot write a line");
    return lull;
}

static void wake_and_replace(enum order next)
{
    order = next;
    for (size_t i = 0; i < threads; i++)
        sem_post(&go_on);
    for (size_t i = 1; i < threads; i += 2) {
        pthread_join(workers[i].thread, NULL);
        start(&workers[i]);
    }
}

int main(int argc, char **argv)
{
    threads = threads_argument(argc, argv, 1);
    size_t days = count_argument(argc, argv, 2, "DAYS");
    double peak_seconds = (double)argument_between(argc, argv, 3, "PEAK_MS", 1, MOST_MS) / 1000;
    double lull_seconds = (double)argument_between(argc, argv, 4, "LULL_MS", 1, MOST_MS) / 1000;
    double rest_seconds = (double)argument_between(argc, argv, 5, "REST_MS", 1, MOST_MS) / 1000;
    scene_begin();
    /* Twice the sessions that fill a peak, if their blocks had the median size. They are larger, so there is room. */
    session_room = share_of(PEAK_MIB) / (MEDIAN * SESSION_BLOCKS / 2);
    workers = own_table(threads, sizeof *workers);
    sem_init(&resting, 0, 0);
    sem_init(&go_on, 0, 0);
    for (size_t i = 0; i < threads; i++) {
        pthread_mutex_init(&workers[i].inbox.lock, NULL);
        workers[i].sessions = own_table(session_room, sizeof *workers[i].sessions);
        workers[i].state = i;
        workers[i].neighbour = &workers[(i + 1) % threads];
    }
    struct stopwatch begin = stopwatch_start();
    for (size_t i = 0; i < threads; i++)
        start(&workers[i]);
    struct lull lull = {0};
    double over_live = 0;
    for (size_t day = 1; day <= days; day++) {
        scene_watch(peak_seconds, live_bytes);
        order = LULL;
        scene_watch(lull_seconds, live_bytes);
        lull = end_of_lull(day, rest_seconds);
        over_live += (double)lull.resident_kib / (double)lull.live_kib;
        wake_and_replace(day < days ? PEAK : RETIRE);
    }
    size_t requests = 0;
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < threads; i++) {
        empty_inbox(&workers[i].inbox);
        requests += workers[i].requests;
    }
    struct stopwatch elapsed = stopwatch_read(begin);
    report(over_live / (double)days, "x live", elapsed,
           "settled_kib=%ld live_kib=%ld floor_kib=%ld settled_over_floor=%.0f scene_peak_kib=%ld krequests_per_s=%.3f",
           lull.resident_kib, lull.live_kib, lull.floor_kib, 100 * (double)lull.resident_kib / (double)lull.floor_kib,
           scene_peak_kib(), (double)requests / ((double)days * peak_seconds) / 1000);
    return 0;
}
