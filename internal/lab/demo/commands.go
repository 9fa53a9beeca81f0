package demo

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"correlator/internal/lab/testenv"
)

// HostPath converts a path as the process sees it into one for this process.
func (p *Process) HostPath(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", p.PID, path)
}

// Load loads the library in a process with Options.Hold. Others have it from the start.
func (p *Process) Load() (out Loaded) {
	p.t.Helper()
	p.must(&out, "load")
	return out
}

// Loaded returns where the library is that was loaded at the start.
func (p *Process) Loaded() (out Loaded) {
	p.t.Helper()
	p.await("loaded", 1, &out)
	return out
}

// Unload unloads the library; musl keeps it mapped.
func (p *Process) Unload() (stillMapped bool) {
	p.t.Helper()
	var out struct {
		StillMapped bool `json:"still_mapped"`
	}
	p.must(&out, "unload")
	return out.StillMapped
}

// UnlinkLibrary removes the library's file while it is mapped.
func (p *Process) UnlinkLibrary() {
	p.t.Helper()
	p.must(nil, "unlink-library")
}

// Publish publishes a new storage with the present service and socket.
func (p *Process) Publish() (out Publication) {
	p.t.Helper()
	p.must(&out, "publish")
	return out
}

// Published returns the publication at the start; with Options.PublishAfter it waits for it.
func (p *Process) Published() (out Publication) {
	p.t.Helper()
	p.await("published", 1, &out)
	return out
}

// Withdraw makes the exported pointer null again. The socket stays.
func (p *Process) Withdraw() (out Publication) {
	p.t.Helper()
	p.must(&out, "withdraw")
	return out
}

// Republish withdraws the storage, replaces the socket by one at another path and publishes a new
// storage. An empty service keeps the name it has.
func (p *Process) Republish(socket, service string) (out Publication) {
	p.t.Helper()
	words := []string{"republish", socket}
	if service != "" {
		words = append(words, service)
	}
	p.must(&out, words...)
	p.Socket = socket
	return out
}

// RepublishEvery has a thread republish at the same path again and again, each time with a new
// storage and a new socket, until StopRepublishing. No other command may publish or bind meanwhile.
func (p *Process) RepublishEvery(interval time.Duration) {
	p.t.Helper()
	p.must(nil, "republish-every", strconv.FormatInt(interval.Microseconds(), 10))
}

// StopRepublishing returns how often that was done. A storage and its socket stay.
func (p *Process) StopRepublishing() (times uint64) {
	p.t.Helper()
	var out struct{ Times uint64 }
	p.must(&out, "republish-every", "0")
	return out.Times
}

// RebindSocket replaces the socket by another one at the same path.
func (p *Process) RebindSocket() { p.t.Helper(); p.must(nil, "rebind-socket") }

// CloseSocket closes the socket and leaves its file: sending to it is refused.
func (p *Process) CloseSocket() { p.t.Helper(); p.must(nil, "close-socket") }

// UnlinkSocket removes the socket's file: existing connections stay connected.
func (p *Process) UnlinkSocket() { p.t.Helper(); p.must(nil, "unlink-socket") }

type threadList struct{ Threads []Thread }

// Threads returns all running threads except the one that reads the socket.
func (p *Process) Threads() []Thread {
	p.t.Helper()
	var out threadList
	p.must(&out, "threads")
	return out.Threads
}

// StartThreads adds n threads of a kind ("busy", "idle", "untouched") and returns all threads.
func (p *Process) StartThreads(n int, kind string) []Thread {
	p.t.Helper()
	var out threadList
	p.must(&out, "start-threads", strconv.Itoa(n), kind)
	return out.Threads
}

// StopThreads ends every transaction and every thread except the main one.
func (p *Process) StopThreads() {
	p.t.Helper()
	p.must(nil, "stop-threads")
}

// Begin begins a transaction on a thread, ending its current one. The thread stays in it until the
// next command.
func (p *Process) Begin(thread int) (out Context) {
	p.t.Helper()
	p.must(&out, "begin", strconv.Itoa(thread))
	return out
}

// WaitIn has a thread wait once, in a transaction of its own: for a sleep, futex, pipe, unix or net socket, or in
// a poll; in a JVM for a monitor, lock, future or queue, or in a sleep, park or wait of an object.
func (p *Process) WaitIn(thread int, kind string, least time.Duration) (out Wait) {
	p.t.Helper()
	p.must(&out, "wait", strconv.Itoa(thread), fmt.Sprintf("%s:%d", kind, least.Milliseconds()))
	return out
}

// Account has a thread burn CPU time, wait for a lock and for a socket, and sleep, in a transaction of its own.
func (p *Process) Account(thread int) (out Accounted) {
	p.t.Helper()
	p.must(&out, "account", strconv.Itoa(thread))
	return out
}

// Span makes a thread continue in the span of its transaction with that number, see [TraceID.Span]:
// Begin uses number 1. It returns when the slot shows the span.
func (p *Process) Span(thread, number int) SpanID {
	p.t.Helper()
	var out struct {
		SpanID SpanID `json:"span_id"`
	}
	p.must(&out, "span", strconv.Itoa(thread), strconv.Itoa(number))
	return out.SpanID
}

