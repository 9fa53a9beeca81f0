/*
 * A demo APM process that plays an agent with a known truth: it loads the agent library,
 * binds the socket, publishes process storage, runs threads that switch between
 * transactions, reads what is sent to it and tells at the end what was right.
 *
 * Options say the usual case; commands on standard input (commands.c) do the same step by
 * step. Events come out as JSON lines. The end of standard input is the command quit;
 * SIGTERM and SIGINT too.
 */
#include "commands.h"
#include "crowd.h"
#include "ids.h"
#include "otelctx.h"
#include "receiver.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

struct demo {
    struct agent agent;
    struct worker_options workers;
    const char *socket;
    const char *otel_library; /* null: no contexts of OpenTelemetry's */
    unsigned threads, idle, untouched;
    bool hold; /* neither load nor publish but by command */
    bool never_read;
    bool read_at_once;  /* by the main thread, instead of every RECEIVER_POLL_MS by another one */
    unsigned processes; /* 0: this one alone */
    bool member;        /* of a crowd */
    uint64_t publish_after_ns, publish_within_ns; /* the latter sets the former */
};

enum option_key {
    LIBRARY,
    OTEL_LIBRARY,
    SOCKET,
    SERVICE,
    ENVIRONMENT,
    THREADS,
    IDLE,
    UNTOUCHED,
    TRANSACTION_MS,
    GAP_MS,
    MANUAL,
    REWRITE,
    SWAP,
    AUTO,
    UNSAMPLED,
    PAGE_OUT,
    HOLD,
    PUBLISH_AFTER_MS,
    PUBLISH_WITHIN_MS,
    NEVER_READ,
    READ_AT_ONCE,
    PROCESSES,
    REST,
    HELP,
};

static const struct {
    const char *name, *value, *text;
} descriptions[] = {
    [LIBRARY] = {"library", "PATH", "agent library to load"},
    [OTEL_LIBRARY] = {"otel-library", "PATH", "publish OpenTelemetry's contexts, too, with this"},
    [SOCKET] = {"socket", "PATH", "where to bind the socket"},
    [SERVICE] = {"service", "NAME", "service name (demo)"},
    [ENVIRONMENT] = {"environment", "NAME", "service environment (test)"},
    [THREADS] = {"threads", "N", "threads that burn CPU (0)"},
    [IDLE] = {"idle", "N", "threads that sleep in their transactions (0)"},
    [UNTOUCHED] = {"untouched", "N", "threads that never touch the variable (0)"},
    [TRANSACTION_MS] = {"transaction-ms", "N", "length of a transaction (50)"},
    [GAP_MS] = {"gap-ms", "N", "length of the gap between two (10)"},
    [MANUAL] = {"manual", NULL, "threads begin transactions only by command"},
    [REWRITE] = {"rewrite", "new|cycle", "threads rewrite their slots without pause"},
    [SWAP] = {"swap", NULL, "two slots per thread in turn, as with virtual threads"},
    [AUTO] = {"auto", NULL, "fill slots only after a registration"},
    [UNSAMPLED] = {"unsampled", NULL, "trace flags 0"},
    [PAGE_OUT] = {"page-out", NULL, "slots are paged out a while after they were written"},
    [HOLD] = {"hold", NULL, "do not load and publish at the start"},
    [PUBLISH_AFTER_MS] = {"publish-after-ms", "N", "publish that long after the start (0)"},
    [PUBLISH_WITHIN_MS] = {"publish-within-ms", "N", "publish at a random time until then (0)"},
    [NEVER_READ] = {"never-read", NULL, "never read the socket"},
    [READ_AT_ONCE] = {"read-at-once", NULL, "do not poll the socket, wait for it"},
    [PROCESSES] = {"processes", "N",
                   "as so many processes, at sockets PATH.0, PATH.1, ... (this one)"},
    [REST] = {"rest", NULL, "threads that burn CPU sleep three quarters of the time"},
    [HELP] = {"help", NULL, "this text"},
};

#define OPTIONS (sizeof(descriptions) / sizeof(*descriptions))

