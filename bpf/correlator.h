/* What another eBPF program needs to know the trace of the thread that it interrupts.
 *
 * The correlator keeps a table of the processes that take part: for each of them the way from a
 * thread pointer to what the thread works on. That is a slot of Elastic's library (correlation
 * protocol, part 2), or a record of OpenTelemetry's otel_thread_ctx_v1 (OTEP 4947); a process may
 * have both. With --pin-maps DIR the table is DIR/targets in bpffs.
 * A program declares that map,
 *
 *     struct {
 *         __uint(type, BPF_MAP_TYPE_HASH);
 *         __uint(max_entries, 1);
 *         __type(key, __u32);
 *         __type(value, struct correlator_target);
 *     } targets SEC(".maps");
 *
 * is loaded with the pinned map in its place, and asks, in the context of the thread:
 *
 *     struct correlator_context context;
 *
 *     if (correlator_current(&targets, &context) >= CORRELATOR_UNSAMPLED)
 *         ... correlator_trace_id(&context), correlator_span_id(&context) ...
 *
 * If context.kind is CORRELATOR_ELASTIC, there is a transaction in context.slot. Only such samples
 * are for the correlator's feed, which sends messages to Elastic's agents.
 *
 * correlator_attributes.h has what reads the attributes of a record.
 *
 * It has to be of a type that may read user memory (bpf_probe_read_user) and be compiled with
 * __TARGET_ARCH_x86 or __TARGET_ARCH_arm64 defined. One that has a vmlinux.h includes that
 * first; the kernel's structures are then taken from there.
 */
#ifndef CORRELATOR_H
#define CORRELATOR_H

#ifdef __VMLINUX_H__
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#else
#include "kernel.h"
#endif

#include "correlator_layout.h"

/* The result of correlator_current. The order is part of the interface: from CORRELATOR_UNSAMPLED
 * on, there is a context. */
enum correlator_outcome {
    CORRELATOR_NO_TARGET,         /* a thread of another process */
    CORRELATOR_STALE,             /* the entry is of an earlier program or owner of the pid, or
                                     was replaced while it was read */
    CORRELATOR_NO_USER_CODE,      /* exiting, or a worker of io_uring */
    CORRELATOR_NO_THREAD_POINTER, /* not set yet, or not known to the kernel yet (arm64) */
    CORRELATOR_UNREADABLE, /* memory on the way to the slot that is not resident, or not mapped;
                              the record was not looked at */
    CORRELATOR_RECORD_UNREADABLE, /* the same on the way to the record */
    CORRELATOR_NO_SLOT,           /* the thread has none, nor a record */
    CORRELATOR_UPDATING,          /* slot, valid = 0: the thread is writing to it */
    CORRELATOR_MALFORMED,         /* slot, minor version 0: not written by any agent */
    CORRELATOR_NO_TRACE,          /* slot */
    CORRELATOR_NOT_VALID,         /* record, valid != 1: between spans, or being written */
    CORRELATOR_ZERO_IDS,          /* record without trace id or span id: between spans */
    CORRELATOR_UNSAMPLED,         /* slot, W3C trace flag bit 0 is clear */
    CORRELATOR_SAMPLED,           /* slot; or record, whose writers leave the bit clear at will */
};

/* Where a context is from. */
enum correlator_context_kind {
    CORRELATOR_NO_CONTEXT,
    CORRELATOR_ELASTIC, /* a slot */
    CORRELATOR_OTEL,    /* a record */
};

/* The context of the current thread.
 *
 *   offset size field
 *        0    4 target           id of the entry
 *        4    4 pid              of the process, as the correlator's pid namespace calls it
 *        8    4 level            of that namespace
 *       12    4 kind             enum correlator_context_kind
 *       16    8 thread_pointer   from CORRELATOR_UNREADABLE on
 *       24   40 slot             if kind is CORRELATOR_ELASTIC
 *       64   32 record           if kind is CORRELATOR_OTEL, as what follows
 *       96    8 record_addr      of the record in the process
 *      104    8 attribute_keys   as the entry has them
 *      112    2 known_keys       the same
 *      114    1 attribute_count  the same
 *      115    5 reserved         0
 */
