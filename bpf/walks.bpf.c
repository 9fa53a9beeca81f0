// clang-format off
//go:build ignore

// clang-format on

/* Walks the stacks of threads that have waited, before they go on: waits.bpf.c has the kernel
 * interrupt the CPU at the end of the switch to such a thread, when its memory can be read, and the
 * registers are those with which it has entered the kernel. What is found goes to user space in a
 * ring buffer, one by one: there are at most max_asked in a window, and each has a weight, a cause
 * and a waker of its own, so that a table would have hardly two alike.
 *
 * As in sampler.bpf.c, the stacks of some targets are walked by the unwinder. No sample is taken on
 * the CPU meanwhile: interrupts are off. */
#include "walks.h"
#include "calls.h"
#include "contexts.h"

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1);
} walks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct walk_scratch);
} walking SEC(".maps");

/* As in sampler.bpf.c: the first program of the unwinder's chain for this type, and its record. */
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} walk_unwinder SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u8[1]);
} records SEC(".maps");

const volatile struct record_layout layout SEC(".rodata.layout");

/* Those of sampler.bpf.c. */
__u64 unwound_targets[FILTER_BITS / 64];

const volatile __u64 hash_seed[2];
const volatile __u64 address_mask;
const volatile bool finds_callers;
const volatile bool keep_unsampled;
const volatile bool by_span;
const volatile bool by_thread; /* that of waits.bpf.c */

const volatile __u32 tested; /* a thread of the correlator's, and the level of its pid namespace */
const volatile __u32 level;
const volatile __u32 pid_namespace; /* its inode */

/* This puts the type into the object, from which bpf2go makes constants. */
const enum waker_kind *waker_type SEC("types");

static const __u32 only = 0; /* the key of maps with one entry */

/* Puts into the sample for what a wait was, by the system call that the thread is still in. */
static __always_inline void find_cause(struct walked *walked, const struct thread *thread) {
    struct task_struct *task = bpf_get_current_task_btf();
    const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
    enum call call = call_of_task(task, regs);
    __u64 argument = CALL_ARGUMENT(regs);
    struct dentry *dentry;
    struct sock *sock;
    struct socket *socket;
    struct file *file;

    walked->futex = call == CALL_FUTEX ? argument : 0;
    walked->family = walked->port = 0;
    for (int i = 0; i < PATH_NAMES; i++)
        walked->path[i][0] = 0;
    if (call != CALL_DESCRIPTOR && call != CALL_FILE)
        return;
    file = open_file(task, argument);
    if (thread->waker.file && thread->waker.file != mark_of(file)) /* it was closed meanwhile */
        return;
    switch (file_type(file)) {
    case S_IFSOCK:
        if (thread->state != STATE_NET)
            return;
        socket = BPF_CORE_READ(file, private_data);
        sock = BPF_CORE_READ(socket, sk);
        walked->family = BPF_CORE_READ(sock, __sk_common.skc_family);
        walked->port = BPF_CORE_READ(sock, __sk_common.skc_dport);
        if (walked->family == AF_INET)
            BPF_CORE_READ_INTO((__be32 *)walked->address, sock, __sk_common.skc_daddr);
        else if (walked->family == AF_INET6 &&
                 bpf_core_field_exists(sock->__sk_common.skc_v6_daddr))
            BPF_CORE_READ_INTO((struct in6_addr *)walked->address, sock, __sk_common.skc_v6_daddr);
        else
            walked->family = 0;
        return;
    case S_IFREG:
    case S_IFBLK:
        if (thread->state != STATE_DISK)
            return;
        dentry = BPF_CORE_READ(file, f_path.dentry);
        for (int i = 0; i < PATH_NAMES; i++) {
            struct dentry *parent = BPF_CORE_READ(dentry, d_parent);

            if (!parent || parent == dentry) /* the root of its file system */
                break;
            bpf_probe_read_kernel_str(walked->path[i], NAME_BYTES,
                                      BPF_CORE_READ(dentry, d_name.name));
            dentry = parent;
        }
    }
}

static __always_inline struct wait_counters *counters_here(void) {
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&counters, &cpu);
}

static __always_inline struct thread *current_thread(void) {
    return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
}

/* Whether a thread has not run since a walk was asked for: another interrupt may come much later.
 * It has entered the kernel where it has waited. */
