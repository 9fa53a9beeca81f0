package bpf

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A ThreadState is what a thread did in a part of its time.
type ThreadState uint8

// The states. Those from Futex on are waits that block.
const (
	OnCPU     = ThreadState(waitsThreadStateSTATE_ON_CPU)    // in one context
	Changed   = ThreadState(waitsThreadStateSTATE_CHANGED)   // on a CPU, until the context was another
	Runnable  = ThreadState(waitsThreadStateSTATE_RUNNABLE)  // waited for a CPU
	Throttled = ThreadState(waitsThreadStateSTATE_THROTTLED) // the same, for a quota; Runnable before Linux 6.18
	Futex     = ThreadState(waitsThreadStateSTATE_FUTEX)     // locks and queues in user space; sleeps of a JVM, too
	Sleep     = ThreadState(waitsThreadStateSTATE_SLEEP)
	Net       = ThreadState(waitsThreadStateSTATE_NET) // a socket that is none of Unix
	Unix      = ThreadState(waitsThreadStateSTATE_UNIX)
	Pipe      = ThreadState(waitsThreadStateSTATE_PIPE)
	Poll      = ThreadState(waitsThreadStateSTATE_POLL)
	Disk      = ThreadState(waitsThreadStateSTATE_DISK)
	Fault     = ThreadState(waitsThreadStateSTATE_FAULT) // for memory, outside of system calls
	Other     = ThreadState(waitsThreadStateSTATE_OTHER)

	// ThreadStates is how many there are.
	ThreadStates = int(waitsThreadStateSTATES)
)

// An Account is what a thread did in one context since the drain before. The times of its states do not
// overlap, and each is whole: between two switches, a thread is in one state. Only Changed may be of
// another context, in part.
type Account struct {
	Target        Target
	TID           int      // in our own pid namespace
	Thread        string   // what it is called; empty without ByThread
	TraceID       [16]byte // 0 with ByThread, as the other id
	TransactionID [8]byte  // 0 if OTel
	OTel          bool     // the ids are from a record of OpenTelemetry's

	// First is when the thread was first seen in the context, since the drain before, and Last until when it
	// was at the least: CLOCK_MONOTONIC, ns.
	First, Last uint64
	States      [ThreadStates]StateTimes
}

// StateTimes are the times in one state.
type StateTimes struct {
	NS, Longest uint64 // the sum, and the longest one
	Count       uint32
}

// ofThread is OF_THREAD of waits.h: a thread's name is in place of ids.
const ofThread = 255

func newAccount(key *waitsAccountKey, value *waitsAccount) Account {
	account := Account{
		Target: Target(key.Target), TID: int(key.Tid), First: value.First, Last: value.Last,
		OTel: isOTel(key.Kind),
	}
	if key.Kind == ofThread {
		account.Thread = unix.ByteSliceToString(asBytes(key.TraceId[:]))
	} else {
		putTraceID(&account.TraceID, key.TraceId)
	}
	binary.NativeEndian.PutUint64(account.TransactionID[:], key.TransactionId)
	for i := range account.States {
		account.States[i] = StateTimes{NS: value.Ns[i], Longest: value.Longest[i], Count: value.Times[i]}
	}
	return account
}
