package record

import (
	"testing"
	"time"

	"correlator/profile"
)

// stackOf is a stack of so many frames.
func stackOf(id profile.StackTraceID, frames int) *profile.Stack {
	return &profile.Stack{ID: id, Frames: make([]profile.Frame, frames)}
}

// What there is no room for is counted as lost, and what is known already needs none.
func TestAggregateLimits(t *testing.T) {
	process := new(Process)
	a := newAggregate()
	a.keyLimit, a.frameLimit = 6, 14 // half of them for each of two
	add := func(tid int, stack byte, samples uint64) bool {
		return a.add(process, &profile.Sample{
			TID: tid, Stack: stackOf(profile.StackTraceID{stack}, int(stack)), Count: samples,
			TraceID: [16]byte{byte(tid)}, At: time.Now(),
		})
	}
	if add(1, 4, 10_000) {
		t.Error("new before the beginning")
	}
	a.begin(time.Now())
	if !add(1, 4, 1) {
		t.Error("the first stack of all is not new")
	}
	if add(1, 4, 1) || add(2, 4, 1) {
		t.Error("a stack is new twice")
	}
	if add(1, 7, 10) { // 11 frames
		t.Error("a stack that is not counted is new")
	}
	add(1, 0, 100)
	if !add(0, 6, 1) { // all that there is room for, of this process
		t.Error("the second stack is not new")
	}
	add(3, 4, 1000)
	add(2, 4, 1)
	if p := a.progress(); p.Samples != 5 || p.WithTrace != 4 || p.Start.IsZero() || a.early != 10_000 {
		t.Errorf("%+v, and %d before", p, a.early)
	}
	a.name(thread{process, 2}, "second")
	a.name(thread{process, 2}, "renamed")
	a.name(thread{process, 9}, "never sampled")
	a.add(process, &profile.Sample{TID: 1, Thread: "first", Stack: stackOf(profile.StackTraceID{4}, 4),
		TraceID: [16]byte{1}, At: time.Now()})
	var recording Recording
	a.close(&recording)
	if len(recording.Samples) != 3 || len(recording.Stacks) != 2 || len(recording.Lost) != 2 ||
		recording.Lost[LostTooMany] != 1010 || recording.Lost["no_stack"] != 100 {
		t.Errorf("%+v", recording)
	}
	for tid, name := range map[int]string{1: "first", 2: "second"} {
		key := Key{Process: process, TID: tid, Thread: name, TraceID: [16]byte{byte(tid)},
			Stack: profile.StackTraceID{4}}
		if recording.Samples[key] != 2 {
			t.Errorf("%+v", recording.Samples)
		}
	}
	if add(5, 5, 1) || len(recording.Samples) != 3 {
		t.Error("counted after the end")
	}
	a.name(thread{process, 2}, "late")
}

// A process that has ever new stacks and transactions, or executes one program after the other,
// uses up what it has a share of, and leaves room for others.
func TestAggregateShares(t *testing.T) {
	a := newAggregate()
	a.keyLimit, a.frameLimit = 1000, 10_000
	begun := time.Now()
	a.begin(begun)
	greedy := []*Process{{PID: 1, StartTime: 5}, {PID: 1, StartTime: 5, Service: "executed"}}
	modest := []*Process{{PID: 2, StartTime: 5}, {PID: 1, StartTime: 6}}
	at := begun
	add := func(process *Process, n int, stack byte) {
		at = at.Add(time.Millisecond)
		a.add(process, &profile.Sample{
			TID: n, Stack: stackOf(profile.StackTraceID{stack, byte(n), byte(n >> 8)}, 10), Count: 1, At: at,
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
	failures := a.truncated()
	a.close(&recording)
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
