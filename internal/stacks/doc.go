// Package stacks is the room of samples: from the counts of the kernel to samples with a context and a
// named stack. Every sample has one outcome, and the outcomes add up to the samples.
//
//	sampling  drains the kernel's counts, waits for what a stack lacks, and hands samples to sinks
//	unwind    the engine of the OpenTelemetry eBPF profiler in a worker: stacks without frame pointers,
//	          frames of the JVM, CPython and V8; its quotas by user, its resets, its quarantine
//
// A source of stacks comes in here: in the kernel as a bpf.Unwinder, in user space where sampling
// turns the key and the raw stack of a count into a *profile.Stack. What comes after sees
// profile.Sample alone.
package stacks
