/* What the programs of waits.bpf.c keep and count. */
#ifndef WAITS_H
#define WAITS_H

#include "maps.h"
#include "stack.h"

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
 *      276    4 queue_rest of a thread: its rest, below, of waits for a CPU, in QUEUE_UNIT of
 *                         budget.h; no part of the account
 */
struct account {
    __u64 first;
    __u64 last;
    __u64 ns[STATES];
    __u64 longest[STATES];
    __u32 times[STATES];
    __u32 queue_rest;
};

/* Whose account it is. Ids are bytes in the order of the wire. Spans of a transaction share one.
 *
 *   offset size field
 *        0    4 target          id of the target
 *        4    4 tid             of the thread, in the correlator's pid namespace
 *        8   16 trace_id        OF_THREAD: the thread's name, when the account is put into a table
 *       24    8 transaction_id  0 with the ids of a record
 *       32    4 kind            enum correlator_context_kind, or OF_THREAD; 0: of no context
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

/* The account is all that the thread does, and has a name in place of ids: see by_thread. */
#define OF_THREAD 255

/* Who ended a wait. All but kind is 0 unless that is WAKER_THREAD. */
enum waker_kind {
    WAKER_UNKNOWN,
    WAKER_THREAD,
    WAKER_TIMER,
    WAKER_DEVICE,
    WAKER_NETWORK,
};

/* Ids are bytes in the order of the wire.
 *
 *   offset size field
 *        0   16 trace_id
 *       16    8 transaction_id  0 with the ids of a record
 *       24    4 pid             in the correlator's pid namespace; 0: it is not there
 *       28    4 tid             the same
 *       32   16 name            of the thread, with NULs at its end
 *       48    1 kind            enum waker_kind
 *       49    1 context         enum correlator_context_kind, 0: it had no context
 *       50    2 reserved        0
 *       52    4 file            not of the waker: see mark_of; 0: the wait was for no file
 */
struct waker {
    __u64 trace_id[2];
    __u64 transaction_id;
    __u32 pid;
    __u32 tid;
    char name[16];
    __u8 kind;
    __u8 context;
    __u16 reserved;
    __u32 file;
};

/* What is known of a thread, in its task storage: with what the kernel adds, up to 80 bytes, it is
 * not to have more than 512. Times are CLOCK_MONOTONIC, ns.
 *
 *   offset size field
 *        0    8 in       when it was switched in; 0: it does not run, or that is not known
 *        8    8 out      when it was switched out; 0: it runs
 *       16    8 waking   when it was first woken since out, or last since in; 0: it was not
 *       24    8 ran      how long it had run in all when it was last switched in or out, by the
 *                        scheduler
 *       32    1 state    enum thread_state: what it does since out
 *       33    1 owed     the same of the waits that weight is of
 *       34    2 cpu      from which it was switched out last, modulo 2^16
 *       36    2 step     what rest is to add up to, see budget.h
 *       38    2 queue_step  the same of queue_rest
 *       40   40 key      of account. Its target is the one that the thread was of at out, also if
 *                        kind is 0
 *       80  280 account  since it was last put into a table
 *      360    8 rest     what waits that block have added up to, without stack: ns
 *      368    8 weight   what the next stack stands for, and is not known to have been walked: ns
 *      376   56 waker    of the wait that weight is of
 */
struct thread {
    __u64 in;
    __u64 out;
    __u64 waking;
    __u64 ran;
    __u8 state;
    __u8 owed;
    __u16 cpu;
    __u16 step;
    __u16 queue_step;
    struct account_key key;
    struct account account;
    __u64 rest;
    __u64 weight;
    struct waker waker;
};

