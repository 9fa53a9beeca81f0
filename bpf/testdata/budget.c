/* Has the waits of standard input walked as budget.h says, on one CPU. Each target has an owner of
 * its own. It writes what waits of each thread have added up to at first, all waits, and that
 * again. */
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

/* Sorted by end; times are ns. */
static struct wait {
    __u32 target;
    __u32 thread;
    __u64 end;
    __u64 length;
    __u64 weight;  /* what its stack stands for, 0: it has none */
    __u64 refused; /* what no stack stands for any more */
    __u64 period;
} wait;

static void write_rests(void) {
    for (int i = 0; i < THREADS; i++)
        fwrite(&threads[i].rest, sizeof(threads[i].rest), 1, stdout);
}

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

int main(void) {
    for (int i = 0; i < TARGETS; i++)
        targets[i].period = LEAST;
    for (int i = 0; i < THREADS; i++) {
        threads[i].step = STEPS;
        threads[i].rest = (__u64)i * 7919 % 1000 * (LEAST / 1000);
    }
    write_rests();
    while (fread(&wait, sizeof(wait), 1, stdin) == 1) {
        end(&targets[wait.target % TARGETS], &threads[wait.thread % THREADS]);
        fwrite(&wait, sizeof(wait), 1, stdout);
        if (threads[wait.thread % THREADS].rest > ROOM)
            return 1;
    }
    write_rests();
    return 0;
}
