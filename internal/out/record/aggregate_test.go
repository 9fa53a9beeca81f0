package record

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/share"
	"correlator/internal/out/keep"
	"correlator/procscan"
	"correlator/profile"
)

// stackOf is a stack of so many frames.
func stackOf(id profile.StackTraceID, frames int) *profile.Stack {
	return &profile.Stack{ID: id, Frames: make([]profile.Frame, frames)}
}

// limitFrames bounds the frames of all processes, when one has them all.
func (a *aggregate) limitFrames(process *Process, limit int) {
	used := a.frames.Used()
	a.frames = share.NewBudget[procscan.ProcessID](limit)
	a.frames.Take(process.Identity(), used)
}

// Functions take room: each once, whatever stacks it is in.
func TestAggregateFunctions(t *testing.T) {
	function := profile.NewFunction(strings.Repeat("f", 3*frameBytes), strings.Repeat("s", 7*frameBytes-functionBytes))
	stack := func(id byte, f *profile.Function) *profile.Stack {
		frames := []profile.Frame{profile.NewJVMFrame(f, 1), profile.NewJVMFrame(f, 2), {Address: 1}}
		return &profile.Stack{ID: profile.StackTraceID{id}, Frames: frames}
	}
	a := newAggregate()
	a.begin(time.Now())
	process := new(Process)
	add := func(s *profile.Stack) {
		a.add(process, &profile.Sample{Stack: s, Count: 1, At: time.Now()})
	}
	for i, want := range []int{13, 16, 19} { // ten frames' worth, and three frames each
		if add(stack(byte(i+1), function)); a.frames.Used() != want {
			t.Errorf("%d held, want %d", a.frames.Used(), want)
		}
	}
	again := *function
	a.limitFrames(process, 44) // half of what is left is this process's: not another such stack
	if add(stack(4, &again)); a.frames.Used() != 19 || a.lost[LostTooMany] != 1 || len(a.functions) != 1 {
		t.Errorf("%d held, %v lost, %d functions", a.frames.Used(), a.lost, len(a.functions))
	}
	if add(stack(5, function)); a.frames.Used() != 22 || a.lost[LostTooMany] != 1 {
		t.Errorf("%d held, %v lost", a.frames.Used(), a.lost)
	}
}

// Of what is counted of a process, it is said how much was walked by frame pointers, and why.
func TestAggregateWalked(t *testing.T) {
	a := newAggregate()
	a.selection = Selection{Trace: "01"}
	start := time.Now()
	a.begin(start)
	one, other := &Process{PID: 1}, &Process{PID: 2}
	add := func(p *Process, count uint64, unwound, served bool, trace byte, at time.Time) {
		a.add(p, &profile.Sample{Stack: stackOf(profile.StackTraceID{1}, 1), TraceID: [16]byte{trace}, Count: count,
			At: at, Unwound: unwound, Served: served})
	}
	add(one, 1, false, false, 1, start)
	add(one, 2, true, true, 1, start)
	add(one, 4, false, true, 1, start)
	add(one, 8, false, true, 1, start.Add(-1)) // before
	add(one, 16, false, true, 2, start)        // not selected
	add(other, 32, false, false, 1, start)
	add(other, 64, false, true, 1, start)
	var r Recording
	a.close(&r)
	assert.DeepEqual(t, []Walks{r.Walks[one], r.Walks[other]}, []Walks{{Served: 6, Unwound: 2}, {Served: 64}})
	for engine, want := range map[bool][2]uint64{false: {0, 0}, true: {101, 68}} {
		r.Engine = engine
		walked, unknown := r.Walked()
		assert.Check(t, [2]uint64{walked, unknown} == want, "%d, %d", walked, unknown)
	}
}

