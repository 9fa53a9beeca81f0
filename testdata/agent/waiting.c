#include "waiting.h"

#include "events.h"
#include "self.h"
#include "truth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What ends a wait, and when. */
struct end {
    int fd;            /* is written to; -1: a mutex is unlocked, which the thread has locked */
    uint64_t waiter;   /* the thread that waits */
    uint64_t after_ns; /* that it does */
    pthread_mutex_t mutex;
    atomic_bool locked;
    const struct tracer_options *holder; /* of a transaction of its own; or null */
};

static void sleep_ns(uint64_t ns) {
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR) {
    }
}

/* Returns when a thread of this process sleeps. */
static void await_sleep(uint64_t tid) {
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%llu/stat", (unsigned long long)tid);
    while (state != 'S') {
        FILE *stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) {
            perror(path);
        }
        fclose(stat);
        sleep_ns(1000000);
    }
}

static void *end_wait(void *argument) {
    struct end *end = argument;
    struct tracer tracer = {0};
    if (end->holder) {
        prctl(PR_SET_NAME, "holder");
        tracer_init(&tracer, TRUTH_THREADS - 1, end->holder);
        tracer_begin(&tracer);
    }
    if (end->fd < 0) {
        pthread_mutex_lock(&end->mutex);
        atomic_store(&end->locked, true);
    }
    await_sleep(end->waiter);
    sleep_ns(end->after_ns);
    if (end->fd < 0) {
        pthread_mutex_unlock(&end->mutex);
    } else if (write(end->fd, "", 1) != 1) {
        perror("write");
    }
    if (end->holder) {
        tracer_leave(&tracer);
    }
    return NULL;
}

/* Connects two sockets of loopback. The thread does not wait for that, which would be in the
 * account of its transaction beside the wait that is asked for. */
static int connect_pair(int fds[2]) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int failed = listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
                 listen(listener, 1) || getsockname(listener, (struct sockaddr *)&addr, &size);
    if (!failed) {
        fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        failed = connect(fds[1], (struct sockaddr *)&addr, sizeof(addr)) && errno != EINPROGRESS;
        while (!failed && (fds[0] = accept(listener, NULL, NULL)) < 0) {
            failed = errno != EAGAIN;
        }
    }
    close(listener);
    return failed;
}

const char *waiting_once(const char *kind, uint64_t least_ns, uint64_t *waited_ns,
                         const struct tracer_options *holder) {
    struct end end = {.fd = -1,
                      .waiter = self_tid(),
                      .after_ns = least_ns,
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .holder = holder};
    int fds[2] = {-1, -1}, failed = 0;
    bool sleeps = !strcmp(kind, "sleep"), locks = !strcmp(kind, "futex"),
         polls = !strcmp(kind, "poll");
    pthread_t thread;
    char byte;

    if (!strcmp(kind, "pipe") || polls) {
        failed = pipe(fds);
    } else if (!strcmp(kind, "unix")) {
        failed = socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
    } else if (!strcmp(kind, "net")) {
        failed = connect_pair(fds);
    } else if (!sleeps && !locks) {
        return "no such kind";
    }
    end.fd = fds[1];
    if (failed || (!sleeps && pthread_create(&thread, NULL, end_wait, &end))) {
        return strerror(errno);
    }
    while (locks && !atomic_load(&end.locked)) {
    }
    uint64_t began = now_ns();
    if (sleeps) {
        sleep_ns(least_ns);
    } else if (locks) {
        pthread_mutex_lock(&end.mutex);
    } else if (polls) {
        struct pollfd descriptor = {.fd = fds[0], .events = POLLIN};
        failed = poll(&descriptor, 1, -1) != 1;
    } else {
        failed = read(fds[0], &byte, 1) != 1;
    }
    *waited_ns = now_ns() - began;
    if (!sleeps) {
        pthread_join(thread, NULL);
    }
    if (!sleeps && !locks) {
        close(fds[0]);
        close(fds[1]);
    }
    return failed ? strerror(errno) : NULL;
}
