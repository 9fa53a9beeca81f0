// clang-format off
//go:build ignore

// clang-format on

/* A stand-in for an unwinder: a chain of programs, which finds the stack that a test has asked for.
 */
#include "kernel.h"

#include <stdbool.h>

#define MAX_WORDS 1024

/* By CPU. Where a test finds its fields is in unwinder_test.go. */
struct record {
    __u64 entered; /* samples */
    __u16 kernel_frames;
    __u16 word_count;
    __u32 error;
    __u64 words[MAX_WORDS];
};

struct {
    __uint(type, 6 /* BPF_MAP_TYPE_PERCPU_ARRAY */);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct record);
} records SEC(".maps");

/* walk, and the last program, which is not of this chain. */
struct {
    __uint(type, 3 /* BPF_MAP_TYPE_PROG_ARRAY */);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u32);
} programs SEC(".maps");

/* What a test asks for. */
volatile struct {
    __u32 kernel_frames;
    __u32 words; /* with the kernel's */
    __u32 error;
    __u32 stacks; /* different ones; 0: one */
    __u32 loses;  /* every so many samples one; 0: none */
} asked;

static __always_inline struct record *own_record(void) {
    __u32 only = 0;

    return bpf_map_lookup_elem(&records, &only);
}

SEC("perf_event")
int enter(void *ctx) {
    struct record *record = own_record();

    if (!record)
        return 0;
    record->entered++;
    bpf_tail_call(ctx, &programs, 0);
    return 0;
}

/* The words are 1, 2, ...; the first of the process tells stacks apart. */
SEC("perf_event")
int walk(void *ctx) {
    struct record *record = own_record();
    __u32 words = asked.words, stacks = asked.stacks, loses = asked.loses;
    __u32 first = asked.kernel_frames;

    if (!record)
        return 0;
    for (__u32 i = 0; i < MAX_WORDS && i < words; i++)
        record->words[i] = i + 1;
    if (stacks && first < MAX_WORDS)
        record->words[first] += record->entered % stacks << 32;
    record->kernel_frames = first;
    record->word_count = words;
    record->error = asked.error;
    if (loses && record->entered % loses == 0)
        return 0;
    bpf_tail_call(ctx, &programs, 1);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
