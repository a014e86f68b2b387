/*
 * Proves: the C library's thread for timers (SIGEV_THREAD) goes on waiting for its signal, though it is the second that
 * allocates, and so the one whose call makes the allocator's thread.
 */
#include "tasks.h"
#include <semaphore.h>
#include <signal.h>
#include <time.h>

enum { EXPIRIES = 30 };

static sem_t expired;

static void expires(union sigval unused)
{
    (void)unused;
    free(malloc(1000));
    sem_post(&expired);
}

int main(void)
{
    hk_watchdog(30);
    sem_init(&expired, 0, 0);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expires};
    const struct itimerspec often = {{0, 10000000}, {0, 10000000}};
    timer_t timer;
    HK_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    HK_CHECK(timer_settime(timer, 0, &often, NULL) == 0, "timer_settime");
    for (int i = 0; i < EXPIRIES; i++)
        while (sem_wait(&expired) != 0)
            ;
    HK_CHECK(hk_own_task_begun() != 0, "the allocator has no thread");
    timer_delete(timer);
    return 0;
}
