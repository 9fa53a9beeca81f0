#include "commands.h"

#include "ids.h"
#include "threadctx.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef LINKED
void **(*const writer_linked_variable)(void) = threadctx_variable;

static const char *load_variable(const char *path, void **(**out)(void)) {
    (void)path;
    (void)out;
    return "the variable is linked with the program";
}
#else
#include <dlfcn.h>

void **(*const writer_linked_variable)(void) = NULL;

static const char *load_variable(const char *path, void **(**out)(void)) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *function = handle ? dlsym(handle, "threadctx_variable") : NULL;
    if (!function) {
        return dlerror();
    }
    memcpy(out, &function, sizeof(function)); /* ISO C does not let it be assigned */
    return NULL;
}
#endif

static void answer(const char *name, bool reply) {
    struct event event;
    event_open(&event, name, reply);
    event_close(&event);
}

const char *writer_load(struct writer *writer, bool reply) {
    void **(*variable)(void) = NULL;
    if (!writer->library) {
        return "no library was given";
    }
    const char *error = load_variable(writer->library, &variable);
    if (!error) {
        threads_use(variable);
        answer("loaded", reply);
    }
    return error;
}

static void tell_context(const char *name, bool reply) {
    struct event event;
    event_open(&event, name, reply);
    event_number(&event, "header", (uintptr_t)process_header);
    event_number(&event, "published_at", process_header ? process_header->published_at : 0);
    event_number(&event, "payload", process_header ? process_header->payload : 0);
    event_number(&event, "payload_size", process_header ? process_header->payload_size : 0);
    event_close(&event);
}

const char *writer_publish(struct writer *writer, bool reply) {
    const char *error = process_publish(&writer->context);
    if (!error) {
        tell_context("published", reply);
    }
    return error;
}

static const char *load(struct writer *writer, char **arguments) {
    (void)arguments;
    return writer_load(writer, true);
}

static const char *publish(struct writer *writer, char **arguments) {
    (void)arguments;
    return writer_publish(writer, true);
}

static const char *withdraw(struct writer *writer, char **arguments) {
    (void)writer;
    (void)arguments;
    process_withdraw();
    tell_context("withdrawn", true);
    return NULL;
}

static const char *set(struct writer *writer, char **arguments) {
    struct process_context *context = &writer->context;
    const char *kind = arguments[0];
    if (!strcmp(kind, "schema") || !strcmp(kind, "keys")) {
        char *value = arguments[1] ? strdup(arguments[1]) : NULL;
        *(*kind == 's' ? &context->schema : &context->keys) = value;
    } else if (!arguments[1] || (strcmp(kind, "resource") && strcmp(kind, "attribute"))) {
        return "neither schema, keys, resource nor attribute";
    } else {
        const char *value = arguments[2] ? strdup(arguments[2]) : "";
        struct pairs *pairs = *kind == 'r' ? &context->resource : &context->attributes;
        if (!pairs_set(pairs, strdup(arguments[1]), value)) {
            return "too many";
        }
    }
    answer("set", true);
    return NULL;
}

/* Changes a field of the published header to what no writer would. */
static const char *spoil(struct writer *writer, char **arguments) {
    const char *field = arguments[0];
    uint64_t value = strtoull(arguments[1], NULL, 0);
    (void)writer;
    if (!process_header) {
        return "nothing is published";
    }
    if (!strcmp(field, "signature")) {
        memcpy(process_header->signature, &value, sizeof(value));
    } else if (!strcmp(field, "version")) {
        process_header->version = (uint32_t)value;
    } else if (!strcmp(field, "payload_size")) {
        process_header->payload_size = (uint32_t)value;
    } else if (!strcmp(field, "published_at")) {
        process_header->published_at = value;
    } else if (!strcmp(field, "payload")) {
        process_header->payload = value;
    } else {
        return "no such field";
    }
    tell_context("spoiled", true);
    return NULL;
}

static void tell_threads(void) {
    struct event event;
    event_open(&event, "threads", true);
    threads_list(&event);
    event_close(&event);
}

static const char *list_threads(struct writer *writer, char **arguments) {
    (void)writer;
    (void)arguments;
    tell_threads();
    return NULL;
}

static const char *start_threads(struct writer *writer, char **arguments) {
    (void)writer;
    const char *error = threads_start((unsigned)strtoul(arguments[0], NULL, 10));
    if (!error) {
        tell_threads();
    }
    return error;
}

static const char *order(const char *thread, const struct order *order) {
    const char *error = thread_do((unsigned)strtoul(thread, NULL, 10), order);
    if (!error) {
        tell_threads();
    }
    return error;
}

static const char *set_record(struct writer *writer, char **arguments) {
    size_t size = ids_unhex(arguments[1]);
    (void)writer;
    if (size < RECORD_HEADER_BYTES || size > sizeof(struct record)) {
        return "no hex of a record";
    }
    return order(
        arguments[0],
        &(struct order){.action = THREAD_RECORD, .bytes = (uint8_t *)arguments[1], .size = size});
}

