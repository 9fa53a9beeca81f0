package bpf

import (
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// Samples for which the tables are full are deferred in the ring buffer; when that is full, too,
// they are counted as lost.
func TestOverflow(t *testing.T) {
	for _, test := range []struct {
		name    string
		options SamplerOptions
	}{
		{"counts", SamplerOptions{MaxCounts: 1}},
		{"stacks", SamplerOptions{MaxStacks: 1}},
		{"stacks of the kernel", SamplerOptions{MaxStacks: 1, KernelStacks: true}},
		{"counts by thread", SamplerOptions{MaxCounts: 1, ByThread: true}},
		{"counts by span", SamplerOptions{MaxCounts: 1, BySpan: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.SamplesPerSecond = 2000
			s := openSampler(t, test.options)
			p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond, Gap: -1})
			addDemo(t, s, p)
			waitForFirst(t, s, TableFull)
			stop(t, s)
			counters := readCounters(t, s)
			verifyDeferred(t, s, counters[TableFull], func(d deferredSample) {
				whole(t, s, d.Count)
				assert.Check(t, d.Outcome == TableFull && d.PID == p.PID && d.Count.Samples == 1 && d.TID != 0 &&
					test.options.ByThread == (d.Count.TID == d.TID),
					"deferred %+v", d)
				verifyCode(t, p.PID, d.Frames)
			})
			var samples uint64
			for _, c := range drainAll(t, s) {
				samples += uint64(c.Samples)
				stack(t, s, c.Stack)
			}
			assert.Check(t, samples == counters[Correlated], "drained %d samples, counters %v", samples, counters)
		})
	}
	t.Run("ring buffer", func(t *testing.T) {
		s := openSampler(t, SamplerOptions{SamplesPerSecond: 2000, MaxCounts: 1, DeferredBytes: os.Getpagesize()})
		p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond, Gap: -1})
		addDemo(t, s, p)
		waitForOutcome(t, s, Lost)
		stop(t, s)
		verifyDeferred(t, s, readCounters(t, s)[TableFull], func(d deferredSample) { whole(t, s, d.Count) })
	})
}

// readDeferred reads the deferred samples that there are.
func readDeferred(t *testing.T, s *Sampler, take func(deferredSample)) {
	t.Helper()
	for s.deferred.AvailableBytes() > 0 {
		d, err := s.Deferred().Read()
		assert.NilError(t, err)
		take(d)
	}
}

// verifyDeferred reads n deferred samples, and checks that there are no more.
func verifyDeferred(t *testing.T, s *Sampler, n uint64, verify func(deferredSample)) {
	t.Helper()
	reader := s.Deferred()
	for range n {
		d, err := reader.Read()
		assert.NilError(t, err)
		verify(d)
	}
	more := s.deferred.AvailableBytes()
	assert.Check(t, more == 0, "%d more bytes of deferred samples", more)
}

// A sample for which the thread's memory could not be read is not counted. It is deferred with the
// thread, so that the reader can try again, and with its stack.
func TestUnreadable(t *testing.T) {
	for _, spoil := range []string{"slot-unmapped", "slot-wild"} {
		t.Run(spoil, func(t *testing.T) {
			s := openSampler(t, SamplerOptions{KeepUntraced: true, ByThread: true, BySpan: true})
			p := demo.Start(t, demo.Options{Busy: 1, Manual: true})
			target := addDemo(t, s, p)
			p.Begin(1)
			p.Spoil(1, spoil)
			thread := p.Threads()[1]
			waitForFirst(t, s, Unreadable)
			stop(t, s)
			now, counters := Now(), readCounters(t, s)
			verifyDeferred(t, s, counters[Unreadable], func(d deferredSample) {
				assert.Check(t, d.Outcome == Unreadable && d.PID == p.PID && d.TID == thread.TID &&
					d.ThreadPointer == thread.ThreadPointer && d.Time <= now && now-d.Time <= uint64(waiting),
					"deferred %+v, thread %+v", d, thread)
				key := StackKey{Target: target, hash: d.Count.Stack.hash}
				want := Count{Stack: key, TID: d.TID, Thread: "busy-1", First: d.Time, Last: d.Time, Samples: 1}
				assert.Check(t, reflect.DeepEqual(d.Count, want), "count %+v, want %+v", d.Count, want)
				verifyCode(t, p.PID, d.Frames)
			})
			var counted uint64
			for _, c := range drainAll(t, s) {
				counted += uint64(c.Samples)
			}
			assert.Check(t, counted == counters[Correlated]+counters[NoTrace]+counters[NoSlot],
				"drained %d samples, counters %v", counted, counters)
		})
	}
}

// A waiting reader ends when the sampler is closed.
func TestDeferredReaderEnds(t *testing.T) {
	testenv.NeedRoot(t)
	s := openSampler(t, SamplerOptions{})
	ended := make(chan error)
	go func() {
		_, err := s.Deferred().Read()
		ended <- err
	}()
	assert.NilError(t, s.deferred.Close())
	err := <-ended
	assert.Check(t, errors.Is(err, os.ErrClosed), "reading ended with %v", err)
}
