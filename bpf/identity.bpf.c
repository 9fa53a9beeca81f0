// clang-format off
//go:build ignore

// clang-format on

/* Reports which program the threads of a process run, in the terms of correlator.h, to the reader
 * of a task iterator. */
#include "kernel.h"

/* What the reader gets for each thread that runs code of its process, back to back. Host byte
 * order.
 *
 *   offset size field
 *        0    8 start_time  of the thread group leader, ns since boot
 *        8    8 exec_id     task_struct.self_exec_id
 *       16    8 memory      task_struct.mm
 *       24    4 tgid        number of the process in the initial pid namespace
 *       28    4 pid         the same in the reader's
 *       32    4 level       of the reader's
 *       36    4 reserved    0
 */
struct identity_record {
    __u64 start_time;
    __u64 exec_id;
    __u64 memory;
    __u32 tgid;
    __u32 pid;
    __u32 level;
    __u32 reserved;
};

_Static_assert(__builtin_offsetof(struct identity_record, start_time) == 0, "start_time");
_Static_assert(__builtin_offsetof(struct identity_record, exec_id) == 8, "exec_id");
_Static_assert(__builtin_offsetof(struct identity_record, memory) == 16, "memory");
_Static_assert(__builtin_offsetof(struct identity_record, tgid) == 24, "tgid");
_Static_assert(__builtin_offsetof(struct identity_record, pid) == 28, "pid");
_Static_assert(__builtin_offsetof(struct identity_record, level) == 32, "level");
_Static_assert(sizeof(struct identity_record) == 40, "no padding");

/* See threads.bpf.c. */
const struct identity_record *record_type SEC("types");

static __always_inline void report(struct seq_file *seq, struct task_struct *task) {
    struct identity_record record = {
        .start_time = task->group_leader->start_boottime,
        .exec_id = task->self_exec_id,
        .tgid = task->tgid,
        .level = current_level(),
    };

    /* As a number: a pointer must not leave the kernel as one. */
    bpf_core_read(&record.memory, sizeof(record.memory), &task->mm);
    record.pid = task_number(task->group_leader, record.level);
    if (record.memory && record.pid)
        bpf_seq_write(seq, &record, sizeof(record));
}

/* Called in the context of the reader for every task, and once with none at the end. */
SEC("iter/task")
int report_identity(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;

    if (task && !(task->flags & (PF_KTHREAD | PF_EXITING | PF_IO_WORKER)))
        report(ctx->meta->seq, task);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
