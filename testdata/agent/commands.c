#include "commands.h"

#include "crowd.h"
#include "ids.h"
#include "otelctx.h"
#include "publish.h"
#include "receiver.h"
#include "restless.h"
#include "truth.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ARGUMENTS 2

static void answer(const char *name) {
    struct event event;
    event_open(&event, name, true);
    event_close(&event);
}

static const char *load_as(struct agent *agent, bool apart, bool reply) {
    if (!agent->library_path || agent->library.handle) {
        return agent->library_path ? "a library is loaded already" : "no library was given";
    }
    const char *error = library_load(agent->library_path, apart, &agent->library);
    if (error) {
        return error;
    }
    workers_use(&agent->library);
    struct event event;
    event_open(&event, "loaded", reply);
    event_text(&event, "path", agent->library_path);
    event_number(&event, "base", agent->library.base);
    event_number(&event, "storage_pointer", (uintptr_t)agent->library.storage);
    event_number(&event, "time_ns", agent->library.mapped_ns);
    event_close(&event);
    return NULL;
}

const char *agent_load(struct agent *agent, bool reply) {
    return load_as(agent, false, reply);
}

static const char *load(struct agent *agent, char **arguments) {
    if (arguments[0]) { /* the library before stays loaded, and is of no use any more */
        agent->library_path = strdup(arguments[0]);
        workers_use(NULL);
        agent->library = (struct library){0};
    }
    return agent_load(agent, true);
}

/* The library before stays loaded, as above. */
static const char *load_again(struct agent *agent, char **arguments) {
    (void)arguments;
    workers_use(NULL);
    agent->library = (struct library){0};
    return load_as(agent, true, true);
}

static const char *unload(struct agent *agent, char **arguments) {
    (void)arguments;
    if (!agent->library.handle) {
        return "no library is loaded";
    }
    workers_use(NULL);
    struct event event;
    event_open(&event, "unloaded", true);
    event_bool(&event, "still_mapped", library_unload(&agent->library, agent->library_path));
    event_close(&event);
    return NULL;
}

static const char *unlink_library(struct agent *agent, char **arguments) {
    (void)arguments;
    if (!agent->library_path || unlink(agent->library_path)) {
        return agent->library_path ? strerror(errno) : "no library was given";
    }
    answer("library_unlinked");
    return NULL;
}

static struct publication publication(const struct agent *agent) {
    return (struct publication){.exported = agent->library.storage,
                                .service = agent->service,
                                .environment = agent->environment};
}

static void tell_publication(const char *name, const struct publication *p, uint64_t late_ns,
                             bool reply) {
    struct event event;
    event_open(&event, name, reply);
    event_number(&event, "storage", (uintptr_t)p->storage);
    event_text(&event, "socket", receiver_path());
    event_number(&event, "time_ns", p->time_ns);
    event_number(&event, "late_ns", late_ns);
    event_close(&event);
}

static const char no_storage[] = "no library with a storage pointer is loaded";

const char *agent_publish(struct agent *agent, bool reply) {
    struct publication p = publication(agent);
    if (!p.exported) {
        return no_storage;
    }
    publish(&p);
    tell_publication("published", &p, agent->late_ns, reply);
    agent->late_ns = 0;
    return NULL;
}

static const char *publish_usual(struct agent *agent, char **arguments) {
    (void)arguments;
    return agent_publish(agent, true);
}

static const char *withdraw(struct agent *agent, char **arguments) {
    struct publication p = publication(agent);
    (void)arguments;
    if (!p.exported) {
        return no_storage;
    }
    publish_withdraw(&p);
    tell_publication("withdrawn", &p, 0, true);
    return NULL;
}

static const char *republish(struct agent *agent, char **arguments) {
    struct publication p = publication(agent);
    if (!p.exported) {
        return no_storage;
    }
    publish_withdraw(&p);
    const char *error = receiver_bind(arguments[0]);
    if (error) {
        return error;
    }
    if (arguments[1]) {
        agent->service = strdup(arguments[1]);
    }
    return agent_publish(agent, true);
}

static const char *republish_every(struct agent *agent, char **arguments) {
    struct publication p = publication(agent);
    uint64_t interval_us = strtoul(arguments[0], NULL, 10), times = 0;
    const char *error = p.exported ? NULL : no_storage;
    if (!error && interval_us) {
        error = restless_start(&p, 1000 * interval_us);
    } else if (!error) {
        times = restless_stop();
    }
    if (!error) {
        struct event event;
        event_open(&event, "republishing", true);
        event_number(&event, "times", times);
        event_close(&event);
    }
    return error;
}

