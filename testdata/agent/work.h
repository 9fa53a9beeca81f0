/*
 * Work that burns CPU under function names that a profile shows, with a stack of its own
 * for every kind of transaction and for the gaps between them.
 */
#ifndef WORK_H
#define WORK_H

#include <stdint.h>

struct work {
    const char *kind;
    void (*run)(void); /* some tens of microseconds */
};

#define WORK_KINDS 3
extern const struct work work_kinds[WORK_KINDS];
extern const struct work work_gap;

/* A function that part of the work, of every kind but search, is done in from now on. */
void work_borrow(double (*function)(double));

#endif
