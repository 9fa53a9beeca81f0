package record

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/profile"
)

// Processes of two C libraries beside each other: their CPU time in transactions is in the
// recording, with the right ids, thread, service and code, and so is that outside of transactions.
func TestRecording(t *testing.T) {
	options := demo.Options{Busy: 2, Transaction: 200 * time.Millisecond, Gap: 50 * time.Millisecond,
		Environment: "north"}
	options.Service = "recorded-glibc"
	glibc := demo.Start(t, options)
	options.Service, options.Flavor = "recorded-musl", demo.Musl
	musl := demo.Start(t, options)
	processes := []*demo.Process{glibc, musl}
	r := record(t, Options{Filter: services(t, "recorded-.*")})
	r.poll("two processes", func(p Progress) bool { return p.Processes == 2 })
	for _, p := range processes {
		r.await(30, "samples in transactions", p.PID, func(key Key, _ []profile.Frame) bool { return key.HasTrace() })
		code := p.Functions()
		r.await(30, "samples in gaps", p.PID, func(key Key, frames []profile.Frame) bool {
			return !key.HasTrace() && code["housekeeping"].In(frames)
		})
	}
	threads := [][]demo.Thread{glibc.Threads(), musl.Threads()}
	for _, p := range processes {
		p.StopThreads() // all that was burnt is sampled
	}
	recording := r.end()
	assert.Check(t, len(recording.Processes) == 2 && len(recording.Failed) == 0 && recording.Duration > 0,
		"processes %v, failed %v, in %v", recording.Processes, recording.Failed, recording.Duration)
	rate := r.options.SamplesPerSecond
	assert.Check(t, recording.SamplesPerSecond == rate && r.options.sampling().SamplesPerSecond == rate && rate > 0)
	for i, p := range processes {
		service := []string{"recorded-glibc", "recorded-musl"}[i]
		t.Run(service, func(t *testing.T) {
			samples := recording.of(p.PID)
			for key := range samples {
				assert.Assert(t, key.Process.Service == service && key.Process.Environment == "north",
					"process %+v", key.Process)
				for _, thread := range threads[i] {
					assert.Check(t, thread.TID != key.TID || thread.Name == key.Thread,
						"thread %q is called %q", thread.Name, key.Thread)
				}
			}
			code := p.Functions()
			report := p.Quit()
			silent(t, report)
			verifyTransactions(t, recording, samples, report, threads[i], code)
			verifyGaps(t, recording, samples, code)
		})
	}
}

// verifyTransactions checks that each sample with a trace is one of a transaction that there was,
// of the thread that had it, with the code of what it did.
func verifyTransactions(t *testing.T, recording *Recording, samples map[Key]uint64, report demo.Report,
	threads []demo.Thread, code map[string]demo.Function) {
	t.Helper()
	inWork := false
	for key := range samples {
		if !key.HasTrace() {
			continue
		}
		transaction, known := report.Transaction(key.TraceID)
		if !known || [8]byte(transaction.TransactionID) != key.TransactionID {
			t.Fatalf("no such transaction: %x, %x", key.TraceID, key.TransactionID)
		}
		if span := demo.TraceID(key.TraceID).SpanID(); key.SpanID != [8]byte(span) {
			t.Errorf("span %x of transaction %x, want %v", key.SpanID, key.TransactionID, span)
		}
		tid := threads[transaction.Thread].TID
		assert.Check(t, tid == key.TID, "a transaction of thread %d is one of %d", tid, key.TID)
		for _, kind := range []string{"checkout", "search", "browse", "housekeeping"} {
			worked := code[kind].In(recording.Stacks[key.Stack])
			assert.Check(t, !worked || kind == transaction.Kind,
				"a transaction %q has a stack of %q", transaction.Kind, kind)
			inWork = inWork || worked
		}
	}
	assert.Check(t, inWork, "no sample has a stack of its transaction's work")
}

// verifyGaps checks that samples without a trace are of what threads do between transactions.
func verifyGaps(t *testing.T, recording *Recording, samples map[Key]uint64, code map[string]demo.Function) {
	t.Helper()
	inGaps := sum(samples, func(key Key) bool {
		return !key.HasTrace() && code["housekeeping"].In(recording.Stacks[key.Stack])
	})
	assert.Check(t, inGaps != 0, "no sample without a trace has a stack of the work in gaps")
	for key := range samples {
		for _, kind := range []string{"checkout", "search", "browse"} {
			assert.Check(t, key.HasTrace() || !code[kind].In(recording.Stacks[key.Stack]),
				"without a trace in the work of %q", kind)
		}
	}
}

// A sample whose context the kernel could not read has the one that it is read to have.
func TestRecordingPagedOut(t *testing.T) {
	const phase = 40 * time.Millisecond // there is time to page out what was written, and little more
	p := demo.Start(t, demo.Options{Service: "paged-out", Busy: 1, PageOut: true, Transaction: phase, Gap: phase})
	r := record(t, Options{PID: p.PID})
	r.poll("samples", func(p Progress) bool {
		return p.WithTrace > 100 && p.Samples > p.WithTrace+100 &&
			r.counters.Sampling.Kernel[bpf.Unreadable].Load() > 50
	})
	threads, code := p.Threads(), p.Functions()
	recording := r.end()
	verifyTransactions(t, recording, recording.Samples, p.Quit(), threads, code)
	t.Logf("%d samples unreadable in the kernel; lost %v", r.counters.Sampling.Kernel[bpf.Unreadable].Load(),
		recording.Lost)
}

// Of a JVM, the threads have the names that Java gave them, and the frames are of code without a
// file.
func TestRecordingJVM(t *testing.T) {
	p := demo.StartJVM(t, demo.JVMOptions{Service: "java", Threads: 2, Busy: true, FramePointers: true})
	r := record(t, Options{PID: p.PID})
	begun := []demo.Context{p.Begin(1), p.Begin(2)}
	for _, context := range begun {
		r.await(30, "samples in compiled code", p.PID, func(key Key, frames []profile.Frame) bool {
			return key.TraceID == context.TraceID && frames[0].Kind() == profile.AnonymousFrame
		})
	}
	threads := p.Threads()
	recording := r.end()
	for i, context := range begun {
		thread := threads[i+1]
		for key := range recording.Samples {
			assert.Check(t, key.TraceID != context.TraceID ||
				key.TransactionID == context.TransactionID && key.TID == thread.TID && key.Thread == thread.Name,
				"%+v, want the thread %+v", key, thread)
		}
	}
	silent(t, p.Quit())
}

// That a kernel has no waits is no failure to those that can do without a recording.
func TestNoWaits(t *testing.T) {
	err := fmt.Errorf("recording waits: %w", noWaits("an old kernel"))
	assert.Check(t, errors.Is(err, errors.ErrUnsupported) && err.Error() == "recording waits: an old kernel", "%v", err)
}
