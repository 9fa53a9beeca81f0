// clang-format off
//go:build ignore

// clang-format on

/* Samples every CPU: for a thread of a target, reads the trace that it works on, walks its stack,
 * and counts the sample in a table. Only samples that cannot be counted there are sent to user
 * space one by one.
 *
 * The stacks of some targets are walked by others: by a chain of programs that tail call each
 * other, the unwinder. sample keeps in scratch what it has found, and calls the first of the chain;
 * the last is count_unwound, which does what sample does with the stacks that it walks itself. All
 * of that is one interrupt of one CPU, in which the kernel runs no other program of this type. */
#include "correlator.h"
#include "stack.h"

/* Of include/uapi/linux/bpf.h, which cannot be included: see kernel.h. */
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PROG_ARRAY = 3,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_F_MMAPABLE = 1 << 10, /* of a map */
    BPF_NOEXIST = 1,          /* of bpf_map_update_elem */
};

/* The result of a sample. Each sample has exactly one. Up to OUTCOME_UNSAMPLED they are those of
 * correlator.h. */
enum sample_outcome {
    OUTCOME_NO_TARGET = CORRELATOR_NO_TARGET,
    OUTCOME_STALE = CORRELATOR_STALE,
    OUTCOME_NO_USER_CODE = CORRELATOR_NO_USER_CODE,
    OUTCOME_NO_THREAD_POINTER = CORRELATOR_NO_THREAD_POINTER,
    OUTCOME_UNREADABLE = CORRELATOR_UNREADABLE, /* deferred to user space */
    OUTCOME_NO_SLOT = CORRELATOR_NO_SLOT,       /* counted in the table only if asked for */
    OUTCOME_UPDATING = CORRELATOR_UPDATING,
    OUTCOME_MALFORMED = CORRELATOR_MALFORMED,
    OUTCOME_NO_TRACE = CORRELATOR_NO_TRACE,   /* the same */
    OUTCOME_UNSAMPLED = CORRELATOR_UNSAMPLED, /* the same */
    OUTCOME_CORRELATED = CORRELATOR_SAMPLED,  /* counted in the table */
    OUTCOME_TABLE_FULL,                       /* the table is full: deferred to user space */
    OUTCOME_UNWINDING_FAILED,                 /* to be counted or deferred, but has no stack, or
                                                 the unwinder's chain ended before its end */
    OUTCOME_LOST,                             /* to be deferred, but the ring buffer is full */
    OUTCOME_IDLE,                             /* the CPU was idle */
    OUTCOMES,
};

/* Of one CPU, host byte order. No two share a cache line.
 *
 *   offset size field
 *        0  120 outcomes       samples by enum sample_outcome
 *      120    8 stacks_stored  stacks put into the table
 *      128    8 counting       odd while a program counts in a table
 *      136    8 unwound_stored as stacks_stored, of unwound ones
 *      144    8 pending        1 while a sample is in the unwinder's chain, and after that until
 *                              the next sample of a target if the chain has lost it
 *      152    8 walked_instead samples of which the unwinder has found nothing
 *      160   32 reserved       0
 */
