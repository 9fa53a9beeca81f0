package unwind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
)

// hostileKind is a worker that does what the user of a target says.
var hostileKind = worker.Kind{Name: "hostile", MemoryBytes: workerMemoryBytes, Serve: serveHostile}

func serveHostile(_ string, conn *worker.Conn) {
	for {
		message, fds, err := conn.ReceiveDescriptors()
		if err != nil {
			return
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		if conn.Send(beHostile(conn, message), -1) != nil {
			return
		}
	}
}

func beHostile(conn *worker.Conn, message []byte) []byte {
	op := message[0]
	var r synchronize
	if op != opSynchronize || json.Unmarshal(message[1:], &r) != nil {
		return append([]byte{op}, "{}"...)
	}
	tables := func(bucket byte, n int) {
		for range n {
			if conn.Send([]byte{opTable, bucket}, -1) != nil {
				return
			}
			if _, fds, err := conn.ReceiveDescriptors(); err == nil {
				for _, fd := range fds {
					unix.Close(fd)
				}
			}
		}
	}
	switch r.User {
	case "outcome":
		return []byte(`S{"Outcome":99}`)
	case "text":
		return []byte(`S{"Outcome":`)
	case "other":
		return []byte("F")
	case "long":
		return make([]byte, worker.MaxMessageBytes)
	case "tables":
		tables(support.StackDeltaBucketSmallest, maxTables+1)
	case "large table":
		tables(99, 1)
	case "memory":
		tables(support.StackDeltaBucketLargest, int(maxWorkerBytes/tableBytes(support.StackDeltaBucketLargest))+1)
	case "entries of no table":
		_ = conn.Send([]byte{opEntries, 0, 0, 0, 0}, -1)
	case "more entries than a table has", "half an entry", "no entries", "entries after the last":
		tables(support.StackDeltaBucketSmallest, 1)
		entries := map[worker.User][]int{
			"more entries than a table has": {sentBytes<<support.StackDeltaBucketSmallest + sentBytes},
			"half an entry":                 {sentBytes + sentBytes/2}, "no entries": {0},
			"entries after the last": {sentBytes, sentBytes},
		}[r.User]
		for _, n := range entries {
			if conn.Send(append([]byte{opEntries}, make([]byte, n)...), -1) == nil {
				_, _ = conn.Receive()
			}
		}
	case "descriptor":
		_ = conn.Send([]byte(`S{}`), 0)
	case "silent":
		time.Sleep(time.Hour)
	}
	return []byte(`S{}`)
}

// What a worker does that was taken over by a target costs that worker and that target.
func TestHostileWorker(t *testing.T) {
	shareEngine(t) // skips the test if something is missing
	var counters Counters
	e, err := open(t.Context(), testOptions(), &counters, hostileKind)
	assert.NilError(t, err)
	defer e.Close()
	_, err = e.Synchronize(t.Context(), Target{KernelPID: 1, Program: "honest"})
	assert.NilError(t, err)
	for i, c := range []struct {
		user    worker.User
		counter interface{ Load() uint64 }
	}{
		{"outcome", &counters.Nonsense}, {"text", &counters.Nonsense}, {"other", &counters.Nonsense},
		{"long", &counters.Nonsense}, {"tables", &counters.Nonsense}, {"large table", &counters.Nonsense},
		{"memory", &counters.Exhausted}, {"descriptor", &counters.Nonsense},
		{"entries of no table", &counters.Nonsense}, {"more entries than a table has", &counters.Nonsense},
		{"half an entry", &counters.Nonsense}, {"no entries", &counters.Nonsense},
		{"entries after the last", &counters.Nonsense}, {"silent", &counters.TimedOut},
	} {
		before := c.counter.Load()
		bad := Target{ID: procscan.ProcessID{PID: i}, KernelPID: uint32(i), Program: i, User: c.user}
		_, err := e.Synchronize(t.Context(), bad)
		assert.Check(t, errors.Is(err, ErrKilled), "%s: %v", c.user, err)
		assert.Check(t, c.counter.Load() == before+1, "%s is not counted: %+v", c.user, &counters)
		_, err = e.Synchronize(t.Context(), Target{KernelPID: 1000, Program: "honest"})
		assert.NilError(t, err, "after %s", c.user)
	}
	timedOut, served := counters.TimedOut.Load(), time.Duration(0)
	e.OnServed(func(_ worker.User, took time.Duration) { served = took })
	err = e.serve(t.Context(), "honest", nil, func() error {
		e.starved = time.Hour
		return nil
	})
	assert.Check(t, err == nil && served == 0, "%v, and %v are charged in which there was no CPU", err, served)
	good := Target{KernelPID: 1001, Program: "good", User: "good"}
	err = e.serve(t.Context(), good.User, &good, func() error { return e.kill(&good, worker.ErrStarved) })
	assert.Check(t, errors.Is(err, ErrKilled) && counters.TimedOut.Load() == timedOut+1 && served < killedTime,
		"one that got no CPU: %v, for which %v are charged", err, served)
	_, err = e.Synchronize(t.Context(), good)
	assert.Check(t, err, "it is left out since a worker got no CPU")
	testenv.Poll(t, deadline, "the workers to be reaped", func() bool { return e.Status().Unreaped == 0 })
}

// unableKind is a worker that refuses to start.
var unableKind = worker.Kind{Name: "unable", MemoryBytes: workerMemoryBytes, Serve: func(_ string, conn *worker.Conn) {
	if _, fds, err := conn.ReceiveDescriptors(); err == nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		_ = conn.Send([]byte(`H{"Failure":"a right is missing"}`), -1)
	}
}}

