/* Walking and hashing stacks, and taking over those that an unwinder has walked. */
#ifndef CORRELATOR_STACK_H
#define CORRELATOR_STACK_H

#include "correlator.h"

#include <stdbool.h>

#define BPF_F_USER_STACK (1 << 8) /* of include/uapi/linux/bpf.h */

/* Frames of each half of a stack: the kernel's own limit, kernel.perf_event_max_stack, which is
 * 127 by default. Deeper stacks lack the frames nearest to the root. */
#define MAX_FRAMES 127

/* Addresses and words of a stack that an unwinder has walked, of up to 3 words a frame: 256 frames.
 * An entry of the table of unwound stacks has room for all of them. */
#define MAX_WORDS 768

/* A stack: the kernel's frames, then the process's, each leaf first. The process's half of an
 * unwound stack are words in which the unwinder has encoded the frames.
 *
 *   offset size field
 *        0    8 last_used      CLOCK_MONOTONIC of the sample that last began a count, ns
 *        8    2 kernel_frames
 *       10    2 user_frames    or words
 *       12    4 error          why an unwound stack is cut, as the unwinder numbers the reasons, or
 *                              ERROR_TOO_MANY_WORDS; 0: it is not cut, or not unwound
 *       16   8n addrs
 */
struct stack {
    __u64 last_used;
    __u16 kernel_frames;
    __u16 user_frames;
    __u32 error;
    __u64 addrs[MAX_WORDS];
};

#define ERROR_TOO_MANY_WORDS 0xffffffff

_Static_assert(__builtin_offsetof(struct stack, kernel_frames) == 8, "kernel_frames");
_Static_assert(__builtin_offsetof(struct stack, user_frames) == 10, "user_frames");
_Static_assert(__builtin_offsetof(struct stack, error) == 12, "error");
_Static_assert(__builtin_offsetof(struct stack, addrs) == 16, "addrs");
_Static_assert(sizeof(struct stack) == 16 + 8 * MAX_WORDS, "stack");
_Static_assert(2 * MAX_FRAMES <= MAX_WORDS, "room for both halves");

/* Where an unwinder's record of a stack has what is read of it: offsets in bytes.
 *
 *   offset size field
 *        0    4 words          of 8 bytes: first the kernel's addresses, then those of the process
 *        4    4 word_count     2 bytes: how many there are
 *        8    4 kernel_frames  2 bytes: how many of them are the kernel's addresses
 *       12    4 error          4 bytes: why the stack is cut, 0: it is whole
 *       16    4 size           of a record: has room for MAX_FRAMES + MAX_WORDS words
 */
struct record_layout {
    __u32 words;
    __u32 word_count;
    __u32 kernel_frames;
    __u32 error;
    __u32 size;
};

/* Makes the kernel walk one half of the stack. Returns the number of frames, 0 on failure. */
static __always_inline __u32 get_stack(void *ctx, __u64 *addrs, __u64 flags) {
    long bytes = bpf_get_stack(ctx, addrs, MAX_FRAMES * sizeof(*addrs), flags);

    return bytes > 0 ? (__u32)bytes / sizeof(*addrs) & MAX_FRAMES : 0;
}
_Static_assert((MAX_FRAMES & (MAX_FRAMES + 1)) == 0, "a mask");

/* The interrupted registers, at the start of struct bpf_perf_event_data. */
#if defined(__TARGET_ARCH_x86)

struct registers { /* struct pt_regs of arch/x86/include/uapi/asm/ptrace.h */
    __u64 r15, r14, r13, r12, bp, bx;
    __u64 r11, r10, r9, r8, ax, cx, dx, si, di;
    __u64 orig_ax, ip, cs, flags, sp, ss;
};

/* The lowest byte of the selector of 64-bit user code: __USER_CS of
 * arch/x86/include/asm/segment.h, and what Xen has for it, 0xe033. */
#define USER_CS 0x33

