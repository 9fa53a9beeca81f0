package sampling

import (
	"math"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/profile"
)

// A sample says in which span, by which thread and in which interval it was counted. One that was
// not counted in the kernel has its own time.
func TestSampleOrigin(t *testing.T) {
	for name, options := range map[string]bpf.SamplerOptions{
		"counted":            {ByThread: true, BySpan: true},
		"deferred":           {ByThread: true, BySpan: true, MaxCounts: 2},
		"counted, together":  {},
		"deferred, together": {MaxCounts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			options.SamplesPerSecond = 2000
			s := open(t, options)
			p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond, Gap: -1})
			r := newReceiver(t, 1<<20)
			stop := r.serve(s)
			s.start(p, r)
			s.poll("samples", func() bool { return s.outcome(process.OutcomeCorrelated) > 200 })
			s.end()
			stop()
			s.added(0)

			threads := p.Threads()[1:]
			ofTrace := make(map[[16]byte]int)
			seen := make(map[int]bool)
			for key := range r.samples {
				var span demo.SpanID
				if options.BySpan {
					span = demo.TraceID(key.TraceID).SpanID()
				}
				known := slices.ContainsFunc(threads, func(thread demo.Thread) bool {
					return thread.TID == key.TID && thread.Name == key.Thread
				})
				assert.Check(t, key.SpanID == span && known == options.ByThread &&
					(known || key.TID == 0 && key.Thread == ""),
					"span %v, threads %+v: %+v", span, threads, key)
				if tid, known := ofTrace[key.TraceID]; known && tid != key.TID {
					t.Errorf("trace of threads %d and %d", tid, key.TID)
				}
				ofTrace[key.TraceID] = key.TID
				seen[key.TID] = true
			}
			assert.Check(t, !options.ByThread || len(seen) == 2, "samples of threads %v", seen)
			verifyIntervals(t, s, r)
		})
	}
}

// verifyIntervals checks, after the end, which samples were counted in intervals, and that these
// follow each other.
func verifyIntervals(t *testing.T, s *sampled, r *receiver) {
	t.Helper()
	var drained []interval
	var samples uint64
	for counted, n := range r.counted {
		drained = append(drained, counted)
		samples += n
	}
	if samples != s.kernel(bpf.Correlated) || r.alone != s.kernel(bpf.TableFull) {
		t.Errorf("%d samples in intervals, of %d, and %d alone, of %d", samples, s.kernel(bpf.Correlated), r.alone,
			s.kernel(bpf.TableFull))
	}
	all := samples + r.alone
	assert.Check(t, r.outside <= all/2, "%d samples of %d were taken outside their interval", r.outside, all)
	slices.SortFunc(drained, func(a, b interval) int { return a.start.Compare(b.start) })
	met := 0
	for i, now := range drained {
		if !now.start.Before(now.end) || now.start.Before(s.opened) || i > 0 && now.start.Before(drained[i-1].end) {
			t.Errorf("interval %d of %v", i, drained)
		}
		if i > 0 && now.start.Equal(drained[i-1].end) {
			met++
		}
	}
	if drains := s.counters.Drains.Load(); uint64(len(drained)) > drains || met == 0 {
		t.Errorf("%d intervals of %d drains, %d of which begin where another ends", len(drained), drains, met)
	}
}

// A stack of several threads is named once, also by thread.
func TestThreadsShareNames(t *testing.T) {
	s := open(t, bpf.SamplerOptions{ByThread: true})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := newReceiver(t, 1<<20)
	program := s.start(p, r)
	s.poll("pending samples", func() bool { _, pending := r.sum(); return pending > 0 })
	assert.NilError(t, program.space.Update(time.Now(), program.memory))
	s.end()
	h := r.inbox.take()[0]
	before := s.stacks.names.Metrics()
	for tid := range 3 {
		h.sample.TID = tid
		taken := bpf.Now()
		count := bpf.Count{
			Stack: h.key, TID: tid, TraceID: h.sample.TraceID, TransactionID: h.sample.TransactionID, First: taken,
			Last:    taken,
			Samples: 1,
		}
		s.handleCount(&count, s.clock.now())
	}
	after := s.stacks.names.Metrics()
	named, known := after.Inserts-before.Inserts, after.Hits-before.Hits
	assert.Check(t, named <= 1 && named+known == 3, "named %d times, and known %d times", named, known)
}

// A sample has the frames of its stack however full the store is, and however it came.
func TestStackWhenStoreIsFull(t *testing.T) {
	for name, options := range map[string]bpf.SamplerOptions{"counted": {}, "deferred": {MaxCounts: 1}} {
		t.Run(name, func(t *testing.T) {
			p := demo.Start(t, demo.Options{Busy: 2, Manual: true}) // counts are few, and find a place
			p.Begin(1)
			p.Begin(2)
			s := open(t, options)
			var err error
			s.stacks.store, err = profile.NewStore(1, 1<<16)
			assert.NilError(t, err)
			r := newReceiver(t, 1<<20) // which checks the frames
			stop := r.serve(s)
			s.start(p, r)
			s.poll("samples", func() bool { return s.outcome(process.OutcomeCorrelated) > 100 })
			if options.MaxCounts > 0 {
				s.poll("a full table", func() bool { return s.kernel(bpf.TableFull) > 0 })
			}
			s.poll("a full store", func() bool { return s.stacks.store.Stats().EvictedFull > 0 })
			s.end()
			stop()
			deferred := s.kernel(bpf.TableFull)
			assert.Check(t, (deferred > 0) == (options.MaxCounts > 0), "%d samples found no place", deferred)
			s.added(0)
			if samples, _ := r.sum(); samples != s.outcome(process.OutcomeCorrelated) {
				t.Errorf("%d samples correlated, %d handed over", s.outcome(process.OutcomeCorrelated), samples)
			}
		})
	}
}

// A sample says whether the engine unwound its program when it was taken, whenever it is drained, also where it knows
// nothing of the innermost code; and the end of its chain is marked by that.
func TestSampleServed(t *testing.T) {
	files, err := profile.NewFiles("/proc", 1)
	assert.NilError(t, err)
	p := &program{space: profile.NewAddressSpace(files, probePace())}
	check := func(at uint64, want bool) {
		t.Helper()
		sample := p.newSample(&bpf.Count{First: at}, instant{})
		wait := p.newWait(&bpf.Walk{Time: at}, instant{})
		name := new(stacks).rawStack(&pendingSample{program: p, sample: wait})
		assert.Check(t, sample.Served == want && wait.Served == want && name.ends == want && !sample.Unwound,
			"%+v, %+v, %+v", sample, wait, name)
	}
	check(5, false)
	for from := uint64(10); from < 50; from += 20 { // twice, with a pause between
		until := from + 10
		p.setOn(true, from)
		p.setOn(true, from+1) // as it was
		check(from, false)
		check(from+1, true)
		check(math.MaxUint64-1, true)
		p.setOn(false, until)
		p.setOn(false, until+1)
		check(until-1, true)
		check(until, false)
	}
	check(19, true) // before the last pause
	check(25, false)
	p.setOn(true, 60)
	p.setOn(false, 70)
	check(19, false) // so long ago that nobody asks
}
