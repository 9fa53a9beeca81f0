/* Two threads that hand a byte back and forth on one CPU: each time, one is switched out, and the
 * other in. For each number on standard input it does so often, and prints the CPU time of that in
 * nanoseconds. First it prints the distance of its thread-local variable from the thread pointer.
 * The argument "context" has that point to a slot with a trace, and "labels" to a goroutine that
 * has labels of one, as in golabels_test.go. With "sleeper" a single thread sleeps so often on that
 * CPU instead, and prints how late it ran in the worst of a hundred. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static __thread const void *slot __attribute__((tls_model("local-exec")));
/* Minor version 1, valid, trace present, sampled; ids of no meaning. */
static const uint8_t traced[37] = {1, 0, 1, 1, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                   7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
static int there[2], back[2];
static const char *shown = "";

/* What is read of Go's runtime. */
struct goroutine {
    struct thread *m;
    const void *labels;
};

struct thread {
    uint64_t number;
    struct goroutine *current;
    bool extra;
};

struct label {
    const char *key;
    uint64_t key_length;
    const char *value;
    uint64_t value_length;
};

static const struct label labels[] = {
    {"trace_id", 8, "4bf92f3577b34da6a3ce929d0e0e4736", 32},
    {"span_id", 7, "00f067aa0ba902b7", 16},
};
static const struct {
    const struct label *array;
    uint64_t length, capacity;
} slice = {labels, 2, 2};

static void show(void) {
    static __thread struct goroutine own;
    static __thread struct thread m;

    if (!strcmp(shown, "context")) {
        slot = traced;
    }
    if (!strcmp(shown, "labels")) {
        m.number = (uint64_t)gettid();
        m.current = &own;
        own.m = &m;
        own.labels = &slice;
        slot = &own;
    }
}

static void *answer(void *unused) {
    char byte;
    show();
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {
    }
    return unused;
}

static uint64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sleeps for 500 us each time, and returns the 99th percentile of how late the thread ran, ns. */
static uint64_t sleep_often(long times) {
    uint64_t *late = calloc((size_t)times, sizeof(*late)), p99;
    struct timespec until, now;

    if (!late) {
        exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (long i = 0; i < times; i++) {
        until = now;
        until.tv_nsec += 500000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        late[i] =
            (uint64_t)((now.tv_sec - until.tv_sec) * 1000000000 + now.tv_nsec - until.tv_nsec);
    }
    qsort(late, (size_t)times, sizeof(*late), compare);
    p99 = late[times * 99 / 100];
    free(late);
    return p99;
}

int main(int argc, char **argv) {
    bool sleeps = argc > 1 && !strcmp(argv[1], "sleeper");
    pthread_t thread;
    cpu_set_t one;
    long times;
    char byte = 0;

    if (argc > 1) {
        shown = argv[1];
    }
    show();
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (prctl(PR_SET_TIMERSLACK, 1) || sched_setaffinity(0, sizeof(one), &one) || pipe(there) ||
        pipe(back) || pthread_create(&thread, NULL, answer, NULL)) {
        return 1;
    }
    printf("%ld\n", (long)((intptr_t)&slot - (intptr_t)__builtin_thread_pointer()));
    fflush(stdout);
    while (scanf("%ld", &times) == 1) {
        uint64_t before = cpu_ns();
        if (sleeps) {
            printf("%llu\n", (unsigned long long)sleep_often(times));
            fflush(stdout);
            continue;
        }
        for (long i = 0; i < times; i++) {
            if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) {
                return 1;
            }
        }
        printf("%llu\n", (unsigned long long)(cpu_ns() - before));
        fflush(stdout);
    }
    return 0;
}
