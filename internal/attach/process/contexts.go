package process

import (
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/tlsdesc"
)

// Context is what one thread worked on when its slot was read.
type Context struct {
	Outcome SampleOutcome // OutcomeCorrelated when Slot holds a sampled trace
	Addr    uint64        // of the slot, 0 when the thread has none
	Slot    memread.Slot  // zero unless it was read
	ReadAt  time.Time     // of the slot
}

// ContextReader reads the slots of a process's threads. It keeps its buffers, and is used by one
// goroutine at a time. What it returns is valid until the next call.
type ContextReader struct {
	threads  []bpf.Thread
	pointers map[int]uint64 // thread pointers by tid

	// By index of what is to be read.
	threadPointers []uint64
	contexts       []Context
}

// FindThreads reads the thread pointers of the process's threads as they are now, and returns the
// threads.
func (r *ContextReader) FindThreads(threads *bpf.Threads, pid int) (_ []bpf.Thread, err error) {
	if r.threads, err = threads.Process(pid, r.threads[:0]); err != nil {
		return nil, err
	}
	if r.pointers == nil {
		r.pointers = make(map[int]uint64, len(r.threads))
	}
	clear(r.pointers)
	for _, thread := range r.threads {
		r.pointers[thread.TID] = thread.ThreadPointer
	}
	return r.threads, nil
}

// ReadThreads reads the contexts of the threads of n given tids, which FindThreads has found or
// not.
func (r *ContextReader) ReadThreads(t *Target, n int, tid func(i int) int) ([]Context, error) {
	r.threadPointers = resize(r.threadPointers, n)
	for i := range n {
		r.threadPointers[i] = r.pointers[tid(i)] // 0 without one, which has no variable
	}
	contexts, err := r.Read(t, r.threadPointers)
	for i := range contexts {
		if _, known := r.pointers[tid(i)]; !known {
			contexts[i] = Context{Outcome: OutcomeNoThread}
		}
	}
	return contexts, err
}

// Read reads the contexts of threads with the given thread pointers: first the place of each one's
// variable, then all slots together. An error is one of the whole process.
//
// What is read may be another program's, or by a rule that holds no longer, until StillPublishing
// reports that it is not.
func (r *ContextReader) Read(t *Target, threadPointers []uint64) ([]Context, error) {
	slots, err := t.access.ReadSlots(t.elastic.rule, threadPointers)
	if err != nil {
		return nil, err
	}
	r.contexts = resize(r.contexts, len(slots))
	for i := range slots {
		r.contexts[i] = newContext(&slots[i])
	}
	return r.contexts, nil
}

func newContext(read *access.ThreadSlot) Context {
	result := &read.Result
	return Context{
		Addr: result.Addr, Slot: result.Slot, ReadAt: read.ReadAt, Outcome: contextOutcome(read.Variable, result),
	}
}

// ReadPagedOut reads the context of a thread whose slot the kernel could not read a moment ago,
// because it was not in memory. If it is not there still, the thread has not written it since, and
// what is read is what the slot held at that moment (or holds, if the thread writes it in the
// microseconds in which it is read). Else the thread may have begun something new, or ended what it
// did, and the outcome is OutcomeStale. Otherwise this is Read for one thread.
func ReadPagedOut(t *Target, threadPointer uint64) (Context, error) {
	read, untouched, err := t.access.ReadPagedOutSlot(t.elastic.rule, threadPointer)
	if err != nil {
		return Context{}, err
	}
	c := newContext(&read)
	if c.Outcome != OutcomeUnreadable && !untouched {
		return Context{Outcome: OutcomeStale}, nil
	}
	return c, nil
}

func contextOutcome(variableErr error, result *memread.SlotResult) SampleOutcome {
	switch {
	case errors.Is(variableErr, tlsdesc.ErrChanged), errors.Is(result.Err, memread.ErrTorn):
		return OutcomeTorn
	case errors.Is(result.Err, memread.ErrUpdating):
		return OutcomeUpdating
	case variableErr != nil, result.Err != nil:
		return OutcomeUnreadable
	case result.Addr == 0:
		return OutcomeNoSlot
	case !result.Slot.TracePresent:
		return OutcomeNoTrace
	case result.Slot.TraceFlags&traceFlagSampled == 0:
		return OutcomeUnsampled
	}
	return OutcomeCorrelated
}

// MaxContextAge is how old a sample may be when its thread's slot is read. The slot holds what the
// thread works on at that time; a sampler feeds at once, and what comes much later would be
// attributed to whatever the thread does then.
const MaxContextAge = 10 * time.Millisecond

// TooLate reports whether a sample was taken too long ago for its thread's context to be read now.
func TooLate(sampledAt time.Time) bool { return time.Since(sampledAt) > MaxContextAge }

// Keep selects the samples that are of use beside those of sampled traces.
type Keep struct {
	Unsampled bool // those of other traces
	Untraced  bool // those of threads without a trace
}

func (k Keep) has(o SampleOutcome) bool {
	switch o {
	case OutcomeCorrelated:
		return true
	case OutcomeUnsampled:
		return k.Unsampled
	case OutcomeNoTrace, OutcomeNoSlot:
		return k.Untraced
	}
	return false
}

// Judge returns what becomes of a sample whose thread's context was read from outside just now:
// OutcomeCorrelated if it is of use.
func (t *Target) Judge(c *Context, tid int, sampledAt time.Time, keep Keep) SampleOutcome {
	switch {
	case c.ReadAt.Sub(sampledAt) > MaxContextAge: // it took the worker that long to begin
		return OutcomeStale
	case !keep.has(c.Outcome):
		return c.Outcome
	case !t.HasThread(tid):
		return OutcomeNoThread
	}
	return OutcomeCorrelated
}

// HasThread reports whether tid is a thread of the process still. What was read by way of its
// thread pointer before is then its own: a tid is not given out again within the microseconds
// between.
func (t *Target) HasThread(tid int) bool {
	path := filepath.Join(t.procRoot, strconv.Itoa(t.handle.Identity().PID), "task", strconv.Itoa(tid))
	return unix.Access(path, unix.F_OK) == nil
}

// traceFlagSampled is W3C's: the caller may have recorded the trace. Agents ignore messages about
// others.
const traceFlagSampled = 1

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