static void usage(FILE *out) {
    fputs("usage: demo [option]...\n", out);
    for (size_t i = 0; i < OPTIONS; i++) {
        char left[40];
        snprintf(left, sizeof(left), "--%s %s", descriptions[i].name,
                 descriptions[i].value ? descriptions[i].value : "");
        fprintf(out, "  %-26s %s\n", left, descriptions[i].text);
    }
}

static void wrong_use(const char *option, const char *value) {
    fprintf(stderr, "demo: --%s %s is not possible\n", option, value);
    usage(stderr);
    exit(2);
}

static uint64_t number(const char *option, const char *value) {
    char *end;
    errno = 0;
    unsigned long n = strtoul(value, &end, 10);
    if (errno || *end || end == value || n > 1000000) {
        wrong_use(option, value);
    }
    return n;
}

static void set_option(struct demo *demo, enum option_key key, const char *value) {
    const char *name = descriptions[key].name;
    switch (key) {
    case LIBRARY:
        demo->agent.library_path = value;
        break;
    case OTEL_LIBRARY:
        demo->otel_library = value;
        break;
    case SOCKET:
        demo->socket = value;
        break;
    case SERVICE:
        demo->agent.service = value;
        break;
    case ENVIRONMENT:
        demo->agent.environment = value;
        break;
    case THREADS:
        demo->threads = (unsigned)number(name, value);
        break;
    case IDLE:
        demo->idle = (unsigned)number(name, value);
        break;
    case UNTOUCHED:
        demo->untouched = (unsigned)number(name, value);
        break;
    case TRANSACTION_MS:
        demo->workers.transaction_ns = 1000000 * number(name, value);
        break;
    case GAP_MS:
        demo->workers.gap_ns = 1000000 * number(name, value);
        break;
    case MANUAL:
        demo->workers.manual = true;
        break;
    case REWRITE:
        if (strcmp(value, "new") && strcmp(value, "cycle")) {
            wrong_use(name, value);
        }
        demo->workers.tracer.rewrite = *value == 'n' ? REWRITE_NEW : REWRITE_CYCLE;
        break;
    case SWAP:
        demo->workers.tracer.swap = true;
        break;
    case AUTO:
        demo->workers.tracer.auto_enable = true;
        break;
    case UNSAMPLED:
        demo->workers.tracer.unsampled = true;
        break;
    case PAGE_OUT:
        demo->workers.tracer.page_out = true;
        break;
    case HOLD:
        demo->hold = true;
        break;
    case PUBLISH_AFTER_MS:
        demo->publish_after_ns = 1000000 * number(name, value);
        break;
    case PUBLISH_WITHIN_MS:
        demo->publish_within_ns = 1000000 * number(name, value);
        break;
    case NEVER_READ:
        demo->never_read = true;
        break;
    case READ_AT_ONCE:
        demo->read_at_once = true;
        break;
    case PROCESSES:
        demo->processes = (unsigned)number(name, value);
        break;
    case REST:
        demo->workers.rests = true;
        break;
    case HELP:
        usage(stdout);
        exit(0);
    }
}

