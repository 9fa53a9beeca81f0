/* Addresses that cannot be read. */
#ifndef EDGE_H
#define EDGE_H

#include <stddef.h>

/* No user address on any machine. */
#define WILD_ADDRESS ((void *)UINT64_C(0xdeadbeefdeadbeef))

/* A page that cannot be read, after at least this many bytes that can; never freed. */
char *edge_of_memory(size_t before);

#endif
