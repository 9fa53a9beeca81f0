/* Waits of a known kind, which another thread ends, or the clock. */
#ifndef WAITING_H
#define WAITING_H

#include <stdint.h>

/* Waits once, for as long as that at the least, and stores how long by its own clock. kind is
 * sleep, futex, pipe, unix, net or poll. Null, or what is wrong. */
const char *waiting_once(const char *kind, uint64_t least_ns, uint64_t *waited_ns);

#endif
