#include "ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t nonce;

static uint64_t fnv1a(uint64_t hash, const uint8_t *bytes, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * FNV_PRIME;
    }
    return hash;
}

static void put64(uint8_t *out, uint64_t value) {
    for (int i = 7; i >= 0; i--, value >>= 8) {
        out[i] = (uint8_t)value;
    }
}

static uint64_t get64(const uint8_t *in) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value = value << 8 | in[i];
    }
    return value;
}

/* Last byte first: it differs most often, and so reaches every bit of the result. */
static uint64_t low_half(const uint8_t high[8]) {
    uint64_t hash = ~FNV_BASIS;
    for (int i = 7; i >= 0; i--) {
        hash = fnv1a(hash, high + i, 1);
    }
    return hash;
}

void ids_init(void) {
    if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) {
        perror("getrandom");
        exit(1);
    }
}

void ids_make(unsigned thread, uint64_t number, struct context *out) {
    put64(out->trace_id, nonce + ((uint64_t)thread << IDS_NUMBER_BITS) + number);
    put64(out->trace_id + 8, low_half(out->trace_id));
    put64(out->transaction_id, fnv1a(FNV_BASIS, out->trace_id, 16));
    ids_span(out, 1);
}

void ids_span(struct context *context, unsigned number) {
    put64(context->span_id, number ? fnv1a(FNV_BASIS + number, context->trace_id, 16) : 0);
}

void ids_origin(const uint8_t trace_id[16], uint64_t *thread, uint64_t *number) {
    uint64_t made = get64(trace_id) - nonce;
    *thread = made >> IDS_NUMBER_BITS;
    *number = made & ((UINT64_C(1) << IDS_NUMBER_BITS) - 1);
}

bool ids_fit(const uint8_t trace_id[16], const uint8_t transaction_id[8]) {
    return get64(trace_id + 8) == low_half(trace_id) &&
           get64(transaction_id) == fnv1a(FNV_BASIS, trace_id, 16);
}

void ids_hex(const uint8_t *bytes, unsigned n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = 0;
}

size_t ids_unhex(char *text) {
    size_t n = strlen(text) / 2;
    for (size_t i = 0; i < n; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0}, *end;
        text[i] = (char)strtoul(digits, &end, 16);
        if (*end) {
            return SIZE_MAX;
        }
    }
    return n;
}