/* The walk that is asked for on a CPU.
 *
 *   offset size field
 *        0    4 tid       of the thread whose stack is to be walked, in the initial pid namespace;
 *                         0: none
 *        4    4 unwinding 1 while a stack is in the unwinder's chain, and after that until the next
 *                         walk if the chain has lost it
 *        8    8 longest   how long the thread was blocked, ns
 *       16    8 queued    what the stack stands for, beside the thread's weight, as waiting for a
 *                         CPU after it was blocked, ns
 *       24    8 queue     how long it did that, ns
 *       32    8 in        that of the thread
 *       40    8 ip        where the thread has entered the kernel
 *       48    8 sp        the same
 *       56    4 test      1: the stack is all that is asked for
 *       60    4 frames    of kernel: how many there are
 *       64 1016 kernel    the thread's stack in the kernel, leaf first, as it was before it ran
 */
struct job {
    __u32 tid;
    __u32 unwinding;
    __u64 longest;
    __u64 queued;
    __u64 queue;
    __u64 in;
    __u64 ip;
    __u64 sp;
    __u32 test;
    __u32 frames;
    __u64 kernel[MAX_FRAMES];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
    unsigned int inum;
};

struct pid_namespace {
    struct ns_common ns;
};

#pragma clang attribute pop

/* The task's number in the pid namespace of that level and inode, 0 if it has none there. */
static __always_inline __u32 number_in(struct task_struct *task, __u32 level, __u32 inode) {
    struct pid *pid = BPF_CORE_READ(task, thread_pid);
    struct pid_namespace *namespace = NULL;

    if (!pid || BPF_CORE_READ(pid, level) < level)
        return 0;
    bpf_core_read(&namespace, sizeof(namespace), &pid->numbers[level].ns);
    return BPF_CORE_READ(namespace, ns.inum) == inode ? task_number(task, level) : 0;
}

/* Of one CPU. No two share a cache line.
 *
 *   offset size field
 *        0    8 counting    odd while the program puts an account into a table
 *        8    8 stored      accounts that were put into a table, or added to one there
 *       16    8 lost        accounts for which there was no room
 *       24    8 unknown     switches of threads whose context could not be read then
 *       32    8 stateless   switches of threads that there is no state of
 *       40    8 unwoken     waits whose end was not seen: they have the time until the thread ran
 *       48    8 until       see struct pace
 *       56    8 walked      stacks that were handed over
 *       64    8 unasked     stacks that were to be walked and were too many
 *       72    8 unasked_ns  what they stood for, and other time that no stack stands for
 *       80    8 unrung      walks that could not be asked for. What this and all that follow stood
 *                           for is what the thread's next wait of that state and context does
 *       88    8 missed      walks at which another thread ran, or that did not come
 *       96    8 unfinished  stacks that the unwinder has lost
 *      104    8 unsent      stacks for which there was no room
 *      112    8 unseen      switches of threads that the program was not run for
 *      120   72 reserved    0
 */
struct wait_counters {
    volatile __u64 counting;
    __u64 stored;
    __u64 lost;
    __u64 unknown;
    __u64 stateless;
    __u64 unwoken;
    __u64 until;
    __u64 walked;
    __u64 unasked;
    __u64 unasked_ns;
    __u64 unrung;
    __u64 missed;
    __u64 unfinished;
    __u64 unsent;
    __u64 unseen;
    __u64 reserved[9];
};

/* How often stacks of a target, or of all targets of an owner, are walked on a CPU. Of an owner all
 * but until is 0.
 *
 *   offset size field
 *        0    8 until    when nothing will be taken up any more of the walks that may be,
 *                        CLOCK_MONOTONIC, ns
 *        8    8 period   how long waits are that have one for themselves, ns; at least least_period
 *                        is used
 *       16    8 window   since when what follows counts, CLOCK_MONOTONIC, ns
 *       24    4 walked   of waits that were as long as the period: those that a walk was asked for
 *       28    4 refused  those that no walk was asked for
 *       32    4 longer   those of them that are longer by is_longer of budget.h
 *       36    4 nearly   waits that were nearly as long, by is_nearly, or as long
 */
struct pace {
    __u64 until;
    __u64 period;
    __u64 window;
    __u32 walked;
    __u32 refused;
    __u32 longer;
    __u32 nearly;
};

/* How many accounts of a target are in a table, and its threads.
 *
 *   offset size field
 *        0    4 epoch    the value of that variable when they were counted
 *        4    4 used
 *        8    4 owner    the number of its owner. User space sets it
 *       12    4 threads  how many have a state
 */
