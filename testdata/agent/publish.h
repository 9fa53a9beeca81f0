/* Publishing process storage: as an agent does, and as an attacker would. */
#ifndef PUBLISH_H
#define PUBLISH_H

#include <stdint.h>

struct publication {
    void **exported; /* in: the library's process-storage pointer */
    const char *service, *environment;

    void *storage;    /* out: what it was set to, and when */
    uint64_t time_ns; /* CLOCK_MONOTONIC, just before */
};

/*
 * Publishes a storage that names the receiver's present socket, or null. Memory of an
 * earlier storage is freed, as an agent would.
 */
void publish(struct publication *publication);
void publish_withdraw(struct publication *publication);

/* See publish.c for the kinds and what their argument is. Null, or what is wrong. */
const char *publish_hostile(struct publication *publication, const char *kind,
                            const char *argument);

#endif
