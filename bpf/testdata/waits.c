/* Waits of known truth. First it prints the distance of its thread-local variable from the thread
 * pointer, and its tid. Then it does what standard input says, and prints the tid of the thread
 * that did it, which had its context until then, and of "sync" for how many nanoseconds it waited:
 *
 * "lock": a thread takes a lock that another holds, until it waits there. The trace of the one that
 * holds it begins with 0xaa, that of the other with 0xbb.
 *
 * "sync PATH": the first thread writes to a file, and waits until that is on the disk, in a trace
 * that begins with 0xcc.
 *
 * "naps N": the first thread sleeps N times for a millisecond, in a trace of 0xcc.
 *
 * "replace": a thread waits for a connection, and its descriptor is made another connection's
 * meanwhile, in a trace that begins with 0xee.
 *
 * "expire FAMILY": the first thread waits for a socket of inet or unix to which nobody sends, for
 * 20 milliseconds, in a trace of 0xcc. "arrive": for a minute at most, until another thread sends.
 *
 * "sleeper": a thread begins to sleep for a millisecond again and again, in one trace of 0xdd. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Minor version 1, valid, trace present, sampled; then the trace, and ids of no meaning. */
struct slot {
    uint8_t bytes[37];
};

static __thread const struct slot *slot __attribute__((tls_model("local-exec")));
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile pid_t waiter;

static struct slot traced(uint8_t trace) {
    struct slot s = {{1, 0, 1, 1, 1}};
    memset(&s.bytes[5], 7, 32);
    s.bytes[5] = trace;
    return s;
}

static void nap(void) {
    struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

static void *take(void *unused) {
    struct slot own = traced(0xbb);
    slot = &own;
    waiter = gettid();
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    slot = NULL;
    nap(); /* its account is told when it leaves its CPU */
    return unused;
}

static void *sleep_on(void *unused) {
    struct slot own = traced(0xdd);
    slot = &own;
    waiter = gettid();
    for (;;)
        nap();
    return unused;
}

/* Whether a thread has left its CPU in a system call: its state says that it sleeps before that. */
static int sleeps(pid_t tid) {
    char path[64], call[16] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    size_t n = fread(call, 1, sizeof(call) - 1, f);
    fclose(f);
    return n && call[0] >= '0' && call[0] <= '9'; /* else it runs, or waits for memory */
}

static void lock(void) {
    pthread_t thread;
    waiter = 0;
    pthread_mutex_lock(&held);
    pthread_create(&thread, NULL, take, NULL);
    while (!waiter || !sleeps(waiter))
        nap();
    for (int i = 0; i < 20; i++) /* longer than a period */
        nap();
    struct slot own = traced(0xaa);
    slot = &own;
    pthread_mutex_unlock(&held);
    slot = NULL;
    pthread_join(thread, NULL);
}

static int connection[2]; /* both ends */

static void *receive(void *unused) {
    struct slot own = traced(0xee);
    char byte;
    slot = &own;
    waiter = gettid();
    if (read(connection[0], &byte, 1) != 1)
        exit(1);
    slot = NULL;
    nap();
    return unused;
}

static void connect_to(int listener, int ends[2]) {
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (getsockname(listener, (struct sockaddr *)&address, &size) ||
        connect(ends[0], (struct sockaddr *)&address, size) ||
        (ends[1] = accept(listener, NULL, NULL)) < 0)
        exit(1);
}

static void replace(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), other[2];
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pthread_t thread;
    if (bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 2))
        exit(1);
    connect_to(listener, connection);
    connect_to(listener, other);
    waiter = 0;
    pthread_create(&thread, NULL, receive, NULL);
    while (!waiter || !sleeps(waiter))
        nap();
    dup2(other[0], connection[0]);
    for (int i = 0; i < 20; i++)
        nap();
    if (write(connection[1], "x", 1) != 1)
        exit(1);
    pthread_join(thread, NULL);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t sync_file(const char *path) {
    static char content[1 << 20];
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    struct slot own = traced(0xcc);
    nap();
    slot = &own;
    memset(content, rand(), sizeof(content));
    uint64_t began = now_ns();
    if (fd < 0 || pwrite(fd, content, sizeof(content), 0) != sizeof(content) || fdatasync(fd))
        exit(1);
    uint64_t waited = now_ns() - began;
    nap();
    slot = NULL;
    nap();
    close(fd);
    return waited;
}

static void receive_within(int s, struct timeval most, ssize_t want) {
    struct slot own = traced(0xcc);
    char byte;
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)))
        exit(1);
    slot = &own;
    if (recv(s, &byte, 1, 0) != want)
        exit(1);
    slot = NULL;
    nap();
    close(s);
}

static void *send_later(void *to) {
    for (int i = 0; i < 20; i++) /* longer than a period */
        nap();
    if (send(*(int *)to, "x", 1, 0) != 1)
        exit(1);
    return NULL;
}

static void arrive(void) {
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(any);
    pthread_t thread;
    if (bind(in, (struct sockaddr *)&any, size) ||
        getsockname(in, (struct sockaddr *)&any, &size) ||
        connect(out, (struct sockaddr *)&any, size))
        exit(1);
    pthread_create(&thread, NULL, send_later, &out);
    receive_within(in, (struct timeval){60, 0}, 1);
    pthread_join(thread, NULL);
    close(out);
}

int main(void) {
    char command[16], argument[4096], line[4200];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%ld %d\n", (long)((intptr_t)&slot - (intptr_t)__builtin_thread_pointer()), gettid());
    while (fgets(line, sizeof(line), stdin) &&
           sscanf(line, "%15s %4095s", command, argument) >= 1) {
        pid_t did = gettid();
        uint64_t waited = 0;
        if (!strcmp(command, "lock")) {
            lock();
            did = waiter;
        } else if (!strcmp(command, "sync")) {
            waited = sync_file(argument);
        } else if (!strcmp(command, "replace")) {
            replace();
            did = waiter;
        } else if (!strcmp(command, "expire")) {
            int family = *argument == 'u' ? AF_UNIX : AF_INET;
            receive_within(socket(family, SOCK_DGRAM, 0), (struct timeval){0, 20000}, -1);
        } else if (!strcmp(command, "arrive")) {
            arrive();
        } else if (!strcmp(command, "sleeper")) {
            pthread_t thread;
            waiter = 0;
            pthread_create(&thread, NULL, sleep_on, NULL);
            while (!waiter)
                nap();
            did = waiter;
        } else {
            struct slot own = traced(0xcc);
            slot = &own;
            for (int i = atoi(argument); i > 0; i--)
                nap();
            slot = NULL;
            nap();
        }
        printf("%d %llu\n", did, (unsigned long long)waited);
    }
    return 0;
}
