// Package unwind walks stacks without frame pointers, of native code, of JVMs and of other language
// runtimes, and names the frames of runtimes. The engine is that of the OpenTelemetry eBPF profiler
// (go.opentelemetry.io/ebpf-profiler): its BPF programs walk, by tables that its user-space half
// fills from the files and the memory of processes.
//
//	Engine  in the agent: loads the programs and their tables, and has the worker serve requests
//	Kind    the worker (package worker), in which the user-space half runs
//
// What reads processes runs in the worker alone: a process may make it hang, run out of memory or
// panic. The worker has the tables that it fills, and no others. When it does not answer in time,
// ends, or answers nonsense, it is killed, all that it wrote is deleted, and all processes have to be
// synchronized again: see [Engine.OnReset]. The process that it served is left out for a while.
//
// Pids in the tables are those of the initial pid namespace, as BPF programs see them.
package unwind
