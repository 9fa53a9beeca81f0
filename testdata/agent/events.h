/*
 * Events on standard output: one JSON object per line, whole lines only, from any thread.
 *
 * Each says of which process it is. Two kinds: replies (the answer to a command, exactly one each,
 * with "reply":true) and what happens by itself.
 */
#ifndef EVENTS_H
#define EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct event {
    FILE *out; /* where fields go; writes to memory */
    char *text;
    size_t size;
};

/* The event must stay where it is until it is closed. */
void event_open(struct event *event, const char *name, bool reply);
/* Ends the object, writes the line in one piece and frees the event. */
void event_close(struct event *event);

void event_number(struct event *event, const char *key, uint64_t value);
void event_bool(struct event *event, const char *key, bool value);
/* Text is taken for UTF-8: bytes from 0x80 on are passed through. */
void event_text(struct event *event, const char *key, const char *text);
/* Lower-case hex of up to 16 bytes. */
void event_hex(struct event *event, const char *key, const uint8_t *bytes, unsigned n);
/* A text of n bytes that may hold zeros. */
void event_text_n(struct event *event, const char *key, const char *text, size_t n);

/* CLOCK_MONOTONIC, in nanoseconds. */
uint64_t now_ns(void);

#endif