struct counters {
    __u64 outcomes[OUTCOMES];
    __u64 stacks_stored;
    volatile __u64 counting;
    __u64 unwound_stored;
    volatile __u64 pending;
    __u64 walked_instead;
    __u64 reserved[4];
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
 *       40    8 transaction_id
 *       48    8 span_id         of a count by span; else 0: spans of a transaction share counts
 */
struct count_key {
    struct stack_key stack;
    __u64 trace_id[2];
    __u64 transaction_id;
    __u64 span_id;
};

/* A count.
 *
 *   offset size field
 *        0    8 first        CLOCK_MONOTONIC of the first sample, ns
 *        8    4 samples
 *       12    4 trace_flags  of the last one
 */
struct count {
    __u64 first;
    __u32 samples;
    __u32 trace_flags;
};

/* A sample that is deferred to user space.
 *
 *   offset size field
 *        0    8 time            CLOCK_MONOTONIC, ns
 *        8    8 thread_pointer
 *       16    4 tid             in the correlator's pid namespace
 *       20    4 outcome         OUTCOME_UNREADABLE: no ids; OUTCOME_TABLE_FULL
 *       24   56 key             with ids if there are any
 *       80    4 trace_flags     the same
 *       84    4 pid             as tid
 *       88 16+8n stack
 */
struct deferred {
    __u64 time;
    __u64 thread_pointer;
    __u32 tid;
    __u32 outcome;
    struct count_key key;
    __u32 trace_flags;
    __u32 pid;
    struct stack stack;
};

_Static_assert(__builtin_offsetof(struct counters, stacks_stored) == 120, "stacks_stored");
_Static_assert(__builtin_offsetof(struct counters, counting) == 128, "counting");
_Static_assert(__builtin_offsetof(struct counters, unwound_stored) == 136, "unwound_stored");
_Static_assert(__builtin_offsetof(struct counters, pending) == 144, "pending");
_Static_assert(__builtin_offsetof(struct counters, walked_instead) == 152, "walked_instead");
_Static_assert(sizeof(struct counters) == 192, "cache lines");
_Static_assert(OUTCOMES == 15, "the size in the table above");
_Static_assert(__builtin_offsetof(struct stack_key, target) == 16, "target");
_Static_assert(__builtin_offsetof(struct stack_key, tid) == 20, "tid");
_Static_assert(sizeof(struct stack_key) == 24, "stack_key");
_Static_assert(__builtin_offsetof(struct count_key, trace_id) == 24, "trace_id");
_Static_assert(__builtin_offsetof(struct count_key, transaction_id) == 40, "transaction_id");
_Static_assert(__builtin_offsetof(struct count_key, span_id) == 48, "span_id");
_Static_assert(sizeof(struct count_key) == 56, "count_key");
_Static_assert(__builtin_offsetof(struct count, samples) == 8, "samples");
_Static_assert(__builtin_offsetof(struct count, trace_flags) == 12, "trace_flags");
_Static_assert(sizeof(struct count) == 16, "count");
_Static_assert(__builtin_offsetof(struct deferred, tid) == 16, "tid");
_Static_assert(__builtin_offsetof(struct deferred, outcome) == 20, "outcome");
_Static_assert(__builtin_offsetof(struct deferred, key) == 24, "key");
_Static_assert(__builtin_offsetof(struct deferred, trace_flags) == 80, "trace_flags");
_Static_assert(__builtin_offsetof(struct deferred, pid) == 84, "pid");
_Static_assert(__builtin_offsetof(struct deferred, stack) == 88, "stack");

/* A sample being built, which is larger than a program's own stack.
 *
 *   offset size field
 *        0 6248 sample
 *     6248   64 context  of the thread, for count_unwound
 *     6312    4 outcome  the same: enum correlator_outcome
 *     6316    4 reserved 0
 */
struct scratch {
    struct deferred sample;
    struct correlator_context context;
    __u32 outcome;
    __u32 reserved;
};

_Static_assert(__builtin_offsetof(struct scratch, context) == 6248, "context");
_Static_assert(__builtin_offsetof(struct scratch, outcome) == 6312, "outcome");
_Static_assert(sizeof(struct scratch) == 6320, "scratch");

/* Sizes of 1 are replaced when a program is loaded, except for scratch and unwinder. All memory is
 * allocated then: kernels before 6.1 require that of programs that run in interrupts, and an
 * allocation in an interrupt could fail. */

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct correlator_target);
} targets SEC(".maps");

/* By CPU. User space maps them. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct counters);
} counters SEC(".maps");

/* Values are shorter: 2 * MAX_FRAMES addresses, and MAX_FRAMES without kernel frames. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct stack_key);
    __type(value, struct stack);
} stacks SEC(".maps");

/* Those that the unwinder has walked. Made with count_unwound, as everything that only that uses.
 */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct stack_key);
    __type(value, struct stack);
} unwound_stacks SEC(".maps");

struct counts {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct count_key);
    __type(value, struct count);
} counts_a SEC(".maps"), counts_b SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct scratch);
} scratch SEC(".maps");

/* The first program of the unwinder's chain, if there is an unwinder. */
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} unwinder SEC(".maps");

/* The unwinder's own, which is put in its place. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u8[1]);
} records SEC(".maps");

const volatile struct record_layout layout SEC(".rodata.layout");

/* A bit by the lowest 16 bits of a process's number: clear when no such process is a target. Nearly
 * all samples are of other processes, and little of what they need is in the CPU's caches. This is
 * a single cache line; a lookup in targets takes five times as much, and some code. User space sets
 * a bit before it adds a target, and clears it after it has removed the last one. */
#define FILTER_BITS (1 << 16)

__u64 target_filter[FILTER_BITS / 64];

/* A bit by the lowest 16 bits of a target's id: set when its stacks are the unwinder's to walk.
 * User space gives no two targets at a time ids with the same bit. */
__u64 unwound_targets[FILTER_BITS / 64];

/* The table that samples are counted in: 0 for counts_a, 1 for counts_b. User space changes it, and
 * reads the other table once no CPU counts there any more. */
volatile __u32 active;

const volatile __u64 hash_seed[2]; /* random, for hash_stack */
const volatile bool keep_unsampled;
const volatile bool keep_untraced;
const volatile bool by_thread;
const volatile bool by_span;
const volatile bool kernel_stacks;

