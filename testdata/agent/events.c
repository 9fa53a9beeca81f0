#include "events.h"

#include "ids.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void event_open(struct event *event, const char *name, bool reply) {
    event->out = open_memstream(&event->text, &event->size);
    if (!event->out) {
        perror("open_memstream");
        exit(1);
    }
    fprintf(event->out, "{\"event\":\"%s\",\"pid\":%d%s", name, (int)getpid(),
            reply ? ",\"reply\":true" : "");
}

void event_close(struct event *event) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    fputs("}\n", event->out);
    fclose(event->out);
    pthread_mutex_lock(&lock);
    for (size_t done = 0; done < event->size;) {
        ssize_t n = write(STDOUT_FILENO, event->text + done, event->size - done);
        if (n < 0) {
            break; /* whoever reads us is gone; the end of standard input says so too */
        }
        done += (size_t)n;
    }
    pthread_mutex_unlock(&lock);
    free(event->text);
}

void event_number(struct event *event, const char *key, uint64_t value) {
    fprintf(event->out, ",\"%s\":%llu", key, (unsigned long long)value);
}

void event_bool(struct event *event, const char *key, bool value) {
    fprintf(event->out, ",\"%s\":%s", key, value ? "true" : "false");
}

void event_text_n(struct event *event, const char *key, const char *text, size_t n) {
    fprintf(event->out, ",\"%s\":\"", key);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') {
            fprintf(event->out, "\\u%04x", c);
        } else {
            fputc(c, event->out);
        }
    }
    fputc('"', event->out);
}

void event_text(struct event *event, const char *key, const char *text) {
    event_text_n(event, key, text, strlen(text));
}

void event_hex(struct event *event, const char *key, const uint8_t *bytes, unsigned n) {
    char hex[2 * 16 + 1];
    ids_hex(bytes, n, hex);
    event_text(event, key, hex);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
