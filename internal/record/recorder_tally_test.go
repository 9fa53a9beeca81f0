package record

import (
	"testing"
	"time"

	"correlator/internal/sampling"
	"correlator/profile"
)

// What there is no room for is counted as lost, and what is known already needs none.
func TestTallyLimits(t *testing.T) {
	process := new(Process)
	frames := func(id profile.StackTraceID) ([]profile.Frame, bool) { return make([]profile.Frame, id[0]), id[0] != 0 }
	add := func(tally *tally, tid int, stack byte, samples uint64) news {
		return tally.add(process, &sampling.Sample{TID: tid, Stack: profile.StackTraceID{stack}, Samples: samples, TraceID: [16]byte{byte(tid)}, At: time.Now()})
	}
	tally := newTally(frames)
	tally.keyLimit, tally.frameLimit = 6, 14 // half of them for each of two
	if n := add(tally, 1, 4, 10_000); n.thread || n.frames != nil {
		t.Errorf("before the beginning, %+v", n)
	}
	tally.begin(time.Now())
	if n := add(tally, 1, 4, 1); !n.thread || len(n.frames) != 4 {
		t.Errorf("the first sample of all is news, not %+v", n)
	}
	if n := add(tally, 1, 4, 1); n.thread || n.frames != nil {
		t.Errorf("nothing new is %+v", n)
	}
	if n := add(tally, 2, 4, 1); !n.thread || n.frames != nil {
		t.Errorf("another thread with the same stack is %+v", n)
	}
	add(tally, 1, 7, 10) // 11 frames
	add(tally, 1, 0, 100)
	add(tally, 0, 6, 1) // all that there is room for, of this process
	add(tally, 3, 4, 1000)
	add(tally, 2, 4, 1)
	if p := tally.progress(); p.Samples != 5 || p.WithTrace != 4 || p.Start.IsZero() || tally.early != 10_000 {
		t.Errorf("%+v, and %d before", p, tally.early)
	}
	tally.name(thread{process, 2}, "second")
	var recording Recording
	tally.close(&recording)
	if len(recording.Samples) != 3 || len(recording.Stacks) != 2 || len(recording.Lost) != 2 ||
		recording.Lost[LostTooMany] != 1010 || recording.Lost["no_stack"] != 100 {
		t.Errorf("%+v", recording)
	}
	key := Key{Process: process, TID: 2, Thread: "second", TraceID: [16]byte{2}, Stack: profile.StackTraceID{4}}
	if recording.Samples[key] != 2 {
		t.Errorf("%+v", recording.Samples)
	}
	if n := add(tally, 5, 5, 1); n.thread || n.frames != nil || len(recording.Samples) != 3 {
		t.Error("counted after the end")
	}
	tally.name(thread{process, 2}, "late")
}

// A process that has ever new stacks and transactions, or executes one program after the other, uses up what
// it has a share of, and leaves room for others.
func TestTallyShares(t *testing.T) {
	tally := newTally(func(profile.StackTraceID) ([]profile.Frame, bool) { return make([]profile.Frame, 10), true })
	tally.keyLimit, tally.frameLimit = 1000, 10_000
	begun := time.Now()
	tally.begin(begun)
	greedy := []*Process{{PID: 1, StartTime: 5}, {PID: 1, StartTime: 5, Service: "executed"}}
	modest := []*Process{{PID: 2, StartTime: 5}, {PID: 1, StartTime: 6}}
	at := begun
	add := func(process *Process, n int, stack byte) {
		at = at.Add(time.Millisecond)
		tally.add(process, &sampling.Sample{
			TID: n, Stack: profile.StackTraceID{stack, byte(n), byte(n >> 8)}, Samples: 1, At: at,
		})
	}
	for n := range 2000 {
		add(greedy[n%2], n, 1)
	}
	for n := range 100 {
		for i, process := range modest {
			add(process, n, byte(2+i))
		}
	}
	var recording Recording
	failures := tally.truncated()
	tally.close(&recording)
	counted := make(map[int]int)
	for key := range recording.Samples {
		counted[key.Process.PID+int(key.Process.StartTime)]++
	}
	if counted[6] != 500 || counted[7] != 200 || recording.Lost[LostTooMany] != 1500 {
		t.Errorf("counted %v, lost %v", counted, recording.Lost)
	}
	if len(failures) != 1 || failures[0].PID != 1 || !failures[0].Since.Equal(begun.Add(501*time.Millisecond)) {
		t.Errorf("failures %v", failures)
	}
}
