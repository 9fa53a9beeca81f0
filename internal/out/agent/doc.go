// Package agent registers with the APM agents of the host's processes, and sends them the samples
// that are taken of them or fed.
//
//	lifecycle.Manager ── attached ──▶ registration (one per process) ──▶ messaging.Sender ──▶ its socket
//	feed socket ── records ─────────────────▶ ▲
//	sampling ── samples ─────────────▶ its program, a sampling.Sink ──▶ the sender, and the Exporter
//
// Package lifecycle finds processes and owns their goroutines; registration.go is what is done with
// an attached process, sink.go where its samples go, feed.go how fed records reach it.
//
// Complete samples go straight to the sender. Fed samples without a trace context wait for the
// process's goroutine, which reads it.
package agent