static __always_inline bool is_there(const struct thread *thread, const struct job *job) {
    const struct pt_regs *regs =
        (const struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

    return thread->in == job->in && CALL_ADDRESS(regs) == job->ip && regs->sp == job->sp;
}

/* Fills in what is known of a wait without its stack. Returns false if it is not known any more
 * whose it is. */
static __always_inline bool describe(struct walk_scratch *s, const struct job *job) {
    struct walked *walked = &s->walked;
    struct current_context *found = bpf_map_lookup_elem(&contexts, &here);
    const struct correlator_context *context;
    const struct thread *thread = current_thread();

    walked->time = job->in;
    walked->attributes_size = 0;
    walked->target = 0;
    if (job->test)
        return true;
    if (!found || !thread || !thread->key.kind || !is_there(thread, job))
        return false;
    context = &found->context;
    if (read_context(found, !by_thread) < (by_thread        ? CORRELATOR_NO_THREAD_POINTER
                                           : keep_unsampled ? CORRELATOR_UNSAMPLED
                                                            : CORRELATOR_SAMPLED))
        return false;
    __asm__ __volatile__("" ::: "memory"); /* the verifier goes on once for all outcomes */
    walked->target = context->target;
    walked->tid = thread->key.tid;
    bpf_get_current_comm(walked->thread, sizeof(walked->thread));
    walked->trace_id[0] = by_thread ? 0 : thread->key.trace_id[0];
    walked->trace_id[1] = by_thread ? 0 : thread->key.trace_id[1];
    walked->transaction_id = thread->key.transaction_id;
    walked->context = thread->key.kind;
    walked->of_labels = found->of_labels;
    walked->span_id = by_span && !by_thread ? correlator_span_id(context) : 0;
    walked->state = thread->state;
    walked->longest = job->longest;
    walked->queued = job->queued;
    walked->queue = job->queue;
    walked->waker = thread->waker;
    find_cause(walked, thread);
    if (by_thread)
        return true;
    if (found->of_labels) {
        s->attributes.found = found->attributes;
        walked->attributes_size = found->attributes.size;
    } else if (context->kind == CORRELATOR_OTEL) {
        correlator_read_attributes(context, &s->attributes);
        walked->attributes_size = s->attributes.found.size;
    }
    return true;
}

/* Counts a stack that is not walked, or not sent: what the thread's weight is it keeps. */
static __always_inline void lose(struct job *job, __u64 *counter, struct wait_counters *counts) {
    ++*counter;
    counts->unasked_ns += job->queued;
    job->queued = 0;
    job->tid = 0;
}

/* Sends what was found, as defer_sample of sampler.bpf.c. The thread stands for it no more then. */
static __always_inline void send(struct walk_scratch *s, struct job *job,
                                 struct wait_counters *counts, bool unwound) {
    struct walked *walked = &s->walked;
    __u64 frames = walked->stack.kernel_frames + walked->stack.user_frames, bytes;
    struct thread *thread = current_thread();

    hash_stack(&walked->stack, unwound, hash_seed, walked->hash);
    __asm__ __volatile__("" : "+r"(frames));
    if (frames > MAX_WORDS) /* never; for the verifier */
        return;
    if (!job->test) {
        if (!thread) {
            lose(job, &counts->missed, counts);
            return;
        }
        walked->ns = thread->weight;
    }
    if (walked->attributes_size)
        bpf_probe_read_kernel(&walked->stack.addrs[frames],
                              correlator_bounded(walked->attributes_size, 512),
                              s->attributes.found.entries);
    bytes = __builtin_offsetof(struct walked, stack.addrs) + frames * sizeof(__u64) +
            walked->attributes_size;
    __asm__ __volatile__("" : "+r"(bytes));
    if (bytes > sizeof(*walked)) /* never, as above */
        return;
    if (bpf_ringbuf_output(&walks, walked, bytes, BPF_RB_NO_WAKEUP)) {
        lose(job, &counts->unsent, counts);
        return;
    }
    if (job->test)
        return;
    counts->walked++;
    if (thread)
        thread->weight = 0;
}

static __always_inline bool is_unwound(__u32 target) {
    return in_filter(unwound_targets, target);
}

/* Begins a stack with the kernel's frames. */
static __always_inline void take_kernel(struct stack *stack, const struct job *job) {
    __u32 frames = job->test || job->frames > MAX_FRAMES ? 0 : job->frames;

    stack->kernel_frames = frames;
    bpf_probe_read_kernel(stack->addrs, correlator_bounded(frames * sizeof(*stack->addrs), 1024),
                          job->kernel);
}

/* Runs in an interrupt: at irq_work_entry, or ipi_entry on arm64. */
SEC("raw_tp")
int walk_wait(void *ctx) {
    struct job *job = bpf_map_lookup_elem(&jobs, &only);
    struct wait_counters *counts;
    struct walk_scratch *s;

    if (!job || !job->tid)
        return 0;
    counts = counters_here();
    s = bpf_map_lookup_elem(&walking, &only);
    if (!counts || !s) /* never */
        return 0;
    if (job->tid != (__u32)bpf_get_current_pid_tgid() || !describe(s, job)) {
        lose(job, &counts->missed, counts);
        return 0;
    }
    job->tid = 0;
    take_kernel(&s->walked.stack, job);
    if (is_unwound(s->walked.target)) {
        job->unwinding = 1;
        bpf_tail_call(ctx, &walk_unwinder, 0);
        job->unwinding = 0; /* there is no unwinder any more */
    }
    if (walk_entered(ctx, &s->walked.stack, address_mask, finds_callers))
        send(s, job, counts, false);
    else
        lose(job, &counts->unsent, counts);
    return 0;
}

/* Runs at the end of the unwinder's chain. As in take_unwound, a stack of which that knows nothing
 * is walked. */
SEC("raw_tp")
int send_unwound(void *ctx) {
    struct job *job = bpf_map_lookup_elem(&jobs, &only);
    struct wait_counters *counts = counters_here();
    struct walk_scratch *s = bpf_map_lookup_elem(&walking, &only);
    const char *unwound = bpf_map_lookup_elem(&records, &only);
    bool is_taken;

    if (!job || !counts || !s || !unwound || !job->unwinding) /* never; as in count_unwound */
        return 0;
    job->unwinding = 0;
    is_taken = take_words(unwound, &layout, &s->walked.stack, false, s->walked.stack.kernel_frames);
    if (is_taken || walk_entered(ctx, &s->walked.stack, address_mask, finds_callers))
        send(s, job, counts, is_taken);
    else
        lose(job, &counts->unsent, counts);
    return 0;
}

/* Has the stack of a thread of the correlator's walked: whether that works is known only then. */
SEC("tp_btf/sched_switch")
int ask_test(__u64 *ctx) {
    struct task_struct *next = (void *)ctx[2];
    struct job *job = bpf_map_lookup_elem(&jobs, &only);

    if (number_in(next, level, pid_namespace) != tested || !job || !ring())
        return 0;
    if (job->tid || job->unwinding)
        return 0;
    job->queued = job->in = 0;
    job->test = 1;
    job->tid = ((struct task_struct___waits *)next)->pid;
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
