/*
 * Ids that prove themselves. All bytes big-endian, in the order of the wire:
 *
 *   trace id        H | L
 *   H               nonce + (thread << 40) + number
 *   L               FNV-1a-64, basis ~B, over the bytes of H from the last to the first
 *   transaction id  FNV-1a-64, basis B,  over the 16 bytes of the trace id
 *   span id         FNV-1a-64, basis B + the number of the span, over the same; 0 bytes for number
 * 0
 *
 * B is FNV's own offset basis 0xcbf29ce484222325, the prime 0x100000001b3. The nonce is
 * random and of the process; thread is the index of the thread, number counts its
 * transactions from 1, as the number of a span counts those of a transaction. So a receiver knows
 * which thread made an id, whether this process ever made it, and any mix of two contexts does not
 * fit together.
 */
#ifndef IDS_H
#define IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDS_NUMBER_BITS 40

struct context {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t transaction_id[8];
};

/* Chooses the nonce of this process; before any other function here. */
void ids_init(void);

/* Of the first span of a transaction. */
void ids_make(unsigned thread, uint64_t number, struct context *out);

/* Another span of the same transaction; number 0: none. */
void ids_span(struct context *context, unsigned number);

/* Who would have made this trace id? Looks at H only; any 16 bytes have an answer. */
void ids_origin(const uint8_t trace_id[16], uint64_t *thread, uint64_t *number);

/* Do L and the transaction id belong to H? */
bool ids_fit(const uint8_t trace_id[16], const uint8_t transaction_id[8]);

/* Lower-case hex of n bytes and a terminator, 2n + 1 bytes in all. */
void ids_hex(const uint8_t *bytes, unsigned n, char *out);

/* Decodes hex in its place, and returns the number of bytes; SIZE_MAX: it is none. */
size_t ids_unhex(char *text);

#endif
