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
#include "sampler.h"
#include "obi.h"

/* Scratch and unwinder have one entry. All memory is allocated when a program is loaded: kernels
 * before 6.1 require that of programs that run in interrupts, and an allocation in an interrupt
 * could fail. */

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

/* Those that the counts of the table with the same letter refer to. */
struct attributes {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct attributes_key);
    __type(value, struct correlator_attributes);
} attributes_a SEC(".maps"), attributes_b SEC(".maps");

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

/* Programs that are called last: the first of the unwinder's chain, if there is an unwinder,
 * walk_sample, and read_labels, if there is a target with labels. */
enum callee { FIRST_OF_CHAIN, WALKER, LABELS, CALLEES };

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, CALLEES);
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

/* By a process's number: clear when no such process is a target. Nearly all samples are of other
 * processes, and little of what they need is in the CPU's caches. This is a single cache line; a
 * lookup in targets takes five times as much, and some code. User space sets a bit before it adds a
 * target, and clears it after it has removed the last one. */
__u64 target_filter[FILTER_BITS / 64];

/* A bit by the lowest 16 bits of a target's id: set when its stacks are the unwinder's to walk.
 * User space gives no two targets at a time ids with the same bit. */
__u64 unwound_targets[FILTER_BITS / 64];

/* The table that samples are counted in: 0 for counts_a, 1 for counts_b. User space changes it, and
 * reads the other table once no CPU counts there any more. */
volatile __u32 active;

const volatile __u64 hash_seed[2]; /* random, for hash_stack and hash_attributes */
const volatile __u64 address_mask; /* the bits that addresses of code of processes may have */
const volatile bool finds_callers; /* that are not in the chain of frame pointers */
const volatile bool keep_unsampled;
const volatile bool keep_untraced;
const volatile bool by_thread;
const volatile bool by_span;
const volatile bool kernel_stacks;

/* Whether user memory may be read when the kernel was interrupted. Some kernels then wait for a
 * lock that the interrupted code may hold: see ReadsInKernel. */
const volatile bool reads_in_kernel;

static const __u32 only = 0; /* the key of maps with one entry */

/* These put the types into the object, from which bpf2go makes constants. */
const enum sample_outcome *outcome_type SEC("types");
const enum correlator_kind *kind_type SEC("types");
const enum go_role *role_type SEC("types");
const enum go_labels_form *form_type SEC("types");
const enum attributes_origin *origin_type SEC("types");
const enum go_attribute *attribute_type SEC("types");
const enum obi_map *obi_map_type SEC("types");

static __always_inline __u32 thread_number(__u32 level) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct pid *pid = BPF_CORE_READ(task, thread_pid);
    int number = 0;

    bpf_core_read(&number, sizeof(number), &pid->numbers[level].nr);
    return number;
}

/* Sends the whole sample to user space. Sizes are compared with what there is room for at last: see
 * correlator_bounded. */
static __always_inline enum sample_outcome defer_sample(struct scratch *s, __u32 level,
                                                        enum sample_outcome outcome) {
    struct deferred *sample = &s->sample;
    __u64 frames = sample->stack.kernel_frames + sample->stack.user_frames, bytes;

    sample->tid = thread_number(level);
    if (by_thread)
        bpf_get_current_comm(sample->thread, sizeof(sample->thread));
    sample->outcome = outcome;
    sample->attributes_size = sample->key.attributes ? s->attributes.found.size : 0;
    if (frames > MAX_WORDS) /* never; for the verifier */
        return OUTCOME_LOST;
    if (sample->attributes_size)
        bpf_probe_read_kernel(&sample->stack.addrs[frames],
                              correlator_bounded(sample->attributes_size, 512),
                              s->attributes.found.entries);
    bytes = __builtin_offsetof(struct deferred, stack.addrs) + frames * sizeof(__u64) +
            sample->attributes_size;
    __asm__ __volatile__("" : "+r"(bytes));
    if (bytes > sizeof(*sample)) /* never, as above */
        return OUTCOME_LOST;
    if (bpf_ringbuf_output(&events, sample, bytes, 0))
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
    if (count->last < sample->time)
        count->last = sample->time;
    count->trace_flags = sample->trace_flags;
    return true;
}

