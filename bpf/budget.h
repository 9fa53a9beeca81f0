/* Which waits have their stack walked, of those that may be: the longest first. What is here knows
 * no map and no kernel, so that a test can run it on waits of its own.
 *
 * A walk takes up a part of what a CPU, an owner and a target there may have, which comes back with
 * time: as much of WINDOW as one of the walks is that they may have in it. What they have not used
 * they may use later, for long waits that end together. While little is taken up, the stack of each
 * wait is walked that is due; the more is, the longer a wait has to be. So short ones may have all
 * walks that others do not need, and leave room for long ones.
 *
 * A wait that is as long as the period is due for itself, and if its stack is not walked, no other
 * stands for it. Shorter ones add up, in rest, until they are as long as a step: the one with which
 * they are is due for all. If that is not walked, they go on adding up, for another step, which is
 * longer. So each has a part in the next stack by its length alone. */
#ifndef BUDGET_H
#define BUDGET_H

enum budget {
    WINDOW = 100000000, /* ns */

    /* How many paces there are for a CPU, first of targets, then of owners: those whose numbers
     * differ by that share one. */
    PACES = 256,
    OWNER_PACES = 512,

    /* Threads wait for a CPU where their samples are: a stack for 100 ms of that is enough. */
    QUEUE_PERIODS = 10,

    /* What queue_rest is counted in, as it has 32 bits: ns. Sums are rounded: none is less on
     * average. */
    QUEUE_UNIT = 16,
};

#define STEPS 16 /* parts of the least period: what steps are counted in */
#define MAX_STEP 0xffff

#define DEPTH (2 * WINDOW) /* what walks take up at most */

#define WINDOWS 4 /* for which waits are counted */

#define MOST_SCARCE 4 /* see scarcity */

/* The clock may differ by some nanoseconds between CPUs. */
static __always_inline __u64 between(__u64 from, __u64 to) {
    return to > from ? to - from : 0;
}

/* What walks have taken up. until is when that will be nothing any more. */
static __always_inline __u64 taken(__u64 until, __u64 now) {
    __u64 time = between(now, until);

    return time > DEPTH ? DEPTH : time;
}

/* Whether there is room for one more of so many that may be in a window, and takes it up. */
static __always_inline bool has_room(__u64 until, __u64 now, __u32 most) {
    return taken(until, now) + WINDOW / most <= DEPTH;
}

static __always_inline __u64 take(__u64 until, __u64 now, __u32 most) {
    return now + taken(until, now) + WINDOW / most;
}

/* How scarce walks are: by what a target has taken up, or its owner, and by what others have taken
 * up of the CPU, which counts once that is more than half of it, and then makes more of a
 * difference: what they want does not end by the target's period. */
static __always_inline __u32 scarcity(__u64 target, __u64 owner, __u64 cpu) {
    __u64 own = target > owner ? target : owner;
    __u64 all = cpu > WINDOW / 2 ? 2 * (cpu - WINDOW / 2) : 0;
    __u32 of_own =
        (own > WINDOW / 8) + (own > WINDOW) + (own > WINDOW * 5 / 4) + (own > WINDOW * 3 / 2);
    __u32 of_all = (all > WINDOW / 8) + (all > WINDOW / 4) + (all > WINDOW / 2) + (all > WINDOW);

    return of_own > of_all ? of_own : of_all;
}

/* How long a wait has to be for its stack to be walked, if there is room: up to 8 periods. */
static __always_inline __u64 least_wait(__u64 period, __u32 scarcity) {
    return period * (1 << scarcity >> 1);
}

/* How long a wait counts as whose stack is to stand for a weight: what others add up to counts for
 * an eighth, so that of threads whose waits end together each has its turn. The rest is for long
 * waits. */
static __always_inline __u64 worth(__u64 ns, __u64 weight, __u64 period) {
    weight = weight / 8 < period * 2 ? weight / 8 : period * 2;
    return ns > weight ? ns : weight;
}

/* What a stack of a wait is to stand for; 0: none is due. */
static __always_inline __u64 weigh(__u64 *rest, __u16 *step, __u64 ns, __u64 period, __u64 least) {
    __u64 sum = *rest + ns, due = *step * (least / STEPS), over;

    if (ns >= period)
        return ns;
    *rest = sum;
    if (sum < due)
        return 0;
    over = (sum - due) % least;
    *rest = over;
    *step = STEPS;
    return sum - over;
}

/* Has what a stack was due for add up again. Returns false if that is too much. Without some
 * chance, threads that always wait would be due at the same time, and those whose waits end first
 * be walked. */
static __always_inline bool put_back(__u64 *rest, __u16 *step, __u64 weight, __u32 scarcity,
                                     __u32 random, __u64 most, __u64 least) {
    __u64 unit = least / STEPS, due;
    __u32 another = STEPS << scarcity;

    if (!unit)
        return false;
    due = weight / unit + another / 2 + random % another; /* rest is a part of the next step */
    if (due > MAX_STEP || due * unit > most)
        return false;
    *rest += weight;
    *step = due;
    return true;
}

/* Leaves of what waits have added up to, if it is more than most, a part of a step, which is one at
 * random as that with which a thread begins. Returns for what no stack will stand. */
static __always_inline __u64 cut(__u64 *rest, __u16 *step, __u64 most, __u64 least) {
    __u64 sum = *rest;

    if (sum <= most)
        return 0;
    *rest = sum % least;
    *step = STEPS;
    return sum - *rest;
}

#define MAX_PERIOD 1000000000000ULL

/* Whether half the period would make a wait due for itself. */
static __always_inline bool is_nearly(__u64 ns, __u64 period) {
    return ns >= period / 2;
}

static __always_inline bool is_longer(__u64 ns, __u64 period) {
    return ns >= least_wait(period, MOST_SCARCE);
}

/* Of waits that were as long as the period so many had their stack walked, and so many not: too
 * many, but for some that end together. */
static __always_inline bool are_too_many(__u32 walked, __u32 refused) {
    return refused >= 4 && refused > walked / 2;
}

/* The period after one with which that was so. If too many were refused, it is twice as long, or as
 * long as is worth the last walk if most of them were; and half as long if no more waits than may
 * be would have been due. */
static __always_inline __u64 next_period(__u64 period, __u32 walked, __u32 refused, __u32 longer,
                                         __u64 nearly, __u64 may) {
    if (are_too_many(walked, refused))
        period = longer > refused / 2 ? least_wait(period, MOST_SCARCE) : period * 2;
    else if (nearly <= may)
        period /= 2;
    return period > MAX_PERIOD ? MAX_PERIOD : period;
}

#define MAX_QUEUE_PERIOD (QUEUE_UNIT * 0xffffffffULL) /* ns */

static __always_inline __u64 queue_period(__u64 period) {
    return period < MAX_QUEUE_PERIOD / QUEUE_PERIODS ? period * QUEUE_PERIODS : MAX_QUEUE_PERIOD;
}

#endif
