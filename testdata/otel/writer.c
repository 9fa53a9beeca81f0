/*
 * A process that publishes by OpenTelemetry's two standards, with a known truth: who it is
 * (process.c) and what its threads work on (record.c).
 *
 * Options say the usual case; commands on standard input (commands.c) do the same step by step.
 * Events come out as JSON lines, as those of the demo process of ../agent. The end of standard
 * input is the command quit.
 *
 *   -DLINKED   the variable is part of the program, or of a library that it is linked with; else it
 *              is in the library given by --library, which is loaded by dlopen
 */
#include "commands.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum option_key {
    LIBRARY,
    IN_PLACE,
    RESOURCE,
    ATTRIBUTE,
    SCHEMA,
    KEYS,
    KEYS_IN_RESOURCE,
    SAME_PAYLOAD,
    NO_MEMFD,
    THREADS,
    HOLD,
    HELP,
};

static const struct {
    const char *name, *value, *text;
} descriptions[] = {
    [LIBRARY] = {"library", "PATH", "library with the variable, to be loaded"},
    [IN_PLACE] = {"in-place", NULL, "records are rewritten, instead of exchanged"},
    [RESOURCE] = {"resource", "KEY=VALUE", "attribute of the resource; any number of them"},
    [ATTRIBUTE] = {"attribute", "KEY=VALUE", "attribute beside the resource"},
    [SCHEMA] = {"schema", "TEXT", "threadlocal.schema_version (not there)"},
    [KEYS] = {"keys", "KEY,KEY...", "threadlocal.attribute_key_map (not there)"},
    [KEYS_IN_RESOURCE] = {"keys-in-resource", NULL, "both in the resource, as older writers do"},
    [SAME_PAYLOAD] = {"same-payload", NULL, "updates rewrite the payload, in the mapping"},
    [NO_MEMFD] = {"no-memfd", NULL, "an anonymous mapping, if the kernel can name it"},
    [THREADS] = {"threads", "N", "threads beside the main one (0)"},
    [HOLD] = {"hold", NULL, "neither load nor publish but by command"},
    [HELP] = {"help", NULL, "this text"},
};

#define OPTIONS (sizeof(descriptions) / sizeof(*descriptions))

static void usage(FILE *out) {
    fputs("usage: otel [option]...\n", out);
    for (size_t i = 0; i < OPTIONS; i++) {
        char left[40];
        snprintf(left, sizeof(left), "--%s %s", descriptions[i].name,
                 descriptions[i].value ? descriptions[i].value : "");
        fprintf(out, "  %-26s %s\n", left, descriptions[i].text);
    }
}

static void must(const char *what, const char *error) {
    if (error) {
        fprintf(stderr, "otel: %s: %s\n", what, error);
        exit(1);
    }
}

/* Splits KEY=VALUE, which stays. */
static const char *add_pair(struct pairs *pairs, char *text) {
    char *value = strchr(text, '=');
    if (!value) {
        return "not KEY=VALUE";
    }
    *value = 0;
    return pairs_set(pairs, text, value + 1) ? NULL : "too many";
}

static void set_option(struct writer *writer, enum option_key key, const char *value) {
    struct process_context *context = &writer->context;
    switch (key) {
    case LIBRARY:
        writer->library = value;
        break;
    case IN_PLACE:
        writer->in_place = true;
        break;
    case RESOURCE:
        must(value, add_pair(&context->resource, strdup(value)));
        break;
    case ATTRIBUTE:
        must(value, add_pair(&context->attributes, strdup(value)));
        break;
    case SCHEMA:
        context->schema = value;
        break;
    case KEYS:
        context->keys = value;
        break;
    case KEYS_IN_RESOURCE:
        context->keys_in_resource = true;
        break;
    case SAME_PAYLOAD:
        context->same_payload = true;
        break;
    case NO_MEMFD:
        context->no_memfd = true;
        break;
    case THREADS:
        writer->threads = (unsigned)strtoul(value, NULL, 10);
        break;
    case HOLD:
        writer->hold = true;
        break;
    case HELP:
        usage(stdout);
        exit(0);
    }
}

static void parse_options(struct writer *writer, int argc, char **argv) {
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
        set_option(writer, (enum option_key)key, optarg);
    }
    if (optind < argc) {
        usage(stderr);
        exit(2);
    }
}

static void start(struct writer *writer) {
    threads_init(writer_linked_variable, writer->in_place);
    must("threads", threads_start(writer->threads));
    if (!writer->hold) {
        if (writer->library) {
            must("library", writer_load(writer, false));
        }
        must("publishing", writer_publish(writer, false));
    }
    struct event event;
    event_open(&event, "ready", false);
    event_close(&event);
}

int main(int argc, char **argv) {
    static struct writer writer;
    char *line = NULL;
    size_t room = 0;
    writer.argv = argv;
    parse_options(&writer, argc, argv);
    start(&writer);
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        line[n - (line[n - 1] == '\n')] = 0;
        if (!command_obey(&writer, line)) {
            break;
        }
    }
    threads_stop();
    struct event event;
    event_open(&event, "bye", false);
    event_close(&event);
    return 0;
}
