// Package lifecycle takes every process that maps the library or a process context from found to gone:
//
//	found ──▶ candidate ──▶ attached ──▶ gone
//
//	live events, sweeps ──▶ Manager ──▶ Process (one goroutine each) ──▶ Handler of the Client
//	memory poller ── what is published changed ──▶ ▲
//	Sampler of the Client ── samples wait ─────────┘
//
// What is done with an attached process is the Client's: it returns a Handler and a Sampler for each. The
// Manager knows neither APM agents nor recordings, nor how samples are taken. What it opens for a process is
// closed by the process's entry in the attach.Table.
//
// discovery.go, events.go, contextlooks.go and probe_queue.go find processes; admission.go and refusals.go
// decide which of them are served when there are too many; process.go is the life of one, probe.go a probe of it,
// retry.go when it is probed again. A process that is well has no timer: the memory poller reads its memory together
// with that of the others, and marks it dirty when something has changed.
//
// Every process has a goroutine of its own, and what touches the process happens on it: opening its
// files, reading its memory, and all methods of its Handler. A process can make each of these block
// (a file system that never answers, memory that is never paged in), and then it blocks itself
// alone. Sweeps, which read what each process maps, and the memory poller leave one behind that
// blocks them.
package lifecycle
