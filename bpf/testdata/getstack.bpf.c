// clang-format off
//go:build ignore

// clang-format on

/* What a sampler cannot do without: it walks the user's stack and does nothing else. */
#include "kernel.h"

#define MAX_FRAMES 127

struct {
    __uint(type, 6 /* BPF_MAP_TYPE_PERCPU_ARRAY */);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64[MAX_FRAMES]);
} scratch SEC(".maps");

SEC("perf_event")
int get_stack(void *ctx) {
    __u32 only = 0;
    __u64 *addrs = bpf_map_lookup_elem(&scratch, &only);

    if (addrs)
        bpf_get_stack(ctx, addrs, MAX_FRAMES * sizeof(*addrs), 1 << 8 /* BPF_F_USER_STACK */);
    return 0;
}

/* The kernel's own share of what it measures. */
SEC("perf_event")
int nothing(void *ctx __attribute__((unused))) {
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
