/* Reading the attributes of a record, which correlator.h has found, for another eBPF program:
 *
 *     struct correlator_attributes_scratch *scratch = ... a value of a per-CPU map ...
 *
 *     if (correlator_current(&targets, &context) >= CORRELATOR_UNSAMPLED) {
 *         correlator_read_attributes(&context, scratch);
 *         ... scratch->found ...
 *     }
 */
#ifndef CORRELATOR_ATTRIBUTES_H
#define CORRELATOR_ATTRIBUTES_H

#include "correlator.h"

/* Bounds of what is looked at in the process. A writer should have at most 612 bytes (OTEP 4947),
 * and of 10 attributes or so. What lies beyond is not there for a reader, even if it would replace
 * a value that lies within. */
#define CORRELATOR_RECORD_ATTRIBUTES_BYTES 1024
#define CORRELATOR_RECORD_ENTRIES 64

/* Room for what is wanted: with the 8 bytes before it a power of 2. */
#define CORRELATOR_ENTRIES_BYTES 504

/* The wanted attributes of a record, in the order in which the target has their keys; of several
 * with the same key the last one, of keys that the record has not none.
 *
 *   offset size field
 *        0    2 size      bytes of entries
 *        2    1 cut       1: of the record's attributes some were not read, or not kept
 *        3    1 unknown   1: one that was read has a key that is not among the target's known_keys
 *        4    4 reserved  0
 *        8  504 entries   as in the record: key (1 byte), length (1 byte), value; without padding
 */
struct correlator_attributes {
    __u16 size;
    __u8 cut;
    __u8 unknown;
    __u32 reserved;
    __u8 entries[CORRELATOR_ENTRIES_BYTES];
};

_Static_assert(__builtin_offsetof(struct correlator_attributes, cut) == 2, "cut");
_Static_assert(__builtin_offsetof(struct correlator_attributes, unknown) == 3, "unknown");
_Static_assert(__builtin_offsetof(struct correlator_attributes, entries) == 8, "entries");
_Static_assert(sizeof(struct correlator_attributes) == 512, "attributes");

/* Beside the result what is needed while reading. The verifier knows of sizes and offsets only
 * which bits may be set: beyond entries and raw there is room for whatever they allow.
 *
 *   offset size field
 *        0  512 found
 *      512  520 room      of which the first 8 bytes are written to at most
 *     1032  512 where     by key, of wanted ones: 1 + offset in raw of its last entry
 *     1544    4 next      offset in raw of what was not looked at yet
 *     1548    4 reserved
 *     1552 1024 raw       attributes of the record
 *     2576    8 tail      never written to
 */
struct correlator_attributes_scratch {
    struct correlator_attributes found;
    __u8 room[520];
    __u16 where[256];
    __u32 next;
    __u32 reserved;
    __u8 raw[CORRELATOR_RECORD_ATTRIBUTES_BYTES];
    __u8 tail[8];
};

_Static_assert(__builtin_offsetof(struct correlator_attributes_scratch, room) == 512, "room");
_Static_assert(__builtin_offsetof(struct correlator_attributes_scratch, where) == 1032, "where");
_Static_assert(__builtin_offsetof(struct correlator_attributes_scratch, next) == 1544, "next");
_Static_assert(__builtin_offsetof(struct correlator_attributes_scratch, raw) == 1552, "raw");
_Static_assert(__builtin_offsetof(struct correlator_attributes_scratch, tail) == 2576, "tail");
_Static_assert(sizeof(struct correlator_attributes_scratch) == 2584, "scratch");

/* A number below 2^n that the compiler may know to be one, and the verifier has to see to be. It is
 * for the last moment before the number is used: older kernels forget the bounds of what the
 * compiler keeps on the stack. */
#define correlator_bounded(number, power)                                                          \
    ({                                                                                             \
        __u64 bounded_ = (number);                                                                 \
        __asm__ __volatile__("" : "+r"(bounded_));                                                 \
        bounded_ &((power)-1);                                                                     \
    })

/* Notes where the next entry is. Returns 0 when there is none that ends before the end. */
static __always_inline int correlator_find_entry(struct correlator_attributes_scratch *scratch,
                                                 __u64 known_keys, __u64 end) {
    const __u8 *entry;
    __u64 at = scratch->next, next, key;

    if (at + 2 > end)
        return 0;
    entry = scratch->raw + correlator_bounded(at, CORRELATOR_RECORD_ATTRIBUTES_BYTES);
    key = entry[0];
    next = at + 2 + entry[1];
    if (next > end)
        return 0;
    scratch->where[key] = at + 1;
    if (key >= known_keys)
        scratch->found.unknown = 1;
    scratch->next = next;
    /* The next entry is looked for with what is read from memory again: for the verifier, that is
     * the same whatever this one was. */
    __asm__ __volatile__("" ::: "memory");
    return 1;
}

/* Copies the entry of a wanted key, if there is one. */
static __always_inline void correlator_take_entry(struct correlator_attributes_scratch *scratch,
                                                  __u64 key) {
    __u64 at = scratch->where[key], size = scratch->found.size, bytes;
    const __u8 *entry;

    if (!at)
        return;
    entry = scratch->raw + correlator_bounded(at - 1, CORRELATOR_RECORD_ATTRIBUTES_BYTES);
    bytes = 2 + (__u64)entry[1];
    if (size + bytes > CORRELATOR_ENTRIES_BYTES) {
        scratch->found.cut = 1;
        return;
    }
    bpf_probe_read_kernel(scratch->found.entries + correlator_bounded(size, 512),
                          correlator_bounded(bytes, 512), entry);
    scratch->found.size = size + bytes;
    __asm__ __volatile__("" ::: "memory"); /* as above */
}

/* Puts the wanted attributes of the context into scratch->found: none if it is of no record. */
static __always_inline void
correlator_read_attributes(const struct correlator_context *context,
                           struct correlator_attributes_scratch *scratch) {
    __u64 keys = context->attribute_keys, end = context->record.attributes_size;
    __u32 count = context->attribute_count;

    scratch->found.size = 0;
    scratch->found.cut = 0;
    scratch->found.unknown = 0;
    if (context->kind != CORRELATOR_OTEL || !count || !end)
        return;
    if (end > CORRELATOR_RECORD_ATTRIBUTES_BYTES) {
        end = CORRELATOR_RECORD_ATTRIBUTES_BYTES;
        scratch->found.cut = 1;
    }
    __asm__ __volatile__("" : "+r"(end));
    if (end > CORRELATOR_RECORD_ATTRIBUTES_BYTES) /* never; as correlator_bounded */
        return;
    if (bpf_probe_read_user(scratch->raw, end,
                            (const void *)(context->record_addr + CORRELATOR_RECORD_BYTES))) {
        scratch->found.cut = 1;
        return;
    }
    scratch->next = 0;
#pragma unroll
    for (int i = 0; i < CORRELATOR_ATTRIBUTES; i++)
        scratch->where[keys >> 8 * i & 0xff] = 0;
    for (int i = 0; i < CORRELATOR_RECORD_ENTRIES; i++)
        if (!correlator_find_entry(scratch, context->known_keys, end))
            break;
    if (scratch->next != end)
        scratch->found.cut = 1;
    for (__u32 i = 0; i < CORRELATOR_ATTRIBUTES && i < count; i++, keys >>= 8)
        correlator_take_entry(scratch, keys & 0xff);
}

#endif
