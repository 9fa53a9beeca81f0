package process

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/host/self"
	"correlator/internal/worker/access"
	"correlator/profile"
)

// Work is what a thread works on, whether it runs or waits.
type Work struct {
	TID int
	// Known is false when that could not be read, or changed meanwhile; then there is nothing else.
	Known bool

	Context               profile.ContextKind
	TraceID               [16]byte
	SpanID, TransactionID [8]byte // no TransactionID with profile.OTelContext
	Attributes            []byte  // of an OpenTelemetry record, as they are there
}

// maxWork is how many threads of a process ReadWork looks at: more than any program has that does one
// request in a thread. All of them take some 50 ms.
const maxWork = 4096

// ReadWork reads what the threads of the process work on now: it returns those that work on something
// that is kept, and those of which that is not known: none if it does not publish any more what it did
// at the last Probe. more is how many threads were not looked at. The error is one of the whole process.
// A thread that has ended meanwhile may be among them: see HasThread.
func (r *ContextReader) ReadWork(t *Target, threads *bpf.Threads, keep Keep) (work []Work, more int, err error) {
	return r.readWork(t, threads, keep, maxWork)
}

// readWork is ReadWork for so many threads.
func (r *ContextReader) readWork(t *Target, threads *bpf.Threads, keep Keep, limit int) (work []Work, more int,
	err error) {
	elastic, otel := t.HasStorage() && t.elastic.err == nil, t.otel.hasRule()
	if !elastic && !otel {
		return nil, 0, nil
	}
	found, err := r.FindThreads(threads, t.handle.Identity().PID)
	if err != nil {
		return nil, 0, WithReason(ReasonOther, err)
	}
	more = max(0, len(found)-limit)
	found = found[:len(found)-more]
	r.threadPointers = resize(r.threadPointers, len(found))
	for i := range found {
		r.threadPointers[i] = found[i].ThreadPointer
	}
	var slots []Context
	if elastic {
		if slots, err = r.Read(t, r.threadPointers); err != nil {
			return nil, 0, WithReason(ReasonStorageUnreadable, err)
		}
	}
	var records []record
	if otel {
		if records, err = t.readRecords(r.threadPointers); err != nil {
			return nil, 0, WithReason(ReasonContextUnreadable, err)
		}
	}
	// Only now it is certain that what was read is what this process publishes.
	if err := t.CheckPublishing(); access.TellsNothing(err) {
		return nil, 0, err
	} else if err != nil {
		return nil, 0, nil
	}
	for i := range found {
		w, ok := workOf(slots, records, i, keep)
		if w.TID = found[i].TID; ok {
			work = append(work, w)
		}
	}
	return work, more, nil
}

// MeterCPU begins to measure the CPU time that is used for the process, by the calling goroutine and by workers, until
// stop is called, by the same goroutine.
func (t *Target) MeterCPU() (stop func() time.Duration) {
	runtime.LockOSThread()
	thread, workers := threadCPU(), t.access.Spent()
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return threadCPU() - thread + t.access.Spent() - workers
	}
}

// threadCPU returns the CPU time that the calling thread has used.
func threadCPU() time.Duration { return self.Clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// workOf decides between what a thread's slot and its record say, of those that there are, as the
// kernel's part does for samples: correlator_thread in bpf/correlator.h. ok is false when it works on
// nothing that is kept.
func workOf(slots []Context, records []record, i int, keep Keep) (w Work, ok bool) {
	slot, record := OutcomeNoSlot, OutcomeNoSlot
	if slots != nil {
		slot = slots[i].Outcome
	}
	if records != nil {
		record = records[i].outcome
	}
	switch {
	case slot != OutcomeCorrelated && slot != OutcomeUnreadable && record == OutcomeCorrelated:
		r := &records[i]
		return Work{Known: true, Context: profile.OTelContext, TraceID: r.traceID, SpanID: r.spanID,
			Attributes: r.attributes}, true
	case slot == OutcomeCorrelated, slot == OutcomeUnsampled && keep.Unsampled:
		s := &slots[i].Slot
		return Work{Known: true, Context: profile.ElasticContext, TraceID: s.TraceID, SpanID: s.SpanID,
			TransactionID: s.TransactionID}, true
	}
	return Work{}, !slot.WithoutTrace() || !record.WithoutTrace()
}
