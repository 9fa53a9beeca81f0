/* Waits of a known kind, which another thread ends, or the clock. */
#ifndef WAITING_H
#define WAITING_H

#include "tracer.h"

#include <stdint.h>

/* Waits once, for as long as that at the least, and stores how long by its own clock. kind is
 * sleep, futex, pipe, unix, net or poll. With holder, the thread that ends it does so in a
 * transaction of its own. Null, or what is wrong. */
const char *waiting_once(const char *kind, uint64_t least_ns, uint64_t *waited_ns,
                         const struct tracer_options *holder);

#endif
