/*
 * A program with a pthread_create of its own, as tools have that look after a program's threads: it takes a lock and
 * allocates under it, and so does what it makes new threads begin with. The allocator, which makes a thread of its own
 * when a second thread allocates for the first time, must not do that through this one.
 */
#include "tasks.h"

enum { THREADS = 3 };

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

struct beginning {
    void *(*body)(void *);
    void *argument;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t *registered;
static size_t nregistered;

static void *begin(void *argument)
{
    struct beginning *beginning = argument;
    pthread_mutex_lock(&lock);
    registered = realloc(registered, ++nregistered * sizeof *registered); /* the thread's first allocation */
    HK_CHECK(registered != NULL, "no memory");
    registered[nregistered - 1] = pthread_self();
    pthread_mutex_unlock(&lock);
    void *result = beginning->body(beginning->argument);
    free(beginning);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    create_function *next;
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    HK_CHECK(next != NULL, "the C library has no pthread_create");
    pthread_mutex_lock(&lock);
    struct beginning *beginning = malloc(sizeof *beginning);
    HK_CHECK(beginning != NULL, "no memory");
    *beginning = (struct beginning){body, argument};
    pthread_mutex_unlock(&lock);
    return next(thread, attributes, begin, beginning);
}

static void *allocates(void *argument)
{
    free(malloc(100));
    return argument;
}

int main(void)
{
    hk_watchdog(30);
    pthread_t threads[THREADS];
    free(malloc(100));
    for (size_t i = 0; i < THREADS; i++)
        HK_CHECK(pthread_create(&threads[i], NULL, allocates, NULL) == 0, "no thread %zu", i);
    for (size_t i = 0; i < THREADS; i++)
        hk_join(threads[i]);
    HK_CHECK(hk_own_task() != 0, "no thread gives memory back");
    HK_CHECK(nregistered == THREADS, "%zu threads came by", nregistered);
    free(registered);
    return 0;
}
