/*
 * The writers of process.h and record.h as a library for processes that load it: a program in C by
 * dlopen, one in Python by ctypes. The library has the variable.
 */
#ifndef PUBLISHER_H
#define PUBLISHER_H

#include <stddef.h>

#define PUBLISHER_API __attribute__((visibility("default")))

/* What returns a text: null, or why it did not work. */

/*
 * Publishes the process context, or an update of it. The resource is lines of KEY=VALUE; schema and
 * keys (separated by commas) may be null: the context says nothing of threads. By one thread at a
 * time, as otel_withdraw.
 */
PUBLISHER_API const char *otel_publish(const char *resource, const char *schema, const char *keys);
PUBLISHER_API void otel_withdraw(void);

/* Makes bytes that begin like a struct record what the calling thread works on. */
PUBLISHER_API const char *otel_attach(const void *record, size_t size);
/* The calling thread works on nothing. */
PUBLISHER_API void otel_detach(void);

#endif
