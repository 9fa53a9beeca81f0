// Package bpf holds the eBPF programs and the Go side of each: C source, the objects and
// bindings that bpf2go makes of it, and an API that hides both.
//
// So far there is one: [Threads] asks the kernel for the threads of a process, or of all, with
// their thread pointers. Nobody is stopped or traced for that. Programs share kernel.h (what
// is read of the kernel's structures) and load, which explains why a machine cannot run them.
//
// Needed: Linux 5.8, its BTF (CONFIG_DEBUG_INFO_BTF), CAP_BPF and CAP_PERFMON. What is missing
// is reported as a [MissingError].
package bpf

//go:generate go tool bpf2go -target amd64,arm64 -type thread_record threads threads.bpf.c -- -Wall -Wextra -Werror
