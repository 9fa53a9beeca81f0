// Package bpf holds the eBPF programs and the Go side of each: C source, the objects and
// bindings that bpf2go makes of it, and an API that hides both.
//
// [Threads] asks the kernel for the threads of a process, or of all, with their thread pointers.
// [Sampler] takes CPU samples, reads at each the trace that the thread works on, and counts them in
// the kernel. Nobody is stopped or traced for either. Programs share kernel.h (what is read of the
// kernel's structures) and load, which explains why a machine cannot run them. correlator.h is for
// the programs of others, too: it says how.
//
// Needed: Linux 5.8, its BTF (CONFIG_DEBUG_INFO_BTF), CAP_BPF and CAP_PERFMON; for [Sampler] also
// perf events. What is missing is reported as a [MissingError].
package bpf

//go:generate go tool bpf2go -target amd64,arm64 -type thread_record threads threads.bpf.c -- -Wall -Wextra -Werror
//go:generate go tool bpf2go -target amd64,arm64 -type identity_record identity identity.bpf.c -- -Wall -Wextra -Werror
//go:generate go tool bpf2go -target amd64,arm64 -type sample_outcome -type correlator_kind sampler sampler.bpf.c -- -Wall -Wextra -Werror
