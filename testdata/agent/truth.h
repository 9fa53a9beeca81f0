/*
 * What really happened: every transaction of this process, and what was said about it.
 *
 * Transactions are kept per thread, the newest TRUTH_KEPT of each; totals count all.
 * Begin and end come from the thread itself, samples from the receiver.
 */
#ifndef TRUTH_H
#define TRUTH_H

#include "events.h"
#include "ids.h"

/* Threads with an index below this may have transactions: more than any test starts. */
#define TRUTH_THREADS 4096
/* At 10 ms a transaction these are the last ten seconds, far more than any delay. */
#define TRUTH_KEPT 1024
/* Different stacks told apart within one transaction; more are only counted. */
#define TRUTH_STACKS 1024

/*
 * A new transaction of the thread, with its ids: its number is the next one. cpu_ns is the
 * thread's CPU clock. kind is a constant string that outlives everything.
 */
void truth_begin(unsigned thread, const char *kind, uint64_t cpu_ns, struct context *out);
void truth_end(unsigned thread, uint64_t cpu_ns);

/*
 * Ids without a transaction that is kept, for a thread that makes them faster than
 * anybody can count. Only the thread itself may call it.
 */
void truth_issue(unsigned thread, struct context *out);

/* CPU time of a thread outside of transactions. */
void truth_gap(unsigned thread, uint64_t cpu_ns);

enum verdict {
    VERDICT_IN_TIME,
    VERDICT_LATE,    /* the transaction ended more than hold_ns before */
    VERDICT_TORN,    /* parts of different contexts */
    VERDICT_FOREIGN, /* no trace of this process */
};

/* Counts a correlation message that was read at now_ns. */
enum verdict truth_correlation(const uint8_t trace_id[16], const uint8_t transaction_id[8],
                               const uint8_t stack_trace_id[16], unsigned count, uint64_t now_ns,
                               uint64_t hold_ns);

/* Adds the totals and the transactions that are kept. */
void truth_report(struct event *event);

#endif