// A worker that refuses to start is for nobody's sake, and said to be what it is.
func TestUnableWorker(t *testing.T) {
	shareEngine(t) // skips the test if something is missing
	var counters Counters
	e, err := open(t.Context(), testOptions(), &counters, unableKind)
	assert.NilError(t, err)
	defer e.Close()
	_, err = e.Synchronize(t.Context(), Target{KernelPID: 1, Program: "honest"})
	assert.Check(t, errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrKilled), err)
	s := e.Status()
	assert.Check(t, strings.Contains(s.Failure, "a right is missing") && len(s.Quarantined) == 0, "%+v", s)
	if counters.Unable.Load() != 1 || counters.Ended.Load() != 0 || counters.Unavailable.Load() != 1 {
		t.Errorf("%d unable, %d ended, %d unavailable", counters.Unable.Load(), counters.Ended.Load(),
			counters.Unavailable.Load())
	}
	testenv.Poll(t, deadline, "the worker to be reaped", func() bool { return e.Status().Unreaped == 0 })
}

// silentKind is a worker that never answers.
var silentKind = worker.Kind{Name: "silent", MemoryBytes: workerMemoryBytes, Serve: func(_ string, conn *worker.Conn) {
	for {
		if _, _, err := conn.ReceiveDescriptors(); err != nil {
			return
		}
	}
}}

// Opening an engine ends with its context, wherever it is.
func TestOpenEnds(t *testing.T) {
	shareEngine(t) // skips the test if something is missing
	var counters Counters
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := openTested(ended, testOptions(), &counters, silentKind)
	assert.Check(t, errors.Is(err, context.Canceled), err)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := openTested(ctx, testOptions(), &counters, silentKind)
		result <- err
	}()
	testenv.Poll(t, deadline, "a worker", func() bool { return counters.Started.Load() == 1 })
	cancel()
	err = <-result
	assert.Check(t, errors.Is(err, context.Canceled) && !errors.Is(err, ErrKilled), err)
	n := counters.TimedOut.Load()
	assert.Check(t, n == 0, "%d workers were waited for", n)
}