struct usage {
    __u32 epoch;
    __u32 used;
    __u32 owner;
    __u32 threads;
};

/* The same of all targets of an owner, or of all owners.
 *
 *   offset size field
 *        0    4 epoch    as above
 *        4    4 used
 *        8    4 begun    how many states of threads were made, less those of threads that ended,
 *                        since user space added up threads; of all: how often one began or ended
 *       12    4 threads  of an owner: the sum of its targets', from user space
 */
struct owned {
    __u32 epoch;
    __u32 used;
    __u32 begun;
    __u32 threads;
};

_Static_assert(STATES == 13, "the sizes in the tables above");
_Static_assert(__builtin_offsetof(struct account, ns) == 16, "ns");
_Static_assert(__builtin_offsetof(struct account, longest) == 120, "longest");
_Static_assert(__builtin_offsetof(struct account, times) == 224, "times");
_Static_assert(sizeof(struct account) == 280, "account");
_Static_assert(__builtin_offsetof(struct account_key, trace_id) == 8, "trace_id");
_Static_assert(__builtin_offsetof(struct account_key, kind) == 32, "kind");
_Static_assert(sizeof(struct account_key) == 40, "account_key");
_Static_assert(__builtin_offsetof(struct waker, pid) == 24, "pid");
_Static_assert(__builtin_offsetof(struct waker, kind) == 48, "kind");
_Static_assert(sizeof(struct waker) == 56, "waker");
_Static_assert(__builtin_offsetof(struct thread, key) == 40, "key");
_Static_assert(__builtin_offsetof(struct thread, account) == 80, "account");
_Static_assert(__builtin_offsetof(struct thread, rest) == 360, "rest");
_Static_assert(__builtin_offsetof(struct thread, waker) == 376, "waker");
_Static_assert(sizeof(struct thread) == 432, "thread");
_Static_assert(sizeof(struct thread) + 80 <= 512, "thread");
_Static_assert(__builtin_offsetof(struct job, queued) == 16, "queued");
_Static_assert(__builtin_offsetof(struct job, kernel) == 64, "kernel");
_Static_assert(sizeof(struct job) == 1080, "job");
_Static_assert(sizeof(struct pace) == 40, "pace");
_Static_assert(__builtin_offsetof(struct usage, owner) == 8, "owner");
_Static_assert(sizeof(struct usage) == 16, "usage");
_Static_assert(__builtin_offsetof(struct owned, begun) == 8, "begun");
_Static_assert(sizeof(struct owned) == 16, "owned");
_Static_assert(__builtin_offsetof(struct wait_counters, walked) == 56, "walked");
_Static_assert(__builtin_offsetof(struct wait_counters, unseen) == 112, "unseen");
_Static_assert(sizeof(struct wait_counters) == 192, "cache lines");

/* The maps that the programs of waits.bpf.c and walks.bpf.c share. */

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

/* By CPU. User space maps them. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct wait_counters);
} counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct job);
} jobs SEC(".maps");

/* Ring buffers of a page, to interrupt a CPU as soon as it allows that: in the thread that is about
 * to run. Nobody reads them; user space frees their room. Each is of some CPUs, since the kernel
 * asks for the interrupt of one only once while it is pending. */
#define BELLS 128

struct bell {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, BELLS);
    __type(key, __u32);
    __array(values, struct bell);
} bells SEC(".maps");

#define BELL_WAKES (1ULL << 1) /* BPF_RB_FORCE_WAKEUP */

/* Has the kernel interrupt this CPU: at the end of the switch, or of what else has interrupts off.
 */
static __always_inline bool ring(void) {
    __u32 bell = bpf_get_smp_processor_id() % BELLS;
    void *ring = bpf_map_lookup_elem(&bells, &bell), *record;

    if (!ring) /* never */
        return false;
    record = bpf_ringbuf_reserve(ring, 8, 0);
    if (!record)
        return false;
    bpf_ringbuf_discard(record, BELL_WAKES);
    return true;
}

#endif
