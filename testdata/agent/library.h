/* The agent library, loaded at run time as a JVM loads it. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

struct library {
    void *handle;
    uintptr_t base;     /* load address */
    uint64_t mapped_ns; /* CLOCK_MONOTONIC when dlopen was called */
    void **storage;     /* the exported process-storage pointer, or null in a library without */
    /* Of the calling thread; null in a library without the thread-local symbol. */
    void (*set_thread_slot)(void *slot);
    void **(*thread_variable)(void);
};

/*
 * Null, or why it did not work. Apart: in a link namespace of its own, so that a file that is
 * mapped already is mapped once more; not with musl.
 */
const char *library_load(const char *path, bool apart, struct library *out);

/* Returns whether the library is mapped still: musl never unmaps one. */
bool library_unload(struct library *library, const char *path);

#endif
