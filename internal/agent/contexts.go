package agent

import (
	"errors"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/memread"
	"correlator/tlsdesc"
)

// threadContext is what one thread worked on when it was looked at.
type threadContext struct {
	outcome Outcome      // OutcomeCorrelated when slot holds a sampled trace
	addr    uint64       // of the slot, 0 when the thread has none
	slot    memread.Slot // zero unless it was read
}

// contextReader reads the slots of a process's threads. It keeps its buffers, and is used by one
// goroutine at a time.
type contextReader struct {
	threads  []bpf.Thread
	pointers map[int]uint64 // thread pointers by tid

	// By index of what was asked for.
	threadPointers []uint64
	variables      []uint64
	errs           []error
	results        []memread.SlotResult
	contexts       []threadContext
}

// findThreads takes down the thread pointers of the process's threads, as they are now.
func (r *contextReader) findThreads(threads *bpf.Threads, pid int) (err error) {
	if r.threads, err = threads.Process(pid, r.threads[:0]); err != nil {
		return err
	}
	if r.pointers == nil {
		r.pointers = make(map[int]uint64, len(r.threads))
	}
	clear(r.pointers)
	for _, thread := range r.threads {
		r.pointers[thread.TID] = thread.ThreadPointer
	}
	return nil
}

// read looks at the threads of n given tids, which findThreads knows or not: first for the place
// of each one's variable, then at all slots together, twice. The answer is valid until the next
// call. An error is one of the whole process.
func (r *contextReader) read(t *target, n int, tid func(i int) int) ([]threadContext, error) {
	r.threadPointers = resize(r.threadPointers, n)
	r.variables = resize(r.variables, n)
	r.errs = resize(r.errs, n)
	r.results = resize(r.results, n)
	r.contexts = resize(r.contexts, n)
	for i := range n {
		r.threadPointers[i] = r.pointers[tid(i)] // 0 without one, which has no variable
	}
	if err := t.rule.VariableAddrs(t.memory, r.threadPointers, r.variables, r.errs); err != nil {
		return nil, err
	}
	if err := t.memory.ReadSlots(r.variables, r.results); err != nil {
		return nil, err
	}
	for i := range n {
		_, known := r.pointers[tid(i)]
		result := &r.results[i]
		r.contexts[i] = threadContext{addr: result.Addr, slot: result.Slot, outcome: contextOutcome(known, r.errs[i], result)}
	}
	return r.contexts, nil
}

func contextOutcome(known bool, variableErr error, result *memread.SlotResult) Outcome {
	switch {
	case !known:
		return OutcomeNoThread
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

// traceFlagSampled is W3C's: the caller may have recorded the trace. Agents ignore messages about
// others.
const traceFlagSampled = 1

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// threadLives says whether tid is a thread of pid still. What was read by way of its thread
// pointer before is then its own: a tid is not given out again within the microseconds between.
func threadLives(procRoot string, pid, tid int) bool {
	path := filepath.Join(procRoot, strconv.Itoa(pid), "task", strconv.Itoa(tid))
	return unix.Access(path, unix.F_OK) == nil
}