/* Of 64 bits: those of 32 have frames of another form. */
static __always_inline bool in_user_code(const struct registers *regs) {
    return (regs->cs & 0xff) == USER_CS;
}

/* cs is a member of 16 bits since Linux 6.9, of which the verifier lets nobody read more. */
static __always_inline bool from_user_code(const struct registers *entered) {
    return (*(const __u16 *)&entered->cs & 0xff) == USER_CS;
}

#elif defined(__TARGET_ARCH_arm64)

struct registers { /* struct user_pt_regs of arch/arm64/include/uapi/asm/ptrace.h */
    __u64 r[29], bp, lr;
    __u64 sp, ip, pstate;
};

#define PSR_MODES 0x1f /* PSR_MODE_MASK and PSR_MODE32_BIT; none of them is set in EL0t */

/* Of 64 bits: those of 32 have frames of another form. */
static __always_inline bool in_user_code(const struct registers *regs) {
    return (regs->pstate & PSR_MODES) == 0;
}

static __always_inline bool from_user_code(const struct registers *entered) {
    return in_user_code(entered);
}

#else
#error "registers of which architecture?"
#endif

/* No function has a larger stack frame. If the distance to the next frame is larger, or negative,
 * the register does not hold a frame pointer. */
#define MAX_FRAME_BYTES (1 << 20)

/* Where a thread is in user code, and its frame there. */
struct user_registers {
    __u64 ip, sp, bp;
};

enum bpf_func_id___stack {
    BPF_FUNC_task_pt_regs___stack = 175,
};

/* The registers with which the current thread has entered the kernel, which the kernel hands out
 * since Linux 5.15. Null before that. */
static __always_inline const struct registers *entered_registers(void) {
    if (!bpf_core_enum_value_exists(enum bpf_func_id___stack, BPF_FUNC_task_pt_regs___stack))
        return NULL;
    return (const struct registers *)bpf_task_pt_regs(bpf_get_current_task_btf());
}

/* The registers of 64-bit user code: those that were interrupted, or else those with which the
 * thread has entered the kernel. Returns false if they are not known. */
static __always_inline bool get_user_registers(const struct registers *interrupted,
                                               struct user_registers *user) {
    const struct registers *entered;

    if (in_user_code(interrupted)) {
        user->ip = interrupted->ip;
        user->sp = interrupted->sp;
        user->bp = interrupted->bp;
        return true;
    }
    entered = entered_registers();
    if (!entered || !from_user_code(entered))
        return false;
    user->ip = entered->ip;
    user->sp = entered->sp;
    user->bp = entered->bp;
    /* The verifier rejects an instruction that loads through either pointer. */
    __asm__ __volatile__("" ::"r"(user->ip), "r"(user->sp), "r"(user->bp));
    return true;
}

/* Whether the current thread ever runs user code. Workers of the kernel that belong to a process
 * (vhost, since Linux 6.4: PF_USER_WORKER) have entered it from nowhere. */
static __always_inline bool has_user_code(const struct registers *interrupted) {
    const struct registers *entered;

    if (in_user_code(interrupted))
        return true;
    entered = entered_registers();
    return !entered || entered->ip;
}

/* Walks the stack of 64-bit user code as the kernel does, except that it stops at the end of the
 * chain of frame pointers. C libraries start threads in code without frame pointers, or with that
 * of the thread that started them (musl on arm64), so nearly every chain ends with a number that is
 * not the address of a frame of the stack. The kernel follows it, at best into a page fault, which
 * takes longer than the whole walk, at worst to words that it mistakes for frames and that differ
 * from sample to sample. */
