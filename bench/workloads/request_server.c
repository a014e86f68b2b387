/*
 * A server: one thread accepts, some work, one writes.
 *
 * Stands for web and application servers. Of what a request needs, some blocks end with it in the thread that made
 * them, some were made by the thread before and some are freed by the next, and some stay: sessions, which are
 * kept through many requests and replaced by whichever worker finds them used up. Sizes are those of headers,
 * short texts, growing answers and stored sessions.
 *
 * The acceptor makes requests with 8 to 16 headers as one text; a worker takes it apart into a list of names and
 * values, looks its session up, builds the answer in a buffer that doubles, and drops the rest; the writer drops the
 * answer. Sums over the text take the place of everything else that a server would compute.
 *
 * Figure: thousands of requests per second, by wall time. Check: the sum over each request's values arrives in its
 * answer, and every request is answered once.
 *
 *     request_server WORKERS REQUESTS
 */
#include "arguments.h"
#include "sizes.h"
#include "threads.h"

enum {
    MIN_HEADERS = 8,
    MAX_HEADERS = 16,
    MEDIAN_VALUE = 16,
    MOST_VALUE = 256,
    LINE_ROOM = MOST_VALUE + 32,
    FIRST_ANSWER = 128,
    SESSIONS = 8192,
    SHARDS = 64,
    SESSION_USES = 8,
    MEDIAN_SESSION = 400,
    MOST_SESSION = 8192
};
static const double VALUE_OCTAVES = 1.0, SESSION_OCTAVES = 1.2;
static const char *const names[] = {"Host", "Accept", "Accept-Encoding", "Cookie", "X-Forwarded-For", "If-None-Match"};
enum { NAMES = sizeof names / sizeof *names };

struct request {
    uint64_t number;
    uint64_t sum; /* of the bytes of all values, as it was written */
    char *text;   /* lines of `name: value` */
};

struct header {
    struct header *next;
    char *name;
    char *value;
};

struct session {
    uint32_t uses;
    uint32_t number;
    size_t size; /* of data */
    unsigned char data[];
};

struct answer {
    uint64_t number;
    uint64_t expected; /* the request's sum */
    uint64_t sum;      /* that of the values the worker found */
    size_t length;
    size_t room;
    char *body;
};

static size_t workers;
static size_t requests;
static atomic_size_t working; /* how many workers still are */
static struct channel accepted, answered;
static struct session *sessions[SESSIONS];
static pthread_mutex_t session_lock[SHARDS]; /* [number % SHARDS] */

static void *allocate(size_t size)
{
    void *block = malloc(size);
    if (!block)
        fail("malloc(%zu) returned NULL", size);
    return block;
}

static uint64_t sum_of(const char *text, size_t length)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++)
        sum += (unsigned char)text[i];
    return sum;
}

static struct request *request_new(uint64_t number, uint64_t *state)
{
    struct request *request = allocate(sizeof *request);
    char text[MAX_HEADERS * LINE_ROOM];
    size_t length = 0;
    request->number = number;
    request->sum = 0;
    for (size_t left = size_between(state, MIN_HEADERS, MAX_HEADERS); left > 0; left--) {
        const char *name = names[size_between(state, 0, NAMES - 1)];
        size_t value = size_lognormal(state, MEDIAN_VALUE, VALUE_OCTAVES, 1, MOST_VALUE);
        length += (size_t)(stpcpy(stpcpy(text + length, name), ": ") - (text + length));
        memset(text + length, (int)('a' + value % 26), value);
        request->sum += sum_of(text + length, value);
        length += value;
        text[length++] = '\n';
    }
    request->text = allocate(length + 1);
    memcpy(request->text, text, length);
    request->text[length] = '\0';
    return request;
}

static void accept_requests(void)
{
    uint64_t state = 1;
    for (uint64_t number = 0; number < requests; number++)
        channel_send(&accepted, request_new(number, &state));
    channel_close(&accepted);
}