static void parse_options(struct demo *demo, int argc, char **argv) {
    struct option options[OPTIONS + 1] = {{0}};
    for (size_t i = 0; i < OPTIONS; i++) {
        options[i] = (struct option){
            .name = descriptions[i].name, .has_arg = descriptions[i].value != NULL, .val = (int)i};
    }
    for (int key; (key = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (key == '?') {
            usage(stderr);
            exit(2);
        }
        set_option(demo, (enum option_key)key, optarg);
    }
    if (optind < argc) {
        wrong_use("", argv[optind]);
    }
}

static void must(const char *what, const char *error) {
    if (error) {
        fprintf(stderr, "demo: %s: %s\n", what, error);
        exit(1);
    }
}

static void start(struct demo *demo) {
    if (demo->socket) {
        must("socket", receiver_bind(demo->socket));
    }
    if (!demo->read_at_once) {
        receiver_start(demo->never_read);
    }
    if (demo->agent.library_path && !demo->hold) {
        must("library", agent_load(&demo->agent, false));
    }
    if (demo->otel_library) {
        must("otel-library", otelctx_load(demo->otel_library));
        must("otel-library", otelctx_publish(demo->agent.service));
    }
    must("threads", workers_start(demo->threads, WORKER_BUSY));
    must("threads", workers_start(demo->idle, WORKER_IDLE));
    must("threads", workers_start(demo->untouched, WORKER_UNTOUCHED));
    if (!demo->hold && !demo->publish_after_ns && demo->agent.library.storage) {
        must("publish", agent_publish(&demo->agent, false));
    }
    struct event event;
    event_open(&event, "ready", false);
    event_close(&event);
}

/* Obeys the whole lines in the buffer, keeps the rest. False: quit was one of them. */
static bool obey_lines(struct agent *agent, char *buffer, size_t *length) {
    char *line = buffer, *newline;
    while ((newline = memchr(line, '\n', *length - (size_t)(line - buffer)))) {
        *newline = 0;
        if (!command_obey(agent, line)) {
            return false;
        }
        line = newline + 1;
    }
    *length -= (size_t)(line - buffer);
    memmove(buffer, line, *length);
    return true;
}

static struct timespec until(uint64_t deadline_ns) {
    uint64_t now = now_ns();
    uint64_t ns = deadline_ns <= now ? 0 : deadline_ns - now;
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

/* Waits for what comes first until the command was quit; true when it has been answered. */
static bool serve(struct demo *demo, int signals) {
    static char buffer[1 << 16]; /* a service name of any length that is allowed fits */
    size_t length = 0;
    uint64_t publish_ns =
        demo->hold || !demo->publish_after_ns ? UINT64_MAX : now_ns() + demo->publish_after_ns;
    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = demo->member ? 0 : POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = demo->read_at_once ? receiver_fd() : -1, .events = POLLIN}};
        struct timespec timeout = until(publish_ns);
        ppoll(fds, 3, publish_ns == UINT64_MAX ? NULL : &timeout, NULL);
        if (now_ns() >= publish_ns) {
            demo->agent.late_ns = now_ns() - publish_ns;
            must("publish", agent_publish(&demo->agent, false));
            publish_ns = UINT64_MAX;
        }
        if (fds[2].revents) {
            receiver_drain();
        }
        if (fds[1].revents) {
            return false;
        }
        if (!fds[0].revents) {
            continue;
        }
        if (demo->member) {
            return false;
        }
        ssize_t n = read(STDIN_FILENO, buffer + length, sizeof(buffer) - length);
        if (n <= 0) {
            return false;
        }
        length += (size_t)n;
        if (!obey_lines(&demo->agent, buffer, &length)) {
            return true;
        }
    }
}

/* Returns in every member of the crowd. */
static void multiply(struct demo *demo) {
    unsigned number;
    bool well;
    if (!crowd_join(demo->processes, &number, &well)) {
        exit(well ? 0 : 1);
    }
    demo->member = true;
    char *socket;
    if (demo->socket && asprintf(&socket, "%s.%u", demo->socket, number) >= 0) {
        demo->socket = socket;
    }
}

/* Each process, not each crowd, has its own. */
static void choose_moment(struct demo *demo) {
    uint64_t random;
    if (getrandom(&random, sizeof(random), 0) == sizeof(random)) {
        demo->publish_after_ns = 1 + random % demo->publish_within_ns;
    }
}

int main(int argc, char **argv) {
    static struct demo demo = {
        .agent = {.service = "demo", .environment = "test"},
        .workers = {.transaction_ns = 50000000, .gap_ns = 10000000},
    };
    sigset_t mask;
    parse_options(&demo, argc, argv);
    demo.agent.argv = argv;
    if (demo.processes) {
        multiply(&demo);
    }
    if (demo.publish_within_ns) {
        choose_moment(&demo);
    }
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, NULL); /* threads inherit it */
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &mask, SFD_CLOEXEC);
    if (signals < 0) {
        perror("signalfd");
        return 1;
    }
    ids_init();
    workers_init(&demo.workers);
    start(&demo);
    if (!serve(&demo, signals)) {
        workers_stop();
        agent_report(false);
    }
    receiver_unlink();
    struct event event;
    event_open(&event, "bye", false);
    event_close(&event);
    return 0;
}
