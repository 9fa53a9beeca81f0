/* What the programs of sampler.bpf.c count, keep and send. */
#ifndef SAMPLER_H
#define SAMPLER_H

#include "golabels.h"

/* The result of a sample. Each sample has exactly one. Up to OUTCOME_UNSAMPLED they are those of
 * correlator.h. */
enum sample_outcome {
    OUTCOME_NO_TARGET = CORRELATOR_NO_TARGET,
    OUTCOME_STALE = CORRELATOR_STALE,
    OUTCOME_NO_USER_CODE = CORRELATOR_NO_USER_CODE,
    OUTCOME_NO_THREAD_POINTER = CORRELATOR_NO_THREAD_POINTER,
    OUTCOME_UNREADABLE = CORRELATOR_UNREADABLE, /* deferred to user space */
    OUTCOME_RECORD_UNREADABLE = CORRELATOR_RECORD_UNREADABLE,
    OUTCOME_NO_SLOT = CORRELATOR_NO_SLOT, /* counted in the table only if asked for */
    OUTCOME_UPDATING = CORRELATOR_UPDATING,
    OUTCOME_MALFORMED = CORRELATOR_MALFORMED,
    OUTCOME_NO_TRACE = CORRELATOR_NO_TRACE,   /* as NO_SLOT */
    OUTCOME_NOT_VALID = CORRELATOR_NOT_VALID, /* the same */
    OUTCOME_ZERO_IDS = CORRELATOR_ZERO_IDS,   /* the same */
    OUTCOME_UNSAMPLED = CORRELATOR_UNSAMPLED, /* the same */
    OUTCOME_CORRELATED = CORRELATOR_SAMPLED,  /* counted in the table */
    OUTCOME_TABLE_FULL,                       /* a table is full: deferred to user space */
    OUTCOME_UNWINDING_FAILED,                 /* to be counted or deferred, but has no stack, or
                                                 the unwinder's chain ended before its end */
    OUTCOME_LOST,                             /* to be deferred, but the ring buffer is full */
    OUTCOME_IDLE,                             /* the CPU was idle */
    OUTCOME_IN_KERNEL,                        /* of a target, in kernel code, where user memory must
                                                 not be read */
    OUTCOMES,
};

/* Of one CPU, host byte order. No two share a cache line.
 *
 *   offset size field
 *        0  152 outcomes          samples by enum sample_outcome
 *      152    8 stacks_stored     stacks put into the table
 *      160    8 counting          odd while a program counts in a table
 *      168    8 unwound_stored    as stacks_stored, of unwound ones
 *      176    8 pending           1 while a sample is in the unwinder's chain, and after that until
 *                                 the next sample of a target if the chain has lost it
 *      184    8 walked_instead    samples of which the unwinder has found nothing
 *      192    8 attributes_stored attributes put into a table
 *      200    8 attributes_cut    samples that lack attributes: correlator_attributes.cut
 *      208    8 unknown_keys      samples: correlator_attributes.unknown
 *      216    8 labels_refused    samples: GO_REFUSED
 *      224    8 of_obi            samples with a context of OBI's
 *      232   24 reserved          0
 */
struct counters {
    __u64 outcomes[OUTCOMES];
    __u64 stacks_stored;
    volatile __u64 counting;
    __u64 unwound_stored;
    volatile __u64 pending;
    __u64 walked_instead;
    __u64 attributes_stored;
    __u64 attributes_cut;
    __u64 unknown_keys;
    __u64 labels_refused;
    __u64 of_obi;
    __u64 reserved[3];
};

/* Identifies a stack of a process.
 *
 *   offset size field
 *        0   16 hash    of the stack, see hash_stack
 *       16    4 target  id of the target
 *       20    4 tid     of a count by thread, in the correlator's pid namespace; else 0:
 *                       threads share stacks
 */
struct stack_key {
    __u64 hash[2];
    __u32 target;
    __u32 tid;
};

/* The key of a count. Ids are bytes in the order of the wire.
 *
 *   offset size field
 *        0   24 stack
 *       24   16 trace_id
 *       40    8 transaction_id  0 with the ids of a record
 *       48    8 span_id         of a count by span; else 0: spans of a transaction share counts
 *       56    8 attributes      hash, with enum attributes_origin in its lowest bits; 0: ids of
 *                              a slot, or none
 */
struct count_key {
    struct stack_key stack;
    __u64 trace_id[2];
    __u64 transaction_id;
    __u64 span_id;
    __u64 attributes;
};

/* What attributes are of. */
enum attributes_origin {
    NO_ATTRIBUTES = 1, /* a record or labels, which have none of the wanted ones; no hash is this */
    ATTRIBUTES_OF_RECORD = 2, /* by the key map of the process */
    ATTRIBUTES_OF_LABELS = 3, /* by enum go_attribute */
    ATTRIBUTES_ORIGIN = 3,    /* the bits */
    OF_OBI = 4,               /* a context of OBI's, which has none; no hash is this, either */
};

/* Identifies attributes of a target. The value is the struct correlator_attributes.
 *
 *   offset size field
 *        0    8 hash      see hash_attributes
 *        8    4 target    id of the target
 *       12    4 reserved  0
 */
struct attributes_key {
    __u64 hash;
    __u32 target;
    __u32 reserved;
};

/* A count.
 *
 *   offset size field
 *        0    8 first        CLOCK_MONOTONIC of the first sample, ns
 *        8    8 last         the same of the last one
 *       16    4 samples
 *       20    4 trace_flags  of the last one
 *       24   16 thread       of a count by thread, its name at the first one, with NULs at its end
 */