struct correlator_context {
    __u32 target;
    __u32 pid;
    __u32 level;
    __u32 kind;
    __u64 thread_pointer;
    struct correlator_slot slot;
    struct correlator_record record;
    __u64 record_addr;
    __u64 attribute_keys;
    __u16 known_keys;
    __u8 attribute_count;
    __u8 reserved[5];
};

_Static_assert(__builtin_offsetof(struct correlator_context, target) == 0, "target");
_Static_assert(__builtin_offsetof(struct correlator_context, pid) == 4, "pid");
_Static_assert(__builtin_offsetof(struct correlator_context, level) == 8, "level");
_Static_assert(__builtin_offsetof(struct correlator_context, kind) == 12, "kind");
_Static_assert(__builtin_offsetof(struct correlator_context, thread_pointer) == 16, "pointer");
_Static_assert(__builtin_offsetof(struct correlator_context, slot) == 24, "slot");
_Static_assert(__builtin_offsetof(struct correlator_context, record) == 64, "record");
_Static_assert(__builtin_offsetof(struct correlator_context, record_addr) == 96, "record_addr");
_Static_assert(__builtin_offsetof(struct correlator_context, attribute_keys) == 104, "keys");
_Static_assert(__builtin_offsetof(struct correlator_context, known_keys) == 112, "known_keys");
_Static_assert(__builtin_offsetof(struct correlator_context, attribute_count) == 114, "count");
_Static_assert(sizeof(struct correlator_context) == 120, "context");

/* The ids of a context, if there is one: 16 and 8 bytes in the order of the wire. */
static __always_inline const __u64 *correlator_trace_id(const struct correlator_context *context) {
    return context->kind == CORRELATOR_OTEL ? context->record.trace_id : context->slot.trace_id;
}

static __always_inline __u64 correlator_span_id(const struct correlator_context *context) {
    return context->kind == CORRELATOR_OTEL ? context->record.span_id : context->slot.span_id;
}

/* Flags of tasks that have a process's numbers and run none of its code, include/linux/sched.h. */
#define CORRELATOR_PF_EXITING 0x00000004
#define CORRELATOR_PF_IO_WORKER 0x00000010

/* Mixes the 20 words before check: the even and the odd ones apart, which a CPU does at the same
 * time. Every step is a bijection of the sum so far, so that an entry with a single word of another
 * is always found out; with several, all but one time in 2^64. */
static __always_inline __u64 correlator_check(const struct correlator_target *target) {
    const __u64 *words = (const __u64 *)target;
    __u64 even = 0xcbf29ce484222325; /* basis and prime of FNV-1a */
    __u64 odd = ~even;

#pragma unroll
    for (__u32 i = 0; i < __builtin_offsetof(struct correlator_target, check) / sizeof(*words);
         i += 2) {
        even = (even ^ words[i]) * 0x100000001b3;
        odd = (odd ^ words[i + 1]) * 0x100000001b3;
        even ^= even >> 32;
        odd ^= odd >> 32;
    }
    return even ^ odd;
}
_Static_assert(__builtin_offsetof(struct correlator_target, check) % 16 == 0, "pairs of words");

/* The fields of the current task are read directly where the kernel hands out a pointer that it
 * knows the type of (since Linux 5.11), and else through a helper: 10 calls of it would be a tenth
 * of what a sample costs. The loader settles which (CO-RE), and the kernel drops the other code. */
enum bpf_func_id___correlator {
    BPF_FUNC_get_current_task_btf___correlator = 158,
};

#define correlator_typed()                                                                         \
    bpf_core_enum_value_exists(enum bpf_func_id___correlator,                                      \
                               BPF_FUNC_get_current_task_btf___correlator)

#define correlator_field(task, field)                                                              \
    (correlator_typed() ? (task)->field : BPF_CORE_READ(task, field))

static __always_inline struct task_struct *correlator_task(void) {
    if (correlator_typed())
        return bpf_get_current_task_btf();
    return (struct task_struct *)bpf_get_current_task();
}

static __always_inline __u64 correlator_start_time(struct task_struct *task) {
    if (correlator_typed())
        return task->group_leader->start_boottime;
    return BPF_CORE_READ(task, group_leader, start_boottime);
}

static __always_inline __u64 correlator_thread_pointer(struct task_struct *task) {
#if defined(__TARGET_ARCH_x86)
    return correlator_field(task, thread.fsbase);
#elif defined(__TARGET_ARCH_arm64)
    return correlator_field(task, thread.uw.tp_value);
#else
#error "define __TARGET_ARCH_x86 or __TARGET_ARCH_arm64"
#endif
}

