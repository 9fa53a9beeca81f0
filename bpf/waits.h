/* What the programs of waits.bpf.c keep and count. */
#ifndef WAITS_H
#define WAITS_H

#include "correlator.h"

#include <stdbool.h>

/* What a thread did. Its time between two switches is in exactly one of these. */
enum thread_state {
    STATE_ON_CPU,    /* in one context */
    STATE_CHANGED,   /* on a CPU, and the context was another afterwards: a part is of it */
    STATE_RUNNABLE,  /* waited for a CPU */
    STATE_THROTTLED, /* the same, by the quota of a cgroup; runnable before Linux 6.18 */
    STATE_FUTEX,     /* locks, conditions and queues in user space; all that a JVM waits for without
                        a descriptor, Thread.sleep, too */
    STATE_SLEEP,     /* until a time, in a system call that does nothing else */
    STATE_NET,       /* for a socket that is none of UNIX */
    STATE_UNIX,      /* for a socket of the machine */
    STATE_PIPE,      /* for a pipe */
    STATE_POLL,      /* for one of several descriptors */
    STATE_DISK,      /* for a block device */
    STATE_FAULT,     /* in no system call: for memory */
    STATE_OTHER,     /* anything else, for instance a child, or a lock in the kernel */
    STATES,
};

/* What a thread did in one context.
 *
 *   offset size field
 *        0    8 first     CLOCK_MONOTONIC, ns: when it was first seen in the context
 *        8    8 last      the same: until when it was, at the least
 *       16  104 ns        by enum thread_state
 *      120  104 longest   the longest single time, ns
 *      224   52 times     how many times there were
 *      276    4 reserved  0
 */
struct account {
    __u64 first;
    __u64 last;
    __u64 ns[STATES];
    __u64 longest[STATES];
    __u32 times[STATES];
    __u32 reserved;
};

/* Whose account it is. Ids are bytes in the order of the wire. Spans of a transaction share one.
 *
 *   offset size field
 *        0    4 target          id of the target
 *        4    4 tid             of the thread, in the correlator's pid namespace
 *        8   16 trace_id
 *       24    8 transaction_id  0 with the ids of a record
 *       32    4 kind            enum correlator_context_kind, 0: of no context
 *       36    4 reserved        0
 */
struct account_key {
    __u32 target;
    __u32 tid;
    __u64 trace_id[2];
    __u64 transaction_id;
    __u32 kind;
    __u32 reserved;
};

/* What is known of a thread, in its task storage. Times are CLOCK_MONOTONIC, ns.
 *
 *   offset size field
 *        0    8 in       when it was switched in; 0: it does not run, or that is not known
 *        8    8 was_in   the former in
 *       16    8 out      when it was switched out; 0: it runs
 *       24    8 waking   when it was first woken since out, or last before
 *       32    8 flushed  when its account was last put into a table
 *       40    4 state    enum thread_state: what it does since out
 *       44    4 target   id of the target that it was of at out
 *       48   40 key      of account
 *       88  280 account  since flushed
 */
struct thread {
    __u64 in;
    __u64 was_in;
    __u64 out;
    __u64 waking;
    __u64 flushed;
    __u32 state;
    __u32 target;
    struct account_key key;
    struct account account;
};

/* Of one CPU. No two share a cache line.
 *
 *   offset size field
 *        0    8 counting    odd while the program puts an account into a table
 *        8    8 stored      accounts that were put into a table, or added to one there
 *       16    8 lost        accounts for which there was no room
 *       24    8 unknown     switches of threads whose context could not be read then
 *       32    8 stateless   switches of threads that there is no state of
 *       40    8 unwoken     waits whose end was not seen: they have the time until the thread ran
 *       48   16 reserved    0
 */
struct wait_counters {
    volatile __u64 counting;
    __u64 stored;
    __u64 lost;
    __u64 unknown;
    __u64 stateless;
    __u64 unwoken;
    __u64 reserved[2];
};

/* How many accounts of a target are in a table.
 *
 *   offset size field
 *        0    4 epoch  the value of that variable when they were counted
 *        4    4 used
 */
struct usage {
    __u32 epoch;
    __u32 used;
};

_Static_assert(STATES == 13, "the sizes in the tables above");
_Static_assert(__builtin_offsetof(struct account, ns) == 16, "ns");
_Static_assert(__builtin_offsetof(struct account, longest) == 120, "longest");
_Static_assert(__builtin_offsetof(struct account, times) == 224, "times");
_Static_assert(sizeof(struct account) == 280, "account");
_Static_assert(__builtin_offsetof(struct account_key, trace_id) == 8, "trace_id");
_Static_assert(__builtin_offsetof(struct account_key, kind) == 32, "kind");
_Static_assert(sizeof(struct account_key) == 40, "account_key");
_Static_assert(__builtin_offsetof(struct thread, key) == 48, "key");
_Static_assert(__builtin_offsetof(struct thread, account) == 88, "account");
_Static_assert(sizeof(struct thread) == 368, "thread");
_Static_assert(sizeof(struct wait_counters) == 64, "cache lines");

#endif
