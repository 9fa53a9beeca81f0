// clang-format off
//go:build ignore

// clang-format on

/* Reports the threads of the machine, or of one process, to the reader of a task iterator. */
#include "kernel.h"

/* What the reader gets for each thread, back to back. Host byte order.
 *
 *   offset size field
 *        0    4 pid             of the process, as the reader's pid namespace calls it
 *        4    4 tid             of the thread, the same
 *        8    8 start_time      of the thread, ns since boot (CLOCK_BOOTTIME)
 *       16    8 thread_pointer  fs base, tpidr_el0
 *       24    1 user            1: a thread that runs code of the process
 *       25    1 last            1: no other thread came after it in the process's list
 *       26    6 reserved        0
 *
 * user is 0 for a thread that is exiting or was reaped, and for a worker that io_uring keeps
 * among the threads (it has a copy of its creator's thread pointer). They are reported all the
 * same because of last: a walk through one process ends early when the thread that it has come
 * to is reaped under it, and the reader knows that by a final record without last.
 */
struct thread_record {
    __u32 pid;
    __u32 tid;
    __u64 start_time;
    __u64 thread_pointer;
    __u8 user;
    __u8 last;
    __u8 reserved[6];
};

_Static_assert(__builtin_offsetof(struct thread_record, pid) == 0, "pid");
_Static_assert(__builtin_offsetof(struct thread_record, tid) == 4, "tid");
_Static_assert(__builtin_offsetof(struct thread_record, start_time) == 8, "start_time");
_Static_assert(__builtin_offsetof(struct thread_record, thread_pointer) == 16, "thread_pointer");
_Static_assert(__builtin_offsetof(struct thread_record, user) == 24, "user");
_Static_assert(__builtin_offsetof(struct thread_record, last) == 25, "last");
_Static_assert(sizeof(struct thread_record) == 32, "no padding, 1024 records in 32 KiB");

/* Puts the record's type into the object, from which bpf2go makes the Go type. A section of its
 * own, because one that the loader knows would become a map. */
const struct thread_record *record_type SEC("types");

static __always_inline void report(struct seq_file *seq, struct task_struct *task) {
    __u32 level = current_level();
    struct thread_record record = {
        .pid = task_number(task->group_leader, level),
        .tid = task_number(task, level),
        .start_time = task->start_boottime,
        .thread_pointer = thread_pointer(task),
        .last = task->thread_node.next == &task->signal->thread_head,
    };

    record.user = !(task->flags & (PF_EXITING | PF_IO_WORKER)) && record.pid && record.tid;
    /* Fails only when the kernel's buffer is full: the kernel then hands that to the reader and
     * calls again with the same task. */
    bpf_seq_write(seq, &record, sizeof(record));
}

/* Called in the context of the reader for every task, and once with none at the end. Nothing is
 * counted here because nothing is lost here. */
SEC("iter/task")
int report_thread(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;

    if (task && !(task->flags & PF_KTHREAD))
        report(ctx->meta->seq, task);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
