/* The thread slot, and the only way it is written. Protocol, section 2. */
#ifndef SLOT_H
#define SLOT_H

#include "ids.h"

#include <stddef.h>
#include <string.h>

struct __attribute__((packed)) slot {
    uint16_t minor_version;
    uint8_t valid;
    uint8_t trace_present;
    uint8_t trace_flags;
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t transaction_id[8];
};

_Static_assert(sizeof(struct slot) == 37, "size of a thread slot");
_Static_assert(offsetof(struct slot, transaction_id) == 29, "offset of the transaction id");

/* valid = 0, the fields, valid = 1. A null context: no trace. Only the slot's own thread. */
static inline void slot_write(struct slot *slot, const struct context *context, uint8_t flags) {
    __atomic_store_n(&slot->valid, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    slot->minor_version = 1;
    slot->trace_present = context != NULL;
    if (context) {
        slot->trace_flags = flags;
        memcpy(slot->trace_id, context->trace_id, sizeof(slot->trace_id));
        memcpy(slot->span_id, context->span_id, sizeof(slot->span_id));
        memcpy(slot->transaction_id, context->transaction_id, sizeof(slot->transaction_id));
    }
    __atomic_store_n(&slot->valid, 1, __ATOMIC_RELEASE);
}

#endif
