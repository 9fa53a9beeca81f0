package profile

import (
	"time"

	"correlator/internal/host/label"
)

// A ThreadState is what a thread did in a part of its time.
type ThreadState uint8

// The states. Those from Futex on are waits that block.
const (
	OnCPU     ThreadState = iota // in one context
	Unknown                      // on a CPU, which it left in another context than it came in: a part is of either
	Runnable                     // it waited for a CPU
	Throttled                    // the same, since its cgroup had used up its quota; Runnable before Linux 6.18
	Futex                        // for a lock, a condition or a queue; a JVM sleeps like that, too
	Sleep                        // until a time
	Net                          // for a socket that is none of Unix
	Unix                         // for a socket of the host
	Pipe
	Poll  // for one of several descriptors
	Disk  // for a block device
	Fault // for memory, outside of system calls
	Other // for a child process, or a lock of the kernel
	ThreadStates
)

var threadStateNames = []string{
	OnCPU: "on_cpu", Unknown: "unaccounted", Runnable: "runnable", Throttled: "throttled", Futex: "futex",
	Sleep: "sleep", Net: "net", Unix: "unix", Pipe: "pipe", Poll: "poll", Disk: "disk", Fault: "fault", Other: "other",
}

// String returns the state as JSON and metrics have it.
func (s ThreadState) String() string { return label.Of(threadStateNames, s) }

// MarshalText returns the name of the state.
func (s ThreadState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name of a state.
func (s *ThreadState) UnmarshalText(text []byte) error {
	return label.Parse(s, threadStateNames, text, "no state of a thread")
}

// Blocks reports whether the thread waits for something else than a CPU.
func (s ThreadState) Blocks() bool { return s >= Futex }

// StateTimes are the times of threads in one state.
type StateTimes struct {
	Sum     time.Duration `json:"ns"`
	Longest time.Duration `json:"longest_ns"`
	Count   uint64        `json:"count"`
}

// Add adds the times of others.
func (t *StateTimes) Add(o StateTimes) {
	t.Sum += o.Sum
	t.Count += o.Count
	t.Longest = max(t.Longest, o.Longest)
}

// Times are times by ThreadState, which do not overlap for one thread.
type Times [ThreadStates]StateTimes

// Add adds the times of others.
func (t *Times) Add(o *Times) {
	for state := range t {
		t[state].Add(o[state])
	}
}

// An Account is what a thread did in one context, in some time: exactly, as its switches tell, but for
// Unknown. It is what every receiver of accounts gets.
type Account struct {
	Resource *Resource // nil for receivers that know it

	TraceID       [16]byte
	TransactionID [8]byte     // zero: the context does not say
	Context       ContextKind // where the ids are from

	TID    int    // in our own pid namespace
	Thread string // its name, if the account is of the thread and not of a context; empty: not known (yet)

	First, Last time.Time // when it was seen in the context, at the least
	Times       Times
}
