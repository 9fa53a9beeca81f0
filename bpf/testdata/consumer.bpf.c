// clang-format off
//go:build ignore

// clang-format on

/* Another sampler, which asks for the trace of the thread that it interrupts. */
#include "correlator_attributes.h"

/* As the correlator pins it; loaded with that in its place. */
struct {
    __uint(type, 1 /* BPF_MAP_TYPE_HASH */);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct correlator_target);
} targets SEC(".maps");

/* Some traces that were seen, by thread. */
struct {
    __uint(type, 1 /* BPF_MAP_TYPE_HASH */);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, struct correlator_context);
} seen SEC(".maps");

/* Records that were seen, with their attributes. */
struct seen_record {
    __u64 trace_id[2];
    __u64 span_id;
    struct correlator_attributes attributes;
};

struct {
    __uint(type, 1 /* BPF_MAP_TYPE_HASH */);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, struct seen_record);
} records SEC(".maps");

struct scratch {
    struct seen_record record;
    struct correlator_attributes_scratch attributes;
};

struct {
    __uint(type, 6 /* BPF_MAP_TYPE_PERCPU_ARRAY */);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline void look_closely(__u32 thread, const struct correlator_context *context) {
    __u32 only = 0;
    struct scratch *s = bpf_map_lookup_elem(&scratch, &only);
    const __u64 *trace_id = correlator_trace_id(context);

    if (!s)
        return;
    s->record.trace_id[0] = trace_id[0];
    s->record.trace_id[1] = trace_id[1];
    s->record.span_id = correlator_span_id(context);
    correlator_read_attributes(context, &s->attributes);
    s->record.attributes = s->attributes.found;
    bpf_map_update_elem(&records, &thread, &s->record, 0 /* BPF_ANY */);
}

SEC("perf_event")
int look(void *ctx __attribute__((unused))) {
    struct correlator_context context;
    __u32 thread = bpf_get_current_pid_tgid();

    if (correlator_current(&targets, &context) < CORRELATOR_UNSAMPLED)
        return 0;
    bpf_map_update_elem(&seen, &thread, &context, 0 /* BPF_ANY */);
    if (context.kind == CORRELATOR_OTEL)
        look_closely(thread, &context);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
