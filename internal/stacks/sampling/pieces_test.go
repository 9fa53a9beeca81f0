package sampling

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/profile"
)

// A thread that waits for a monitor, and looks at it now and then, has waited once, until somebody else has ended
// that. What only looks like that is apart: who ended it is not known.
func TestPieces(t *testing.T) {
	began := time.Now()
	trace, other := [16]byte{1}, [16]byte{2}
	stackOf := func(name string, line uint32) *profile.Stack {
		return &profile.Stack{Frames: []profile.Frame{{Address: 1},
			profile.NewRuntimeFrame(profile.JVMFrame, profile.NewFunction(name, "Shop.java"), line)}}
	}
	timer, thread := profile.Waker{Kind: profile.TimerWaker}, profile.Waker{Kind: profile.ThreadWaker, TID: 9}
	monitor := stackOf("Shop.buy", 42)
	// wait ends after some ms, with a time for a CPU at its end.
	wait := func(end, length, queue int, stack *profile.Stack, by profile.Waker) profile.Sample {
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		return profile.Sample{TID: 7, TraceID: trace, Count: 1, At: began.Add(ms(end)), Stack: stack,
			Wait: &profile.Wait{
				State: profile.Futex, Sum: ms(length + 1), Longest: ms(length), Queue: ms(queue), Waker: by}}
	}
	of := func(sample profile.Sample, change func(*profile.Sample)) profile.Sample {
		change(&sample)
		return sample
	}
	preempted := wait(80, 5, 0, monitor, profile.Waker{})
	preempted.Wait.State = profile.Runnable
	first, last := wait(64, 64, 0, monitor, timer), wait(100, 30, 5, monitor, thread)
	for what, c := range map[string]struct {
		waits []profile.Sample
		want  []int // how long the waits that are handed on were, in ms, negative: by nobody who is known
	}{
		"one": {[]profile.Sample{last}, []int{30}},
		"long": {[]profile.Sample{wait(1000, 1000, 0, monitor, timer), wait(2000, 1000, 0, monitor, timer),
			wait(3000, 1000, 0, monitor, timer), wait(3030, 30, 0, monitor, thread)}, []int{-3000, 30}},
		"two pieces": {[]profile.Sample{first, last}, []int{94}},
		"preempted":  {[]profile.Sample{first, preempted, last}, []int{5, 94}},
		"three pieces": {[]profile.Sample{first, wait(90, 25, 0, monitor, timer), wait(99, 9, 0, monitor, thread)},
			[]int{98}},
		"no other":  {[]profile.Sample{first}, []int{-64}},
		"elsewhere": {[]profile.Sample{first, wait(100, 30, 5, stackOf("Shop.buy", 43), thread)}, []int{-64, 30}},
		"later":     {[]profile.Sample{first, wait(110, 30, 0, monitor, thread)}, []int{-64, 30}},
		"another trace": {[]profile.Sample{first, of(last, func(s *profile.Sample) { s.TraceID = other })},
			[]int{-64, 30}},
		"another thread": {[]profile.Sample{first, of(last, func(s *profile.Sample) { s.TID++ })}, []int{30, -64}},
		"native":         {[]profile.Sample{wait(64, 64, 0, stackOf("Unsafe.park", 0), timer), last}, []int{64, 30}},
		"not a JVM's":    {[]profile.Sample{wait(64, 64, 0, &profile.Stack{}, timer)}, []int{64}},
	} {
		var held atomic.Int64
		p := pieces{count: &held}
		var over []profile.Sample
		for _, w := range c.waits {
			over = append(over, p.next(w)...)
		}
		over = append(over, p.takeOld(began.Add(64*time.Millisecond+pieceTime))...) // none is too old
		over = append(over, p.takeOld(began.Add(65*time.Millisecond+pieceTime))...)
		var got []int
		sum := time.Duration(0)
		for _, w := range over {
			length := int(w.Wait.Longest.Milliseconds())
			if w.Wait.Waker == (profile.Waker{}) && w.Wait.State == profile.Futex {
				length = -length
			}
			got = append(got, length)
			sum -= w.Wait.Sum
			assert.Check(t, w.Count == 1)
		}
		for _, w := range c.waits {
			sum += w.Wait.Sum
		}
		assert.Check(t, slices.Equal(got, c.want), "%s: %v", what, got)
		assert.Check(t, sum == 0 && held.Load() == 0, "%s: %v", what, sum)
	}
}

// No more pieces are held of a program than of so many threads.
func TestPiecesBound(t *testing.T) {
	p := pieces{count: new(atomic.Int64)}
	piece := profile.Sample{Count: 1, Stack: &profile.Stack{Frames: javaStack("Shop.buy")},
		Wait: &profile.Wait{State: profile.Futex, Waker: profile.Waker{Kind: profile.TimerWaker}}}
	over := 0
	for piece.TID = range maxPieces + 3 {
		over += len(p.next(piece))
	}
	assert.Check(t, over == 3 && len(p.takeOld(time.Time{})) == maxPieces && p.count.Load() == 0)
}

// What is held of a process that is closed, or when all sampling ends, is handed on.
func TestPiecesEnd(t *testing.T) {
	files, err := profile.NewFiles("/proc", 8)
	assert.NilError(t, err)
	s := &Sampling{counters: new(Counters), programs: make(map[bpf.Target]*program)}
	frames := javaStack("Shop.buy")
	for _, end := range []func(*inbox){func(*inbox) { s.endPieces(time.Time{}) }, s.endPiecesOf} {
		r := newReceiver(t, 1)
		p := &program{sampling: s, sink: r, inbox: r.inbox, space: profile.NewAddressSpace(files, probePace()),
			pieces: pieces{count: &s.pieces}}
		s.programs = map[bpf.Target]*program{p.number: p}
		piece := &profile.Sample{Count: 1, At: time.Now(),
			Stack: &profile.Stack{ID: profile.TraceID(frames), Frames: frames},
			Wait:  &profile.Wait{State: profile.Futex, Sum: 1, Waker: profile.Waker{Kind: profile.TimerWaker}},
		}
		s.handOver(p, piece, time.Now())
		assert.Check(t, len(r.waits) == 0 && s.pieces.Load() == 1)
		end(p.inbox)
		assert.Check(t, len(r.waits) == 1 && r.waits[0].Wait.Waker == profile.Waker{} && s.pieces.Load() == 0)
		s.handOver(p, piece, time.Now()) // that was named late
		assert.Check(t, len(r.waits) == 2 && s.pieces.Load() == 0)
	}
}
