#include "publisher.h"

#include "process.h"
#include "record.h"
#include "threadctx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct record_writer thread_writer;

/* Splits lines of KEY=VALUE in their place. Null, or what is wrong with them. */
static const char *split(char *lines, struct pairs *pairs) {
    for (char *line; (line = strsep(&lines, "\n"));) {
        if (!*line) {
            continue;
        }
        char *value = strchr(line, '=');
        if (!value) {
            return "a line is not KEY=VALUE";
        }
        *value = 0;
        if (!pairs_set(pairs, line, value + 1)) {
            return "too many attributes";
        }
    }
    return NULL;
}

const char *otel_publish(const char *resource, const char *schema, const char *keys) {
    struct process_context context = {.schema = schema, .keys = keys};
    char *lines = strdup(resource);
    if (!lines) {
        return strerror(errno);
    }
    const char *error = split(lines, &context.resource);
    if (!error) {
        error = process_publish(&context);
    }
    free(lines); /* what is published is a copy */
    return error;
}

void otel_withdraw(void) {
    process_withdraw();
}

const char *otel_attach(const void *record, size_t size) {
    if (size < RECORD_HEADER_BYTES || size > sizeof(struct record)) {
        return "a record has 28 to 65563 bytes";
    }
    thread_writer.variable = (struct record **)threadctx_variable();
    record_set(&thread_writer, record, size);
    return NULL;
}

void otel_detach(void) {
    thread_writer.variable = (struct record **)threadctx_variable();
    record_clear(&thread_writer);
}
