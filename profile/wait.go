package profile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"correlator/internal/host/label"
)

// A Wait is what the thread of a sample waited for, where it did not run. The stack of the sample is the one that it
// waited with.
type Wait struct {
	State ThreadState // Runnable, Throttled, or one that blocks

	// Sum is the time that the sample stands for: that of its Count waits, and of shorter ones of the thread
	// of which no stack was walked. Longest is the longest of those that were walked.
	Sum, Longest time.Duration

	// Queue is how long the thread then waited for a CPU: the sample was taken so much after the end of the wait.
	Queue time.Duration

	Peer  string // address and port of the other end of a socket of IP; empty: none, or not known
	Path  string // the last names of a file's: any bytes; empty: none, or not known
	Futex uint64 // the address that was waited at; zero: at none

	Waker Waker // of the last of the waits
}

// WaitKind is what a thread waited for, in words.
type WaitKind string

// Kinds of waits beside those that are names of states.
const (
	LockWait  WaitKind = "lock"  // Futex: a lock, a condition or a queue
	SleepWait WaitKind = "sleep" // Sleep, and threads of a JVM that sleep
	GCWait    WaitKind = "gc"    // until a JVM's collector or another safepoint has ended
	IdleWait  WaitKind = "idle"  // for any work at all: of a pool or a scheduler
)

// KindOf returns the kind of waits of which no more than the state is known.
func KindOf(state ThreadState) WaitKind {
	if state == Futex {
		return LockWait
	}
	return WaitKind(state.String())
}

// ofCollectors is how the names of HotSpot's threads begin that end safepoints and collect garbage.
var ofCollectors = []string{"VM Thread", "GC Thread", "G1 ", "ZDriver", "ZWorker", "ZDirector", "Shenandoah"}

// Kind returns the kind of a wait with a stack in a process. A JVM's threads wait in one way for all that is in user
// space: what for, the method that they called says, and who woke them.
func (w *Wait) Kind(pid int, frames []Frame) WaitKind {
	at := slices.IndexFunc(frames, func(f Frame) bool { return f.Kind() == JVMFrame && !f.IsInlined() })
	ofJVM := w.State == Futex && at >= 0
	ofCollector := func(prefix string) bool { return strings.HasPrefix(w.Waker.Thread, prefix) }
	switch {
	case ofJVM && w.Waker.Kind == ThreadWaker && w.Waker.PID == pid && slices.ContainsFunc(ofCollectors, ofCollector):
		return GCWait
	case ofJVM && strings.HasPrefix(frames[at].Name(), "java.lang.Thread.sleep"):
		return SleepWait
	case (w.State == Futex || w.State == Poll || w.State == Sleep) && isIdle(frames):
		return IdleWait
	}
	return KindOf(w.State)
}

// Cause returns the peer or the file that a thread waited for, as far as that is known.
func (w *Wait) Cause() string {
	return cmp.Or(w.Peer, w.Path)
}

// A WakerKind is what ended a wait.
type WakerKind uint8

// The kinds of wakers.
const (
	UnknownWaker WakerKind = iota // or none: the thread waited for a CPU
	ThreadWaker
	TimerWaker
	DeviceWaker  // an interrupt of a disk, for instance
	NetworkWaker // a packet came
	numWakerKinds
)

var wakerKindNames = [numWakerKinds]string{"unknown", "thread", "timer", "device", "network"}

// String returns the kind as JSON has it.
func (k WakerKind) String() string { return label.Of(wakerKindNames[:], k) }

// MarshalText returns the name of the kind.
func (k WakerKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name of a kind.
func (k *WakerKind) UnmarshalText(text []byte) error {
	return label.Parse(k, wakerKindNames[:], text, "no kind of a waker")
}

// A Waker is who ended a wait. Only a ThreadWaker has more than its kind.
type Waker struct {
	Kind     WakerKind
	PID, TID int    // in our own pid namespace; 0: not known
	Thread   string // its name; empty: not known
	Service  string // of its process, if that takes part; empty: not known

	// What the thread worked on when it ended the wait; all zero: on nothing that is known.
	TraceID       [16]byte
	TransactionID [8]byte
	Context       ContextKind
}

// HasTrace reports whether the waker worked on a trace.
func (w *Waker) HasTrace() bool { return w.TraceID != [16]byte{} }
