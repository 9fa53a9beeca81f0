#include "receiver.h"

#include "truth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Correlation protocol version 1, section 3: native-endian, packed. */
struct __attribute__((packed)) header {
    uint16_t type;
    uint16_t minor_version;
};

struct __attribute__((packed)) registration {
    struct header header;
    uint32_t samples_delay_ms;
    uint32_t host_id_length;
    char host_id[]; /* to the end of the message */
};

struct __attribute__((packed)) correlation {
    struct header header;
    uint8_t trace_id[16];
    uint8_t transaction_id[8];
    uint8_t stack_trace_id[16];
    uint16_t count;
};

_Static_assert(sizeof(struct registration) == 12, "registration without host-id");
_Static_assert(sizeof(struct correlation) == 46, "trace correlation");

enum { TYPE_CORRELATION = 1, TYPE_REGISTRATION = 2, MINOR_VERSION = 1, MAX_COUNT = INT16_MAX };

/* messages = registrations + the four kinds of correlations + the malformed ones */
struct counters {
    uint64_t messages, registrations;
    uint64_t in_time, late, torn, foreign;                          /* correlations */
    uint64_t bad_type, bad_minor, bad_length, bad_count, truncated; /* malformed */
    uint64_t samples, late_samples, torn_samples, foreign_samples;  /* sums of counts */
    uint64_t unregistered; /* correlations on a socket before its registration; also in the above */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below but the atomics */
static int fd = -1;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static bool socket_registered; /* the present socket has had a registration */
static struct counters counters;
static uint32_t samples_delay_ms;
static char host_id[RECEIVER_BUFFER];
static uint32_t host_id_length;
static atomic_bool registered;
static bool never; /* read; set once at the start */

static uint64_t hold_ns(void) {
    return ((uint64_t)samples_delay_ms + RECEIVER_POLL_MS) * 1000000;
}

static void receive_registration(const char *message, size_t length, uint64_t sent_ns,
                                 uint64_t read_ns) {
    const struct registration *m = (const struct registration *)message;
    if (length < sizeof(*m) || length - sizeof(*m) != m->host_id_length) {
        counters.bad_length++;
        return;
    }
    if (m->header.minor_version != MINOR_VERSION) {
        counters.bad_minor++;
        return;
    }
    counters.registrations++;
    samples_delay_ms = m->samples_delay_ms;
    host_id_length = m->host_id_length;
    memcpy(host_id, m->host_id, host_id_length);
    socket_registered = true;
    atomic_store(&registered, true);

    struct event event;
    event_open(&event, "registered", false);
    event_number(&event, "samples_delay_ms", samples_delay_ms);
    event_text_n(&event, "host_id", host_id, host_id_length);
    event_number(&event, "sent_ns", sent_ns);
    event_number(&event, "read_ns", read_ns);
    event_close(&event);
}

static void receive_correlation(const char *message, size_t length, uint64_t read_ns) {
    const struct correlation *m = (const struct correlation *)message;
    if (length != sizeof(*m)) {
        counters.bad_length++;
        return;
    }
    if (m->header.minor_version != MINOR_VERSION) {
        counters.bad_minor++;
        return;
    }
    if (m->count == 0 || m->count > MAX_COUNT) {
        counters.bad_count++;
        return;
    }
    counters.unregistered += !socket_registered;
    switch (truth_correlation(m->trace_id, m->transaction_id, m->stack_trace_id, m->count, read_ns,
                              hold_ns())) {
    case VERDICT_IN_TIME:
        counters.in_time++;
        counters.samples += m->count;
        break;
    case VERDICT_LATE:
        counters.late++;
        counters.late_samples += m->count;
        break;
    case VERDICT_TORN:
        counters.torn++;
        counters.torn_samples += m->count;
        break;
    case VERDICT_FOREIGN:
        counters.foreign++;
        counters.foreign_samples += m->count;
        break;
    }
}

static void receive_message(const char *message, size_t length, bool truncated, uint64_t sent_ns,
                            uint64_t read_ns) {
    const struct header *header = (const struct header *)message;
    counters.messages++;
    if (truncated) {
        counters.truncated++;
    } else if (length < sizeof(*header)) {
        counters.bad_length++;
    } else if (header->type == TYPE_REGISTRATION) {
        receive_registration(message, length, sent_ns, read_ns);
    } else if (header->type == TYPE_CORRELATION) {
        receive_correlation(message, length, read_ns);
    } else {
        counters.bad_type++;
    }
}

/*
 * When the message was sent, on the monotonic clock, from the kernel's stamp on the
 * realtime clock: the time of reading is only known to 20 ms.
 */
static uint64_t sent_at(struct msghdr *msg, uint64_t read_ns) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec sent, now;
            memcpy(&sent, CMSG_DATA(c), sizeof(sent));
            clock_gettime(CLOCK_REALTIME, &now);
            return read_ns - (uint64_t)((now.tv_sec - sent.tv_sec) * 1000000000LL + now.tv_nsec -
                                        sent.tv_nsec);
        }
    }
    return read_ns;
}

