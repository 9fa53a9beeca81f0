// Package agent is the life of an instrumented process, from found to gone, and where its samples
// come together.
//
//	live events, sweeps ──▶ registry ──▶ process (one goroutine each) ──▶ messaging.Sender ──▶ its socket
//	lookout ── what is published changed ──▶ ▲                                  ▲
//	feed socket ── records ──────────────────┤                                  │
//	sampling ── held samples ────────────────┴─────────── samples ──────────────┘
//
// discovery.go, live.go and looks.go find processes; process.go is the life of one, pace.go when it is
// looked at, claims.go which of several gets a socket, filtered.go which are left out. A process that
// is well has no timer: the lookout reads its memory together with that of the others, and wakes it when
// something has changed.
//
// Every process has a goroutine of its own, and what touches the process happens on it: opening its
// files, reading its memory, resolving and connecting its socket. A process can make each of these
// block (a file system that never answers, memory that is never paged in), and then it blocks
// itself alone. Sweeps, which read what each process maps, and the lookout leave one behind that blocks
// them.
//
// Samples of which all is known go to the sender straight from where they come. Those for which the
// process has to be looked at wait for its goroutine.
package agent
