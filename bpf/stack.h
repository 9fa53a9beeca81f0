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

#define LINK_REGISTER(regs) 0

/* How far below the stack pointer a frame may begin. */
#define BELOW_STACK 0

/* Whether the address to which a function without a frame returns is in a register, in which each
 * call leaves one. */
#define IS_LEFT_IN_REGISTER 0

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

#define LINK_REGISTER(regs) ((regs)->lr)

/* As above: Go's frames do. */
#define BELOW_STACK 8
#define IS_LEFT_IN_REGISTER 1

#else
#error "registers of which architecture?"
#endif

/* No function has a larger stack frame. If the distance to the next frame is larger, or negative,
 * the register does not hold a frame pointer. */
#define MAX_FRAME_BYTES (1 << 20)

/* Where a thread is in user code, and its frame there. */
struct user_registers {
    __u64 ip, sp, bp;
    /* Where a function without a frame returns to, if a register has that, else 0. */
    __u64 lr;
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

/* The registers of 64-bit user code with which the thread has entered the kernel. Returns false if
 * they are not known. */
static __always_inline bool get_entered_registers(struct user_registers *user) {
    const struct registers *entered = entered_registers();

    if (!entered || !from_user_code(entered))
        return false;
    user->ip = entered->ip;
    user->sp = entered->sp;
    user->bp = entered->bp;
    user->lr = LINK_REGISTER(entered);
    /* The verifier rejects an instruction that loads through either pointer. */
    __asm__ __volatile__("" ::"r"(user->ip), "r"(user->sp), "r"(user->bp), "r"(user->lr));
    return true;
}

/* The registers of 64-bit user code: those that were interrupted, or else those with which the
 * thread has entered the kernel. Returns false if they are not known. */
static __always_inline bool get_user_registers(const struct registers *interrupted,
                                               struct user_registers *user) {
    if (in_user_code(interrupted)) {
        user->ip = interrupted->ip;
        user->sp = interrupted->sp;
        user->bp = interrupted->bp;
        user->lr = LINK_REGISTER(interrupted);
        return true;
    }
    return get_entered_registers(user);
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

/* What precedes a return address: instead of what a call has called, NO_CALL, or SOME_CALL if it
 * calls through a register or memory. */
#define NO_CALL 0
#define SOME_CALL 1

/* How far apart code of one file is at most. */
#define MAX_FILE_BYTES (1ULL << 31)

static __always_inline bool is_near(__u64 a, __u64 b) {
    return a - b + MAX_FILE_BYTES < 2 * MAX_FILE_BYTES;
}

#if defined(__TARGET_ARCH_x86)

/* 1 if two numbers are equal, else 0, without a branch: the verifier follows each of them. */
static __always_inline __u64 equal(__u64 a, __u64 b) {
    return ((a ^ b) - 1) >> 63;
}

/* Whether bytes may be those of the opcode and the ModRM byte of a call through a register or
 * memory. */
static __always_inline __u64 calls_through(__u8 opcode, __u8 modrm) {
    return equal(opcode, 0xff) & equal(modrm & 0x38, 0x10);
}

static __always_inline __u64 called_before(__u64 addr) {
    __u8 code[8] = {0};
    __s32 distance;
    __u64 direct;

    bpf_probe_read_user(code, sizeof(code), (const void *)(addr - sizeof(code)));
    __builtin_memcpy(&distance, &code[4], sizeof(distance));
    direct = equal(code[3], 0xe8);
    return direct * (addr + distance) |
           ((calls_through(code[6], code[7]) | calls_through(code[5], code[6]) |
             calls_through(code[4], code[5]) | calls_through(code[2], code[3]) |
             calls_through(code[1], code[2])) &
            ~direct);
}

/* The first four bytes of a function, without the instruction that may be the target of a jump. */
static __always_inline __u32 begins_with(__u64 function) {
    __u32 code = 0;

    bpf_probe_read_user(&code, sizeof(code), (const void *)function);
    if (code == 0xfa1e0ff3) /* endbr64 */
        bpf_probe_read_user(&code, sizeof(code), (const void *)(function + 4));
    return code;
}

/* Whether what is called is a jump through memory to another file: (bnd) jmp *... */
static __always_inline bool is_linkage(__u64 called) {
    __u32 code = begins_with(called);

    return (code & 0xffff) == 0x25ff || (code & 0xffffff) == 0x25fff2;
}

/* How far a function's code for making its frame reaches at most. */
#define MAX_PROLOGUE_BYTES 24

/* Whether a function makes a frame: it begins by pushing the frame pointer, or by comparing the
 * stack pointer with the end of Go's stack. */
static __always_inline bool makes_frame(__u64 function) {
    __u32 code = begins_with(function);

    return (code & 0xff) == 0x55 || code == 0x10663b49 || (code & 0xff3fffff) == 0x24248d4c ||
           (code & 0xffffff) == 0xe48949 || (code & 0xffffff) == 0x248489;
}

/* Whether the instruction returns. */
static __always_inline bool returns(__u64 ip) {
    __u8 code = 0;

    bpf_probe_read_user(&code, sizeof(code), (const void *)ip);
    return code == 0xc3;
}

/* The address to which a function without a frame returns. Where the frame pointer has just been
 * pushed, known is set. */
static __always_inline __u64 innermost_return(const struct user_registers *user, bool *known) {
    __u64 words[2];

    if (bpf_probe_read_user(words, sizeof(words), (const void *)user->sp))
        return 0;
    *known = words[0] == user->bp;
    return *known ? words[1] : words[0];
}

#else

static __always_inline __u64 called_before(__u64 addr) {
    __u32 code;

    if (bpf_probe_read_user(&code, sizeof(code), (const void *)(addr - sizeof(code))))
        return NO_CALL;
    if (code >> 26 == 0x25) /* bl */
        return addr - sizeof(code) + ((__s64)((__u64)code << 38) >> 36);
    return (code & 0xfffffc1f) == 0xd63f0000 ? SOME_CALL : NO_CALL; /* blr */
}

#define MAX_PROLOGUE_BYTES 32

static __always_inline __u32 begins_with(__u64 function) {
    __u32 code = 0;

    bpf_probe_read_user(&code, sizeof(code), (const void *)function);
    if ((code & 0xffffff3f) == 0xd503241f) /* bti */
        bpf_probe_read_user(&code, sizeof(code), (const void *)(function + 4));
    return code;
}

/* adrp x16, ... */
static __always_inline bool is_linkage(__u64 called) {
    return (begins_with(called) & 0x9f00001f) == 0x90000010;
}

/* stp x29, x30, [sp, #-n]! and paciasp; or as Go, ldr x16, [x28, #16]. */
static __always_inline bool makes_frame(__u64 function) {
    __u32 code = begins_with(function);

    return (code & 0xffc07fff) == 0xa9807bfd || code == 0xd503233f || code == 0xf9400b90;
}

static __always_inline bool returns(__u64 ip) {
    return begins_with(ip) == 0xd65f03c0;
}

/* Likewise. Go restores the frame pointer before the register, which until then has what the last
 * call has left: the frame is still below the stack pointer. */
static __always_inline __u64 innermost_return(const struct user_registers *user, bool *known) {
    __u64 words[2] = {0, 0};

    *known = !bpf_probe_read_user(words, sizeof(words), (const void *)(user->sp - BELOW_STACK)) &&
             words[0] == user->bp;
    return *known ? words[1] : user->lr;
}

#endif

/* In the place of an address: the innermost function may have a caller that is not in the chain. */
#define UNKNOWN_CALLER (~0ULL)

/* How far a function without a frame reaches at most, where nothing else says that code belongs to
 * it. */
#define MAX_LEAF_BYTES 2048

/* Returns the address in the caller of the innermost function if that is not in the chain of frame
 * pointers, as the function has no frame, not yet, or not any more; 0 if it is in the chain,
 * UNKNOWN_CALLER if that cannot be told. chained is the first address of the chain, 0 if there is
 * none.
 *
 * The chain begins with the frame of a function that was called at first: either the innermost one,
 * or its caller. Functions are contiguous. So if caller, to which the innermost would return
 * without a frame, is in the code from first on, and the code that is executed is not between these
 * two, it is in another function than the one that was called at first. Else caller is something
 * that an earlier call has left. */
static __always_inline __u64 missing_caller(const struct user_registers *user, __u64 chained,
                                            __u64 address_mask) {
    bool known = false, is_return;
    __u64 caller = innermost_return(user, &known) & address_mask;
    __u64 other, first;

    if (!chained) /* there may be no frame pointers */
        return 0;
    if (!is_near(chained, user->ip)) { /* in another file */
        first = called_before(chained);
        if (first == NO_CALL || is_near(first, user->ip) || is_linkage(first))
            return 0;
        is_return = is_near(caller, chained) && caller != chained && called_before(caller);
        if (first == SOME_CALL || !makes_frame(first)) /* perhaps of the innermost function */
            return is_return ? UNKNOWN_CALLER : 0;
        return is_return && caller > first ? caller : UNKNOWN_CALLER;
    }
    if (!is_near(caller, user->ip) || caller == chained)
        return 0;
    other = called_before(caller);
    if (other == NO_CALL)
        return 0;
    if (known || other == user->ip || returns(user->ip))
        return caller;
    first = called_before(chained);
    if (first > SOME_CALL && is_near(first, user->ip) && makes_frame(first)) {
        if (user->ip < first)
            return caller > first ? caller : UNKNOWN_CALLER;
        if (!IS_LEFT_IN_REGISTER)
            return first < caller && caller < user->ip ? caller : 0;
        if (other == SOME_CALL)
            return UNKNOWN_CALLER;
        return first < other && other <= user->ip ? caller : 0;
    }
    /* Not known where the first function of the chain begins. */
    if (other == SOME_CALL || other > user->ip)
        return UNKNOWN_CALLER;
    if (other < caller && caller <= user->ip)
        return 0;
    if (user->ip - other <= MAX_PROLOGUE_BYTES)
        return caller;
    return user->ip - other < MAX_LEAF_BYTES && !makes_frame(other) ? caller : 0;
}

/* A frame of the chain: frame pointer and return address of the caller. */
static __always_inline bool read_frame(__u64 *frame, __u64 from, __u64 at) {
    return at - from < MAX_FRAME_BYTES &&
           !bpf_probe_read_user(frame, 2 * sizeof(*frame), (const void *)at) && frame[1];
}

/* Reads a frame that is on another stack than what it has called: so Go's runtime calls the vDSO,
 * and its own code. No other word is likely to be an address after a call. */
static __always_inline bool read_other_stack(__u64 *frame, __u64 at, __u64 address_mask) {
    return at % sizeof(*frame) == 0 && at >> 16 && !(at >> 56) && read_frame(frame, at, at) &&
           called_before(frame[1] & address_mask);
}

/* Follows a chain of frames, the first of which was read at an address. Returns how many addresses
 * there are then, and stores where the chain goes on. */
static __always_inline __u32 walk_chain(__u64 *frame, __u64 *at, __u64 *addrs, __u32 frames,
                                        __u64 address_mask) {
    __u64 from;

    for (__u32 i = 0; i < MAX_FRAMES && frames < MAX_FRAMES; i++) {
        addrs[frames++] = frame[1] & address_mask; /* on arm64 the other bits may be a signature */
        from = *at + 1;                            /* the next one lies above */
        *at = frame[0];
        if (!read_frame(frame, from, *at))
            break;
    }
    return frames;
}

/* Has the verifier forget which values a number can have: it goes through what follows once for
 * all. Room is memory of a map. */
static __always_inline __u64 forget(__u64 number, __u64 *room) {
    *(volatile __u64 *)room = number;
    return *(volatile __u64 *)room;
}

/* Walks the stack of 64-bit user code as the kernel does, except that it stops at the end of the
 * chain of frame pointers, that it looks for a caller which is not in the chain (missing_caller),
 * and that it goes on once where the chain goes on on another stack. C libraries start threads in
 * code without frame pointers, or with that of the thread that started them (musl on arm64), so
 * nearly every chain ends with a number that is not the address of a frame of the stack. The kernel
 * follows it, at best into a page fault, which takes longer than the whole walk, at worst to words
 * that it mistakes for frames and that differ from sample to sample. */
static __always_inline __u32 walk_user(const struct user_registers *user, __u64 *addrs,
                                       __u64 address_mask, bool finds_callers) {
    __u64 frame[2] = {0, 0};
    __u64 at = user->bp;
    bool found = read_frame(frame, user->sp - BELOW_STACK, at), is_other = !found;
    __u32 frames = 1;

    if (!finds_callers) {
        frames = found ? walk_chain(frame, &at, addrs, frames, address_mask) : frames;
        addrs[0] = user->ip;
        return frames;
    }
    if (is_other)
        found = read_other_stack(frame, at, address_mask);
    addrs[1] = missing_caller(user, found ? frame[1] & address_mask : 0, address_mask);
    if (forget(addrs[1], &addrs[1]))
        frames++;
    if (found)
        frames = walk_chain(frame, &at, addrs, frames, address_mask);
    if (!is_other && read_other_stack(frame, at, address_mask)) {
        frames = forget(frames, &addrs[0]);
        frames = walk_chain(frame, &at, addrs, frames & MAX_FRAMES, address_mask);
    }
    addrs[0] = user->ip;
    return frames;
}

/* Walks the stack. Returns false when there is not a single frame. */
static __always_inline bool walk(void *ctx, struct stack *stack, bool kernel_stacks,
                                 __u64 address_mask, bool finds_callers) {
    struct user_registers user;
    __u32 kernel_frames = 0, user_frames;

    stack->error = 0;
    if (kernel_stacks && !in_user_code(ctx))
        kernel_frames = get_stack(ctx, stack->addrs, 0);
    if (get_user_registers(ctx, &user))
        user_frames = walk_user(&user, &stack->addrs[kernel_frames], address_mask, finds_callers);
    else
        user_frames = get_stack(ctx, &stack->addrs[kernel_frames], BPF_F_USER_STACK);
    stack->kernel_frames = kernel_frames;
    stack->user_frames = user_frames;
    /* What follows reads the numbers again. Otherwise the verifier would go through all of it once
     * for each number that there can be. */
    __asm__ __volatile__("" ::: "memory");
    return user_frames + kernel_frames;
}

/* Walks the stack of a thread in the kernel; it begins with the kernel's frames already. ctx need
 * not be that of an interrupt. Returns false when there is not a single frame of the process. */
static __always_inline bool walk_entered(void *ctx, struct stack *stack, __u64 address_mask,
                                         bool finds_callers) {
    struct user_registers user;
    __u64 *addrs = &stack->addrs[stack->kernel_frames & MAX_FRAMES];

    stack->error = 0;
    if (get_entered_registers(&user))
        stack->user_frames = walk_user(&user, addrs, address_mask, finds_callers);
    else
        stack->user_frames = get_stack(ctx, addrs, BPF_F_USER_STACK);
    __asm__ __volatile__("" ::: "memory"); /* as in walk */
    return stack->user_frames;
}

/* Takes over the stack that an unwinder has put into its record, behind so many of the kernel's
 * frames that are there already. Returns false when it has no frame of the process. */
static __always_inline bool take_words(const char *record, const volatile struct record_layout *at,
                                       struct stack *stack, bool kernel_stacks, __u32 taken) {
    __u32 count = *(const __u16 *)(record + at->word_count);
    __u32 kernel_frames = *(const __u16 *)(record + at->kernel_frames);
    __u32 skipped = 0;
    __u64 bytes;

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
    taken &= MAX_FRAMES;
    if (count > MAX_WORDS - taken) {
        count = MAX_WORDS - taken;
        stack->error = ERROR_TOO_MANY_WORDS;
    }
    bytes = count * sizeof(*stack->addrs);
    /* Else the compiler knows what the verifier does not: that learns from comparisons of two
     * numbers since Linux 6.8. */
    __asm__ __volatile__("" : "+r"(bytes));
    if (bytes > sizeof(stack->addrs)) /* never */
        return false;
    if (bpf_probe_read_kernel(&stack->addrs[taken], bytes,
                              record + at->words + skipped * sizeof(*stack->addrs)))
        return false;
    stack->kernel_frames = taken + kernel_frames;
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
