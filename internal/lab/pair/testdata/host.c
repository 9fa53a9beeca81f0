// Programs of a host that publish nothing, until the standard input ends:
//
//	host processes N    N processes of ten threads, each of which runs for 0.1 ms every second
//	host storm N        N processes a second that execute this program and run for 0.1 ms
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 10, RUN_NS = 100 * 1000, SECOND_NS = 1000 * 1000 * 1000 };

static long long now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1LL * SECOND_NS + t.tv_nsec;
}

static void run(void) {
    for (long long end = now_ns(CLOCK_THREAD_CPUTIME_ID) + RUN_NS;
         now_ns(CLOCK_THREAD_CPUTIME_ID) < end;)
        ;
}

static void sleep_ns(long long ns) {
    nanosleep(&(struct timespec){ns / SECOND_NS, ns % SECOND_NS}, NULL);
}

static void *work(void *first) {
    for (sleep_ns((long long)first);; sleep_ns(SECOND_NS))
        run();
    return NULL;
}

// process begins the work of its threads at times of their own.
static void process(int number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        long first = (number * THREADS + i) * 7919L % 1000 * (SECOND_NS / 1000);
        if (i == THREADS - 1)
            work((void *)first);
        if (pthread_create(&thread, NULL, work, (void *)first) != 0)
            exit(1);
    }
}

// ended reports whether the standard input has ended within a time.
static int ended(int timeout_ms) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char c;
    return poll(&in, 1, timeout_ms) > 0 && read(0, &c, 1) <= 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        run(); // of the storm
        return 0;
    }
    int n = atoi(argv[2]);
    if (strcmp(argv[1], "processes") == 0) {
        for (int i = 0; i < n; i++)
            if (fork() == 0)
                process(i);
        while (!ended(-1))
            ;
        return 0;
    }
    for (long long begun = 0, began = now_ns(CLOCK_MONOTONIC); !ended(0);) {
        if (begun * SECOND_NS / n > now_ns(CLOCK_MONOTONIC) - began) {
            sleep_ns(SECOND_NS / n);
            continue;
        }
        begun++;
        if (vfork() == 0) {
            execl("/proc/self/exe", "host", NULL);
            _exit(1);
        }
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    while (wait(NULL) > 0 || errno == EINTR)
        ;
}
