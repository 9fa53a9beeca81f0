/* The threads that write records: each its own, when it is told. */
#ifndef THREAD_H
#define THREAD_H

#include "events.h"
#include "record.h"

enum { THREADS_MAX = 64 };

enum action {
    THREAD_RECORD,  /* sets the record to the bytes */
    THREAD_RESIZE,  /* the attributes get the size that is the number, behind them the bytes */
    THREAD_CLEAR,   /* of its record */
    THREAD_POINTER, /* sets the variable to the number */
    THREAD_BUSY,    /* burns CPU from now on, 1, or no more, 0 */
    THREAD_END,
};

struct order {
    enum action action;
    const uint8_t *bytes;
    size_t size;
    uint64_t number;
};

/* The calling thread becomes thread 0, which cannot be busy. */
void threads_init(void **(*variable)(void), bool in_place);

/* After the library with the variable was loaded. */
void threads_use(void **(*variable)(void));

/* Null, or why it did not work. */
const char *threads_start(unsigned n);

/* Returns when the thread, or this one, has done it. Null, or why it did not. */
const char *thread_do(unsigned index, const struct order *order);

/* Ends all but the calling thread. */
void threads_stop(void);

/* In a child after fork, that has the calling thread alone. */
void threads_forget(void);

/* Writes "threads":[...]. */
void threads_list(struct event *event);

/* Burns some ten microseconds of CPU. */
void otel_burn(void);

#endif
