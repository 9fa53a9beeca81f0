/* Contexts that OpenTelemetry eBPF Instrumentation (OBI) publishes for other eBPF programs, in a
 * map that it pins as otel/traces_ctx_v1 in bpffs: the trace and the span that a thread works on.
 * They are those of processes that publish none themselves. User space puts the map in while it is
 * there and has somebody who writes it. */
#ifndef CORRELATOR_OBI_H
#define CORRELATOR_OBI_H

#include "maps.h"

/* An entry, by bpf_get_current_pid_tgid. Ids are bytes in the order of the wire. */
struct obi_context {
    __u64 trace_id[2];
    __u64 span_id;
};

/* This puts the type into the object, where maps in maps do not. */
const struct obi_context *obi_type SEC("types");

struct obi_contexts {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1);
    __type(key, __u64);
    __type(value, struct obi_context);
};

/* OBI_FORMER are entries that OBI's map had when it got another writer: until they change, nobody
 * knows whether they still hold. */
enum obi_map { OBI_CONTEXTS, OBI_FORMER, OBI_MAPS };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, OBI_MAPS);
    __type(key, __u32);
    __array(values, struct obi_contexts);
} obi SEC(".maps");

static __always_inline bool obi_find(__u32 which, __u64 thread, struct obi_context *found) {
    void *contexts = bpf_map_lookup_elem(&obi, &which);
    const struct obi_context *entry;

    if (!contexts)
        return false;
    entry = bpf_map_lookup_elem(contexts, &thread);
    if (!entry)
        return false;
    *found = *entry;
    __asm__ __volatile__("" ::: "memory"); /* the copy is not read again */
    return true;
}

static __always_inline bool obi_is_same(const struct obi_context *a, const struct obi_context *b) {
    return a->trace_id[0] == b->trace_id[0] && a->trace_id[1] == b->trace_id[1] &&
           a->span_id == b->span_id;
}

/* Puts what OBI says of the current thread into a context that correlator_find has begun, as that
 * of a record without attributes. The entry may become another thread's while it is copied, as the
 * map reuses memory; then it is not found again, or is another. */
static __always_inline enum correlator_outcome obi_read(struct correlator_context *context) {
    __u64 thread = bpf_get_current_pid_tgid();
    struct obi_context found, other;

    if (!obi_find(OBI_CONTEXTS, thread, &found) || !obi_find(OBI_CONTEXTS, thread, &other) ||
        !obi_is_same(&found, &other))
        return CORRELATOR_NO_SLOT;
    if (!(found.trace_id[0] | found.trace_id[1]) || !found.span_id)
        return CORRELATOR_ZERO_IDS;
    if (obi_find(OBI_FORMER, thread, &other) && obi_is_same(&found, &other))
        return CORRELATOR_NO_SLOT;
    context->record.trace_id[0] = found.trace_id[0];
    context->record.trace_id[1] = found.trace_id[1];
    context->record.span_id = found.span_id;
    context->record.trace_flags = 0;
    context->kind = CORRELATOR_OTEL;
    return CORRELATOR_SAMPLED;
}

#endif
