/* The process context (OTEP 4719): what a process says of itself, for whoever reads its memory. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct pair {
    const char *key, *value;
};

#define PROCESS_MAX_PAIRS 64

struct pairs {
    struct pair list[PROCESS_MAX_PAIRS];
    unsigned n;
};

/* Replaces the value of a key, or adds it. False: there are too many. Strings must stay. */
bool pairs_set(struct pairs *pairs, const char *key, const char *value);

/* What is published. Nothing is shared with what was published before. */
struct process_context {
    struct pairs resource, attributes;
    const char *schema;    /* threadlocal.schema_version; null: not there */
    const char *keys;      /* threadlocal.attribute_key_map, by commas; null: not there */
    bool keys_in_resource; /* both in the resource, as older writers have them */
    bool same_payload;     /* updates rewrite the payload where it is, instead of a new one */
    bool no_memfd;         /* an anonymous mapping, which must have a name then */
};

/*
 * offset size field
 *      0    8 signature
 *      8    4 version: 2
 *     12    4 payload_size
 *     16    8 published_at: CLOCK_BOOTTIME, ns; 0 while it is written
 *     24    8 payload: its address
 */
struct process_header {
    char signature[8];
    uint32_t version;
    uint32_t payload_size;
    uint64_t published_at;
    uint64_t payload;
} __attribute__((packed, aligned(8)));

/* Null while nothing is published. Tests write into it what no writer would. */
extern struct process_header *process_header;

/* Publishes, or updates what is published. Null, or why it did not work. */
const char *process_publish(const struct process_context *context);

/* Unmaps what is published. */
void process_withdraw(void);

/* In a child after fork, in which the mapping is not there. */
void process_forget(void);

#endif
