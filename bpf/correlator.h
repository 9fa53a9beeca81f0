/* What another eBPF program needs to know the trace of the thread that it interrupts.
 *
 * The correlator keeps a table of the processes that take part: for each of them the way from a
 * thread pointer to the thread's slot. With --pin-maps DIR the table is DIR/targets in bpffs.
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
 *         ... context.slot.trace_id ...
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

/* The result of correlator_current. The order is part of the interface: from CORRELATOR_UNSAMPLED
 * on, there is a context. */
enum correlator_outcome {
    CORRELATOR_NO_TARGET,         /* a thread of another process */
    CORRELATOR_STALE,             /* the entry is of an earlier program or owner of the pid, or
                                     was replaced while it was read */
    CORRELATOR_NO_USER_CODE,      /* exiting, or a worker of io_uring */
    CORRELATOR_NO_THREAD_POINTER, /* not set yet, or not known to the kernel yet (arm64) */
    CORRELATOR_UNREADABLE,        /* memory that is not resident, or not mapped */
    CORRELATOR_NO_SLOT,           /* the thread has none */
    CORRELATOR_UPDATING,          /* valid = 0: the thread is writing to its slot */
    CORRELATOR_MALFORMED,         /* minor version 0: not written by any agent */
    CORRELATOR_NO_TRACE,
    CORRELATOR_UNSAMPLED, /* W3C trace flag bit 0 is clear */
    CORRELATOR_SAMPLED,
};

/* How the variable, the thread's pointer to its slot, is found. */
enum correlator_kind {
    CORRELATOR_STATIC = 1, /* thread pointer + offset */
    CORRELATOR_DTV,        /* through the dynamic thread vector, see correlator_variable */
};

/* An entry of the table. The key is the number of the process in the initial pid namespace, what
 * bpf_get_current_pid_tgid() has in its upper half, whatever namespace anyone lives in.
 *
 *   offset size field
 *        0    8 start_time           of the thread group leader, ns since boot
 *        8    8 exec_id              task_struct.self_exec_id of its threads
 *       16    8 memory               task_struct.mm of its threads, an address in the kernel
 *       24    8 offset               from the thread pointer, or in the module's block; signed
 *       32    8 module               module id: index into the DTV
 *       40    8 generation           what the DTV's must have reached, 0: any
 *       48    8 dtv_offset           of the pointer to the DTV, from the thread pointer; signed
 *       56    8 dtv_stride           size of an entry of the DTV
 *       64    8 dtv_capacity_offset  of the highest module id with room, from the DTV; signed
 *       72    4 id                   of the target, never given twice by one correlator
 *       76    4 pid                  as the correlator's pid namespace calls the process
 *       80    4 level                of that namespace
 *       84    4 kind                 enum correlator_kind
 *       88    8 check                correlator_check of all that comes before
 *
 * The first three say which process and which program the rest holds for, so that an entry that
 * was left behind does no harm: a later owner of the number has another start_time. An exec
 * changes the memory at the instant at which the old one is gone from under the thread, and adds
 * one to exec_id a little later. Neither alone would do: in between, exec_id is still the old one,
 * and after a second exec the address of the first memory may have been given out again.
 *
 * check, because the kernel recycles the memory of an entry while a program on another CPU may be
 * reading it.
 */
struct correlator_target {
    __u64 start_time;
    __u64 exec_id;
    __u64 memory;
    __s64 offset;
    __u64 module;
    __u64 generation;
    __s64 dtv_offset;
    __u64 dtv_stride;
    __s64 dtv_capacity_offset;
    __u32 id;
    __u32 pid;
    __u32 level;
    __u32 kind;
    __u64 check;
};

_Static_assert(__builtin_offsetof(struct correlator_target, start_time) == 0, "start_time");
_Static_assert(__builtin_offsetof(struct correlator_target, exec_id) == 8, "exec_id");
_Static_assert(__builtin_offsetof(struct correlator_target, memory) == 16, "memory");
_Static_assert(__builtin_offsetof(struct correlator_target, offset) == 24, "offset");
_Static_assert(__builtin_offsetof(struct correlator_target, module) == 32, "module");
_Static_assert(__builtin_offsetof(struct correlator_target, generation) == 40, "generation");
_Static_assert(__builtin_offsetof(struct correlator_target, dtv_offset) == 48, "dtv_offset");
_Static_assert(__builtin_offsetof(struct correlator_target, dtv_stride) == 56, "dtv_stride");
_Static_assert(__builtin_offsetof(struct correlator_target, dtv_capacity_offset) == 64,
               "dtv_capacity_offset");