/* Puts the attributes into the table if they are not there yet. */
static __always_inline bool store_attributes(void *table, const struct scratch *s,
                                             struct counters *counters) {
    struct attributes_key key = {
        .hash = s->sample.key.attributes,
        .target = s->sample.key.stack.target,
    };

    if (!(key.hash & ATTRIBUTES_OF_RECORD) || bpf_map_lookup_elem(table, &key))
        return true;
    if (!bpf_map_update_elem(table, &key, &s->attributes.found, BPF_NOEXIST)) {
        counters->attributes_stored++;
        return true;
    }
    /* The table is full, or another CPU was faster. */
    return bpf_map_lookup_elem(table, &key);
}

/* Counts the sample in a table, and puts its stack and its attributes into others. The stack of an
 * existing count was put there with it, and stays available until after the count was drained. The
 * attributes are in a table that is drained with that of the counts. */
static __always_inline bool count_in(void *counts, void *attributes, const struct scratch *s,
                                     struct counters *counters, const struct stack_table *table) {
    const struct deferred *sample = &s->sample;
    struct count first = {
        .first = sample->time,
        .last = sample->time,
        .samples = 1,
        .trace_flags = sample->trace_flags,
    };

    if (increment(sample, bpf_map_lookup_elem(counts, &sample->key)))
        return true;
    if (!store_stack(sample, table) || !store_attributes(attributes, s, counters))
        return false;
    if (by_thread)
        bpf_get_current_comm(first.thread, sizeof(first.thread));
    if (!bpf_map_update_elem(counts, &sample->key, &first, BPF_NOEXIST))
        return true;
    /* The table is full, or another CPU was faster. */
    return increment(sample, bpf_map_lookup_elem(counts, &sample->key));
}

/* Counts the sample in the active table. counting is odd meanwhile: see swap in drain.go. */
static __always_inline bool count(const struct scratch *s, struct counters *counters,
                                  const struct stack_table *table) {
    bool counted;

    counters->counting++;
    counted = active ? count_in(&counts_b, &attributes_b, s, counters, table)
                     : count_in(&counts_a, &attributes_a, s, counters, table);
    counters->counting++;
    return counted;
}

/* Puts the ids of the context into the sample. */
static __always_inline void set_ids(struct deferred *sample,
                                    const struct correlator_context *context) {
    const __u64 *trace_id = correlator_trace_id(context);

    sample->key.trace_id[0] = trace_id[0];
    sample->key.trace_id[1] = trace_id[1];
    if (by_span)
        sample->key.span_id = correlator_span_id(context);
    if (context->kind == CORRELATOR_OTEL) {
        sample->key.transaction_id = 0;
        sample->trace_flags = context->record.trace_flags;
    } else {
        sample->key.transaction_id = context->slot.transaction_id;
        sample->trace_flags = context->slot.trace_flags;
    }
}

/* Counts or defers a sample that has its time, attributes and stack. */
static __always_inline enum sample_outcome record(struct scratch *s, struct counters *counters,
                                                  bool unwound) {
    const struct correlator_context *context = &s->context;
    struct deferred *sample = &s->sample;
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
    if (s->outcome < CORRELATOR_UNSAMPLED) { /* there is no context */
        __builtin_memset(&sample->key.trace_id, 0, sizeof(sample->key.trace_id));
        sample->key.transaction_id = 0;
        sample->key.span_id = 0;
        sample->trace_flags = 0;
        if (s->outcome == CORRELATOR_UNREADABLE)
            return defer_sample(s, context->level, OUTCOME_UNREADABLE);
    } else {
        set_ids(sample, context);
    }
    if (count(s, counters, &table))
        return (enum sample_outcome)s->outcome;
    return defer_sample(s, context->level, OUTCOME_TABLE_FULL);
}

/* A hash of the attributes with a secret seed. As with stacks, a process that could provoke a
 * collision would mix up only its own attributes; 2^10 different ones, all that the table has room
 * for, collide with a probability of 2^-43. */
