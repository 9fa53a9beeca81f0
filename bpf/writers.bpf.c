// clang-format off
//go:build ignore

// clang-format on

/* Reports which programs are loaded that can write a map, to the reader of an iterator. */
#include "kernel.h"

#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum bpf_prog_type { BPF_PROG_TYPE_PERF_EVENT = 7 };

struct bpf_map {
    __u32 id;
    char name[16];
};

struct bpf_prog_aux {
    __u32 id;
    __u32 used_map_cnt;
    struct bpf_map **used_maps;
};

struct bpf_prog {
    enum bpf_prog_type type;
    struct bpf_prog_aux *aux;
};

struct bpf_iter__bpf_prog {
    struct bpf_iter_meta *meta;
    struct bpf_prog *prog;
};

#pragma clang attribute pop

#define MAX_USED_MAPS 64 /* of include/linux/bpf.h */

__u32 wanted; /* the id of the map */

/* Whether a map is one of the OpenTelemetry eBPF profiler's, whose programs all have it. */
static __always_inline bool is_of_profiler(struct bpf_map *map) {
    static const char profilers[] = "per_cpu_records";
    char name[sizeof(profilers)] = {};

    BPF_CORE_READ_INTO(&name, map, name);
    for (__u32 i = 0; i < sizeof(profilers); i++)
        if (name[i] != profilers[i])
            return false;
    return true;
}

static __always_inline bool may_write(const struct bpf_prog_aux *aux) {
    bool uses = false;

    for (__u32 i = 0; i < MAX_USED_MAPS && i < aux->used_map_cnt; i++) {
        struct bpf_map *map = NULL;

        bpf_probe_read_kernel(&map, sizeof(map), aux->used_maps + i);
        if (is_of_profiler(map))
            return false;
        uses |= BPF_CORE_READ(map, id) == wanted;
    }
    return uses;
}

/* Called for every program, and once with none at the end. Programs of a profiler, and those of the
 * type that samples CPUs, read the map. */
SEC("iter/bpf_prog")
int report_writer(struct bpf_iter__bpf_prog *ctx) {
    struct bpf_prog *prog = ctx->prog;

    __u32 id;

    if (!prog || prog->type == BPF_PROG_TYPE_PERF_EVENT || !may_write(prog->aux))
        return 0;
    id = prog->aux->id;
    bpf_seq_write(ctx->meta->seq, &id, sizeof(id));
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
