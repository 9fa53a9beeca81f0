/* Addresses that cannot be read, or not at once. */
#ifndef EDGE_H
#define EDGE_H

#include <stddef.h>

/* No user address on any machine. */
#define WILD_ADDRESS ((void *)UINT64_C(0xdeadbeefdeadbeef))

/* A page that cannot be read, after at least this many bytes that can; never freed. */
char *edge_of_memory(size_t before);

/* A page that makes whoever reads it wait for as long as this process lives. Null, and errno, where
 * that is not to be had. Needs root. */
void *hanging_page(void);

/* The first page of a file, which this process has not read. Null, and errno, if there is none. */
void *file_page(const char *path);

#endif
