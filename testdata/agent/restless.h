/* A thread that republishes again and again, each time with another storage and another socket. */
#ifndef RESTLESS_H
#define RESTLESS_H

#include "publish.h"

/*
 * Starts it; what publishes or binds may not be called until restless_stop. At the same path every
 * time: null, new socket, new storage. Null, or why not.
 */
const char *restless_start(const struct publication *publication, uint64_t interval_ns);
/* Ends it, if it runs, with a storage published. How often it republished. */
uint64_t restless_stop(void);

#endif
