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
 * Of some waits the stack is walked (walks.bpf.c), which is decided once their length is known: see
 * budget.h. A stack is due of each that is as long as the target's period, for itself, and of
 * shorter ones each time that they add up to the least one, for that. Waits for a CPU have longer
 * periods, and add up apart: a thread that is preempted waits where its CPU samples are, too. So
 * what stacks stand for is the time of all waits, within a step of each sort for each thread.
 *
 * Programs here run with interrupts off and the lock of a run queue held: they allocate nothing. */
#include "waits.h"
#include "budget.h"
#include "calls.h"
#include "contexts.h"

struct accounts {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct account_key);
    __type(value, struct account);
} accounts_a SEC(".maps"), accounts_b SEC(".maps");

/* By the lowest 16 bits of a target's id, which differ. User space maps them. */
#define USAGES (1 << 16)

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, USAGES);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct usage);
} usages SEC(".maps");

/* By the number of an owner. Those whose numbers differ by that share one. The last is of all. User
 * space maps them. */
#define OWNERS (1 << 12)

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, OWNERS + 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct owned);
} owners SEC(".maps");

/* By CPU, then as PACES says. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct pace);
} paces SEC(".maps");

/* That of sampler.bpf.c. */
__u64 target_filter[FILTER_BITS / 64];

/* Even: accounts are put into accounts_a, odd: accounts_b. User space adds 1 to it, and reads the
 * other table once no CPU stores there any more. */
volatile __u32 epoch;

const volatile __u16 max_used;          /* accounts of one target in a table */
const volatile __u32 max_accounts;      /* of all */
const volatile __u32 max_threads;       /* of a process, of which more have no state */
const volatile __u32 max_owned_threads; /* of all processes of an owner */
const volatile bool keep_unsampled;
__u32 prepared; /* the target that prepare is for, which is not in the table yet; 0: those there */
__u32 prepared_process;
const volatile bool by_thread; /* what context a thread has makes no difference */

volatile bool walks;                /* stacks can be walked */
const volatile bool kernel_stacks;  /* with the kernel's frames */
volatile __u64 since;               /* before these programs were attached, CLOCK_MONOTONIC, ns */
volatile __u64 attached;            /* after that: from then on, all switches are seen */
const volatile __u64 least_period;  /* ns, of all CPUs */
const volatile __u32 max_asked;     /* walks of a CPU in a window */
const volatile __u32 interrupts_at; /* see interrupts */
const volatile __u32 pid_namespace; /* the inode of the correlator's; 0: not known */
const volatile __u64 tick;          /* ns, of the kernel's timers */

static const __u32 only = 0; /* the key of maps with one entry */

/* These put the types into the object, from which bpf2go makes constants. */
const enum thread_state *state_type SEC("types");
const enum correlator_context_kind *context_kind_type SEC("types");
const enum budget *budget_type SEC("types");

static __always_inline bool filtered(__u32 process) {
    return !in_filter(target_filter, process);
}