_Static_assert(__builtin_offsetof(struct correlator_target, id) == 72, "id");
_Static_assert(__builtin_offsetof(struct correlator_target, pid) == 76, "pid");
_Static_assert(__builtin_offsetof(struct correlator_target, level) == 80, "level");
_Static_assert(__builtin_offsetof(struct correlator_target, kind) == 84, "kind");
_Static_assert(__builtin_offsetof(struct correlator_target, check) == 88, "check");
_Static_assert(sizeof(struct correlator_target) == 96, "target");

/* A thread's slot, 37 bytes in the process (correlation protocol, part 2). Here it begins at
 * offset 3, so that the ids are aligned. They are bytes in the order of the wire.
 *
 *   offset size field           of the slot
 *        0    3 reserved        -
 *        3    2 minor_version   0, host byte order
 *        5    1 valid           2
 *        6    1 trace_present   3
 *        7    1 trace_flags     4, W3C
 *        8   16 trace_id        5
 *       24    8 span_id         21
 *       32    8 transaction_id  29
 */
struct correlator_slot {
    __u8 reserved[3];
    __u8 minor_version[2];
    __u8 valid;
    __u8 trace_present;
    __u8 trace_flags;
    __u64 trace_id[2];
    __u64 span_id;
    __u64 transaction_id;
};

#define CORRELATOR_SLOT_BYTES 37

_Static_assert(__builtin_offsetof(struct correlator_slot, minor_version) == 3, "minor_version");
_Static_assert(__builtin_offsetof(struct correlator_slot, valid) == 3 + 2, "valid");
_Static_assert(__builtin_offsetof(struct correlator_slot, trace_present) == 3 + 3, "present");
_Static_assert(__builtin_offsetof(struct correlator_slot, trace_flags) == 3 + 4, "flags");
_Static_assert(__builtin_offsetof(struct correlator_slot, trace_id) == 3 + 5, "trace_id");
_Static_assert(__builtin_offsetof(struct correlator_slot, span_id) == 3 + 21, "span_id");
_Static_assert(__builtin_offsetof(struct correlator_slot, transaction_id) == 3 + 29, "transaction");
_Static_assert(sizeof(struct correlator_slot) == 3 + CORRELATOR_SLOT_BYTES, "slot");

/* The context of the current thread.
 *
 *   offset size field
 *        0    4 target          id of the entry
 *        4    4 pid             of the process, as the correlator's pid namespace calls it
 *        8    4 level           of that namespace
 *       12    4 reserved        0
 *       16    8 thread_pointer  from CORRELATOR_UNREADABLE on
 *       24   40 slot            from CORRELATOR_UNSAMPLED on
 */
struct correlator_context {
    __u32 target;
    __u32 pid;
    __u32 level;
    __u32 reserved;
    __u64 thread_pointer;
    struct correlator_slot slot;
};

_Static_assert(__builtin_offsetof(struct correlator_context, target) == 0, "target");
_Static_assert(__builtin_offsetof(struct correlator_context, pid) == 4, "pid");
_Static_assert(__builtin_offsetof(struct correlator_context, level) == 8, "level");
_Static_assert(__builtin_offsetof(struct correlator_context, thread_pointer) == 16, "pointer");
_Static_assert(__builtin_offsetof(struct correlator_context, slot) == 24, "slot");
_Static_assert(sizeof(struct correlator_context) == 64, "context");

/* Flags of tasks that have a process's numbers and run none of its code, include/linux/sched.h. */
#define CORRELATOR_PF_EXITING 0x00000004
#define CORRELATOR_PF_IO_WORKER 0x00000010

/* Mixes the 11 words before check. Every step is a bijection of the sum so far, so that an entry
 * with a single word of another is always found out; with several, all but one time in 2^64. */
