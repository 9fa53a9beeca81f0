/* What the programs of walks.bpf.c send. */
#ifndef WALKS_H
#define WALKS_H

#include "correlator_attributes.h"
#include "stack.h"
#include "waits.h"

/* The names of a path that are sent, the last first, and their bytes with a NUL. */
#define PATH_NAMES 4
#define NAME_BYTES 64

/* A wait whose stack was walked, and those that it stands for. Ids are bytes in the order of the
 * wire; times are ns.
 *
 *   offset size field
 *        0    8 time             CLOCK_MONOTONIC: when its stack was walked
 *        8   16 hash             of the stack, see hash_stack
 *       24    4 target           id of the target; 0: of a test
 *       28    4 tid              of the thread, in the correlator's pid namespace
 *       32   16 trace_id
 *       48    8 transaction_id   0 with the ids of a record
 *       56    8 span_id
 *       64    8 ns               the time that it stands for in its state
 *       72    8 longest          how long it was
 *       80    8 queued           the time that it stands for as waiting for a CPU afterwards
 *       88    8 queue            how long that was
 *       96    8 futex            the address that was waited at; 0: at none
 *      104    4 state            enum thread_state
 *      108    2 context          enum correlator_context_kind
 *      110    2 of_labels        1: context is that of labels, and attributes are theirs
 *      112    2 family           AF_INET or AF_INET6 if there is a peer, else 0
 *      114    2 port             of the peer, as on the wire
 *      116    4 attributes_size
 *      120   16 address          of the peer: 4 bytes or all
 *      136   56 waker
 *      192   16 thread           its name, with NULs at its end
 *      208  256 path             names of the file that was waited for, the last first; "": no more
 *      464 16+8n stack
 *   480+8n    - attributes       the entries of a struct correlator_attributes
 */
struct walked {
    __u64 time;
    __u64 hash[2];
    __u32 target;
    __u32 tid;
    __u64 trace_id[2];
    __u64 transaction_id;
    __u64 span_id;
    __u64 ns;
    __u64 longest;
    __u64 queued;
    __u64 queue;
    __u64 futex;
    __u32 state;
    __u16 context;
    __u16 of_labels;
    __u16 family;
    __u16 port;
    __u32 attributes_size;
    __u8 address[16];
    struct waker waker;
    char thread[16];
    char path[PATH_NAMES][NAME_BYTES];
    struct stack stack;
    __u8 attributes[512]; /* room, as the stack's addresses are fewer than there is room for */
};

/* What is being built of one.
 *
 *   offset size field
 *        0 7136 walked
 *     7136 2584 attributes  of the thread
 */
struct walk_scratch {
    struct walked walked;
    struct correlator_attributes_scratch attributes;
};

_Static_assert(__builtin_offsetof(struct walked, ns) == 64, "ns");
_Static_assert(__builtin_offsetof(struct walked, state) == 104, "state");
_Static_assert(__builtin_offsetof(struct walked, address) == 120, "address");
_Static_assert(__builtin_offsetof(struct walked, waker) == 136, "waker");
_Static_assert(__builtin_offsetof(struct walked, thread) == 192, "thread");
_Static_assert(__builtin_offsetof(struct walked, path) == 208, "path");
_Static_assert(__builtin_offsetof(struct walked, stack) == 464, "stack");
_Static_assert(__builtin_offsetof(struct walked, attributes) == 6624, "attributes");
_Static_assert(__builtin_offsetof(struct walk_scratch, attributes) == 7136, "attributes");

#endif