static __always_inline enum thread_state state_of_descriptor(struct task_struct *task, __u32 fd,
                                                             __u32 *mark) {
    struct file *file = open_file(task, fd);
    struct socket *socket;

    *mark = mark_of(file);

    switch (file_type(file)) {
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

/* Of include/linux/sched.h: __TASK_STOPPED, __TASK_TRACED, and TASK_FROZEN since Linux 6.1; and
 * TASK_DEAD. */
#define STOPPED_STATES 0x800c
#define ENDED_STATE 0x80

/* What a thread waits for that blocks, by the system call that it is in. One that waits for events
 * of io_uring is said to wait for a device, whatever the events are of. */
static __always_inline enum thread_state state_of_block(struct task_struct *task, __u32 task_state,
                                                        __u32 *mark) {
    const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
    enum call call = call_of_task(task, regs);

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
    case CALL_FUTEXES:
        return STATE_FUTEX;
    case CALL_SLEEP:
        return STATE_SLEEP;
    case CALL_DESCRIPTOR:
        return state_of_descriptor(task, CALL_ARGUMENT(regs), mark);
    case CALL_FILE:
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

static __always_inline struct usage *usage_of(__u32 target) {
    __u32 i = target % USAGES;

    return bpf_map_lookup_elem(&usages, &i);
}

static __always_inline struct owned *owner_of(const struct usage *usage) {
    __u32 number = usage->owner % OWNERS;

    return bpf_map_lookup_elem(&owners, &number);
}

/* How many accounts were counted in an epoch. The count is begun anew in another one: what CPUs
 * count at the same moment may be lost. */
static __always_inline __u32 used_in(__u32 *epoch_of, __u32 *used, __u32 now) {
    if (*epoch_of != now) {
        *epoch_of = now;
        *used = 0;
    }
    return *used;
}

/* Whether a target, and its owner, may have another account in the table of an epoch. An owner may
 * have as many as are free: one has half of them at most, two a third each, and so on, so that
 * however many take what they can get, somebody else can have some. Each CPU that asks at the same
 * time as another may add one to the most. */
static __always_inline bool may_use(__u32 target, __u32 now) {
    __u32 last = OWNERS, used;
    struct usage *usage = usage_of(target);
    struct owned *owner, *all = bpf_map_lookup_elem(&owners, &last);

    if (!usage || !all) /* never */
        return false;
    owner = owner_of(usage);
    used = used_in(&all->epoch, &all->used, now);
    if (!owner || used >= max_accounts || used_in(&usage->epoch, &usage->used, now) >= max_used ||
        used_in(&owner->epoch, &owner->used, now) >= max_accounts - used)
        return false;
    __sync_fetch_and_add(&all->used, 1);
    __sync_fetch_and_add(&usage->used, 1);
    __sync_fetch_and_add(&owner->used, 1);
    return true;
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

static __always_inline void clear(struct thread *thread) {
    __u32 rest = thread->account.queue_rest;

    __builtin_memset(&thread->account, 0, sizeof(thread->account));
    thread->account.queue_rest = rest;
}

/* Adds the account of a thread to a table, and begins it anew. */
static __always_inline void flush(struct task_struct *task, struct thread *thread,
                                  struct wait_counters *counters) {
    __u32 current;
    bool stored;

    if (by_thread)
        bpf_core_read(thread->key.trace_id, sizeof(thread->key.trace_id),
                      &((struct task_struct___waits *)task)->comm);
    counters->counting++;
    current = epoch;
    stored = current % 2 ? store_in(&accounts_b, thread, current)
                         : store_in(&accounts_a, thread, current);
    counters->counting++;
    if (stored)
        counters->stored++;
    else
        counters->lost++;
    clear(thread);
}

/* The same. The verifier goes through a function that is not static
 * once, however many paths lead to it. */
__noinline int flush_current(void) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct wait_counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);

    if (counts && thread) /* always */
        flush(task, thread, counts);
    return 0;
}

static __always_inline bool has_context(const struct thread *thread) {
    return thread->key.kind;
}

/* Three quarters of what there is, and one: of the walks of a CPU those that an owner may have, so
 * that one that wants all of them leaves some to others, and of these those that a target of it may
 * have. */
static __always_inline __u32 most_of(__u32 all) {
    return all * 3 / 4 + 1;
}

static __always_inline __u32 most_of_owner(void) {
    return most_of(max_asked);
}

static __always_inline __u32 most_of_target(void) {
    return most_of(most_of_owner());
}

static __always_inline struct pace *pace_at(__u32 cpu, __u32 place) {
    __u32 i = cpu * (PACES + OWNER_PACES) + place;

    return bpf_map_lookup_elem(&paces, &i);
}

static __always_inline struct pace *pace_of(__u32 target, __u32 cpu) {
    return pace_at(cpu, target % PACES);
}

/* That of the target's owner. */
static __always_inline struct pace *pace_of_owner(__u32 target, __u32 cpu) {
    const struct usage *usage = usage_of(target);

    return usage ? pace_at(cpu, PACES + usage->owner % OWNER_PACES) : NULL;
}

static __always_inline __u64 period_of(const struct pace *pace) {
    return pace->period < least_period ? least_period : pace->period;
}

static __always_inline __u64 queue_rest(const struct thread *thread) {
    return thread->account.queue_rest * (__u64)QUEUE_UNIT;
}

static __always_inline void set_queue_rest(struct thread *thread, __u64 ns) {
    thread->account.queue_rest = (ns + QUEUE_UNIT / 2) / QUEUE_UNIT;
}

static __always_inline __u64 random_part(__u64 period) {
    return (period >> 16) * (bpf_get_prandom_u32() >> 16);
}

/* A thread begins with a part of each step at random. */
static __always_inline void begin_rests(struct thread *thread) {
    thread->rest = random_part(least_period);
    set_queue_rest(thread, random_part(queue_period(least_period)));
    thread->step = thread->queue_step = STEPS;
}

/* Has what waits of a thread have added up to, each sort for itself, be no more than most. */
static __always_inline void cut_rests(struct thread *thread, struct wait_counters *counters,
                                      __u64 most) {
    __u64 rest = queue_rest(thread);

    counters->unasked_ns += cut(&thread->rest, &thread->step, most, least_period);
    counters->unasked_ns += cut(&rest, &thread->queue_step, most, queue_period(least_period));
    set_queue_rest(thread, rest);
}

/* No stack stands for a time any more that one of the thread was to stand for. */
static __always_inline void drop(struct thread *thread, struct wait_counters *counters) {
    counters->unasked_ns += thread->weight;
    thread->weight = 0;
}

/* What a stack of a wait that blocks is to stand for. */
static __always_inline __u64 weigh_block(struct thread *thread, const struct pace *pace, __u64 ns) {
    return weigh(&thread->rest, &thread->step, ns, period_of(pace), least_period);
}

/* The same of a wait for a CPU. */
static __always_inline __u64 weigh_queue(struct thread *thread, const struct pace *pace, __u64 ns) {
    __u64 rest = queue_rest(thread);
    __u64 weight = weigh(&rest, &thread->queue_step, ns, queue_period(period_of(pace)),
                         queue_period(least_period));

    set_queue_rest(thread, rest);
    return weight;
}

/* Adds what a stack of a wait is to stand for to the weight of the thread, which has what of former
 * waits of that state no stack stood for. */
static __always_inline void owe(struct thread *thread, struct wait_counters *counters, __u8 state,
                                __u64 weight) {
    if (thread->owed != state)
        drop(thread, counters);
    thread->owed = state;
    thread->weight += weight;
}

/* Ends the run of a thread whose context is not that of before, or not known. */
static __always_inline void leave(struct thread *thread, struct wait_counters *counters, __u64 ran,
                                  __u64 now) {
    if (has_context(thread)) {
        thread->account.last = now - ran;
        add(&thread->account, STATE_CHANGED, ran);
        flush_current();
    }
    drop(thread, counters);
    cut_rests(thread, counters, least_wait(least_period, MOST_SCARCE)); /* not of other contexts */
    thread->key.kind = 0;
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

/* The last one that was seen. */
static __always_inline __u64 last_switch(const struct thread *thread) {
    return thread->out ? thread->out : thread->in;
}

/* No stack stands for anything any more that the thread has done. */
static __always_inline void end_stacks(struct thread *thread, struct wait_counters *counters) {
    drop(thread, counters);
    cut_rests(thread, counters, 0);
}

/* Not all switches are known of a thread since its account was begun. */
static __always_inline void abandon(struct thread *thread, struct wait_counters *counters) {
    counters->lost += thread->account.first != 0;
    end_stacks(thread, counters);
    thread->key.kind = 0;
    clear(thread);
}

static __always_inline bool is_queued(const struct thread *thread) {
    return thread->state == STATE_RUNNABLE || thread->state == STATE_THROTTLED;
}

/* Adds the wait of a thread to its account, which began to run at that time. Returns for how long
 * it was blocked; for the rest it waited for a CPU. */
static __always_inline __u64 end_wait(struct thread *thread, struct wait_counters *counters,
                                      __u64 in) {
    __u64 out = thread->out, woken = thread->waking;

    thread->account.last = in;
    if (is_queued(thread)) {
        add(&thread->account, thread->state, between(out, in));
        return 0;
    }
    if (!woken) {
        counters->unwoken++;
        woken = in;
    }
    woken = woken < out ? out : woken;
    woken = woken > in ? in : woken;
    add(&thread->account, thread->state, between(out, woken));
    add(&thread->account, STATE_RUNNABLE, between(woken, in));
    return between(out, woken);
}

static __always_inline __u64 ran_in_all(struct task_struct *task) {
    return ((struct task_struct___waits *)task)->se.sum_exec_runtime;
}

/* How long a thread has run since a switch of it, by the scheduler, which leaves out some of what
 * interrupts take. */
static __always_inline __u64 ran_since(struct task_struct *task, const struct thread *thread,
                                       __u64 from, __u64 now) {
    __u64 ran = ran_in_all(task) - thread->ran, time = between(from, now);

    return ran < time ? ran : time;
}

/* For what a thread waited after a switch that was not seen: if it was woken, it was blocked. */
static __always_inline void guess_state(struct thread *thread) {
    if (is_queued(thread) && thread->waking > thread->out)
        thread->state = STATE_OTHER;
}

#define FLUSH_INTERVAL 100000000 /* ns */

static __always_inline void enter_thread(struct task_struct *task, struct thread *thread,
                                         __u32 target, __u32 level, __u64 now) {
    thread->key.target = target;
    thread->key.tid = task_number(task, level);
    thread->key.kind = OF_THREAD;
    thread->account.first = thread->account.last = now;
}

/* Ends the run of a thread whose account is by_thread. One that exits may not run again. */
static __always_inline void end_run_by_thread(struct task_struct *task, struct thread *thread,
                                              const struct correlator_context *context, bool exits,
                                              __u64 ran, __u64 now) {
    if (!has_context(thread))
        enter_thread(task, thread, context->target, context->level, now - ran);
    if (ran)
        add(&thread->account, STATE_ON_CPU, ran);
    thread->account.last = now;
    if (exits || between(thread->account.first, now) >= FLUSH_INTERVAL) {
        flush_current();
        thread->account.first = now;
    }
}

/* Ends the run of the current thread, in the context that it has now. */
static __always_inline void end_run(struct task_struct *task, struct thread *thread,
                                    struct wait_counters *counters, __u64 now) {
    struct current_context *found = bpf_map_lookup_elem(&contexts, &only);
    struct correlator_context *context;
    enum correlator_outcome outcome;
    __u64 ran = 0;

    if (!found) /* never */
        return;
    context = &found->context;
    context->target = 0;
    outcome = read_context(found, !by_thread);
    /* What follows is the same for all outcomes: the verifier goes through it once. */
    __asm__ __volatile__("" : "+r"(outcome)::"memory");
    if (context->target != thread->key.target || last_switch(thread) < since) {
        abandon(thread, counters);
        thread->key.target = context->target;
        begin_rests(thread);
    } else if (thread->out) { /* it was not seen to be switched in */
        counters->unseen++;
        ran = ran_since(task, thread, thread->out, now);
        guess_state(thread);
        if (has_context(thread))
            end_wait(thread, counters, now - ran);
        thread->waking = 0;
    } else if (thread->in) {
        ran = between(thread->in, now);
    }
    if (by_thread && outcome >= CORRELATOR_NO_USER_CODE) {
        end_run_by_thread(task, thread, context, task->flags & CORRELATOR_PF_EXITING, ran, now);
        return;
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
        if (between(thread->account.first, now) >= FLUSH_INTERVAL) {
            flush_current();
            thread->account.first = now;
        }
        return;
    }
    leave(thread, counters, ran, now);
    enter(task, thread, context);
    thread->account.first = thread->account.last = now;
    add(&thread->account, STATE_CHANGED, ran);
}

/* 0: none, or none that is in the table yet. */
static __always_inline __u32 target_of(struct task_struct *task) {
    __u32 process = task->tgid;
    const struct correlator_target *target = bpf_map_lookup_elem(&targets, &process);

    return target ? target->id : 0;
}

/* Takes room for the state of another thread of a target, which may be there already. Returns false
 * if its owner has none. */
static __always_inline bool take_room(struct usage *usage, bool is_there) {
    __u32 last = OWNERS;
    struct owned *owner = owner_of(usage), *all = bpf_map_lookup_elem(&owners, &last);

    if (!owner || !all) /* never */
        return false;
    if (!is_there && (__s32)(owner->threads + owner->begun) >= (__s32)max_owned_threads)
        return false;
    __sync_fetch_and_add(&usage->threads, 1);
    __sync_fetch_and_add(&owner->begun, 1);
    __sync_fetch_and_add(&all->begun, 1);
    return true;
}

/* Gives back that of a thread that has ended. */
static __always_inline void give_room(struct task_struct *task) {
    __u32 last = OWNERS, target = target_of(task);
    struct usage *usage = target ? usage_of(target) : NULL;
    struct owned *all = bpf_map_lookup_elem(&owners, &last);
    struct owned *owner = usage ? owner_of(usage) : NULL;

    if (!owner || !all || !usage->threads)
        return;
    __sync_fetch_and_add(&usage->threads, -1);
    __sync_fetch_and_add(&owner->begun, -1);
    __sync_fetch_and_add(&all->begun, 1);
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
    __builtin_memset(&thread->waker, 0, sizeof(thread->waker));
    if (has_context(thread) && blocks)
        thread->state = state_of_block(task, task_state, &thread->waker.file);
    else
        thread->state = is_throttled(task) ? STATE_THROTTLED : STATE_RUNNABLE;
    thread->cpu = bpf_get_smp_processor_id();
    thread->in = 0;
    thread->out = now;
    thread->ran = ran_in_all(task);
    if (task_state & ENDED_STATE) {
        give_room(task);
        end_stacks(thread, counters);
        if (by_thread) /* its account is complete, whenever its parent takes note */
            thread->key.kind = 0;
    }
}

/* Has the period of a target on this CPU follow what waits there were. The verifier goes through it
 * once. */
__noinline int follow(__u32 target, __u64 now) {
    struct pace *pace = pace_of(target, bpf_get_smp_processor_id());
    __u64 windows;

    if (!pace) /* never */
        return 0;
    windows = between(pace->window, now) / (WINDOWS * WINDOW);
    pace->period = next_period(period_of(pace), pace->walked, pace->refused, pace->longer,
                               pace->nearly, windows * WINDOWS * most_of_target() / 2);
    pace->window = now;
    pace->walked = pace->refused = pace->longer = pace->nearly = 0;
    return 0;
}

/* Names the current thread as the one that ends a wait. */
static __always_inline void name_waker(struct waker *waker, struct task_struct *current,
                                       const struct correlator_target *target) {
    waker->kind = WAKER_THREAD;
    waker->pid = number_in(current->group_leader, target->level, pid_namespace);
    waker->tid = number_in(current, target->level, pid_namespace);
    bpf_get_current_comm(waker->name, sizeof(waker->name));
}

/* Notes who leaves the CPU to a thread that has waited for one: at a switch that is still the
 * current thread. Nobody does if the CPU was idle. */
static __always_inline void note_leaver(struct task_struct *task, struct thread *thread) {
    struct task_struct *current = bpf_get_current_task_btf();
    __u32 process = task->tgid;
    const struct correlator_target *target = bpf_map_lookup_elem(&targets, &process);

    if (target && current->tgid)
        name_waker(&thread->waker, current, target);
}

/* Has no stack walked for what one was due for: if that was the wait itself, none stands for it. */
static __always_inline void refuse(struct thread *thread, struct wait_counters *counters,
                                   const struct pace *pace, __u32 scarce, __u64 blocked,
                                   __u64 queued, __u64 queue) {
    __u64 period = queue_period(period_of(pace)), rest = queue_rest(thread);
    __u64 blocks = thread->weight;
    __u32 random = bpf_get_prandom_u32();

    if (is_queued(thread)) {
        queued = blocks;
        blocks = 0;
    }
    if (queued &&
        (queue >= period || !put_back(&rest, &thread->queue_step, queued, scarce, random,
                                      MAX_QUEUE_PERIOD / 2, queue_period(least_period)))) {
        counters->unasked++;
        counters->unasked_ns += queued;
    }
    set_queue_rest(thread, rest);
    if (blocks &&
        (blocked >= period_of(pace) || !put_back(&thread->rest, &thread->step, blocks, scarce,
                                                 random, MAX_PERIOD, least_period))) {
        counters->unasked++;
        counters->unasked_ns += blocks;
    }
    thread->weight = 0;
}

#define ASKED (MOST_SCARCE + 1)

/* Counts a walk of a target on this CPU, of a wait that is as long as ns, and is to stand for a
 * weight, both by the period of those that block. Returns ASKED, or how scarce walks are if there
 * may be none. The verifier goes through it once, too. */
__noinline __u32 take_walk(__u32 target, __u64 ns, __u64 weight, __u64 now) {
    __u32 of_cpu = max_asked, of_owner = most_of_owner(), of_target = most_of_target(), scarce;
    __u32 cpu = bpf_get_smp_processor_id();
    struct wait_counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    struct pace *pace = pace_of(target, cpu), *owner = pace_of_owner(target, cpu);
    __u64 period;

    if (!counts || !pace || !owner) /* never */
        return MOST_SCARCE;
    period = period_of(pace);
    scarce = scarcity(taken(pace->until, now), taken(owner->until, now), taken(counts->until, now));
    if (!has_room(counts->until, now, of_cpu) || !has_room(owner->until, now, of_owner) ||
        !has_room(pace->until, now, of_target) ||
        worth(ns, weight, period) < least_wait(period, scarce)) {
        pace->refused += ns >= period;
        pace->longer += is_longer(ns, period);
        return scarce;
    }
    pace->walked += ns >= period;
    counts->until = take(counts->until, now, of_cpu);
    owner->until = take(owner->until, now, of_owner);
    pace->until = take(pace->until, now, of_target);
    return ASKED;
}

static __always_inline __u64 longer(__u64 a, __u64 b) {
    return a > b ? a : b;
}

/* Has the stack of the thread that is about to run walked, if that is to be. It was blocked for a
 * time, and then waited for its CPU, which the stack is to stand for, too. */
static __always_inline void ask(struct task_struct *task, struct thread *thread,
                                struct wait_counters *counters, struct pace *pace, __u64 blocked,
                                __u64 queued, __u64 queue) {
    const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
    struct job *job = bpf_map_lookup_elem(&jobs, &only);
    __u64 weight;
    __u32 scarce;
    long bytes;

    if (!job) /* never */
        return;
    if (job->tid || job->unwinding) { /* there was no interrupt, or the chain has lost it */
        counters->missed += job->tid != 0;
        counters->unfinished += job->unwinding;
        counters->unasked_ns += job->queued;
        job->tid = job->unwinding = 0;
    }
    if (!thread->weight && !queued)
        return;
    weight = is_queued(thread) ? thread->weight / QUEUE_PERIODS : thread->weight;
    scarce = take_walk(thread->key.target, longer(blocked, queue / QUEUE_PERIODS),
                       longer(weight, queued / QUEUE_PERIODS), thread->in);
    if (scarce != ASKED) {
        refuse(thread, counters, pace, scarce, blocked, queued, queue);
        return;
    }
    if (!ring()) {
        counters->unrung++;
        counters->unasked_ns += queued;
        return;
    }
    if (thread->state == STATE_RUNNABLE)
        note_leaver(task, thread);
    job->longest = blocked;
    job->queued = queued;
    job->queue = queue;
    job->in = thread->in;
    job->ip = CALL_ADDRESS(regs);
    job->sp = regs->sp;
    job->test = 0;
    job->frames = 0;
    if (kernel_stacks) { /* in the interrupt it would begin with what that has called */
        bytes = bpf_get_task_stack(task, job->kernel, sizeof(job->kernel), 0);
        job->frames = bytes > 0 ? bytes / sizeof(*job->kernel) : 0;
    }
    job->tid = ((struct task_struct___waits *)task)->pid;
}

/* Accounts for what a thread did between two switches of it that were not seen, the latter of which
 * was out of a CPU. Returns false if nothing is left to be accounted for. */
static __always_inline bool mend(struct task_struct *task, struct thread *thread,
                                 struct wait_counters *counters, __u64 now) {
    __u64 last = last_switch(thread), ran = ran_since(task, thread, last, now);

    if (thread->out && !ran) /* there were none */
        return true;
    if (!has_context(thread))
        return false;
    counters->unseen++;
    add(&thread->account, STATE_ON_CPU, ran);
    if (thread->out) {
        guess_state(thread);
        end_wait(thread, counters, now - ran);
        thread->account.last = now;
        return false;
    }
    thread->out = last + ran;
    thread->state = STATE_RUNNABLE;
    guess_state(thread);
    return true;
}

static __always_inline void switch_in(struct task_struct *task, struct wait_counters *counters,
                                      __u64 now) {
    struct thread *thread = thread_of(task, counters);
    __u64 out, woken, blocked, queue, queued = 0;
    __u32 cpu = bpf_get_smp_processor_id();
    struct pace *pace = NULL;
    bool is_known;

    if (!thread)
        return;
    if (last_switch(thread) < since)
        abandon(thread, counters);
    is_known = mend(task, thread, counters, now) && has_context(thread);
    out = thread->out;
    woken = thread->waking;
    if (is_known)
        blocked = end_wait(thread, counters, now);
    thread->in = now;
    thread->out = thread->waking = 0;
    thread->ran = ran_in_all(task);
    if (!is_known || !walks)
        return;
    pace = pace_of(thread->key.target, cpu);
    if (!pace) /* of more than 2^16 CPUs */
        return;
    if (between(pace->window, now) >= WINDOWS * WINDOW || are_too_many(pace->walked, pace->refused))
        follow(thread->key.target, now);
    queue = between(out, now) - blocked;
    if (is_nearly(queue, queue_period(period_of(pace))))
        __sync_fetch_and_add(&pace->nearly, 1);
    if (is_queued(thread))
        owe(thread, counters, thread->state, weigh_queue(thread, pace, queue));
    else if (!woken)
        owe(thread, counters, thread->state, weigh_block(thread, pace, blocked));
    else
        queued = weigh_queue(thread, pace, queue);
    ask(task, thread, counters, pace, blocked, queued, queue);
}

static __always_inline int on_switch(struct task_struct *prev, struct task_struct *next,
                                     bool blocks, __u32 prev_state) {
    bool out = prev->tgid && !filtered(prev->tgid), in = next->tgid && !filtered(next->tgid);
    struct wait_counters *counts;
    __u64 now;
    __u32 cpu;

    if (!out && !in) /* most switches of a host */
        return 0;
    cpu = bpf_get_smp_processor_id();
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

/* Whether the current task was interrupted by what runs now: the bits of include/linux/preempt.h.
 * Where the kernel has them is known where interrupts_at is not 0: on x86 so far behind the run
 * queue of the CPU. */
#define IN_HARD_INTERRUPT 0xff0000
#define IN_SOFT_INTERRUPT 0x000100

static __always_inline __u32 interrupts(struct task_struct *current) {
    struct task_struct___waits *task = (void *)current;
#if defined(__TARGET_ARCH_x86)
    struct rq *queue = BPF_CORE_READ(task, se.cfs_rq, rq);
    __u32 count = 0;

    bpf_probe_read_kernel(&count, sizeof(count), (void *)queue + (__s32)interrupts_at);
    return count;
#else
    return task->thread_info.preempt_count;
#endif
}

/* Of thread_info: _TIF_SIGPENDING. */
#if defined(__TARGET_ARCH_x86)
#define SIGNAL_PENDING (1 << 2)
#else
#define SIGNAL_PENDING (1 << 0)
#endif

#define ETIMEDOUT 110                   /* of include/uapi/asm-generic/errno.h */
#define UNLIMITED 0x7fffffffffffffffULL /* MAX_SCHEDULE_TIMEOUT of include/linux/sched.h */

/* The timers of sockets end waits in soft interrupts, as the network does. Where a call waits for a
 * limited time, which may be what a former wait has left of it, the network is known by what there
 * is to receive. */
static __always_inline enum waker_kind waker_of_socket(struct task_struct *task,
                                                       const struct thread *thread, __u64 blocked) {
    const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
    struct file *file = open_file(task, CALL_ARGUMENT(regs));
    struct socket *socket = BPF_CORE_READ(file, private_data);
    struct sock *sock = BPF_CORE_READ(socket, sk);
    bool sends = call_sends(CALL_NUMBER(regs));
    __u64 ticks = sends ? BPF_CORE_READ(sock, sk_sndtimeo) : BPF_CORE_READ(sock, sk_rcvtimeo);

    if (mark_of(file) != thread->waker.file) /* it was closed meanwhile */
        return WAKER_UNKNOWN;
    if (BPF_CORE_READ(sock, sk_err) == ETIMEDOUT)
        return WAKER_TIMER;
    if (ticks == UNLIMITED || (!sends && BPF_CORE_READ(sock, sk_receive_queue.qlen)))
        return WAKER_NETWORK;
    /* A timer is never early, but the wait began a little after it was set. */
    return ticks <= (blocked + tick / 2) / tick ? WAKER_TIMER : WAKER_UNKNOWN;
}

/* What an interrupt was of that ended a wait, by what the wait was for. A futex or a Unix socket
 * ends in one only when its time is over, or by a signal. */
static __always_inline enum waker_kind waker_of_interrupt(struct task_struct *task,
                                                          const struct thread *thread, bool hard,
                                                          __u64 blocked) {
    if (((struct task_struct___waits *)task)->thread_info.flags & SIGNAL_PENDING)
        return WAKER_UNKNOWN;
    switch (thread->state) {
    case STATE_FUTEX:
    case STATE_SLEEP:
    case STATE_UNIX:
        return WAKER_TIMER;
    case STATE_POLL:
        return hard ? WAKER_TIMER : WAKER_NETWORK;
    case STATE_NET:
        if (hard)
            return WAKER_UNKNOWN;
        return waker_of_socket(task, thread, blocked);
    case STATE_DISK:
        return WAKER_DEVICE;
    }
    return WAKER_UNKNOWN;
}

/* Notes who ends a wait: who runs now, unless that is an interrupt, of which the thread that it
 * interrupts knows nothing. */
static __always_inline void note_waker(struct task_struct *task, struct thread *thread,
                                       __u64 blocked) {
    struct task_struct *current = bpf_get_current_task_btf();
    struct waker *waker = &thread->waker;
    __u32 process = task->tgid, by;
    const struct correlator_target *target;
    struct current_context *found;
    struct correlator_context *context;

    if (!interrupts_at)
        return;
    by = interrupts(current);
    if (by & (IN_HARD_INTERRUPT | IN_SOFT_INTERRUPT)) {
        waker->kind = waker_of_interrupt(task, thread, by & IN_HARD_INTERRUPT, blocked);
        return;
    }
    target = bpf_map_lookup_elem(&targets, &process);
    if (!target || !current->tgid) /* the CPU is idle */
        return;
    if (current->flags & PF_KTHREAD && thread->state == STATE_DISK) {
        waker->kind = WAKER_DEVICE;
        return;
    }
    name_waker(waker, current, target);
    found = bpf_map_lookup_elem(&contexts, &only);
    if (!found || filtered(current->tgid) || read_context(found, true) < CORRELATOR_UNSAMPLED)
        return;
    context = &found->context;
    waker->context = context->kind;
    waker->trace_id[0] = correlator_trace_id(context)[0];
    waker->trace_id[1] = correlator_trace_id(context)[1];
    if (context->kind != CORRELATOR_OTEL)
        waker->transaction_id = context->slot.transaction_id;
}

/* Decides whether the stack of a thread that was blocked is to be walked. The period is that of the
 * CPU that it will most likely run on. */
static __always_inline void select(struct task_struct *task, struct thread *thread, __u64 blocked) {
    struct pace *pace = pace_of(thread->key.target, thread->cpu);
    __u32 cpu = bpf_get_smp_processor_id();
    struct wait_counters *counts = bpf_map_lookup_elem(&counters, &cpu);
    __u64 weight;

    if (!pace || !counts) /* of more than 2^16 CPUs */
        return;
    weight = weigh_block(thread, pace, blocked);
    if (is_nearly(blocked, period_of(pace)))
        __sync_fetch_and_add(&pace->nearly, 1);
    owe(thread, counts, thread->state, weight);
    /* Who ends this wait did not end former ones, whose stacks were not walked. */
    if (thread->weight && weight >= thread->weight - weight)
        note_waker(task, thread, blocked);
}

/* A thread that sleeps is made runnable. Its first waking counts: others may come until it runs. It
 * may be woken while it goes to sleep, before account_switch. */
SEC("tp_btf/sched_waking")
int account_waking(__u64 *ctx) {
    struct task_struct *task = (struct task_struct *)ctx[0];
    struct thread *thread;
    __u64 now;

    if (filtered(task->tgid))
        return 0;
    thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || (thread->out && thread->waking >= thread->out))
        return 0;
    now = bpf_ktime_get_ns();
    thread->waking = now;
    if (walks && thread->out && thread->out >= since && has_context(thread) &&
        thread->state >= STATE_FUTEX)
        select(task, thread, between(thread->out, now));
    return 0;
}

/* Makes the state of a thread, where memory may be allocated. */
static __always_inline void make(struct task_struct *task, __u32 target) {
    struct usage *usage = target ? usage_of(target) : NULL;
    __u32 count = task->signal->nr_threads;
    bool is_there = bpf_task_storage_get(&threads, task, 0, 0);

    if (count > max_threads)
        return;
    if ((!usage || take_room(usage, is_there)) && !is_there)
        bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Kernels for a single CPU do not say so. Linux 7.2 has it in less than an int. */
static __always_inline bool is_running(struct task_struct *task) {
    struct task_struct___waits *fields = (void *)task;
    int on_cpu = 0;

    if (!bpf_core_field_exists(fields->on_cpu))
        return false;
    if (bpf_core_field_size(fields->on_cpu) <= sizeof(on_cpu))
        bpf_probe_read_kernel(&on_cpu, bpf_core_field_size(fields->on_cpu),
                              (void *)task + bpf_core_field_offset(fields->on_cpu));
    return on_cpu;
}

/* What a thread waits for that has left its CPU without having been seen to. */
static __always_inline enum thread_state state_now(struct task_struct *task,
                                                   struct thread *thread) {
    __u32 state = ((struct task_struct___waits *)task)->__state;

    if (state)
        return state_of_block(task, state, &thread->waker.file);
    return is_throttled(task) ? STATE_THROTTLED : STATE_RUNNABLE;
}

/* Makes the state of a thread, and begins its account, by_thread, with what it does now. */
static __always_inline void begin_thread(struct task_struct *task, bool is_new) {
    const struct correlator_target *entry;
    struct correlator_target target;
    struct thread *thread;
    __u64 now = bpf_ktime_get_ns();
    __u32 process = task->tgid;

    entry = bpf_map_lookup_elem(&targets, &process);
    if (!entry)
        return;
    target = *entry;
    make(task, target.id);
    thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || correlator_identify(task, &target) != CORRELATOR_SAMPLED)
        return;
    __builtin_memset(thread, 0, sizeof(*thread));
    enter_thread(task, thread, target.id, target.level, now);
    begin_rests(thread);
    thread->ran = ran_in_all(task);
    if (!is_new && is_running(task)) {
        thread->in = now;
        return;
    }
    thread->out = now;
    thread->state = is_new ? STATE_RUNNABLE : state_now(task, thread);
}

/* struct task_struct *task, unsigned long clone_flags */
SEC("tp_btf/task_newtask")
int prepare_new(__u64 *ctx) {
    struct task_struct *task = (struct task_struct *)ctx[0];

    if (filtered(task->tgid))
        return 0;
    if (by_thread)
        begin_thread(task, true);
    else
        make(task, target_of(task));
    return 0;
}

/* Makes the states of the threads that there are, of one process or all targets. */
SEC("iter/task")
int prepare(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;

    if (task && !filtered(task->tgid))
        make(task, prepared && (__u32)task->tgid == prepared_process ? prepared : target_of(task));
    return 0;
}

/* For all threads that there are, while account_switch and account_waking do not run. What a thread
 * does until they do is mended, as other switches that were not seen. */
SEC("iter/task")
int begin(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;

    if (task && !filtered(task->tgid))
        begin_thread(task, false);
    return 0;
}

/* Ends a wait that goes on. */
static __always_inline void end_at(struct thread *thread, struct wait_counters *counters,
                                   __u64 now) {
    if (!thread->waking)
        thread->waking = now;
    end_wait(thread, counters, now);
}

/* Ends the account of a thread, by_thread, with what it has done since its last switch. No other
 * program runs any more. */
SEC("iter/task")
int finish(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    struct wait_counters *counts;
    struct thread *thread;
    __u64 now = bpf_ktime_get_ns(), last, ran;
    __u32 cpu = bpf_get_smp_processor_id();

    if (!task || filtered(task->tgid))
        return 0;
    thread = bpf_task_storage_get(&threads, task, 0, 0);
    counts = bpf_map_lookup_elem(&counters, &cpu);
    if (!thread || !counts || !has_context(thread))
        return 0;
    last = last_switch(thread);
    ran = ran_since(task, thread, last, now);
    if (((struct task_struct___waits *)task)->__state & ENDED_STATE) { /* while none was seen */
        add(&thread->account, STATE_ON_CPU, ran);
        thread->account.last = last + ran;
    } else if (thread->in && is_running(task)) {
        add(&thread->account, STATE_ON_CPU, between(thread->in, now));
        thread->account.last = now;
    } else if (last < attached && (thread->in || ran)) {
        counts->unseen++; /* it ran before that; not woken since, it waits as it does now */
        add(&thread->account, STATE_ON_CPU, ran);
        thread->out = last + ran;
        thread->state = thread->waking < attached ? state_now(task, thread) : STATE_OTHER;
        guess_state(thread);
        end_at(thread, counts, now);
    } else if (mend(task, thread, counts, now)) {
        end_at(thread, counts, now);
    }
    flush(task, thread, counts);
    end_stacks(thread, counts);
    thread->key.kind = 0;
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
