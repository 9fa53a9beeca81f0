/* What the programs that load their own maps have in common. */
#ifndef MAPS_H
#define MAPS_H

#include "correlator.h"

#include <stdbool.h>

/* Of include/uapi/linux/bpf.h, which cannot be included: see kernel.h. */
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PROG_ARRAY = 3,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
    BPF_F_NO_PREALLOC = 1 << 0, /* of a map */
    BPF_F_MMAPABLE = 1 << 10,
    BPF_NOEXIST = 1, /* of bpf_map_update_elem */
    BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
    BPF_RB_NO_WAKEUP = 1, /* of bpf_ringbuf_output */
};

/* In all maps, sizes of 1 are replaced when a program is loaded. */

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct correlator_target);
} targets SEC(".maps");

/* A bit by the lowest 16 bits of a number. */
#define FILTER_BITS (1 << 16)

static __always_inline bool in_filter(const __u64 *bits, __u32 number) {
    return bits[number % FILTER_BITS / 64] & 1ULL << number % 64;
}

#endif