static __always_inline int correlator_read_word(__u64 addr, __u64 *word) {
    return bpf_probe_read_user(word, sizeof(*word), (const void *)addr);
}

/* Returns CORRELATOR_SAMPLED if the entry is of the program that the current task runs. */
static __always_inline enum correlator_outcome
correlator_identify(struct task_struct *task, const struct correlator_target *target) {
    __u64 memory = (__u64)correlator_field(task, mm);

    if (target->check != correlator_check(target) ||
        target->start_time != correlator_start_time(task) ||
        target->exec_id != correlator_field(task, self_exec_id))
        return CORRELATOR_STALE;
    if (!memory ||
        correlator_field(task, flags) & (CORRELATOR_PF_EXITING | CORRELATOR_PF_IO_WORKER))
        return CORRELATOR_NO_USER_CODE;
    return target->memory == memory ? CORRELATOR_SAMPLED : CORRELATOR_STALE;
}

/* Stores the address of the thread's variable, and returns CORRELATOR_SAMPLED if it has one. */
static __always_inline enum correlator_outcome
correlator_variable(__u64 thread_pointer, const struct correlator_rule *rule, __u64 *variable) {
    __u64 dtv, capacity, generation, block;

    if (rule->kind == CORRELATOR_STATIC) {
        *variable = thread_pointer + rule->offset;
        return CORRELATOR_SAMPLED;
    }
    if (correlator_read_word(thread_pointer + rule->dtv_offset, &dtv))
        return CORRELATOR_UNREADABLE;
    if (!dtv)
        return CORRELATOR_NO_SLOT;
    if (correlator_read_word(dtv + rule->dtv_capacity_offset, &capacity))
        return CORRELATOR_UNREADABLE;
    if (capacity < rule->module)
        return CORRELATOR_NO_SLOT;
    if (rule->generation) {
        if (correlator_read_word(dtv, &generation))
            return CORRELATOR_UNREADABLE;
        if (generation < rule->generation)
            return CORRELATOR_NO_SLOT;
    }
    if (correlator_read_word(dtv + rule->module * rule->dtv_stride, &block))
        return CORRELATOR_UNREADABLE;
    if (!block || block == ~0ULL)
        return CORRELATOR_NO_SLOT;
    *variable = block + rule->offset;
    return CORRELATOR_SAMPLED;
}

/* Copies what the thread's variable points to. Returns CORRELATOR_SAMPLED if it has. */
static __always_inline enum correlator_outcome correlator_copy(__u64 thread_pointer,
                                                               const struct correlator_rule *rule,
                                                               void *to, __u32 bytes, __u64 *addr) {
    enum correlator_outcome outcome;
    __u64 variable;

    outcome = correlator_variable(thread_pointer, rule, &variable);
    if (outcome != CORRELATOR_SAMPLED)
        return outcome;
    if (correlator_read_word(variable, addr))
        return CORRELATOR_UNREADABLE;
    if (!*addr)
        return CORRELATOR_NO_SLOT;
    if (bpf_probe_read_user(to, bytes, (const void *)*addr))
        return CORRELATOR_UNREADABLE;
    return CORRELATOR_SAMPLED;
}

/* Reads the slot. The current thread cannot be writing meanwhile, so its field valid holds for the
 * whole copy. */
static __always_inline enum correlator_outcome correlator_slot(const struct correlator_rule *rule,
                                                               struct correlator_context *context) {
    struct correlator_slot *slot = &context->slot;
    enum correlator_outcome outcome;
    __u64 addr;

    outcome = correlator_copy(context->thread_pointer, rule, slot->minor_version,
                              CORRELATOR_SLOT_BYTES, &addr);
    if (outcome != CORRELATOR_SAMPLED)
        return outcome;
    if (!slot->valid)
        return CORRELATOR_UPDATING;
    if (!slot->minor_version[0] && !slot->minor_version[1])
        return CORRELATOR_MALFORMED;
    if (slot->trace_present != 1)
        return CORRELATOR_NO_TRACE;
    context->kind = CORRELATOR_ELASTIC;
    return slot->trace_flags & 1 ? CORRELATOR_SAMPLED : CORRELATOR_UNSAMPLED;
}