static __always_inline __u64 correlator_check(const struct correlator_target *target) {
    const __u64 *words = (const __u64 *)target;
    __u64 sum = 0xcbf29ce484222325; /* basis and prime of FNV-1a */

#pragma unroll
    for (__u32 i = 0; i < __builtin_offsetof(struct correlator_target, check) / sizeof(*words);
         i++) {
        sum = (sum ^ words[i]) * 0x100000001b3;
        sum ^= sum >> 32;
    }
    return sum;
}

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
correlator_variable(__u64 thread_pointer, const struct correlator_target *target, __u64 *variable) {
    __u64 dtv, capacity, generation, block;

    if (target->kind == CORRELATOR_STATIC) {
        *variable = thread_pointer + target->offset;
        return CORRELATOR_SAMPLED;
    }
    if (correlator_read_word(thread_pointer + target->dtv_offset, &dtv))
        return CORRELATOR_UNREADABLE;
    if (!dtv)
        return CORRELATOR_NO_SLOT;
    if (correlator_read_word(dtv + target->dtv_capacity_offset, &capacity))
        return CORRELATOR_UNREADABLE;
    if (capacity < target->module)
        return CORRELATOR_NO_SLOT;
    if (target->generation) {
        if (correlator_read_word(dtv, &generation))
            return CORRELATOR_UNREADABLE;
        if (generation < target->generation)
            return CORRELATOR_NO_SLOT;
    }
    if (correlator_read_word(dtv + target->module * target->dtv_stride, &block))
        return CORRELATOR_UNREADABLE;
    if (!block || block == ~0ULL)
        return CORRELATOR_NO_SLOT;
    *variable = block + target->offset;
    return CORRELATOR_SAMPLED;
}

/* Reads the slot that the variable points to. The current thread cannot be writing meanwhile, so
 * its field valid holds for the whole copy. */
static __always_inline enum correlator_outcome correlator_slot(__u64 variable,
                                                               struct correlator_slot *slot) {
    __u64 addr;

    if (correlator_read_word(variable, &addr))
        return CORRELATOR_UNREADABLE;
    if (!addr)
        return CORRELATOR_NO_SLOT;
    if (bpf_probe_read_user((char *)slot + sizeof(slot->reserved), CORRELATOR_SLOT_BYTES,
                            (const void *)addr))
        return CORRELATOR_UNREADABLE;
    if (!slot->valid)
        return CORRELATOR_UPDATING;
    if (!slot->minor_version[0] && !slot->minor_version[1])
        return CORRELATOR_MALFORMED;
    if (slot->trace_present != 1)
        return CORRELATOR_NO_TRACE;
    return slot->trace_flags & 1 ? CORRELATOR_SAMPLED : CORRELATOR_UNSAMPLED;
}

/* Reads the context of the current thread. targets points to the map of the table. Bytes of context
 * without meaning for the outcome are 0 or left over from what was read. */
static __always_inline enum correlator_outcome
correlator_current(void *targets, struct correlator_context *context) {
    __u32 process = bpf_get_current_pid_tgid() >> 32;
    const struct correlator_target *entry = bpf_map_lookup_elem(targets, &process);
    struct correlator_target target;
    struct task_struct *task;
    enum correlator_outcome outcome;
    __u64 variable;

    if (!entry)
        return CORRELATOR_NO_TARGET;
    target = *entry;
    /* From here on the compiler must not read the entry again: check is of the copy. */
    __asm__ __volatile__("" ::: "memory");
    __builtin_memset(context, 0, sizeof(*context));
    context->target = target.id;
    context->pid = target.pid;
    context->level = target.level;
    task = correlator_task();
    outcome = correlator_identify(task, &target);
    if (outcome != CORRELATOR_SAMPLED)
        return outcome;
    context->thread_pointer = correlator_thread_pointer(task);
    if (!context->thread_pointer)
        return CORRELATOR_NO_THREAD_POINTER;
    outcome = correlator_variable(context->thread_pointer, &target, &variable);
    if (outcome != CORRELATOR_SAMPLED)
        return outcome;
    return correlator_slot(variable, &context->slot);
}

#endif