// End ends the thread's transaction; the thread does not begin another by itself.
func (p *Process) End(thread int) {
	p.t.Helper()
	p.must(nil, "end", strconv.Itoa(thread))
}

// PublishOTel publishes OpenTelemetry's process context, or an update, with this service and the keys
// of OTelKeys, in a process with Options.OTel.
func (p *Process) PublishOTel(service string) {
	p.t.Helper()
	p.must(nil, "otel-publish", service)
}

// WithdrawOTel unmaps OpenTelemetry's process context.
func (p *Process) WithdrawOTel() { p.t.Helper(); p.must(nil, "otel-withdraw") }

// SetOTelRecord has a thread work on what a record of OpenTelemetry's says, all the time, in
// transactions and between them; nil: on nothing.
func (p *Process) SetOTelRecord(thread int, record *OTelRecord) {
	p.t.Helper()
	words := []string{"otel-record", strconv.Itoa(thread)}
	if record != nil {
		words = append(words, hex.EncodeToString(record.Bytes()))
	}
	p.must(nil, words...)
}

// Hostile publishes a hostile storage. Kinds of storage: storage-unmapped, storage-wild,
// storage-hangs (reading it blocks while the process lives), storage-file (the first page of the
// file that is the argument, mapped and not read), storage-edge, storage-length, storage-utf8,
// storage-version, and storage-newer, which is not hostile. Kinds of files at the socket's path:
// socket-missing, socket-fifo, socket-directory, socket-file, socket-stream, socket-forbidden,
// socket-empty, socket-relative, socket-nul, socket-symlink, whose argument is its destination, and
// socket-path, whose argument is the path itself, at which nothing is created.
func (p *Process) Hostile(kind, argument string) (out Publication) {
	p.t.Helper()
	words := []string{"hostile", kind}
	if argument != "" {
		words = append(words, argument)
	}
	p.must(&out, words...)
	return out
}

// Spoil spoils a thread's slot until its next Begin. Kinds: slot-null, slot-unmapped, slot-wild,
// slot-edge, slot-updating, slot-version, slot-junk, slot-hangs (reading it blocks while the process
// lives), and slot-file:PATH (the first page of a file, mapped and not read).
func (p *Process) Spoil(thread int, kind string) {
	p.t.Helper()
	p.must(nil, "hostile", kind, strconv.Itoa(thread))
}

// Exec makes the process execute another program, which knows no commands: Kill it at the end.
func (p *Process) Exec(program, argument string) {
	p.t.Helper()
	p.must(nil, "exec", program, argument)
}

// Restart makes the process execute its program again, with the same options, and returns when that
// is ready. Threads, transactions and reports are gone. The socket is a new one at the same path,
// unless it is kept, with the messages in it.
func (p *Process) Restart(keepSocket bool) {
	p.t.Helper()
	p.forget()
	words := []string{"restart"}
	if keepSocket {
		words = append(words, "keep-socket")
	}
	p.must(nil, words...)
	p.await("ready", 1, nil)
}

// Fork makes the process fork and returns the pid of the child, which has copies of the storage, of
// the main thread's slot and of the socket, and executes no other program. It is idle, or burns CPU
// if busy. It ends after Quit, and at the end of the test, but not with Kill.
func (p *Process) Fork(busy bool) int {
	p.t.Helper()
	var out Forked
	words := []string{"fork"}
	if busy {
		words = append(words, "busy")
	}
	p.must(&out, words...)
	return out.Child
}

// LoadAgain loads the library's file again, into a link namespace of its own (dlmopen), and uses
// that copy from then on. The storage must be withdrawn before. Musl does not support this.
func (p *Process) LoadAgain() (out Loaded) {
	p.t.Helper()
	p.must(&out, "load-again")
	return out
}

// Borrow makes the process load a library and do part of its work in one of its functions, which
// takes and returns a double.
func (p *Process) Borrow(library, function string) {
	p.t.Helper()
	p.must(nil, "borrow", library, function)
}

// Chroot changes the root directory of the process, which needs the capability for that.
func (p *Process) Chroot(dir string) {
	p.t.Helper()
	p.must(nil, "chroot", dir)
}

// Report makes the process read its socket and returns its counters.
func (p *Process) Report() (out Report) {
	p.t.Helper()
	p.must(&out, "report")
	return out
}

// ReportWhen waits for a report for which done returns true.
func (p *Process) ReportWhen(what string, done func(Report) bool) (out Report) {
	p.t.Helper()
	testenv.Poll(p.t, deadline, what, func() bool {
		out = p.Report()
		return done(out)
	})
	return out
}

// Registration waits for the nth registration, counted from 1.
func (p *Process) Registration(n int) (out Registration) {
	p.t.Helper()
	p.await("registered", n, &out)
	return out
}

// Quit ends the threads and the process regularly and returns the final report.
func (p *Process) Quit() (out Report) {
	p.t.Helper()
	p.must(&out, "quit")
	p.await("bye", 1, nil)
	return out
}