static const __u32 only = 0; /* the key of maps with one entry */

/* These put the types into the object, from which bpf2go makes constants. */
const enum sample_outcome *outcome_type SEC("types");
const enum correlator_kind *kind_type SEC("types");

static __always_inline __u32 thread_number(__u32 level) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct pid *pid = BPF_CORE_READ(task, thread_pid);
    int number = 0;

    bpf_core_read(&number, sizeof(number), &pid->numbers[level].nr);
    return number;
}

/* Sends the whole sample to user space. */
static __always_inline enum sample_outcome defer_sample(struct deferred *sample, __u32 level,
                                                        enum sample_outcome outcome) {
    __u64 frames = sample->stack.kernel_frames + sample->stack.user_frames;

    sample->tid = thread_number(level);
    sample->outcome = outcome;
    if (frames > MAX_WORDS) /* never; for the verifier */
        return OUTCOME_LOST;
    if (bpf_ringbuf_output(
            &events, sample,
            __builtin_offsetof(struct deferred, stack.addrs) + frames * sizeof(__u64), 0))
        return OUTCOME_LOST;
    return outcome;
}

/* A table of stacks, and how many were put into it. */
struct stack_table {
    void *stacks;
    __u64 *stored;
};

/* Puts the stack into the table if it is not there yet. */
static __always_inline bool store_stack(const struct deferred *sample,
                                        const struct stack_table *table) {
    const struct stack_key *key = &sample->key.stack;
    struct stack_key shared;
    struct stack *stored;

    if (by_thread) {
        shared = *key;
        shared.tid = 0;
        key = &shared;
    }
    stored = bpf_map_lookup_elem(table->stacks, key);
    if (!stored) {
        if (!bpf_map_update_elem(table->stacks, key, &sample->stack, BPF_NOEXIST)) {
            ++*table->stored;
            return true;
        }
        /* The table is full, or another CPU was faster. */
        stored = bpf_map_lookup_elem(table->stacks, key);
        if (!stored)
            return false;
    }
    stored->last_used = sample->time;
    return true;
}

static __always_inline bool increment(const struct deferred *sample, struct count *count) {
    if (!count)
        return false;
    __sync_fetch_and_add(&count->samples, 1);
    count->trace_flags = sample->trace_flags;
    return true;
}

/* Counts the sample in a table, and puts its stack into the table of stacks. The stack of an
 * existing count was put there with it, and stays available until after the count was drained. */
static __always_inline bool count_in(void *counts, const struct deferred *sample,
                                     const struct stack_table *table) {
    struct count first = {
        .first = sample->time,
        .samples = 1,
        .trace_flags = sample->trace_flags,
    };

    if (increment(sample, bpf_map_lookup_elem(counts, &sample->key)))
        return true;
    if (!store_stack(sample, table))
        return false;
    if (!bpf_map_update_elem(counts, &sample->key, &first, BPF_NOEXIST))
        return true;
    /* The table is full, or another CPU was faster. */
    return increment(sample, bpf_map_lookup_elem(counts, &sample->key));
}

/* Counts the sample in the active table. counting is odd meanwhile: see swap in drain.go. */
static __always_inline bool count(const struct deferred *sample, struct counters *counters,
                                  const struct stack_table *table) {
    bool counted;

    counters->counting++;
    counted = active ? count_in(&counts_b, sample, table) : count_in(&counts_a, sample, table);
    counters->counting++;
    return counted;
}

/* Counts or defers a sample that has its time and stack. */
static __always_inline enum sample_outcome record(struct deferred *sample,
                                                  struct counters *counters,
                                                  const struct correlator_context *context,
                                                  enum correlator_outcome outcome, bool unwound) {
    struct stack_table table = {
        .stacks = unwound ? (void *)&unwound_stacks : (void *)&stacks,
        .stored = unwound ? &counters->unwound_stored : &counters->stacks_stored,
    };

    sample->stack.last_used = sample->time;
    hash_stack(&sample->stack, unwound, hash_seed, sample->key.stack.hash);
    sample->key.stack.target = context->target;
    if (by_thread)
        sample->key.stack.tid = thread_number(context->level);
    sample->thread_pointer = context->thread_pointer;
    sample->pid = context->pid;
    if (outcome < CORRELATOR_UNSAMPLED) { /* there is no context */
        __builtin_memset(&sample->key.trace_id, 0, sizeof(sample->key.trace_id));
        sample->key.transaction_id = 0;
        sample->key.span_id = 0;
        sample->trace_flags = 0;
        if (outcome == CORRELATOR_UNREADABLE)
            return defer_sample(sample, context->level, OUTCOME_UNREADABLE);
    } else {
        sample->key.trace_id[0] = context->slot.trace_id[0];
        sample->key.trace_id[1] = context->slot.trace_id[1];
        sample->key.transaction_id = context->slot.transaction_id;
        if (by_span)
            sample->key.span_id = context->slot.span_id;
        sample->trace_flags = context->slot.trace_flags;
    }
    if (count(sample, counters, &table))
        return (enum sample_outcome)outcome;
    return defer_sample(sample, context->level, OUTCOME_TABLE_FULL);
}