// Waits are added up by what was waited for and who ended it, if somebody asked for them; they are no samples, and
// those that there is no room for are counted apart.
func TestAggregateWaits(t *testing.T) {
	process := new(Process)
	add := func(a *aggregate, tid int, w profile.Wait) bool {
		return a.add(process, &profile.Sample{Stack: stackOf(profile.StackTraceID{1}, 1), TraceID: [16]byte{1},
			TID:    tid,
			Thread: "worker", Count: 2, At: time.Now(), Wait: &w})
	}
	a := newAggregate()
	a.begin(time.Now())
	var r Recording
	assert.Check(t, !add(a, 1, profile.Wait{}))
	a.close(&r)
	assert.Check(t, r.Waits == nil && r.Accounts == nil && len(r.Samples) == 0 && r.LostWaits == 0, "%+v", r)

	a = newAggregate()
	a.waits, a.accounts = make(map[WaitKey]profile.StateTimes), make(map[thread]*ThreadAccount)
	add(a, 1, profile.Wait{}) // before
	a.begin(time.Now())
	wait := profile.Wait{State: profile.Disk, Sum: 5, Longest: 3, Path: strings.Repeat("p", 1000),
		Waker: profile.Waker{Kind: profile.ThreadWaker, Thread: strings.Repeat("t", 1000),
			Service: strings.Repeat("s", 1000)}}
	assert.Check(t, add(a, 1, wait), "a stack is not new")
	assert.Check(t, !add(a, 1, wait), "a stack is new again")
	wait.State = profile.Net
	add(a, 1, wait)
	used := a.waitFrames.Used()
	assert.Check(t, used > 2*framesIn(waitBytes+3*maxTextBytes) && a.frames.Used()+a.keys.Used() == 0, "%d frames",
		used)
	a.waitFrames = share.NewBudget[procscan.ProcessID](2*used + 2) // half of what is left is this process's
	a.waitFrames.Take(process.Identity(), used)
	add(a, 2, wait)
	add(a, 1, wait)
	a.selection = Selection{Trace: "ff"}
	add(a, 1, wait)
	a.close(&r)
	assert.Check(t, r.Accounts != nil && r.LostWaits == 2 && len(r.Lost) == 0 && len(r.Waits) == 2 &&
		len(r.Samples) == 0 && r.Unselected == 0 && len(a.truncated) == 1, "%+v", r)
	for key, of := range r.Waits {
		assert.Check(t, of == profile.StateTimes{Sum: 10, Longest: 3, Count: 4} && key.Thread == "worker" &&
			len(key.Path) == maxTextBytes && len(key.Waker.Thread) == maxTextBytes &&
			len(key.Waker.Service) == maxTextBytes,
			"%+v, %+v", key, of)
	}
}

// What there is no room for is counted as lost, and what is known already needs none.
func TestAggregateLimits(t *testing.T) {
	process := new(Process)
	a := newAggregate()
	a.keys = share.NewBudget[procscan.ProcessID](6) // half of them for each of two
	a.frames = share.NewBudget[procscan.ProcessID](20)
	add := func(tid int, stack byte, samples uint64) bool {
		return a.add(process, &profile.Sample{
			TID: tid, Stack: stackOf(profile.StackTraceID{stack}, int(stack)), Count: samples,
			TraceID: [16]byte{byte(tid)}, At: time.Now(),
		})
	}
	assert.Check(t, !add(1, 4, 10_000), "new before the beginning")
	a.begin(time.Now())
	assert.Check(t, add(1, 4, 1), "the first stack of all is not new")
	assert.Check(t, !add(1, 4, 1) && !add(2, 4, 1), "a stack is new twice")
	// 11 frames
	assert.Check(t, !add(1, 7, 10), "a stack that is not counted is new")
	add(1, 0, 100)
	// all that there is room for, of this process
	assert.Check(t, add(0, 6, 1), "the second stack is not new")
	add(3, 4, 1000)
	add(2, 4, 1)
	if p := a.progress(); p.Samples != 5 || p.WithTrace != 4 || p.Start.IsZero() || a.early != 10_000 {
		t.Errorf("%+v, and %d before", p, a.early)
	}
	now := time.Now()
	for _, s := range []struct {
		name string
		at   time.Duration
	}{{"just begun", 1}, {"second", 2}, {"creator", 0}, {"", 3}} {
		a.add(process, &profile.Sample{TID: 2, Thread: s.name, Stack: stackOf(profile.StackTraceID{4}, 4),
			TraceID: [16]byte{2}, At: now.Add(s.at)})
	}
	a.add(process, &profile.Sample{TID: 1, Thread: "first", Stack: stackOf(profile.StackTraceID{4}, 4),
		TraceID: [16]byte{1}, At: time.Now()})
	var recording Recording
	a.close(&recording)
	assert.Check(t, len(recording.Samples) == 3 && len(recording.Stacks) == 2 && len(recording.Lost) == 2 &&
		recording.Lost[LostTooMany] == 1010 && recording.Lost["no_stack"] == 100,
		"%+v", recording)
	for tid, name := range map[int]string{1: "first", 2: "second"} {
		key := Key{Process: process, TID: tid, Thread: name, TraceID: [16]byte{byte(tid)},
			Stack: profile.StackTraceID{4}}
		assert.Check(t, recording.Samples[key] == 2, "%+v", recording.Samples)
	}
	assert.Check(t, !add(5, 5, 1) && len(recording.Samples) == 3, "counted after the end")
}

