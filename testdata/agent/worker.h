/*
 * The threads of the process. Thread 0 is the main thread, which only does what commands
 * say; the others switch between transactions by themselves unless told otherwise.
 * All functions are the main thread's.
 */
#ifndef WORKER_H
#define WORKER_H

#include "events.h"
#include "tracer.h"

enum worker_kind {
    WORKER_MAIN,
    WORKER_BUSY,      /* burns CPU, in transactions and in gaps */
    WORKER_IDLE,      /* sleeps instead */
    WORKER_UNTOUCHED, /* never looks at the thread-local variable */
};

struct worker_options {
    struct tracer_options tracer;
    uint64_t transaction_ns, gap_ns;
    bool manual; /* no transaction but by worker_begin */
    bool rests;  /* busy threads sleep half of the time, unless they rewrite slots */
};

/* Makes the calling thread thread 0. Options must stay. */
void workers_init(const struct worker_options *options);

/* Starts n threads and waits until they run. Null, or why it did not work. */
const char *workers_start(unsigned n, enum worker_kind kind);
/* Ends the transactions and the threads, all but thread 0. */
void workers_stop(void);

/* From now on threads use this library; null: none, and no thread is in it any more. */
void workers_use(const struct library *library);

/*
 * Begins a transaction on a thread, ending the one it is in, and replies with its ids; ends
 * it, and replies. Both when the slot is written. The thread does nothing by itself then.
 */
const char *worker_begin(unsigned index);
const char *worker_end(unsigned index);

/* Has the thread go on in another span of its transaction, and replies with its id. */
const char *worker_span(unsigned index, unsigned number);

/* See otelctx_record. The thread goes on with what it does. */
const char *worker_record(unsigned index, const void *bytes, size_t size);

/* See tracer_spoil. */
const char *worker_spoil(unsigned index, const char *kind);

/* Has the thread wait once (see waiting_once) in a transaction of its own, and replies with its ids
 * and how long the wait was. */
const char *worker_wait(unsigned index, const char *kind, uint64_t least_ns);

/* Has the thread burn CPU time, wait for a lock that another transaction holds, for a socket, and
 * sleep, in one transaction; replies with its ids and how long each took by its own clocks. */
const char *worker_account(unsigned index);

/* Adds the array of all threads that run. */
void workers_list(struct event *event);
/* Slots written by rewriting threads. */
uint64_t workers_rewrites(void);

#endif
