#include "restless.h"

#include "events.h"
#include "receiver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static struct publication publication;
static uint64_t interval_ns;
static char path[256];
static pthread_t thread;
static bool running;
static atomic_bool ending;
static uint64_t times; /* the thread's, while it runs */

/* How long nothing is published in between: half of the shortest useful interval. */
#define NULL_NS 50000

static void sleep_until(uint64_t ns) {
    struct timespec at = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void withdraw_and_bind(void) {
    publish_withdraw(&publication);
    const char *error = receiver_bind(path);
    if (error) {
        fprintf(stderr, "demo: republishing: %s\n", error);
        exit(1);
    }
}

static void *republish_until_ended(void *unused) {
    uint64_t due_ns = now_ns();
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    while (!atomic_load(&ending)) {
        withdraw_and_bind();
        sleep_until(due_ns + NULL_NS);
        publish(&publication);
        times++;
        due_ns += interval_ns;
        sleep_until(due_ns);
    }
    return NULL;
}

const char *restless_start(const struct publication *as, uint64_t interval) {
    if (running) {
        return "it runs already";
    }
    publication = *as;
    interval_ns = interval;
    times = 0;
    snprintf(path, sizeof(path), "%s", receiver_path());
    atomic_store(&ending, false);
    if (pthread_create(&thread, NULL, republish_until_ended, NULL)) {
        return "pthread_create says no";
    }
    running = true;
    return NULL;
}

uint64_t restless_stop(void) {
    if (running) {
        atomic_store(&ending, true);
        pthread_join(thread, NULL);
        running = false;
    }
    return times;
}
