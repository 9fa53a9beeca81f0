// Package naming names the frames of samples while an agent runs: functions of native code, of the
// kernel, and of code that processes have compiled and described in a perf map.
//
//	Consumer.Sampled ─▶ all names known? ─▶ emit, and then Namer.Name for each frame of a new stack
//	                      │ no                 ▲
//	                      ▼                    │ names came, or it has waited for too long
//	                    held ─▶ asks ──────────┘
//	                             symbolizer.Live: files and perf maps of a process, in a worker
//	                             symbolizer.Kernel: kallsyms
//
// An agent has one Namer for all who take its samples with names, the Consumers: what is read for one is
// known to all, and the bounds hold for all of them together.
//
// Names are for display. A stack-trace-id is computed before, without them, and does not wait.
//
// Whose turn it is to be asked (schedule.go), and what is kept (kept.go), is shared among owners:
// users and containers. What was read is kept for ranges of addresses, usually functions, in which
// the name is the same: so the files of a process are read often in its first seconds, and then
// hardly ever. Everything is kept by process: what the files of one say names its frames alone. Only where a worker
// has found that processes of one owner have the same view of a file (symbolizer.View), they share what was read of it.
package naming