static __always_inline bool is_unwound(__u32 target) {
    return unwound_targets[target % FILTER_BITS / 64] & 1ULL << target % 64;
}

/* Walks the stack of a sample, and counts or defers it; or has the unwinder do so, and does not
 * return. */
static __always_inline enum sample_outcome walk_and_record(void *ctx, struct counters *counters,
                                                           const struct correlator_context *context,
                                                           enum correlator_outcome outcome) {
    struct scratch *s = bpf_map_lookup_elem(&scratch, &only);

    if (!s) /* never */
        return OUTCOME_LOST;
    if (counters->pending) { /* the former sample's chain did not get to count_unwound */
        counters->outcomes[OUTCOME_UNWINDING_FAILED]++;
        counters->pending = 0;
    }
    s->sample.time = bpf_ktime_get_ns();
    if (is_unwound(context->target)) {
        s->context = *context;
        s->outcome = outcome;
        counters->pending = 1;
        bpf_tail_call(ctx, &unwinder, 0);
        counters->pending = 0; /* there is no unwinder any more */
    }
    if (!walk(ctx, &s->sample.stack, kernel_stacks))
        return OUTCOME_UNWINDING_FAILED;
    return record(&s->sample, counters, context, outcome, false);
}

static __always_inline bool filtered(__u32 process) {
    return !(target_filter[process % FILTER_BITS / 64] & 1ULL << process % 64);
}

/* Whether a sample with this outcome is to be counted or deferred. Only samples of threads that are
 * known to work on no trace are untraced. */
static __always_inline bool is_recorded(enum correlator_outcome outcome) {
    switch (outcome) {
    case CORRELATOR_SAMPLED:
    case CORRELATOR_UNREADABLE:
        return true;
    case CORRELATOR_UNSAMPLED:
        return keep_unsampled;
    case CORRELATOR_NO_SLOT:
    case CORRELATOR_NO_TRACE:
        return keep_untraced;
    default:
        return false;
    }
}

static __always_inline enum sample_outcome take_sample(void *ctx, struct counters *counters) {
    struct correlator_context context;
    enum correlator_outcome outcome;
    __u32 process = bpf_get_current_pid_tgid() >> 32;

    if (!process)
        return OUTCOME_IDLE;
    if (filtered(process))
        return OUTCOME_NO_TARGET;
    outcome = correlator_current(&targets, &context);
    if (is_recorded(outcome))
        return walk_and_record(ctx, counters, &context, outcome);
    return (enum sample_outcome)outcome;
}

/* Runs in the interrupt of a CPU's sampling clock, in the context of the interrupted thread. */
SEC("perf_event")
int sample(void *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    enum sample_outcome outcome;

    if (!counts) /* never */
        return 0;
    outcome = take_sample(ctx, counts);
    if (outcome < OUTCOMES) /* always; for the verifier */
        counts->outcomes[outcome]++;
    return 0; /* no record of perf's own */
}

/* Without frames of the process, it is in code of which the unwinder knows nothing, for example in
 * memory of no file: the stack is walked. */
static __always_inline enum sample_outcome take_unwound(void *ctx, struct counters *counters) {
    struct scratch *s = bpf_map_lookup_elem(&scratch, &only);
    const char *unwound = bpf_map_lookup_elem(&records, &only);
    bool is_taken;

    if (!s || !unwound) /* never */
        return OUTCOME_LOST;
    is_taken = take_words(unwound, &layout, &s->sample.stack, kernel_stacks);
    if (!is_taken) {
        counters->walked_instead++;
        if (!walk(ctx, &s->sample.stack, kernel_stacks))
            return OUTCOME_UNWINDING_FAILED;
    }
    return record(&s->sample, counters, &s->context, s->outcome, is_taken);
}

/* Runs at the end of the unwinder's chain. */
SEC("perf_event")
int count_unwound(void *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    enum sample_outcome outcome;

    if (!counts || !counts->pending) /* never; a chain that others began is not counted */
        return 0;
    outcome = take_unwound(ctx, counts);
    counts->pending = 0;
    if (outcome < OUTCOMES) /* always; for the verifier */
        counts->outcomes[outcome]++;
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
