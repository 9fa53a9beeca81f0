#include "record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BARRIER() __asm__ volatile("" ::: "memory")

static struct record *new_record(void) {
    struct record *record = calloc(1, sizeof(*record));
    if (!record) {
        perror("calloc");
        exit(1);
    }
    return record;
}

static void publish(struct record_writer *writer, struct record *record) {
    BARRIER();
    *(struct record *volatile *)writer->variable = record;
    BARRIER();
}

/* Valid comes last, and is what the bytes say. */
static void fill(struct record *record, const uint8_t *bytes, size_t size) {
    uint8_t *to = (uint8_t *)record;
    const size_t valid = offsetof(struct record, valid);
    *(volatile uint8_t *)&record->valid = 0;
    BARRIER();
    memcpy(to, bytes, valid);
    memcpy(to + valid + 1, bytes + valid + 1, size - valid - 1);
    BARRIER();
    *(volatile uint8_t *)&record->valid = bytes[valid];
}

void record_set(struct record_writer *writer, const uint8_t *bytes, size_t size) {
    if (!writer->current) {
        writer->current = new_record();
        writer->spare = new_record();
    }
    if (!writer->in_place) {
        struct record *next = writer->spare;
        writer->spare = writer->current;
        writer->current = next;
    }
    fill(writer->current, bytes, size);
    publish(writer, writer->current);
}

void record_clear(struct record_writer *writer) {
    if (!writer->in_place) {
        publish(writer, NULL);
    } else if (writer->current) {
        *(volatile uint8_t *)&writer->current->valid = 0;
    }
}

void record_resize(struct record_writer *writer, const uint8_t *more, size_t more_size,
                   uint16_t attrs_size) {
    struct record *record = writer->current;
    size_t room = RECORD_ATTRS_MAX - record->attrs_size;
    memcpy(record->attrs + record->attrs_size, more, more_size < room ? more_size : room);
    BARRIER();
    *(volatile uint16_t *)&record->attrs_size = attrs_size;
}