static void drain_locked(void) {
    while (fd >= 0) {
        char buffer[RECEIVER_BUFFER];
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct timespec))];
        struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);
        if (n < 0) {
            return;
        }
        uint64_t read_ns = now_ns();
        receive_message(buffer, (size_t)n, msg.msg_flags & MSG_TRUNC, sent_at(&msg, read_ns),
                        read_ns);
    }
}

void receiver_drain(void) {
    pthread_mutex_lock(&lock);
    if (!never) {
        drain_locked();
    }
    pthread_mutex_unlock(&lock);
}

static void *poll_forever(void *unused) {
    const struct timespec pause = {.tv_nsec = RECEIVER_POLL_MS * 1000000};
    (void)unused;
    for (;;) {
        nanosleep(&pause, NULL);
        receiver_drain();
    }
    return NULL;
}

void receiver_start(bool never_read) {
    pthread_t thread;
    never = never_read;
    if (!never_read && pthread_create(&thread, NULL, poll_forever, NULL)) {
        perror("pthread_create");
        exit(1);
    }
}

static void close_locked(void) {
    if (fd >= 0) {
        close(fd);
        fd = -1;
    }
}

static const char handed_on[] = "DEMO_SOCKET"; /* environment variable with its descriptor */

/* Takes over the socket that the program before handed on; it is bound to the same path. */
static bool take_over(const char *path) {
    const char *number = getenv(handed_on);
    if (!number) {
        return false;
    }
    fd = atoi(number);
    unsetenv(handed_on);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    strcpy(address.sun_path, path);
    return true;
}

void receiver_hand_on(void) {
    char number[16];
    pthread_mutex_lock(&lock);
    snprintf(number, sizeof(number), "%d", fd);
    setenv(handed_on, number, 1);
    fcntl(fd, F_SETFD, 0);
    pthread_mutex_unlock(&lock);
}

const char *receiver_bind(const char *path) {
    const char *error = NULL;
    int on = 1;
    if (strlen(path) >= sizeof(address.sun_path)) {
        return "the path does not fit sun_path";
    }
    if (take_over(path)) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    close_locked();
    if (address.sun_path[0]) {
        unlink(address.sun_path);
    }
    strcpy(address.sun_path, path);
    unlink(path);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address))) {
        error = strerror(errno);
        close_locked();
    }
    socket_registered = false;
    pthread_mutex_unlock(&lock);
    return error;
}

void receiver_close(void) {
    pthread_mutex_lock(&lock);
    close_locked();
    pthread_mutex_unlock(&lock);
}

void receiver_unlink(void) {
    pthread_mutex_lock(&lock);
    if (address.sun_path[0]) {
        unlink(address.sun_path);
    }
    pthread_mutex_unlock(&lock);
}

const char *receiver_path(void) {
    return address.sun_path;
}

int receiver_fd(void) {
    pthread_mutex_lock(&lock);
    int now = fd;
    pthread_mutex_unlock(&lock);
    return now;
}

bool receiver_registered(void) {
    return atomic_load(&registered);
}

void receiver_report(struct event *event) {
    pthread_mutex_lock(&lock);
    struct counters c = counters;
    event_number(event, "samples_delay_ms", samples_delay_ms);
    event_text_n(event, "host_id", host_id, host_id_length);
    pthread_mutex_unlock(&lock);
    const struct {
        const char *key;
        uint64_t value;
    } fields[] = {
        {"messages", c.messages},
        {"registrations", c.registrations},
        {"in_time", c.in_time},
        {"late", c.late},
        {"torn", c.torn},
        {"foreign", c.foreign},
        {"malformed", c.bad_type + c.bad_minor + c.bad_length + c.bad_count + c.truncated},
        {"bad_type", c.bad_type},
        {"bad_minor", c.bad_minor},
        {"bad_length", c.bad_length},
        {"bad_count", c.bad_count},
        {"truncated", c.truncated},
        {"samples", c.samples},
        {"late_samples", c.late_samples},
        {"torn_samples", c.torn_samples},
        {"foreign_samples", c.foreign_samples},
        {"unregistered", c.unregistered},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        event_number(event, fields[i].key, fields[i].value);
    }
}