static __always_inline __u32 walk_user(const struct user_registers *user, __u64 *addrs,
                                       __u64 address_mask) {
    __u64 frame[2]; /* of the caller: frame pointer, return address */
    __u64 from = user->sp, next = user->bp;
    __u32 frames;

    addrs[0] = user->ip;
    for (frames = 1; frames < MAX_FRAMES; frames++) {
        if (next - from >= MAX_FRAME_BYTES ||
            bpf_probe_read_user(frame, sizeof(frame), (const void *)next) || !frame[1])
            break;
        addrs[frames] = frame[1] & address_mask; /* on arm64 the other bits may be a signature */
        from = next + 1;                         /* the next one lies above */
        next = frame[0];
    }
    return frames;
}

/* Walks the stack. Returns false when there is not a single frame. */
static __always_inline bool walk(void *ctx, struct stack *stack, bool kernel_stacks,
                                 __u64 address_mask) {
    struct user_registers user;
    __u32 kernel_frames = 0, user_frames;

    stack->error = 0;
    if (kernel_stacks && !in_user_code(ctx))
        kernel_frames = get_stack(ctx, stack->addrs, 0);
    if (get_user_registers(ctx, &user))
        user_frames = walk_user(&user, &stack->addrs[kernel_frames], address_mask);
    else
        user_frames = get_stack(ctx, &stack->addrs[kernel_frames], BPF_F_USER_STACK);
    stack->kernel_frames = kernel_frames;
    stack->user_frames = user_frames;
    /* What follows reads the numbers again. Otherwise the verifier would go through all of it once
     * for each number that there can be. */
    __asm__ __volatile__("" ::: "memory");
    return user_frames + kernel_frames;
}

/* Takes over the stack that an unwinder has put into its record. Returns false when it has no frame
 * of the process. */
static __always_inline bool take_words(const char *record, const volatile struct record_layout *at,
                                       struct stack *stack, bool kernel_stacks) {
    __u32 count = *(const __u16 *)(record + at->word_count);
    __u32 kernel_frames = *(const __u16 *)(record + at->kernel_frames);
    __u32 skipped = 0;

    stack->error = *(const __u32 *)(record + at->error);
    if (kernel_frames > count)
        kernel_frames = count;
    if (kernel_frames > MAX_FRAMES) /* never, but the record ends somewhere */
        kernel_frames = MAX_FRAMES;
    if (!kernel_stacks) {
        skipped = kernel_frames;
        kernel_frames = 0;
    }
    count -= skipped;
    if (count > MAX_WORDS) {
        count = MAX_WORDS;
        stack->error = ERROR_TOO_MANY_WORDS;
    }
    if (bpf_probe_read_kernel(stack->addrs, count * sizeof(*stack->addrs),
                              record + at->words + skipped * sizeof(*stack->addrs)))
        return false;
    stack->kernel_frames = kernel_frames;
    stack->user_frames = count - kernel_frames;
    /* As in walk. */
    __asm__ __volatile__("" ::: "memory");
    return count > kernel_frames;
}

/* Two independent hashes of the addresses, with a secret seed: among the 2^13 stacks in the table,
 * two different ones of a process collide with a probability of 2^-102. A process that could
 * provoke a collision would mix up only its own stacks, because its id is part of the key. So
 * stacks are not compared. The lowest bit tells unwound stacks from others. */
static __always_inline void hash_stack(const struct stack *stack, bool unwound,
                                       const volatile __u64 seed[2], __u64 hash[2]) {
    __u32 frames = stack->kernel_frames + stack->user_frames;
    __u64 a = seed[0] ^ stack->kernel_frames ^ (__u64)stack->error << 32, b = seed[1] + frames;

    for (__u32 i = 0; i < MAX_WORDS && i < frames; i++) {
        __u64 addr = stack->addrs[i];

        a = (a ^ addr) * 0x9e3779b97f4a7c15; /* 2^64 / golden ratio */
        a ^= a >> 32;
        b = (b + addr) * 0xd6e8feb86659fd93; /* a multiplier of good avalanche */
        b = b << 29 | b >> 35;
    }
    hash[0] = (a & ~1ULL) | unwound;
    hash[1] = b;
}

#endif