static const char *resize(struct writer *writer, char **arguments) {
    char nothing[] = "", *more = arguments[2] ? arguments[2] : nothing;
    size_t size = ids_unhex(more);
    (void)writer;
    if (size > RECORD_ATTRS_MAX) {
        return "no hex of attributes";
    }
    return order(arguments[0], &(struct order){.action = THREAD_RESIZE,
                                               .bytes = (uint8_t *)more,
                                               .size = size,
                                               .number = strtoull(arguments[1], NULL, 0)});
}

static const char *clear(struct writer *writer, char **arguments) {
    (void)writer;
    return order(arguments[0], &(struct order){.action = THREAD_CLEAR});
}

static const char *set_pointer(struct writer *writer, char **arguments) {
    (void)writer;
    return order(arguments[0], &(struct order){.action = THREAD_POINTER,
                                               .number = strtoull(arguments[1], NULL, 0)});
}

static const char *busy(struct writer *writer, char **arguments) {
    (void)writer;
    return order(arguments[0],
                 &(struct order){.action = THREAD_BUSY, .number = !strcmp(arguments[1], "on")});
}

/*
 * The child has the main thread alone, with its variable, and no process context unless it
 * publishes its own. Whoever waits for the end of our output must not wait for it.
 */
static void be_child(struct writer *writer, bool publishes, bool burns, int parent) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    process_forget();
    threads_forget();
    char error = publishes && process_publish(&writer->context) ? 1 : 0;
    if (write(parent, &error, 1) == 1) {
        close(parent);
        struct pollfd input = {.fd = STDIN_FILENO};
        while (poll(&input, 1, burns ? 0 : -1) <= 0) {
            otel_burn();
        }
    }
    _exit(0);
}

static const char *fork_child(struct writer *writer, char **arguments) {
    bool publishes = false, burns = false;
    int ends[2];
    for (int i = 0; i < 2 && arguments[i]; i++) {
        publishes |= !strcmp(arguments[i], "publish");
        burns |= !strcmp(arguments[i], "busy");
    }
    if (pipe2(ends, O_CLOEXEC)) {
        return strerror(errno);
    }
    signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
    pid_t child = fork();
    if (child == 0) {
        be_child(writer, publishes, burns, ends[1]);
    }
    close(ends[1]);
    char error = 1;
    ssize_t n = read(ends[0], &error, 1);
    close(ends[0]);
    if (child < 0 || n != 1 || error) {
        return "the child did not do it";
    }
    struct event event;
    event_open(&event, "forked", true);
    event_number(&event, "child", (uint64_t)child);
    event_close(&event);
    return NULL;
}

/* Answered before it happens: afterwards this program is no more. */
static const char *execute(struct writer *writer, char **arguments) {
    answer("executing", true);
    if (arguments[0]) {
        execlp(arguments[0], arguments[0], arguments[1], NULL);
    } else {
        execv(writer->argv[0], writer->argv);
    }
    return strerror(errno);
}

#define MAX_ARGUMENTS 3

static const struct command {
    const char *name;
    int min_arguments, max_arguments;
    const char *(*obey)(struct writer *writer, char **arguments);
} commands[] = {
    {"load", 0, 0, load},         /* dlopen of the library */
    {"publish", 0, 0, publish},   /* the process context, or an update of it */
    {"withdraw", 0, 0, withdraw}, /* of the process context */
    {"set", 1, 3, set},     /* schema|keys [TEXT], resource|attribute KEY [VALUE]: for publish */
    {"spoil", 2, 2, spoil}, /* FIELD NUMBER: of the header */
    {"start-threads", 1, 1, start_threads}, /* N */
    {"threads", 0, 0, list_threads},
    {"record", 2, 2, set_record}, /* THREAD HEX: of the whole record */
    {"resize", 2, 3, resize}, /* THREAD SIZE [HEX]: of the attributes, and what is added first */
    {"clear", 1, 1, clear},   /* THREAD */
    {"pointer", 2, 2, set_pointer}, /* THREAD ADDRESS: of its variable, as no writer would */
    {"busy", 2, 2, busy},           /* THREAD on|off */
    {"fork", 0, 2, fork_child},     /* [publish] [busy] */
    {"exec", 0, 2, execute},        /* [PROGRAM [ARGUMENT]]: this program, again, without */
};

static const char *obey(struct writer *writer, const char *name, char **arguments, int n) {
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (strcmp(commands[i].name, name)) {
            continue;
        }
        if (n < commands[i].min_arguments || n > commands[i].max_arguments) {
            return "wrong number of arguments";
        }
        return commands[i].obey(writer, arguments);
    }
    return "no such command";
}

bool command_obey(struct writer *writer, char *line) {
    char *arguments[MAX_ARGUMENTS] = {NULL};
    char *rest = line, *name = strsep(&rest, " ");
    int n = 0;
    for (; rest && n < MAX_ARGUMENTS; n++) {
        arguments[n] = n == MAX_ARGUMENTS - 1 ? rest : strsep(&rest, " ");
    }
    if (!strcmp(name, "quit")) {
        answer("quitting", true);
        return false;
    }
    const char *error = obey(writer, name, arguments, n);
    if (error) {
        struct event event;
        event_open(&event, "error", true);
        event_text(&event, "command", name);
        event_text(&event, "error", error);
        event_close(&event);
    }
    return true;
}
