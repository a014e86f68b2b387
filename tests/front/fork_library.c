#include "fork_library.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int handled;

static void prepare(void)
{
    pthread_mutex_lock(&lock);
    handled++;
}

static void finish(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void begin(void) { pthread_atfork(prepare, finish, finish); }

void fork_library_locked(void (*work)(uint64_t *random), uint64_t *random)
{
    pthread_mutex_lock(&lock);
    work(random);
    pthread_mutex_unlock(&lock);
}

int fork_library_handled(void) { return handled; }