static const char *hostile(struct agent *agent, char **arguments) {
    const char *kind = arguments[0], *argument = arguments[1] ? arguments[1] : "";
    const char *error;
    struct publication p = publication(agent);
    if (!strncmp(kind, "slot-", 5)) {
        error = worker_spoil((unsigned)atoi(argument), kind);
    } else {
        error = p.exported ? publish_hostile(&p, kind, argument) : no_storage;
    }
    if (!error) {
        tell_publication("hostile", &p, 0, true);
    }
    return error;
}

static const char *rebind_socket(struct agent *agent, char **arguments) {
    char path[256];
    (void)agent;
    (void)arguments;
    snprintf(path, sizeof(path), "%s", receiver_path());
    const char *error = path[0] ? receiver_bind(path) : "no socket was bound";
    if (!error) {
        answer("socket_rebound");
    }
    return error;
}

static const char *close_socket(struct agent *agent, char **arguments) {
    (void)agent;
    (void)arguments;
    receiver_close();
    answer("socket_closed");
    return NULL;
}

static const char *unlink_socket(struct agent *agent, char **arguments) {
    (void)agent;
    (void)arguments;
    receiver_unlink();
    answer("socket_unlinked");
    return NULL;
}

static void tell_threads(void) {
    struct event event;
    event_open(&event, "threads", true);
    workers_list(&event);
    event_close(&event);
}

static const char *start_threads(struct agent *agent, char **arguments) {
    const char *kind = arguments[1] ? arguments[1] : "busy";
    enum worker_kind chosen = !strcmp(kind, "untouched") ? WORKER_UNTOUCHED
                              : !strcmp(kind, "idle")    ? WORKER_IDLE
                                                         : WORKER_BUSY;
    (void)agent;
    const char *error = workers_start((unsigned)atoi(arguments[0]), chosen);
    if (!error) {
        tell_threads();
    }
    return error;
}

static const char *stop_threads(struct agent *agent, char **arguments) {
    (void)agent;
    (void)arguments;
    workers_stop();
    tell_threads();
    return NULL;
}

static const char *threads(struct agent *agent, char **arguments) {
    (void)agent;
    (void)arguments;
    tell_threads();
    return NULL;
}

static const char *begin(struct agent *agent, char **arguments) {
    (void)agent;
    return worker_begin((unsigned)atoi(arguments[0]));
}

static const char *span(struct agent *agent, char **arguments) {
    (void)agent;
    return worker_span((unsigned)atoi(arguments[0]), (unsigned)atoi(arguments[1]));
}

static const char *end(struct agent *agent, char **arguments) {
    (void)agent;
    return worker_end((unsigned)atoi(arguments[0]));
}

void agent_report(bool reply) {
    receiver_drain();
    struct event event;
    event_open(&event, "report", reply);
    receiver_report(&event);
    event_number(&event, "rewrites", workers_rewrites());
    truth_report(&event);
    event_close(&event);
}

static const char *report(struct agent *agent, char **arguments) {
    (void)agent;
    (void)arguments;
    agent_report(true);
    return NULL;
}

/* KIND:MILLISECONDS */
static const char *wait_in(struct agent *agent, char **arguments) {
    (void)agent;
    char *rest = arguments[1];
    const char *kind = strsep(&rest, ":");
    return worker_wait((unsigned)atoi(arguments[0]), kind,
                       rest ? strtoul(rest, NULL, 10) * 1000000 : 0);
}

static const char *account(struct agent *agent, char **arguments) {
    (void)agent;
    return worker_account((unsigned)atoi(arguments[0]));
}

static const char *otel_publish(struct agent *agent, char **arguments) {
    (void)agent;
    const char *error = otelctx_publish(arguments[0]);
    if (!error) {
        answer("otel_published");
    }
    return error;
}

static const char *otel_withdraw(struct agent *agent, char **arguments) {
    (void)agent;
    (void)arguments;
    const char *error = otelctx_withdraw();
    if (!error) {
        answer("otel_withdrawn");
    }
    return error;
}

static const char *otel_record(struct agent *agent, char **arguments) {
    (void)agent;
    size_t size = arguments[1] ? ids_unhex(arguments[1]) : 0;
    const char *error = worker_record((unsigned)atoi(arguments[0]), arguments[1], size);
    if (!error) {
        answer("otel_record");
    }
    return error;
}

/* Answered before it happens: afterwards this program is no more. */
static const char *execute(struct agent *agent, char **arguments) {
    (void)agent;
    struct event event;
    event_open(&event, "executing", true);
    event_close(&event);
    execlp(arguments[0], arguments[0], arguments[1], NULL);
    return strerror(errno);
}