/* Reads the record, as correlator_slot. */
static __always_inline enum correlator_outcome
correlator_record(const struct correlator_target *target, struct correlator_context *context) {
    struct correlator_record *record = &context->record;
    enum correlator_outcome outcome;

    outcome = correlator_copy(context->thread_pointer, &target->otel, record,
                              CORRELATOR_RECORD_BYTES, &context->record_addr);
    if (outcome == CORRELATOR_UNREADABLE)
        return CORRELATOR_RECORD_UNREADABLE;
    if (outcome != CORRELATOR_SAMPLED)
        return outcome;
    if (record->valid != 1)
        return CORRELATOR_NOT_VALID;
    if (!(record->trace_id[0] | record->trace_id[1]) || !record->span_id)
        return CORRELATOR_ZERO_IDS;
    context->kind = CORRELATOR_OTEL;
    __builtin_memcpy(&context->attribute_keys, target->attribute_keys,
                     sizeof(context->attribute_keys));
    context->known_keys = target->known_keys;
    context->attribute_count = target->attribute_count;
    return CORRELATOR_SAMPLED;
}

/* Reads the slot and, if that has no sampled trace, the record. Without a context in that, the
 * outcome is what the slot said. An unreadable slot may have a trace: whoever can read it later has
 * to decide. An unreadable record can be read by nobody later: only its thread may be reading while
 * it does not run. A thread without a trace in its slot is then not known to work on none. */
static __always_inline enum correlator_outcome
correlator_read(const struct correlator_target *target, struct correlator_context *context) {
    enum correlator_outcome slot = CORRELATOR_NO_SLOT, record;

    if (target->elastic.kind) {
        slot = correlator_slot(&target->elastic, context);
        if (slot == CORRELATOR_SAMPLED || slot == CORRELATOR_UNREADABLE)
            return slot;
    }
    if (!target->otel.kind)
        return slot;
    record = correlator_record(target, context);
    if (record == CORRELATOR_SAMPLED || !target->elastic.kind)
        return record;
    if (record == CORRELATOR_RECORD_UNREADABLE &&
        (slot == CORRELATOR_NO_SLOT || slot == CORRELATOR_NO_TRACE))
        return record;
    return slot;
}

/* Finds the target that the current thread is of, and puts into context what is known without
 * reading its memory. Returns CORRELATOR_SAMPLED if that is to be read. */
static __always_inline enum correlator_outcome correlator_find(void *targets,
                                                               struct correlator_context *context,
                                                               struct correlator_target *target) {
    __u32 process = bpf_get_current_pid_tgid() >> 32;
    const struct correlator_target *entry = bpf_map_lookup_elem(targets, &process);
    struct task_struct *task;
    enum correlator_outcome outcome;

    if (!entry)
        return CORRELATOR_NO_TARGET;
    *target = *entry;
    /* From here on the compiler must not read the entry again: check is of the copy. */
    __asm__ __volatile__("" ::: "memory");
    __builtin_memset(context, 0, sizeof(*context));
    context->target = target->id;
    context->pid = target->pid;
    context->level = target->level;
    task = correlator_task();
    outcome = correlator_identify(task, target);
    if (outcome != CORRELATOR_SAMPLED)
        return outcome;
    context->thread_pointer = correlator_thread_pointer(task);
    if (!target->elastic.kind && !target->otel.kind)
        return CORRELATOR_NO_SLOT;
    if (!context->thread_pointer)
        return CORRELATOR_NO_THREAD_POINTER;
    return CORRELATOR_SAMPLED;
}

/* Reads the context of the current thread. targets points to the map of the table. Bytes of context
 * without meaning for the outcome are 0 or left over from what was read. On kernels from 5.19 to
 * 6.1.35, 6.2, and 6.3 to 6.3.9 it must not be called in an interrupt of kernel code:
 * bpf_probe_read_user takes a lock there that the interrupted code may hold. */
static __always_inline enum correlator_outcome
correlator_current(void *targets, struct correlator_context *context) {
    struct correlator_target target;
    enum correlator_outcome outcome = correlator_find(targets, context, &target);

    return outcome == CORRELATOR_SAMPLED ? correlator_read(&target, context) : outcome;
}

#endif