static struct header *parse(const char *text)
{
    struct header *first = NULL;
    for (const char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        const char *colon = memchr(line, ':', (size_t)(end - line));
        struct header *header = allocate(sizeof *header);
        *header = (struct header){first, strndup(line, (size_t)(colon - line)),
                                  strndup(colon + 2, (size_t)(end - colon - 2))};
        if (!header->name || !header->value)
            fail("strndup returned NULL");
        first = header;
    }
    return first;
}

static void append(struct answer *answer, const char *text)
{
    size_t length = strlen(text);
    if (answer->length + length > answer->room) {
        while (answer->length + length > answer->room)
            answer->room = answer->room ? 2 * answer->room : FIRST_ANSWER;
        answer->body = realloc(answer->body, answer->room);
        if (!answer->body)
            fail("realloc to %zu returned NULL", answer->room);
    }
    memcpy(answer->body + answer->length, text, length);
    answer->length += length;
}

static struct session *session_new(size_t number, uint64_t *state)
{
    size_t size = size_lognormal(state, MEDIAN_SESSION, SESSION_OCTAVES, 1, MOST_SESSION);
    struct session *session = allocate(sizeof *session + size);
    *session = (struct session){.number = (uint32_t)number, .size = size};
    memset(session->data, (unsigned char)number, size);
    return session;
}

static void use_session(size_t number, uint64_t *state)
{
    pthread_mutex_t *lock = &session_lock[number % SHARDS];
    pthread_mutex_lock(lock);
    struct session *session = sessions[number];
    bool used_up = !session || ++session->uses == SESSION_USES;
    if (used_up)
        sessions[number] = NULL;
    pthread_mutex_unlock(lock);
    if (!used_up)
        return;
    if (session && (session->number != number || session->data[session->size - 1] != (unsigned char)number))
        fail("session %zu changed", number);
    free(session);
    session = session_new(number, state);
    pthread_mutex_lock(lock);
    struct session *other = sessions[number]; /* which another worker has made meanwhile */
    sessions[number] = session;
    pthread_mutex_unlock(lock);
    free(other);
}

static struct answer *answer_to(const struct request *request)
{
    struct answer *answer = allocate(sizeof *answer);
    *answer = (struct answer){.number = request->number, .expected = request->sum};
    for (struct header *header = parse(request->text), *next; header; header = next) {
        next = header->next;
        answer->sum += sum_of(header->value, strlen(header->value));
        append(answer, header->name);
        append(answer, "=");
        append(answer, header->value);
        free(header->name);
        free(header->value);
        free(header);
    }
    return answer;
}

static void work(size_t worker)
{
    uint64_t state = worker;
    for (struct request *request; (request = channel_receive(&accepted)) != NULL;) {
        use_session(size_between(&state, 0, SESSIONS - 1), &state);
        struct answer *answer = answer_to(request);
        free(request->text);
        free(request);
        channel_send(&answered, answer);
    }
    if (atomic_fetch_sub(&working, 1) == 1)
        channel_close(&answered);
}

static void write_answers(void)
{
    uint64_t count = 0, numbers = 0;
    for (struct answer *answer; (answer = channel_receive(&answered)) != NULL; count++) {
        if (answer->sum != answer->expected)
            fail("request %llu got a wrong answer", (unsigned long long)answer->number);
        numbers += answer->number;
        free(answer->body);
        free(answer);
    }
    if (count != requests || numbers != (uint64_t)requests * (requests - 1) / 2)
        fail("%zu requests and %llu, or other, answers", requests, (unsigned long long)count);
}

static void run(size_t number)
{
    if (number == 0)
        accept_requests();
    else if (number <= workers)
        work(number);
    else
        write_answers();
}

int main(int argc, char **argv)
{
    workers = argument_between(argc, argv, 1, "WORKERS", 1, 1024);
    requests = count_argument(argc, argv, 2, "REQUESTS");
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&session_lock[i], NULL);
    channel_open(&accepted);
    channel_open(&answered);
    atomic_store(&working, workers);
    struct stopwatch elapsed = run_together(workers + 2, run);
    for (size_t i = 0; i < SESSIONS; i++)
        free(sessions[i]);
    report((double)requests / elapsed.wall * 1e-3, "krequests/s", elapsed, "requests=%zu", requests);
    return 0;
}
