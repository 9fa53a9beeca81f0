// clang-format off
//go:build ignore

// clang-format on

/* Keeps an account of what the threads of targets do while they have a context: every time between
 * two switches of a thread is of one state, and of the context that it had then. A thread that does
 * not run cannot change its context, so the time off a CPU is exact; that on a CPU is of one
 * context if that is the same at both ends.
 *
 * The account of a thread is in its task storage, and only its own switches change it. It is added
 * to a table when the context changes, ten times a second, and when the thread ends.
 *
 * Programs here run with interrupts off and the lock of a run queue held: they allocate nothing. */
#include "waits.h"

#include <stdbool.h>

/* Of include/uapi/linux/bpf.h, which cannot be included: see kernel.h. */
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
    BPF_F_NO_PREALLOC = 1 << 0, /* of a map */
    BPF_F_MMAPABLE = 1 << 10,
    BPF_NOEXIST = 1, /* of bpf_map_update_elem */
    BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The further fields of a task that are read. Names are those of include/linux/sched.h. */
struct task_struct___waits {
    unsigned int in_iowait : 1;
    bool throttled; /* since Linux 6.18 */
    struct files_struct *files;
};

struct files_struct {
    struct fdtable *fdt;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct file {
    struct inode *f_inode;
    void *private_data; /* a struct socket, if the inode is one */
};

struct inode {
    unsigned short i_mode;
};

struct socket {
    struct sock *sk;
};

struct sock_common {
    unsigned short skc_family;
};

struct sock {
    struct sock_common __sk_common;
};

struct pt_regs {
#if defined(__TARGET_ARCH_x86)
    unsigned long di;
    unsigned long orig_ax;
#else
    __u64 orig_x0;
    __s32 syscallno;
#endif
};

#pragma clang attribute pop

/* The type of a file, of include/uapi/linux/stat.h. */
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFIFO 0010000

#define AF_UNIX 1

/* Sizes of 1 are replaced when a program is loaded. */

/* That of sampler.bpf.c. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct correlator_target);
} targets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

struct accounts {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct account_key);
    __type(value, struct account);
} accounts_a SEC(".maps"), accounts_b SEC(".maps");

/* By CPU. User space maps them. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct wait_counters);
} counters SEC(".maps");

/* By the lowest 16 bits of a target's id, which differ. */
#define USAGES (1 << 16)

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, USAGES);
    __type(key, __u32);
    __type(value, struct usage);
} usages SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct correlator_context);
} contexts SEC(".maps");

/* That of sampler.bpf.c. */
#define FILTER_BITS (1 << 16)

__u64 target_filter[FILTER_BITS / 64];

/* Even: accounts are put into accounts_a, odd: accounts_b. User space adds 1 to it, and reads the
 * other table once no CPU stores there any more. */
volatile __u32 epoch;

const volatile __u32 max_used; /* accounts of one target in a table */
const volatile bool keep_unsampled;

static const __u32 only = 0; /* the key of maps with one entry */

/* These put the types into the object, from which bpf2go makes constants. */
const enum thread_state *state_type SEC("types");
const enum correlator_context_kind *context_kind_type SEC("types");

static __always_inline bool filtered(__u32 process) {
    return !(target_filter[process % FILTER_BITS / 64] & 1ULL << process % 64);
}

static __always_inline enum thread_state state_of_descriptor(struct task_struct *task, __u32 fd) {
    struct files_struct *files = BPF_CORE_READ((struct task_struct___waits *)task, files);
    struct fdtable *table = BPF_CORE_READ(files, fdt);
    struct file **files_open = BPF_CORE_READ(table, fd), *file = NULL;
    struct socket *socket;

    if (fd >= BPF_CORE_READ(table, max_fds) ||
        bpf_probe_read_kernel(&file, sizeof(file), files_open + fd))
        return STATE_OTHER;
    switch (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) {
    case S_IFSOCK:
        socket = BPF_CORE_READ(file, private_data);
        return BPF_CORE_READ(socket, sk, __sk_common.skc_family) == AF_UNIX ? STATE_UNIX
                                                                            : STATE_NET;
    case S_IFIFO:
        return STATE_PIPE;
    case S_IFREG:
    case S_IFBLK:
        return STATE_DISK;
    }
    return STATE_OTHER; /* for instance a terminal, an eventfd */
}