static __always_inline __u64 hash_attributes(struct correlator_attributes_scratch *scratch,
                                             __u64 seed, enum attributes_origin origin) {
    const __u64 *words = (const __u64 *)scratch->found.entries;
    __u64 size = scratch->found.size, hash = seed ^ size;
    __u8 *end = scratch->found.entries + correlator_bounded(size, 512);

    if (!size)
        return NO_ATTRIBUTES;
#pragma unroll
    for (int i = 0; i < 8; i++) /* the last word may be incomplete */
        end[i] = 0;
    for (__u32 i = 0; i < CORRELATOR_ENTRIES_BYTES / 8 && i * 8 < size; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15; /* as in hash_stack */
        hash ^= hash >> 32;
    }
    return (hash & ~(__u64)ATTRIBUTES_ORIGIN) | origin;
}

static __always_inline void take_of_obi(struct scratch *s, struct counters *counters) {
    counters->of_obi++;
    s->sample.key.attributes = OF_OBI;
}

/* Reads the attributes of a record, and puts their hash into the sample. */
static __always_inline void take_attributes(struct scratch *s, struct counters *counters) {
    struct correlator_attributes *found = &s->attributes.found;

    s->sample.key.attributes = 0;
    if (s->context.kind != CORRELATOR_OTEL)
        return;
    if (!s->publishes) {
        take_of_obi(s, counters);
        return;
    }
    correlator_read_attributes(&s->context, &s->attributes);
    counters->attributes_cut += found->cut;
    counters->unknown_keys += found->unknown;
    s->sample.key.attributes = hash_attributes(&s->attributes, hash_seed[0], ATTRIBUTES_OF_RECORD);
}

static __always_inline bool is_unwound(__u32 target) {
    return in_filter(unwound_targets, target);
}

/* Has the stack of a sample walked, and counted or deferred, by another program. It does not return
 * unless that is missing. */
static __always_inline enum sample_outcome walk_and_record(void *ctx, struct scratch *s,
                                                           struct counters *counters) {
    if (counters->pending) { /* the former sample's chain did not get to count_unwound */
        counters->outcomes[OUTCOME_UNWINDING_FAILED]++;
        counters->pending = 0;
    }
    s->sample.time = bpf_ktime_get_ns();
    if (is_unwound(s->context.target)) {
        counters->pending = 1;
        bpf_tail_call(ctx, &unwinder, FIRST_OF_CHAIN);
        counters->pending = 0; /* there is no unwinder any more */
    }
    bpf_tail_call(ctx, &unwinder, WALKER);
    return OUTCOME_UNWINDING_FAILED; /* never */
}

static __always_inline bool filtered(__u32 process) {
    return !in_filter(target_filter, process);
}

/* Whether a sample with this outcome is to be counted or deferred. Only samples of threads that are
 * known to work on no trace are untraced. */
static __always_inline bool is_recorded(enum sample_outcome outcome) {
    switch (outcome) {
    case OUTCOME_CORRELATED:
    case OUTCOME_UNREADABLE:
        return true;
    case OUTCOME_UNSAMPLED:
        return keep_unsampled;
    case OUTCOME_NO_SLOT:
    case OUTCOME_NO_TRACE:
    case OUTCOME_NOT_VALID:
    case OUTCOME_ZERO_IDS:
        return keep_untraced;
    default:
        return false;
    }
}

/* Reads the context of the thread. Where that must not be read now, nobody reads it later: once the
 * thread runs again, it may work on something else. */
static __always_inline enum sample_outcome read_context(void *ctx, struct scratch *s) {
    struct correlator_context *context = &s->context;
    struct correlator_target target;
    enum correlator_outcome outcome = correlator_find(&targets, context, &target);

    s->labels.layout = 0;
    if (outcome != CORRELATOR_SAMPLED && outcome != CORRELATOR_NO_SLOT)
        return (enum sample_outcome)outcome;
    if (!has_user_code(ctx))
        return OUTCOME_NO_USER_CODE;
    if (!reads_in_kernel && !in_user_code(ctx))
        return OUTCOME_IN_KERNEL;
    s->publishes = outcome == CORRELATOR_SAMPLED;
    if (s->publishes)
        outcome = correlator_read(&target, context);
    else if (!target.labels)
        outcome = obi_read(context);
    s->labels.layout = target.labels;
    return (enum sample_outcome)outcome;
}

