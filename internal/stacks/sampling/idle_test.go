package sampling

import (
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

func javaStack(names ...string) (frames []profile.Frame) {
	for _, name := range names {
		if name == "native" {
			frames = append(frames, profile.NewCutFrame())
			continue
		}
		frames = append(frames, profile.NewRuntimeFrame(profile.JVMFrame, profile.NewFunction(name, ""), 1))
	}
	return frames
}

// A wait of an idle thread is not handed on, and counted.
func TestIdleIsNotHandedOn(t *testing.T) {
	s, p := &Sampling{counters: new(Counters)}, &program{sink: nil} // which would panic
	const pool = "java.util.concurrent.ForkJoinPool."
	sample := profile.Sample{TID: 7, TraceID: [16]byte{1}, Count: 1,
		Wait:  &profile.Wait{State: profile.Futex, Sum: 30, Longest: 3},
		Stack: &profile.Stack{Frames: javaStack(pool+"awaitWork", pool+"runWorker")}}
	for range maxIdle + 2 {
		s.handOver(p, &sample, time.Now())
	}
	idle := s.counters.WaitsIdle.Load()
	assert.Check(t, idle == maxIdle+2 && len(p.idle.waits) == maxIdle && s.counters.WaitsIdleLate.Load() == 2)
}

// blind is a sink that only takes.
type blind struct{ Sink }

func (blind) Sampled(profile.Sample) {}
func (blind) Waited(profile.Sample)  {}

// A stack that is cut is counted, of a wait apart from samples.
func TestWaitsCut(t *testing.T) {
	files, err := profile.NewFiles("/proc", 8)
	assert.NilError(t, err)
	s := &Sampling{counters: new(Counters)}
	p := &program{sink: blind{}, inbox: newInbox(new(atomic.Bool), 0),
		space: profile.NewAddressSpace(files, probePace())}
	wait := &profile.Wait{State: profile.Futex, Sum: 30, Longest: 3}
	for _, sample := range []profile.Sample{
		{Count: 1, Stack: &profile.Stack{Cut: true}}, {Count: 1, Stack: &profile.Stack{}},
		{Count: 2, Stack: &profile.Stack{Cut: true}, Wait: wait}, {Count: 4, Stack: &profile.Stack{}, Wait: wait},
	} {
		s.handOver(p, &sample, time.Now())
	}
	assert.Check(t, s.counters.Cut.Load() == 1 && s.counters.WaitsCut.Load() == 2)
}

// The walked waits of idle threads are taken out of the account that has them, and out of no other: not of another
// thread, transaction or time. Those of which the account came before are told.
func TestIdleWaits(t *testing.T) {
	trace, transaction, began := [16]byte{1}, [8]byte{2}, time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	account := func() (a profile.Account) {
		a = profile.Account{TID: 7, TraceID: trace, TransactionID: transaction, First: at(10), Last: at(20)}
		a.Times[profile.Futex] = profile.StateTimes{Sum: 10, Longest: 8, Count: 3}
		return a
	}
	wait := func(ended int) *profile.Sample {
		return &profile.Sample{TID: 7, TraceID: trace, TransactionID: transaction, At: at(ended),
			Wait: &profile.Wait{State: profile.Futex, Sum: 100, Longest: 4}}
	}
	for what, c := range map[string]struct {
		change     func(*profile.Sample, *profile.Account)
		left, late int
		sum        time.Duration
	}{
		"in it":               {func(*profile.Sample, *profile.Account) {}, 0, 0, 6},
		"at its end":          {func(s *profile.Sample, _ *profile.Account) { s.At = at(20) }, 0, 0, 6},
		"after it":            {func(s *profile.Sample, _ *profile.Account) { s.At = at(21) }, 1, 0, 10},
		"before it":           {func(s *profile.Sample, _ *profile.Account) { s.At = at(9) }, 0, 1, 10},
		"another thread":      {func(s *profile.Sample, _ *profile.Account) { s.TID = 8 }, 1, 0, 10},
		"another trace":       {func(s *profile.Sample, _ *profile.Account) { s.TraceID[1] = 1 }, 1, 0, 10},
		"another transaction": {func(s *profile.Sample, _ *profile.Account) { s.TransactionID[1] = 1 }, 1, 0, 10},
		"longer than all":     {func(s *profile.Sample, _ *profile.Account) { s.Wait.Longest = 11 }, 0, 1, 10},
		"a whole trace": {func(s *profile.Sample, a *profile.Account) {
			s.Context, a.TransactionID = profile.OTelContext, [8]byte{}
		}, 0, 0, 6},
	} {
		var idle idleWaits
		s, a := wait(15), account()
		c.change(s, &a)
		idle.add(s)
		late := idle.takeFrom(&a)
		of := a.Times[profile.Futex]
		assert.Check(t, late == c.late && len(idle.waits) == c.left && of.Sum == c.sum, "%s: %d, %+v", what, late, of)
		assert.Check(t, (of == profile.StateTimes{Sum: 6, Longest: 6, Count: 2}) == (c.sum == 6), "%s: %+v", what, of)
	}
}
