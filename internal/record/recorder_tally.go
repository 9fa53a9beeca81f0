package record

import (
	"errors"
	"maps"
	"sync"
	"time"

	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// maxKeys is how many different Keys a recording may have: with 97 samples a second those of 90
	// minutes of a busy CPU, all different. They take 70 MB, and twice as much at the end. No process gets
	// more than are left for the others: one that is alone half of them, one that comes late some.
	maxKeys = 1 << 19

	// maxFrames is how many frames all different stacks may have together, shared in the same way. A stack
	// is the process's that had it first. They take 64 MB.
	maxFrames = 4 << 20
)

var errTruncated = errors.New("no room for more different stacks and transactions of it")

// tally counts samples, from when it is begun until it is closed.
type tally struct {
	keyLimit, frameLimit int
	frames               func(profile.StackTraceID) ([]profile.Frame, bool)

	mu      sync.Mutex
	samples map[Key]uint64 // without Thread
	stacks  map[profile.StackTraceID][]profile.Frame
	names   map[thread]string
	known   map[processStack]struct{}
	held    int // frames of stacks
	shares  map[procscan.ProcessID]*share
	lost    map[string]uint64
	total   uint64 // of samples
	traced  uint64
	early   uint64    // before start
	start   time.Time // zero: not begun yet
	closed  bool
}

// share is what a process has of the limits, with all programs that it executes.
type share struct {
	keys, frames int
	truncated    time.Time // when the first sample was lost for want of room; zero: none was
}

// thread is a thread of a process.
type thread struct {
	process *Process
	tid     int
}

type processStack struct {
	process *Process
	stack   profile.StackTraceID
}

// news is what a sample is the first of, for its process.
type news struct {
	thread bool
	frames []profile.Frame // nil: the stack is known
}

func newTally(frames func(profile.StackTraceID) ([]profile.Frame, bool)) *tally {
	return &tally{
		keyLimit: maxKeys, frameLimit: maxFrames, frames: frames,
		samples: make(map[Key]uint64),
		stacks:  make(map[profile.StackTraceID][]profile.Frame),
		names:   make(map[thread]string),
		known:   make(map[processStack]struct{}),
		shares:  make(map[procscan.ProcessID]*share),
		lost:    make(map[string]uint64),
	}
}

// begin has samples counted that are taken from a time on.
func (t *tally) begin(start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start = start
}

// add counts samples of a process.
func (t *tally) add(process *Process, s *sampling.Sample) news {
	key := Key{Process: process, TID: s.TID, TraceID: s.TraceID, TransactionID: s.TransactionID, Stack: s.Stack}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return news{}
	}
	if t.start.IsZero() || s.At.Before(t.start) {
		t.early += s.Samples
		return news{}
	}
	if _, known := t.samples[key]; !known {
		own := t.share(process)
		reason := t.admit(&key, own)
		if reason == LostTooMany && own.truncated.IsZero() {
			own.truncated = s.At
		}
		if reason != "" {
			t.lost[reason] += s.Samples
			return news{}
		}
	}
	t.samples[key] += s.Samples
	t.total += s.Samples
	if key.HasTrace() {
		t.traced += s.Samples
	}
	return t.news(&key)
}

func (t *tally) share(process *Process) *share {
	own := t.shares[process.Identity()]
	if own == nil {
		own = new(share)
		t.shares[process.Identity()] = own
	}
	return own
}

// admit makes room for a new key, or answers why there is none.
func (t *tally) admit(key *Key, own *share) (reason string) {
	if own.keys >= t.keyLimit-len(t.samples) {
		return LostTooMany
	}
	if _, known := t.stacks[key.Stack]; !known {
		frames, ok := t.frames(key.Stack)
		if !ok || len(frames) == 0 {
			return process.OutcomeNoStack.String()
		}
		if own.frames+len(frames) > t.frameLimit-t.held {
			return LostTooMany
		}
		own.frames += len(frames)
		t.held += len(frames)
		t.stacks[key.Stack] = frames
	}
	own.keys++
	return ""
}

// truncated are the processes that had no room for all of their samples.
func (t *tally) truncated() (failures []Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, own := range t.shares {
		if !own.truncated.IsZero() {
			failures = append(failures, Failure{PID: id.PID, Err: errTruncated, Since: own.truncated})
		}
	}
	return failures
}

func (t *tally) news(key *Key) (n news) {
	one, stack := thread{key.Process, key.TID}, processStack{key.Process, key.Stack}
	if _, known := t.names[one]; !known {
		t.names[one] = ""
		n.thread = true
	}
	if _, known := t.known[stack]; !known {
		t.known[stack] = struct{}{}
		n.frames = t.stacks[key.Stack]
	}
	return n
}

// name says what a thread is called.
func (t *tally) name(one thread, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.names[one] = name
	}
}

// progress lacks what only the processes tell.
func (t *tally) progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Progress{Start: t.start, Samples: t.total, WithTrace: t.traced}
}

// close puts all that was counted into a recording, to which it then belongs.
func (t *tally) close(into *Recording) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	into.Start = t.start
	into.Samples = make(map[Key]uint64, len(t.samples))
	for key, samples := range t.samples {
		key.Thread = t.names[thread{key.Process, key.TID}]
		into.Samples[key] = samples
	}
	into.Stacks, into.Lost = t.stacks, maps.Clone(t.lost)
	t.samples, t.names, t.known = nil, nil, nil
}
