// clang-format off
//go:build ignore

// clang-format on

/* Another sampler, which asks for the trace of the thread that it interrupts. */
#include "correlator.h"

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

SEC("perf_event")
int look(void *ctx __attribute__((unused))) {
    struct correlator_context context;
    __u32 thread = bpf_get_current_pid_tgid();

    if (correlator_current(&targets, &context) >= CORRELATOR_UNSAMPLED)
        bpf_map_update_elem(&seen, &thread, &context, 0 /* BPF_ANY */);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
