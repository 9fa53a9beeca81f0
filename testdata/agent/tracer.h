/*
 * What a thread of the agent says about itself: its thread-local variable, its slot, its
 * transactions. All functions but tracers_use run in the thread that the tracer is of.
 */
#ifndef TRACER_H
#define TRACER_H

#include "library.h"
#include "slot.h"
#include "work.h"

#include <stdatomic.h>

enum tracer_rewrite {
    REWRITE_NONE,
    REWRITE_NEW,   /* new ids every time; no transactions are kept */
    REWRITE_CYCLE, /* TRACER_CYCLE transactions per thread, in turn and for ever */
};

#define TRACER_CYCLE 64

struct tracer_options {
    enum tracer_rewrite rewrite;
    bool swap;        /* two slots per thread in turn, as with virtual threads */
    bool unsampled;   /* W3C trace flags 0 instead of 1 */
    bool auto_enable; /* touch the variable only after a registration */
    bool page_out;    /* slots are in a page that can be paged out */
};

struct tracer {
    const struct tracer_options *options;
    unsigned index;
    /* Written by the thread, read by any. */
    _Atomic(void **) variable; /* null: not touched, or the library is gone */
    _Atomic(void *) slot;      /* what the variable holds */
    atomic_ullong rewrites;    /* slots written by tracer_rewrite */

    const struct library *library; /* that the variable is of */
    struct slot own[2];
    struct slot *slots;      /* two: own, or paged out */
    unsigned current;        /* index of the slot in use */
    bool begun, traced;      /* in a transaction; and the slot says so */
    unsigned turn;           /* transactions begun: chooses the kind of work */
    const struct work *work; /* what the thread is to do now */
    uint64_t cpu_ns;         /* the thread's CPU clock when it began to */
    struct context context;  /* of the transaction */
    struct context cycle[TRACER_CYCLE];
};

/* The library whose variable threads may touch from now on, or null. */
void tracers_use(const struct library *library);

void tracer_init(struct tracer *tracer, unsigned index, const struct tracer_options *options);

/* Gives the thread a slot without a trace; false while it has no library or no leave. */
bool tracer_touch(struct tracer *tracer);
/* Ends what runs, and lets go of the library. */
void tracer_leave(struct tracer *tracer);

/* Ends what runs and begins the next transaction. */
void tracer_begin(struct tracer *tracer);
void tracer_end(struct tracer *tracer);
/* Goes on in another span of the transaction, see ids_span; false where there is none. */
bool tracer_span(struct tracer *tracer, unsigned number);

/* Has the slots not resident until they are read or written, if they are in such a page. */
void tracer_page_out(struct tracer *tracer);

/* Writes the slot some hundred times without pause; false where tracer_touch is false. */
bool tracer_rewrite(struct tracer *tracer);

/* Spoils the slot until the next transaction. Null, or what is wrong with the kind. */
const char *tracer_spoil(struct tracer *tracer, const char *kind);

#endif