/* The kinds of system calls that a thread waits in, by their numbers. */
enum call {
    CALL_OTHER,
    CALL_NONE, /* a fault, or an interrupt */
    CALL_FUTEX,
    CALL_SLEEP,
    CALL_DESCRIPTOR, /* the first argument is the one that it waits for */
    CALL_POLL,
    CALL_DISK,
};

#if defined(__TARGET_ARCH_x86)

/* Numbers of arch/x86/entry/syscalls/syscall_64.tbl. */
static __always_inline enum call call_of(long number) {
    switch (number) {
    case 202: /* futex */
    case 449: /* futex_waitv */
    case 455: /* futex_wait */
        return CALL_FUTEX;
    case 35:  /* nanosleep */
    case 230: /* clock_nanosleep */
        return CALL_SLEEP;
    case 0:   /* read */
    case 1:   /* write */
    case 17:  /* pread64 */
    case 18:  /* pwrite64 */
    case 19:  /* readv */
    case 20:  /* writev */
    case 40:  /* sendfile */
    case 42:  /* connect */
    case 43:  /* accept */
    case 44:  /* sendto */
    case 45:  /* recvfrom */
    case 46:  /* sendmsg */
    case 47:  /* recvmsg */
    case 288: /* accept4 */
    case 295: /* preadv */
    case 296: /* pwritev */
    case 299: /* recvmmsg */
    case 307: /* sendmmsg */
    case 327: /* preadv2 */
    case 328: /* pwritev2 */
        return CALL_DESCRIPTOR;
    case 7:   /* poll */
    case 23:  /* select */
    case 208: /* io_getevents */
    case 232: /* epoll_wait */
    case 270: /* pselect6 */
    case 271: /* ppoll */
    case 281: /* epoll_pwait */
    case 426: /* io_uring_enter */
    case 441: /* epoll_pwait2 */
        return CALL_POLL;
    case 26:  /* msync */
    case 74:  /* fsync */
    case 75:  /* fdatasync */
    case 162: /* sync */
    case 277: /* sync_file_range */
    case 306: /* syncfs */
        return CALL_DISK;
    case -1:
        return CALL_NONE;
    }
    return CALL_OTHER;
}

#define CALL_NUMBER(regs) ((long)(regs)->orig_ax)
#define CALL_ARGUMENT(regs) ((regs)->di)

#elif defined(__TARGET_ARCH_arm64)

/* Numbers of include/uapi/asm-generic/unistd.h. */
static __always_inline enum call call_of(long number) {
    switch (number) {
    case 98:  /* futex */
    case 449: /* futex_waitv */
    case 455: /* futex_wait */
        return CALL_FUTEX;
    case 101: /* nanosleep */
    case 115: /* clock_nanosleep */
        return CALL_SLEEP;
    case 63:  /* read */
    case 64:  /* write */
    case 65:  /* readv */
    case 66:  /* writev */
    case 67:  /* pread64 */
    case 68:  /* pwrite64 */
    case 69:  /* preadv */
    case 70:  /* pwritev */
    case 71:  /* sendfile */
    case 202: /* accept */
    case 203: /* connect */
    case 206: /* sendto */
    case 207: /* recvfrom */
    case 211: /* sendmsg */
    case 212: /* recvmsg */
    case 242: /* accept4 */
    case 243: /* recvmmsg */
    case 269: /* sendmmsg */
    case 286: /* preadv2 */
    case 287: /* pwritev2 */
        return CALL_DESCRIPTOR;
    case 4:   /* io_getevents */
    case 22:  /* epoll_pwait */
    case 72:  /* pselect6 */
    case 73:  /* ppoll */
    case 426: /* io_uring_enter */
    case 441: /* epoll_pwait2 */
        return CALL_POLL;
    case 81:  /* sync */
    case 82:  /* fsync */
    case 83:  /* fdatasync */
    case 84:  /* sync_file_range */
    case 227: /* msync */
    case 267: /* syncfs */
        return CALL_DISK;
    case -1:
        return CALL_NONE;
    }
    return CALL_OTHER;
}