// A process that has ever new stacks and transactions, or executes one program after the other,
// uses up what it has a share of, and leaves room for others.
func TestAggregateShares(t *testing.T) {
	a := newAggregate()
	a.keys, a.frames = share.NewBudget[procscan.ProcessID](1000), share.NewBudget[procscan.ProcessID](10_000)
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
	failures := a.failures()
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

// Samples with other attributes are others, and attributes take room.
func TestAggregateAttributes(t *testing.T) {
	process := new(Process)
	a := newAggregate()
	a.begin(time.Now())
	add := func(value string) {
		a.add(process, &profile.Sample{
			Stack: stackOf(profile.StackTraceID{1}, 1), Count: 1, At: time.Now(),
			Attributes: profile.NewAttributes([]profile.Attribute{{Key: "k", Value: value}}),
		})
	}
	for range 2 {
		add("a")
		add(strings.Repeat("b", 2*frameBytes-5)) // as long as two frames
	}
	if a.frames.Used() != 1+1+2 || len(a.samples) != 2 {
		t.Errorf("%d held, %d keys", a.frames.Used(), len(a.samples))
	}
	a.limitFrames(process, 10) // this process may have 5
	if add(strings.Repeat("c", 2*frameBytes-5)); a.frames.Used() != 4 || a.lost[LostTooMany] != 1 {
		t.Errorf("%d held, %v lost", a.frames.Used(), a.lost)
	}
	if add("c"); a.frames.Used() != 5 || a.lost[LostTooMany] != 1 {
		t.Errorf("%d held, %v lost", a.frames.Used(), a.lost)
	}
	var recording Recording
	a.close(&recording)
	key := Key{Process: process, Stack: profile.StackTraceID{1},
		Attributes: profile.NewAttributes([]profile.Attribute{{Key: "k", Value: "a"}})}
	assert.Check(t, recording.Samples[key] == 2, "%+v", recording.Samples)
	assert.Check(t, len(recording.Samples) == 3, "%+v", recording.Samples)
}

// Of when something was, no more is kept than a picture can show: what took longest is, and what was all the time.
func TestAggregateMoments(t *testing.T) {
	a := newAggregate()
	a.timed, a.waits = true, make(map[WaitKey]profile.StateTimes)
	process, start := new(Process), time.Now()
	a.begin(start)
	add := func(at int, wait *profile.Wait) {
		a.add(process, &profile.Sample{TID: 1, Thread: "main", Stack: stackOf(profile.StackTraceID{1}, 1), Count: 1,
			At: start.Add(time.Duration(at)), Wait: wait})
	}
	for i := range 5 * maxMoments {
		add(i, nil)
		if i == 2*maxMoments {
			add(i, &profile.Wait{State: profile.Net, Sum: 8 * time.Hour, Longest: time.Hour, Queue: time.Second})
			add(i, &profile.Wait{State: profile.Net, Sum: time.Second}) // it is not known how long each was
		}
	}
	assert.Check(t, len(a.moments) < 2*maxMoments, "%d", len(a.moments))
	r := new(Recording)
	a.close(r)
	key := Key{Process: process, TID: 1, Thread: "main", Stack: profile.StackTraceID{1}}
	samples, waits := r.Moments[WaitKey{Key: key}], r.Moments[WaitKey{Key: key, State: profile.Net}]
	assert.Check(t, len(waits) == 1 && len(samples) == maxMoments-1, "%d, %d", len(waits), len(samples))
	end := start.Add(2*maxMoments - time.Second).UnixNano()
	assert.DeepEqual(t, waits[0], keep.Moment{First: end - int64(time.Hour), Last: end, Count: 1,
		Sum: int64(8 * time.Hour)})
	early := 0
	for _, m := range samples {
		if m.First < start.Add(5*maxMoments/2).UnixNano() {
			early++
		}
	}
	assert.Check(t, early > maxMoments/3 && early < maxMoments*2/3, "%d of %d", early, len(samples))
}