static __always_inline enum sample_outcome take_sample(void *ctx, struct counters *counters) {
    struct scratch *s;
    __u32 process = bpf_get_current_pid_tgid() >> 32;

    if (!process)
        return OUTCOME_IDLE;
    if (filtered(process))
        return OUTCOME_NO_TARGET;
    s = bpf_map_lookup_elem(&scratch, &only);
    if (!s) /* never */
        return OUTCOME_LOST;
    s->outcome = read_context(ctx, s);
    /* What follows reads it again, as in walk: the verifier goes through it once for all outcomes.
     */
    __asm__ __volatile__("" ::: "memory");
    if (s->labels.layout && is_untraced((enum correlator_outcome)s->outcome))
        bpf_tail_call(ctx, &unwinder, LABELS); /* it returns if that is missing */
    if (is_recorded(s->outcome)) {
        take_attributes(s, counters);
        return walk_and_record(ctx, s, counters);
    }
    return (enum sample_outcome)s->outcome;
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

/* Goes on where sample has found no context of a target that has labels. What they say of the trace
 * is a record's context. */
static __always_inline enum sample_outcome take_labels(void *ctx, struct counters *counters) {
    struct scratch *s = bpf_map_lookup_elem(&scratch, &only);
    struct correlator_attributes *found;
    bool refused;

    if (!s) /* never */
        return OUTCOME_LOST;
    found = &s->attributes.found;
    s->outcome = go_read(ctx, &s->labels, &s->context, found, &refused);
    counters->labels_refused += refused;
    counters->attributes_cut += found->cut;
    s->sample.key.attributes = 0;
    if (s->context.kind != CORRELATOR_OTEL && !s->publishes && !refused &&
        obi_read(&s->context) == CORRELATOR_SAMPLED) {
        s->outcome = OUTCOME_CORRELATED;
        take_of_obi(s, counters);
    } else if (s->context.kind == CORRELATOR_OTEL)
        s->sample.key.attributes =
            hash_attributes(&s->attributes, hash_seed[0], ATTRIBUTES_OF_LABELS);
    __asm__ __volatile__("" ::: "memory"); /* as in take_sample */
    if (is_recorded(s->outcome))
        return walk_and_record(ctx, s, counters);
    return (enum sample_outcome)s->outcome;
}

SEC("perf_event")
int read_labels(void *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    enum sample_outcome outcome;

    if (!counts) /* never */
        return 0;
    outcome = take_labels(ctx, counts);
    if (outcome < OUTCOMES) /* always; for the verifier */
        counts->outcomes[outcome]++;
    return 0;
}

/* Walks the stack of a sample by frame pointers, and counts or defers it. It is a program of its
 * own for the verifier to go through it once: that takes more time than all the others. */
SEC("perf_event")
int walk_sample(void *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    struct scratch *s = bpf_map_lookup_elem(&scratch, &only);
    enum sample_outcome outcome = OUTCOME_UNWINDING_FAILED;

    if (!counts || !s) /* never */
        return 0;
    if (walk(ctx, &s->sample.stack, kernel_stacks, address_mask, finds_callers))
        outcome = record(s, counts, false);
    counts->pending = 0;
    if (outcome < OUTCOMES) /* always; for the verifier */
        counts->outcomes[outcome]++;
    return 0;
}

/* Without frames of the process, it is in code of which the unwinder knows nothing, for example in
 * memory of no file: the stack is walked. */
static __always_inline enum sample_outcome take_unwound(void *ctx, struct counters *counters) {
    struct scratch *s = bpf_map_lookup_elem(&scratch, &only);
    const char *unwound = bpf_map_lookup_elem(&records, &only);

    if (!s || !unwound) /* never */
        return OUTCOME_LOST;
    if (take_words(unwound, &layout, &s->sample.stack, kernel_stacks, 0))
        return record(s, counters, true);
    counters->walked_instead++;
    bpf_tail_call(ctx, &unwinder, WALKER);
    return OUTCOME_UNWINDING_FAILED; /* never, unless the chain has made too many calls */
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
