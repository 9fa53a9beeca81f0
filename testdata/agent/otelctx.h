/*
 * OpenTelemetry's contexts, which the process publishes beside what the agent does: as one with two
 * agents. The writer is a library, ../otel/publisher.h.
 */
#ifndef OTELCTX_H
#define OTELCTX_H

#include <stddef.h>

/* All functions: null, or why it did not work. */

const char *otelctx_load(const char *path);

/* The process context, or an update of it: this service, and keys for two attributes, the same as
 * those of demo.OTelKeys. */
const char *otelctx_publish(const char *service);
const char *otelctx_withdraw(void);

/* What the calling thread works on, all of its record; no bytes: nothing. */
const char *otelctx_record(const void *bytes, size_t size);

#endif
