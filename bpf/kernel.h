/* The fields that the programs read of the kernel's structures.
 *
 * Each structure has only the fields that are read, in any order: the loader moves every access
 * to the place of the field in the running kernel (CO-RE, preserve_access_index), so that
 * one object per architecture serves every kernel. Field names and types are those of
 * include/linux/{sched,sched/signal,pid,types,bpf}.h, kernel/bpf/task_iter.c and
 * arch/{x86,arm64}/include/asm/processor.h; all of them exist since Linux 5.8, the first
 * kernel with task iterators.
 */
#ifndef CORRELATOR_KERNEL_H
#define CORRELATOR_KERNEL_H

/* libbpf's headers need the kernel's names of integers and include none themselves; linux/types.h
 * would need a directory that differs from one build host to the next. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct upid {
    int nr;
    struct pid_namespace *ns; /* not read; the size of upid is the stride of pid.numbers */
};

struct pid {
    unsigned int level;
    struct upid numbers[]; /* [0..level], [0] is the number in the initial namespace */
};

struct list_head {
    struct list_head *next;
};

struct signal_struct {
    int nr_threads;
    struct list_head thread_head; /* of the task_struct.thread_node of all threads */
};

struct thread_struct {
#if defined(__TARGET_ARCH_x86)
    unsigned long fsbase;
#elif defined(__TARGET_ARCH_arm64)
    struct {
        unsigned long tp_value;
    } uw;
#else
#error "where does this architecture keep the thread pointer?"
#endif
};

struct task_struct {
    unsigned int flags;
    int tgid;             /* number of the process in the initial pid namespace */
    struct mm_struct *mm; /* null once the task is exiting; another after every exec */
    __u64 self_exec_id;   /* one more after every exec of the process; threads inherit it */
    __u64 start_boottime; /* ns */
    struct task_struct *group_leader;
    struct pid *thread_pid; /* null once the task has been reaped */
    struct list_head thread_node;
    struct signal_struct *signal;
    struct thread_struct thread;
};

struct bpf_iter_meta {
    struct seq_file *seq;
};

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

#pragma clang attribute pop

/* Bits of task_struct.flags. PF_IO_WORKER has this value since Linux 5.10; before, it was that of
 * PF_VCPU, which a task has only while it runs a virtual machine. */
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000

/* The address of the thread's control block. The kernel's copy is current for a thread
 * that was given its TLS by clone() or arch_prctl(), running or not; on arm64 the main thread
 * sets its register without a system call, and the copy is 0 until it is first switched out. */
static __always_inline __u64 thread_pointer(struct task_struct *task) {
#if defined(__TARGET_ARCH_x86)
    return task->thread.fsbase;
#else
    return task->thread.uw.tp_value;
#endif
}

/* The level of the current task's pid namespace, 0 for the initial one. */
static __always_inline __u32 current_level(void) {
    struct task_struct *current = (struct task_struct *)bpf_get_current_task();

    return BPF_CORE_READ(current, thread_pid, level);
}

/* The task's number in its pid namespace at level, which must be at or below its own; 0 for a task
 * that has been reaped. */
static __always_inline __u32 task_number(struct task_struct *task, __u32 level) {
    struct pid *pid = task->thread_pid;
    int number = 0;

    bpf_core_read(&number, sizeof(number), &pid->numbers[level].nr);
    return number;
}

#endif