#define CALL_NUMBER(regs) ((long)(regs)->syscallno)
#define CALL_ARGUMENT(regs) ((regs)->orig_x0)

#endif

/* Of include/linux/sched.h: __TASK_STOPPED, __TASK_TRACED, and TASK_FROZEN since Linux 6.1. */
#define STOPPED_STATES 0x800c

/* What a thread waits for that blocks, by the system call that it is in. One that waits for events
 * of io_uring is said to wait for a device, whatever the events are of. */
static __always_inline enum thread_state state_of_block(struct task_struct *task,
                                                        __u32 task_state) {
    const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
    enum call call = call_of(CALL_NUMBER(regs));

    if (task_state & STOPPED_STATES)
        return STATE_OTHER;
    if (call == CALL_POLL)
        return STATE_POLL;
    if (BPF_CORE_READ_BITFIELD((struct task_struct___waits *)task, in_iowait))
        return STATE_DISK;
    switch (call) {
    case CALL_NONE:
        return STATE_FAULT;
    case CALL_FUTEX:
        return STATE_FUTEX;
    case CALL_SLEEP:
        return STATE_SLEEP;
    case CALL_DESCRIPTOR:
        return state_of_descriptor(task, CALL_ARGUMENT(regs));
    case CALL_DISK:
        return STATE_DISK;
    default:
        return STATE_OTHER;
    }
}

static __always_inline bool is_throttled(struct task_struct *task) {
    struct task_struct___waits *fields = (void *)task;

    return bpf_core_field_exists(fields->throttled) && fields->throttled;
}

/* The clock may differ by some nanoseconds between CPUs. */
static __always_inline __u64 between(__u64 from, __u64 to) {
    return to > from ? to - from : 0;
}

static __always_inline void add(struct account *account, __u32 state, __u64 ns) {
    __asm__ __volatile__("" : "+r"(state)); /* else the compiler knows more than the verifier */
    if (state >= STATES)                    /* never; for the verifier */
        return;
    account->ns[state] += ns;
    account->times[state]++;
    if (ns > account->longest[state])
        account->longest[state] = ns;
}

static __always_inline void merge(struct account *into, const struct account *from) {
    into->last = from->last;
    for (int i = 0; i < STATES; i++) {
        into->ns[i] += from->ns[i];
        into->times[i] += from->times[i];
        if (from->longest[i] > into->longest[i])
            into->longest[i] = from->longest[i];
    }
}

/* Whether a target may have another account in the table of an epoch. CPUs that ask at the same
 * time may count as one. */
static __always_inline bool may_use(__u32 target, __u32 now) {
    __u32 i = target % USAGES;
    struct usage *usage = bpf_map_lookup_elem(&usages, &i);

    if (!usage) /* never */
        return false;
    if (usage->epoch != now) {
        usage->epoch = now;
        usage->used = 0;
    }
    return usage->used++ < max_used;
}

static __always_inline bool store_in(void *table, const struct thread *thread, __u32 now) {
    struct account *stored = bpf_map_lookup_elem(table, &thread->key);

    if (stored) { /* of this thread, which is the only one that changes it */
        merge(stored, &thread->account);
        return true;
    }
    return may_use(thread->key.target, now) &&
           !bpf_map_update_elem(table, &thread->key, &thread->account, BPF_NOEXIST);
}

