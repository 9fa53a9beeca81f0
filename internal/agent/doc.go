// Package agent is the life of an instrumented process, from found to gone, and where its samples
// come together.
//
//	sweep ──▶ registry ──▶ process (one goroutine each) ──▶ messaging.Sender ──▶ its socket
//	                          ▲                                    ▲
//	feed socket ── records ───┤                                    │
//	sampling ── held samples ─┴────────── samples ─────────────────┘
//
// Every process has a goroutine of its own, and what touches the process happens on it: opening its
// files, reading its memory, resolving and connecting its socket. A process can make each of these
// block (a file system that never answers, memory that is never paged in), and then it blocks
// itself alone. The sweep, which reads what each process maps, leaves one behind that blocks it.
//
// Samples of which all is known go to the sender straight from where they come. Those for which the
// process has to be looked at wait for its goroutine.
package agent
