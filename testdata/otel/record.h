/*
 * The record that a thread's variable points to, and the two ways to write it (OTEP 4947). Only the
 * thread itself writes its record, and is interrupted, or not at all, while it is read: the order
 * of its own stores is enough, for which compiler barriers are.
 */
#ifndef RECORD_H
#define RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_ATTRS_MAX UINT16_MAX

/*
 * offset size field
 *      0   16 trace_id
 *     16    8 span_id
 *     24    1 valid: 1, or the record is to be ignored
 *     25    1 flags, of W3C's trace context
 *     26    2 attrs_size, native byte order
 *     28      attrs: of each {u8 index in the key map, u8 length, value}, not aligned
 */
struct record {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t valid;
    uint8_t flags;
    uint16_t attrs_size;
    uint8_t attrs[RECORD_ATTRS_MAX];
} __attribute__((packed, aligned(2)));

#define RECORD_HEADER_BYTES offsetof(struct record, attrs)

/* A thread's writer. Records are never freed: their number is that of the threads, twice. */
struct record_writer {
    struct record **variable; /* the thread's; null until it is touched */
    bool in_place;            /* one record, its valid field switched; else the pointer is */
    struct record *current, *spare;
};

/* All functions: by the writer's own thread. The variable must have been touched. */

/* Makes what is in bytes, which begins like a struct record, the thread's record. */
void record_set(struct record_writer *writer, const uint8_t *bytes, size_t size);

/* The thread works on nothing: a null pointer, or a record that is not valid. */
void record_clear(struct record_writer *writer);

/* Sets the size of the attributes, of which some may be written first, behind those there are. */
void record_resize(struct record_writer *writer, const uint8_t *more, size_t more_size,
                   uint16_t attrs_size);

#endif