struct count {
    __u64 first;
    __u64 last;
    __u32 samples;
    __u32 trace_flags;
    char thread[16];
};

/* A sample that is deferred to user space.
 *
 *   offset size field
 *        0    8 time            CLOCK_MONOTONIC, ns
 *        8    8 thread_pointer
 *       16    4 tid             in the correlator's pid namespace
 *       20    4 outcome         OUTCOME_UNREADABLE: no ids; OUTCOME_TABLE_FULL
 *       24   64 key             with ids if there are any
 *       88    4 trace_flags     the same
 *       92    4 pid             as tid
 *       96    4 attributes_size
 *      100    4 reserved        0
 *      104   16 thread          as in struct count
 *      120 16+8n stack
 *   136+8n    - attributes      the entries of a struct correlator_attributes
 */
struct deferred {
    __u64 time;
    __u64 thread_pointer;
    __u32 tid;
    __u32 outcome;
    struct count_key key;
    __u32 trace_flags;
    __u32 pid;
    __u32 attributes_size;
    __u32 reserved;
    char thread[16];
    struct stack stack;
    __u8 attributes[512]; /* room, as the stack's addresses are fewer than there is room for */
};

_Static_assert(__builtin_offsetof(struct counters, stacks_stored) == 152, "stacks_stored");
_Static_assert(__builtin_offsetof(struct counters, counting) == 160, "counting");
_Static_assert(__builtin_offsetof(struct counters, unwound_stored) == 168, "unwound_stored");
_Static_assert(__builtin_offsetof(struct counters, pending) == 176, "pending");
_Static_assert(__builtin_offsetof(struct counters, walked_instead) == 184, "walked_instead");
_Static_assert(__builtin_offsetof(struct counters, attributes_stored) == 192, "stored");
_Static_assert(__builtin_offsetof(struct counters, attributes_cut) == 200, "cut");
_Static_assert(__builtin_offsetof(struct counters, unknown_keys) == 208, "unknown_keys");
_Static_assert(__builtin_offsetof(struct counters, labels_refused) == 216, "labels_refused");
_Static_assert(__builtin_offsetof(struct counters, of_obi) == 224, "of_obi");
_Static_assert(sizeof(struct counters) == 256, "cache lines");
_Static_assert(OUTCOMES == 19, "the size in the table above");
_Static_assert(__builtin_offsetof(struct stack_key, target) == 16, "target");
_Static_assert(__builtin_offsetof(struct stack_key, tid) == 20, "tid");
_Static_assert(sizeof(struct stack_key) == 24, "stack_key");
_Static_assert(__builtin_offsetof(struct count_key, trace_id) == 24, "trace_id");
_Static_assert(__builtin_offsetof(struct count_key, transaction_id) == 40, "transaction_id");
_Static_assert(__builtin_offsetof(struct count_key, span_id) == 48, "span_id");
_Static_assert(__builtin_offsetof(struct count_key, attributes) == 56, "attributes");
_Static_assert(sizeof(struct count_key) == 64, "count_key");
_Static_assert(__builtin_offsetof(struct attributes_key, target) == 8, "target");
_Static_assert(sizeof(struct attributes_key) == 16, "attributes_key");
_Static_assert(__builtin_offsetof(struct count, last) == 8, "last");
_Static_assert(__builtin_offsetof(struct count, samples) == 16, "samples");
_Static_assert(__builtin_offsetof(struct count, trace_flags) == 20, "trace_flags");
_Static_assert(__builtin_offsetof(struct count, thread) == 24, "thread");
_Static_assert(sizeof(struct count) == 40, "count");
_Static_assert(__builtin_offsetof(struct deferred, tid) == 16, "tid");
_Static_assert(__builtin_offsetof(struct deferred, outcome) == 20, "outcome");
_Static_assert(__builtin_offsetof(struct deferred, key) == 24, "key");
_Static_assert(__builtin_offsetof(struct deferred, trace_flags) == 88, "trace_flags");
_Static_assert(__builtin_offsetof(struct deferred, pid) == 92, "pid");
_Static_assert(__builtin_offsetof(struct deferred, attributes_size) == 96, "attributes_size");
_Static_assert(__builtin_offsetof(struct deferred, thread) == 104, "thread");
_Static_assert(__builtin_offsetof(struct deferred, stack) == 120, "stack");
_Static_assert(__builtin_offsetof(struct deferred, attributes) == 6280, "attributes");

/* A sample being built, which is larger than a program's own stack.
 *
 *   offset size field
 *        0 6792 sample
 *     6792  120 context     of the thread
 *     6912    4 outcome     the same: enum correlator_outcome
 *     6916    4 publishes   0: its process publishes no context, but maybe by labels
 *     6920 2584 attributes  of the thread
 *     9504 1480 labels      the same
 */
struct scratch {
    struct deferred sample;
    struct correlator_context context;
    __u32 outcome;
    __u32 publishes;
    struct correlator_attributes_scratch attributes;
    struct go_scratch labels;
};

_Static_assert(__builtin_offsetof(struct scratch, context) == 6792, "context");
_Static_assert(__builtin_offsetof(struct scratch, outcome) == 6912, "outcome");
_Static_assert(__builtin_offsetof(struct scratch, attributes) == 6920, "attributes");
_Static_assert(__builtin_offsetof(struct scratch, labels) == 9504, "labels");
_Static_assert(sizeof(struct scratch) == 10984, "scratch");

#endif