// The frames of stacks arrive as they are, of as many stacks as there is room for; one stack has it.
func TestFramesAnswer(t *testing.T) {
	name := strings.Repeat("n", maxNameBytes)
	deep := func(frames int) (stack []Frame) {
		for i := range frames {
			function := name[:maxNameBytes-4] + fmt.Sprintf("%04d", i)
			stack = append(stack, Frame{Kind: JVMFrame, Function: function, Line: 7})
		}
		return stack
	}
	for what, c := range map[string]struct {
		stacks     [][]Frame
		fit, first int // stacks, and frames of the first
	}{
		"no frames":      {[][]Frame{nil, nil}, 2, 0},
		"small":          {[][]Frame{deep(3), {{Kind: NativeFrame, Address: 1 << 40}}, {{Kind: CutFrame}}}, 3, 3},
		"the same names": {[][]Frame{deep(100), deep(100), deep(100), deep(100)}, 4, 100},
		"one too many":   {[][]Frame{deep(100), deep(300)}, 1, 100},
		"one too large":  {[][]Frame{deep(maxFrames), deep(1)}, 1, 186},
		"many frames":    {[][]Frame{make([]Frame, maxFrames+1)}, 1, maxFrames},
	} {
		answer, added := newFramesAnswer(), 0
		span := func(i int) Span { return Span{uint32(i) + 1, 1<<32 - 1} }
		for added < len(c.stacks) && answer.add(Named{c.stacks[added], added%2 == 0, span(added)}) {
			added++
		}
		b := answer.message()
		got, err := decodeFrames(b, len(c.stacks))
		if err != nil || len(got) != added || added != c.fit || len(b) > maxStacksBytes || len(b) != answer.size {
			t.Fatalf("%s: %d of %d stacks arrive, in %d bytes, %v", what, len(got), added, len(b), err)
		}
		for i, stack := range got {
			whole, keep, around := c.stacks[i], i%2 == 0, span(i)
			if i == 0 && len(whole) > c.first { // asking for a part of it tells more
				whole, keep = append(slices.Clone(whole[:c.first-1]), Frame{Kind: CutFrame}), false
				around = Span{}
			}
			assert.Check(t, slices.Equal(stack.Frames, whole) && stack.Keep == keep && stack.Span == around,
				"%s: stack %d has %d frames, want %d, and is kept: %v", what, i, len(stack.Frames), len(whole), stack.Keep)
		}
	}
}

// Stacks are asked for as they are, as many as there is room for.
func TestFramesRequest(t *testing.T) {
	large := make([]uint64, maxWords)
	large[maxWords-1] = 1 << 63
	stacks := slices.Repeat([][]uint64{large, nil, {1, 2}}, 10)
	b := appendFramesRequest(nil, 1<<31, stacks)
	pid, got, err := decodeFramesRequest(b)
	assert.Assert(t, err == nil && pid == 1<<31 && len(b) <= maxStacksBytes && len(got) >= len(stacks)-4,
		"%d stacks of process %d in %d bytes: %v", len(got), pid, len(b), err)
	for i := range got {
		assert.Check(t, slices.Equal(got[i], stacks[i]), "stack %d has %d words", i, len(got[i]))
	}
	for size := range framesHead {
		_, _, err := decodeFramesRequest(b[:size])
		assert.Check(t, err != nil, "a request of %d bytes", size)
	}
	_, _, err = decodeFramesRequest(b[:len(b)-1])
	assert.Check(t, err != nil, "a request whose last stack is cut off")
}

// Frames are nonsense, an error, or within bounds.
func FuzzDecodeFrames(f *testing.F) {
	seed := newFramesAnswer()
	f.Add(seed.message())
	seed.add(Named{[]Frame{
		{Kind: NativeFrame, Address: 1 << 40}, {Kind: JVMFrame, Function: "a.b", SourceFile: "c", Line: 3},
		{Kind: CutFrame},
	}, true, Span{1, 2}})
	f.Add(seed.message())
	f.Fuzz(func(t *testing.T, b []byte) {
		stacks, err := decodeFrames(b, 3)
		if err != nil {
			return
		}
		answer := newFramesAnswer()
		for _, frames := range stacks {
			if !answer.add(frames) {
				return
			}
		}
		again, err := decodeFrames(answer.message(), len(stacks))
		same := func(x, y Named) bool { return x.Span == y.Span }
		assert.Assert(t, err == nil && slices.EqualFunc(again, stacks, same), "%d stacks, then %d: %v", len(stacks),
			len(again), err)
	})
}
