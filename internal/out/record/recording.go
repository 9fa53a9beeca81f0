package record

import (
	"time"

	"correlator/internal/out/keep"
	"correlator/procscan"
	"correlator/profile"
)

// Process is a process of a recording, as long as it runs one program and publishes the same: after
// an exec it is another one with the same PID and StartTime.
type Process struct {
	PID         int
	StartTime   uint64 // clock ticks since boot, see procscan.ProcessID
	Service     string // as the process published it, with Environment
	Environment string
	ContainerID string // empty without a container
	User        uint32 // as of when it was found
	Executable  string // path of its program, as it sees it; empty: not known
	// UnreadSchema is that of thread contexts which the process publishes, and which are not read; else empty.
	UnreadSchema string

	// Handle is the process itself, until it ends: then it is closed.
	Handle *procscan.Handle
}

// Walks is how many samples of a process were walked by an engine.
type Walks struct {
	Served  uint64 // when the engine unwound the process
	Unwound uint64 // of Served; the others by frame pointers, as the engine knows nothing of their innermost code
}

// Key is what samples are counted under.
type Key struct {
	Process       *Process
	TID           int    // as our own pid namespace calls it
	Thread        string // its name, empty when it had ended before anybody asked
	TraceID       [16]byte
	TransactionID [8]byte // both zero: no trace was active
	SpanID        [8]byte // zero: none but the transaction
	Attributes    profile.Attributes
	Stack         profile.StackTraceID
}

// WaitKey is what waits are added up under.
type WaitKey struct {
	Key
	State profile.ThreadState
	Peer  string
	Path  string
	Waker profile.Waker
}

// Wait returns what the key says of waits.
func (k *WaitKey) Wait() *profile.Wait {
	return &profile.Wait{State: k.State, Peer: k.Peer, Path: k.Path, Waker: k.Waker}
}

// HasTrace reports whether the samples were taken within a transaction.
func (k *Key) HasTrace() bool { return k.TraceID != [16]byte{} }

// ThreadAccount is what a thread did: exactly.
type ThreadAccount struct {
	Process     *Process
	TID         int
	Thread      string    // its name; empty: not known
	First, Last time.Time // when it was seen
	// Observed is the sum of Times, and how long the thread was seen: Last - First, unless accounts were lost.
	Observed time.Duration
	Times    profile.Times
}

// Recording is what was sampled in a while.
type Recording struct {
	// Start is when the processes that were found at first were sampled. Samples has nothing from
	// before; Lost and Missed have.
	Start            time.Time
	Duration         time.Duration // from Start on
	SamplesPerSecond int           // of every CPU

	Samples map[Key]uint64
	Waits   map[WaitKey]profile.StateTimes           // nil: nobody asked for them
	Stacks  map[profile.StackTraceID][]profile.Frame // leaf first, all that Samples and Waits refer to

	// Moments are when some of Samples and Waits were, with Options.Moments; those of samples have no State.
	Moments map[WaitKey][]keep.Moment

	// Accounts are those of threads, by process and number; nil: nobody asked for them (Options.Accounts). LostAccounts
	// of parts of them, a tenth of a second or a wait each, had no room.
	Accounts     []ThreadAccount
	LostAccounts uint64

	// Unaccounted are switches of threads that have no account: there was no room for their state in the kernel.
	Unaccounted uint64

	// Walks are how the stacks of Samples were walked, by process. Engine is whether there was one that unwinds, and
	// Failures are why it did not unwind processes that were sampled at the end, of some.
	Walks    map[*Process]Walks
	Engine   bool
	Failures map[*Process]string

	Unselected uint64 // samples that are not in Samples as Options.Selection says

	Processes []*Process // all that were sampled, those without samples too
	Failed    []Failure  // processes that take part and were not sampled, or not to the end

	Unreadable uint64 // processes of which could not be read whether they take part

	// Lost is samples of Processes that are not in Samples, by reason: "kernel_" and the name of a
	// bpf.KernelOutcome, the name of a process.SampleOutcome, or one of the Lost constants. No
	// reason has 0.
	Lost      map[string]uint64
	LostWaits uint64 // waits that are not in Waits: their process had no room for another key or stack
	Missed    uint64 // ticks of the CPUs' clocks at which no sample was taken, whatever ran

	// Samples whose context lacks what they have: see sampling.Counters.
	LabelsRefused, AttributesCut, UnknownKeys uint64

	// Refused is why functions of a runtime have no names that the unwinding engine cannot read, of processes that were
	// sampled at the end.
	Refused map[*Process]string

	close func() // nil: there is nothing to close
}

// Failure is why a process was not sampled.
type Failure struct {
	PID int // 0: processes that may not have been found
	Err error

	// Since is when the samples of a process that was sampled before began to be missing, all of
	// them or some; the zero time for one that never was.
	Since time.Time
}

// LostTooMany is a reason of Recording.Lost that is no outcome: their process had no room for another Key, or for
// another stack, see Failed.
const LostTooMany = "too_many"

// Close gives back what Processes hold.
func (r *Recording) Close() {
	if r.close != nil {
		r.close()
	}
}

// Walked returns how many of Samples were walked by frame pointers though there was an engine, and of how many of these
// that knew nothing of the innermost code. The others are from before it unwound their process, or it cannot do that.
func (r *Recording) Walked() (walked, unknown uint64) {
	if !r.Engine {
		return 0, 0
	}
	for _, samples := range r.Samples {
		walked += samples
	}
	for _, of := range r.Walks {
		walked -= of.Unwound
		unknown += of.Served - of.Unwound
	}
	return walked, unknown
}

// NumProcesses is how many processes Processes are, whatever programs they executed.
func (r *Recording) NumProcesses() int {
	distinct := make(map[procscan.ProcessID]struct{})
	for _, p := range r.Processes {
		distinct[p.Identity()] = struct{}{}
	}
	return len(distinct)
}

// Identity returns which process it is: several of a Recording's may be programs of one.
func (p *Process) Identity() procscan.ProcessID {
	return procscan.ProcessID{PID: p.PID, StartTime: p.StartTime}
}

// Period is the CPU time that a sample stands for.
func (r *Recording) Period() time.Duration {
	return time.Second / time.Duration(r.SamplesPerSecond)
}
