/* Has waits walked as budget.h says, on one CPU. Each target has an owner of its own. The argument
 * is from which length on waits are long; standard input is of which streams they are. It writes
 * what became of them, and the walks. */
#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../budget.h"

#define LEAST_PERIOD 10000000ULL
#ifdef QUEUE /* they are for a CPU */
#define MOST (MAX_QUEUE_PERIOD / 2)
#define ROOM (QUEUE_UNIT * (__u64)(__u32)-1) /* what queue_rest has */
#ifndef LEAST
#define LEAST (LEAST_PERIOD * QUEUE_PERIODS)
#endif
#else
#define LEAST LEAST_PERIOD
#define MOST MAX_PERIOD
#define ROOM MAX_PERIOD
#endif
#define OF_CPU 6
#define OF_OWNER 5
#define OF_TARGET 4

#define TARGETS 16
#define THREADS 1024

static struct target {
    __u64 period, window, until, owner_until;
    __u32 walked, refused, longer, nearly;
} targets[TARGETS];

static struct thread {
    __u64 rest;
    __u16 step;
} threads[THREADS];

static __u64 cpu_until;

static void follow(struct target *t, __u64 now) {
    __u64 windows = between(t->window, now) / (WINDOWS * WINDOW);

    if (!windows && !are_too_many(t->walked, t->refused))
        return;
    t->period = next_period(t->period, t->walked, t->refused, t->longer, t->nearly,
                            windows * WINDOWS * OF_TARGET / 2);
    if (t->period < LEAST)
        t->period = LEAST;
    t->window = now;
    t->walked = t->refused = t->longer = t->nearly = 0;
}

/* Waits of a thread, one after the other; times are ns. */
static struct stream {
    __u32 target, thread;
    __u64 until, gap;               /* of the ends of all; between two */
    __u64 least[2], spread[2];      /* lengths; if there is a second, each tenth has that */
    __u64 end, length;              /* of the next one */
} streams[THREADS], *next[THREADS]; /* a heap: the one that ends first is the first */

static void draw(struct stream *s) {
    int which = s->least[1] && lrand48() % 10 == 0;

    s->length = s->least[which] + (s->spread[which] ? lrand48() % s->spread[which] : 0);
    s->end += s->length + s->gap;
    if (s->end > s->until)
        s->end = -1; /* the last one */
}

static bool is_before(const struct stream *a, const struct stream *b) {
    return a->end != b->end ? a->end < b->end : a < b;
}

static void sift(size_t i, size_t n) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        struct stream *moved = next[i];

        child += child + 1 < n && is_before(next[child + 1], next[child]);
        if (!is_before(next[child], moved))
            return;
        next[i] = next[child];
        next[child] = moved;
    }
}

/* What became of waits of each thread: of those that are not long, and of long ones. */
static struct result {
    __u64 before[THREADS], after[THREADS]; /* what they have added up to */
    struct sum {
        __u64 count, walked, whole; /* with a stack, and one that stands for that wait alone */
        __u64 overdue;              /* not shorter than the period */
        __u64 length, weight, refused;
    } sums[THREADS][2];
    __u64 longest, last; /* periods */
} result;

static struct wait {
    __u64 end, length;
    __u64 weight;  /* what its stack stands for, 0: it has none */
    __u64 refused; /* what no stack stands for any more */
    __u64 period;
} wait;

static void end(struct target *t, struct thread *thread) {
    __u64 now = wait.end, weight;
    __u32 scarce;
    bool may;

    follow(t, now);
    weight = weigh(&thread->rest, &thread->step, wait.length, t->period, LEAST);
    t->nearly += is_nearly(wait.length, t->period);
    scarce = scarcity(taken(t->until, now), taken(t->owner_until, now), taken(cpu_until, now));
    may = has_room(t->until, now, OF_TARGET) && has_room(t->owner_until, now, OF_OWNER) &&
          has_room(cpu_until, now, OF_CPU) &&
          worth(wait.length, weight, t->period) >= least_wait(t->period, scarce);
    wait.period = t->period;
    if (!weight)
        return;
    if (!may) {
        t->refused += wait.length >= t->period;
        t->longer += is_longer(wait.length, t->period);
    }
    if (may) {
        t->walked += wait.length >= t->period;
        t->until = take(t->until, now, OF_TARGET);
        t->owner_until = take(t->owner_until, now, OF_OWNER);
        cpu_until = take(cpu_until, now, OF_CPU);
        wait.weight = weight;
    } else if (wait.length >= t->period ||
               !put_back(&thread->rest, &thread->step, weight, scarce, rand(), MOST, LEAST)) {
        wait.refused = weight;
    }
}

static void add(const struct stream *s, bool is_long) {
    struct sum *sum = &result.sums[s->thread % THREADS][is_long];

    sum->count++;
    sum->walked += wait.weight > 0;
    sum->whole += wait.weight == wait.length;
    sum->overdue += wait.length >= wait.period;
    sum->length += wait.length;
    sum->weight += wait.weight;
    sum->refused += wait.refused;
    result.last = wait.period;
    if (wait.period > result.longest)
        result.longest = wait.period;
    if (wait.weight)
        fwrite((__u64[]){s->target, wait.end}, 2 * sizeof(__u64), 1, stdout);
}

int main(int argc, char **argv) {
    __u64 long_from = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    size_t n = fread(streams, sizeof(*streams), THREADS, stdin);

    for (int i = 0; i < TARGETS; i++)
        targets[i].period = LEAST;
    for (int i = 0; i < THREADS; i++) {
        threads[i].step = STEPS;
        threads[i].rest = (__u64)i * 7919 % 1000 * (LEAST / 1000);
        result.before[i] = threads[i].rest;
    }
    for (size_t i = 0; i < n; i++)
        draw(next[i] = &streams[i]);
    for (size_t i = n; i--;)
        sift(i, n);
    for (struct stream *s; s = next[0], s->end != (__u64)-1; draw(s), sift(0, n)) {
        struct thread *thread = &threads[s->thread % THREADS];

        wait = (struct wait){.end = 3600000000000 + s->end, .length = s->length};
        end(&targets[s->target % TARGETS], thread);
        add(s, s->length >= long_from);
        if (thread->rest > ROOM)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        result.after[i] = threads[i].rest;
    fwrite(&result, sizeof(result), 1, stdout);
    return 0;
}
