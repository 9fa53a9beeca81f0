/* What a thread waits for in the kernel: its system call, and the file that this is about. */
#ifndef CALLS_H
#define CALLS_H

#include "kernel.h"

#include <stdbool.h>

struct in6_addr { /* 16 bytes of include/uapi/linux/in6.h, which are read whole */
    __u32 words[4];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cfs_rq {
    struct rq *rq;
};

struct sched_entity {
    struct cfs_rq *cfs_rq;
    __u64 sum_exec_runtime; /* ns, of every scheduling class */
};

/* The further fields of a task that are read. Names are those of include/linux/sched.h. */
struct task_struct___waits {
    int pid; /* number of the thread in the initial pid namespace */
    unsigned int in_iowait : 1;
    bool throttled; /* since Linux 6.18 */
    unsigned int __state;
    int on_cpu; /* not in kernels for a single CPU */
    char comm[16];
    struct files_struct *files;
    struct sched_entity se;
    struct {
        unsigned long flags;
#if defined(__TARGET_ARCH_arm64)
        __u64 preempt_count;
#endif
    } thread_info;
};

struct files_struct {
    struct fdtable *fdt;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct qstr {
    const unsigned char *name;
};

struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
};

struct path {
    struct dentry *dentry;
};

struct file {
    struct inode *f_inode;
    struct path f_path;
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
    __be16 skc_dport;
    __be32 skc_daddr;
    struct in6_addr skc_v6_daddr;
};

struct sk_buff_head {
    __u32 qlen;
};

struct sock {
    struct sock_common __sk_common;
    struct sk_buff_head sk_receive_queue;
    long sk_rcvtimeo; /* ticks */
    long sk_sndtimeo;
    int sk_err;
};

struct pt_regs {
#if defined(__TARGET_ARCH_x86)
    unsigned long di;
    unsigned long orig_ax;
    unsigned long ip;
    unsigned long sp;
#else
    __u64 sp;
    __u64 pc;
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

/* Of include/linux/socket.h. */
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

/* The kinds of system calls that a thread waits in, by their numbers. */
enum call {
    CALL_OTHER,
    CALL_NONE,    /* a fault, or an interrupt */
    CALL_FUTEX,   /* the first argument is its address */
    CALL_FUTEXES, /* one of several */
    CALL_SLEEP,
    CALL_DESCRIPTOR, /* the first argument is the one that it waits for */
    CALL_POLL,
    CALL_FILE, /* as DESCRIPTOR, for what the file is on */
    CALL_DISK,
};

#if defined(__TARGET_ARCH_x86)

/* Numbers of arch/x86/entry/syscalls/syscall_64.tbl. */
static __always_inline enum call call_of(long number) {
    switch (number) {
    case 202: /* futex */
    case 455: /* futex_wait */
        return CALL_FUTEX;
    case 449: /* futex_waitv */
        return CALL_FUTEXES;
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
    case 74:  /* fsync */
    case 75:  /* fdatasync */
    case 277: /* sync_file_range */
    case 306: /* syncfs */
        return CALL_FILE;
    case 26:  /* msync */
    case 162: /* sync */
        return CALL_DISK;
    case -1:
        return CALL_NONE;
    }
    return CALL_OTHER;
}

/* Whether a call waits for SO_SNDTIMEO at most, of those that wait for a socket. */
static __always_inline bool call_sends(long number) {
    switch (number) {
    case 1:   /* write */
    case 20:  /* writev */
    case 40:  /* sendfile */
    case 42:  /* connect */
    case 44:  /* sendto */
    case 46:  /* sendmsg */
    case 307: /* sendmmsg */
        return true;
    }
    return false;
}

#define CALL_ADDRESS(regs) ((regs)->ip)
#define CALL_NUMBER(regs) ((long)(regs)->orig_ax)
#define CALL_ARGUMENT(regs) ((regs)->di)

#elif defined(__TARGET_ARCH_arm64)

/* Numbers of include/uapi/asm-generic/unistd.h. */
static __always_inline enum call call_of(long number) {
    switch (number) {
    case 98:  /* futex */
    case 455: /* futex_wait */
        return CALL_FUTEX;
    case 449: /* futex_waitv */
        return CALL_FUTEXES;
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
    case 82:  /* fsync */
    case 83:  /* fdatasync */
    case 84:  /* sync_file_range */
    case 267: /* syncfs */
        return CALL_FILE;
    case 81:  /* sync */
    case 227: /* msync */
        return CALL_DISK;
    case -1:
        return CALL_NONE;
    }
    return CALL_OTHER;
}

static __always_inline bool call_sends(long number) {
    switch (number) {
    case 64:  /* write */
    case 66:  /* writev */
    case 71:  /* sendfile */
    case 203: /* connect */
    case 206: /* sendto */
    case 211: /* sendmsg */
    case 269: /* sendmmsg */
        return true;
    }
    return false;
}

#define CALL_ADDRESS(regs) ((regs)->pc)
#define CALL_NUMBER(regs) ((long)(regs)->syscallno)
#define CALL_ARGUMENT(regs) ((regs)->orig_x0)

#endif

/* The call that a task is in. A worker of io_uring is in none: its registers are what the thread
 * that began it had then, or none. */
static __always_inline enum call call_of_task(struct task_struct *task,
                                              const struct pt_regs *regs) {
    return task->flags & PF_IO_WORKER ? CALL_OTHER : call_of(CALL_NUMBER(regs));
}

/* A file that a task has open, NULL if there is none. Another thread may close it meanwhile: what
 * is read of it then is of no file, or of another one. */
static __always_inline struct file *open_file(struct task_struct *task, __u32 fd) {
    struct fdtable *table = ((struct task_struct___waits *)task)->files->fdt;
    struct file *file = NULL;

    if (fd >= table->max_fds || bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd))
        return NULL;
    return file;
}

/* Tells files apart: one that is opened in the place of another has another inode. */
static __always_inline __u32 mark_of(struct file *file) {
    return (__u32)((__u64)BPF_CORE_READ(file, f_inode) >> 3);
}

static __always_inline __u32 file_type(struct file *file) {
    return BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
}

#endif