/* The same, with this program and its options. */
static const char *restart(struct agent *agent, char **arguments) {
    struct event event;
    event_open(&event, "executing", true);
    event_close(&event);
    if (arguments[0]) {
        receiver_hand_on();
    }
    execv(agent->argv[0], agent->argv);
    return strerror(errno);
}

static const char *fork_copy(struct agent *agent, char **arguments) {
    (void)agent;
    int pid = crowd_fork(arguments[0] && !strcmp(arguments[0], "busy"));
    if (pid < 0) {
        return strerror(errno);
    }
    struct event event;
    event_open(&event, "forked", true);
    event_number(&event, "child", (uint64_t)pid);
    event_close(&event);
    return NULL;
}

static const char *borrow(struct agent *agent, char **arguments) {
    void *library = dlopen(arguments[0], RTLD_NOW), *symbol;
    double (*function)(double);
    (void)agent;
    if (!library || !(symbol = dlsym(library, arguments[1]))) {
        return dlerror();
    }
    memcpy(&function, &symbol, sizeof(function)); /* see library_load */
    work_borrow(function);
    answer("borrowed");
    return NULL;
}

static const char *change_root(struct agent *agent, char **arguments) {
    (void)agent;
    if (chroot(arguments[0])) {
        return strerror(errno);
    }
    answer("root_changed");
    return NULL;
}

static const struct command {
    const char *name;
    int min_arguments, max_arguments;
    const char *(*obey)(struct agent *agent, char **arguments);
} commands[] = {
    {"load", 0, 1, load},             /* [PATH] */
    {"load-again", 0, 0, load_again}, /* dlmopen: the same file, mapped once more */
    {"unload", 0, 0, unload},         /* dlclose */
    {"unlink-library", 0, 0, unlink_library},
    {"publish", 0, 0, publish_usual},
    {"withdraw", 0, 0, withdraw},
    {"republish", 1, 2, republish}, /* SOCKET [SERVICE]: null, new socket, new storage */
    {"republish-every", 1, 1, republish_every}, /* MICROSECONDS, from a thread; 0: no more */
    {"rebind-socket", 0, 0, rebind_socket},     /* a new socket at the same path */
    {"close-socket", 0, 0, close_socket},
    {"unlink-socket", 0, 0, unlink_socket},
    {"start-threads", 1, 2, start_threads}, /* N [busy|idle|untouched] */
    {"stop-threads", 0, 0, stop_threads},
    {"threads", 0, 0, threads},
    {"begin", 1, 1, begin},     /* THREAD */
    {"span", 2, 2, span},       /* THREAD NUMBER: another span of its transaction, 0: none */
    {"end", 1, 1, end},         /* THREAD */
    {"account", 1, 1, account}, /* THREAD: CPU, a lock, a socket and a sleep in one transaction */
    {"wait", 2, 2, wait_in},    /* THREAD KIND:MILLISECONDS: once, in a transaction of its own */
    {"hostile", 1, 2, hostile}, /* KIND [ARGUMENT]; slot-... THREAD */
    {"otel-publish", 1, 1, otel_publish}, /* SERVICE: the process context, or an update */
    {"otel-withdraw", 0, 0, otel_withdraw},
    {"otel-record", 1, 2, otel_record}, /* THREAD [HEX]: all of its record; without: none */
    {"report", 0, 0, report},
    {"exec", 1, 2, execute},    /* PROGRAM [ARGUMENT] */
    {"restart", 0, 1, restart}, /* [keep-socket]: exec of this program */
    {"fork", 0, 1, fork_copy},  /* [busy]: see crowd_fork */
    {"borrow", 2, 2, borrow},   /* LIBRARY FUNCTION: dlopen, and work in a double (*)(double) */
    {"chroot", 1, 1, change_root},
};

static const char *obey(struct agent *agent, const char *name, char **arguments, int n) {
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (strcmp(commands[i].name, name)) {
            continue;
        }
        if (n < commands[i].min_arguments || n > commands[i].max_arguments) {
            return "wrong number of arguments";
        }
        return commands[i].obey(agent, arguments);
    }
    return "no such command";
}

bool command_obey(struct agent *agent, char *line) {
    char *arguments[MAX_ARGUMENTS] = {NULL};
    char *rest = line, *name = strsep(&rest, " ");
    int n = 0;
    for (; rest && n < MAX_ARGUMENTS; n++) {
        arguments[n] = n == MAX_ARGUMENTS - 1 ? rest : strsep(&rest, " ");
    }
    if (!strcmp(name, "quit")) {
        workers_stop();
        agent_report(true);
        return false;
    }
    const char *error = obey(agent, name, arguments, n);
    if (error) {
        struct event event;
        event_open(&event, "error", true);
        event_text(&event, "command", name);
        event_text(&event, "error", error);
        event_close(&event);
    }
    return true;
}