/* Adds the account of the current thread to a table, and begins it anew. */
static __always_inline void flush(struct thread *thread, struct wait_counters *counters,
                                  __u64 now) {
    __u32 current;
    bool stored;

    counters->counting++;
    current = epoch;
    stored = current % 2 ? store_in(&accounts_b, thread, current)
                         : store_in(&accounts_a, thread, current);
    counters->counting++;
    if (stored)
        counters->stored++;
    else
        counters->lost++;
    __builtin_memset(&thread->account, 0, sizeof(thread->account));
    thread->flushed = now;
}

static __always_inline bool has_context(const struct thread *thread) {
    return thread->key.kind;
}

/* Ends the run of a thread whose context is not that of before, or not known. */
static __always_inline void leave(struct thread *thread, struct wait_counters *counters, __u64 ran,
                                  __u64 now) {
    if (has_context(thread)) {
        thread->account.last = now - ran;
        add(&thread->account, STATE_CHANGED, ran);
        flush(thread, counters, now);
    }
    __builtin_memset(&thread->key, 0, sizeof(thread->key));
}

static __always_inline bool is_same(const struct thread *thread,
                                    const struct correlator_context *context) {
    const struct account_key *key = &thread->key;
    const __u64 *trace_id = correlator_trace_id(context);

    return key->target == context->target && key->kind == context->kind &&
           key->trace_id[0] == trace_id[0] && key->trace_id[1] == trace_id[1] &&
           (context->kind == CORRELATOR_OTEL ||
            key->transaction_id == context->slot.transaction_id);
}

static __always_inline void enter(struct task_struct *task, struct thread *thread,
                                  const struct correlator_context *context) {
    const __u64 *trace_id = correlator_trace_id(context);
    struct account_key *key = &thread->key;

    key->target = context->target;
    key->tid = task_number(task, context->level);
    key->kind = context->kind;
    key->trace_id[0] = trace_id[0];
    key->trace_id[1] = trace_id[1];
    key->transaction_id = context->kind == CORRELATOR_OTEL ? 0 : context->slot.transaction_id;
}

#define FLUSH_INTERVAL 100000000 /* ns */

/* Ends the run of the current thread, in the context that it has now. */
static __always_inline void end_run(struct task_struct *task, struct thread *thread,
                                    struct wait_counters *counters, __u64 now) {
    struct correlator_context *context = bpf_map_lookup_elem(&contexts, &only);
    __u64 ran = thread->in ? between(thread->in, now) : 0;
    enum correlator_outcome outcome;

    if (!context) /* never */
        return;
    context->target = 0;
    outcome = correlator_current(&targets, context);
    /* What follows is the same for all outcomes: the verifier goes through it once. */
    __asm__ __volatile__("" : "+r"(outcome)::"memory");
    if (context->target != thread->target) { /* its switches since then are not known */
        __builtin_memset(&thread->key, 0, sizeof(thread->key));
        __builtin_memset(&thread->account, 0, sizeof(thread->account));
        thread->target = context->target;
        ran = 0;
    }
    if (outcome == CORRELATOR_UNREADABLE || outcome == CORRELATOR_RECORD_UNREADABLE ||
        outcome == CORRELATOR_UPDATING)
        counters->unknown++;
    if (outcome < (keep_unsampled ? CORRELATOR_UNSAMPLED : CORRELATOR_SAMPLED)) {
        leave(thread, counters, ran, now);
        return;
    }
    if (has_context(thread) && is_same(thread, context)) {
        add(&thread->account, STATE_ON_CPU, ran);
        thread->account.last = now;
        if (between(thread->flushed, now) >= FLUSH_INTERVAL) {
            flush(thread, counters, now);
            thread->account.first = now;
        }
        return;
    }
    leave(thread, counters, ran, now);
    enter(task, thread, context);
    thread->account.first = thread->account.last = now;
    add(&thread->account, STATE_CHANGED, ran);
    thread->flushed = now;
}

static __always_inline struct thread *thread_of(struct task_struct *task,
                                                struct wait_counters *counters) {
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    __u32 process = task->tgid;

    if (!thread && bpf_map_lookup_elem(&targets, &process))
        counters->stateless++;
    return thread;
}

static __always_inline void switch_out(struct task_struct *task, bool blocks, __u32 task_state,
                                       struct wait_counters *counters, __u64 now) {
    struct thread *thread = thread_of(task, counters);

    if (!thread)
        return;
    end_run(task, thread, counters, now);
    if (has_context(thread) && blocks)
        thread->state = state_of_block(task, task_state);
    else
        thread->state = is_throttled(task) ? STATE_THROTTLED : STATE_RUNNABLE;
    thread->was_in = thread->in;
    thread->in = 0;
    thread->out = now;
}

static __always_inline void switch_in(struct task_struct *task, struct wait_counters *counters,
                                      __u64 now) {
    struct thread *thread = thread_of(task, counters);
    __u64 out, woken;

    if (!thread)
        return;
    thread->in = now;
    out = thread->out;
    thread->out = 0;
    if (!out || !has_context(thread))
        return;
    thread->account.last = now;
    if (thread->state == STATE_RUNNABLE || thread->state == STATE_THROTTLED) {
        add(&thread->account, thread->state, between(out, now));
        return;
    }
    woken = thread->waking;
    if (woken < out) {
        if (!thread->was_in || woken < thread->was_in) {
            counters->unwoken++;
            woken = now;
        } else { /* while it went to sleep */
            woken = out;
        }
    }
    add(&thread->account, thread->state, between(out, woken));
    add(&thread->account, STATE_RUNNABLE, between(woken, now));
}

static __always_inline int on_switch(struct task_struct *prev, struct task_struct *next,
                                     bool blocks, __u32 prev_state) {
    __u32 cpu = bpf_get_smp_processor_id();
    bool out = prev->tgid && !filtered(prev->tgid), in = next->tgid && !filtered(next->tgid);
    struct wait_counters *counts;
    __u64 now;

    if (!out && !in)
        return 0;
    counts = bpf_map_lookup_elem(&counters, &cpu);
    if (!counts) /* never */
        return 0;
    now = bpf_ktime_get_ns();
    if (out)
        switch_out(prev, blocks, prev_state, counts, now);
    if (in)
        switch_in(next, counts, now);
    return 0;
}

/* bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state: since
 * Linux 5.19, and the last releases of 5.18. prev's own state may be that of the next wait already.
 */
SEC("tp_btf/sched_switch")
int account_switch(__u64 *ctx) {
    return on_switch((struct task_struct *)ctx[1], (struct task_struct *)ctx[2],
                     !ctx[0] && (__u32)ctx[3], (__u32)ctx[3]);
}

/* A thread that sleeps is made runnable. Its first waking counts: others may come until it runs. It
 * may be woken while it goes to sleep, before account_switch. */
SEC("tp_btf/sched_waking")
int account_waking(__u64 *ctx) {
    struct task_struct *task = (struct task_struct *)ctx[0];
    struct thread *thread;

    if (filtered(task->tgid))
        return 0;
    thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (thread && (!thread->out || thread->waking < thread->out))
        thread->waking = bpf_ktime_get_ns();
    return 0;
}

/* struct task_struct *task, unsigned long clone_flags. Here memory may be allocated. */
SEC("tp_btf/task_newtask")
int prepare_new(__u64 *ctx) {
    struct task_struct *task = (struct task_struct *)ctx[0];

    if (!filtered(task->tgid))
        bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    return 0;
}

/* Makes the states of the threads that there are, of one process or all targets. */
SEC("iter/task")
int prepare(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;

    if (task && !filtered(task->tgid))
        bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
