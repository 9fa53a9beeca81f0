package profile

import (
	"testing"

	"gotest.tools/v3/assert"
)

// What a JVM's thread waited for is told by what it called, and by who woke it; a thread of another process is no
// collector of its own.
func TestKindOfWait(t *testing.T) {
	frames := func(name string) []Frame {
		return []Frame{{Address: 1}, NewInlinedFrame(), NewJVMFrame(NewFunction(name, ""), 1)}
	}
	const pool = "java.util.concurrent.ThreadPoolExecutor."
	idle := append(frames(pool+"getTask"), frames(pool+"runWorker")...)
	by := func(pid int, thread string) Waker { return Waker{Kind: ThreadWaker, PID: pid, Thread: thread} }
	for _, test := range []struct {
		state  ThreadState
		frames []Frame
		waker  Waker
		want   WaitKind
	}{
		{Futex, frames("java.lang.Thread.sleep"), Waker{}, "sleep"},
		{Futex, frames("java.lang.Thread.sleepNanos0"), by(7, "main"), "sleep"}, // which has interrupted it
		{Futex, frames("java.lang.Thread.sleep"), by(7, "VM Thread"), "gc"},     // where it has slept
		{Futex, frames("java.lang.Thread.join"), Waker{}, "lock"},
		{Futex, frames("Shop.sort"), by(7, "VM Thread"), "gc"},
		{Futex, frames("Shop.sort"), by(7, "G1 Main Marker"), "gc"},
		{Futex, frames("Shop.sort"), by(8, "VM Thread"), "lock"},
		{Futex, frames("Shop.sort"), by(7, "my VM Thread"), "lock"},
		{Futex, frames("Shop.sort"), Waker{Kind: TimerWaker, PID: 7, Thread: "VM Thread"}, "lock"},
		{Futex, []Frame{{Address: 1}}, by(7, "VM Thread"), "lock"},
		{Net, frames("Shop.sort"), by(7, "VM Thread"), "net"},
		{Futex, idle, Waker{}, "idle"}, {Poll, idle, Waker{}, "idle"}, {Sleep, idle, Waker{}, "idle"},
		{Futex, idle, by(7, "VM Thread"), "gc"}, {Runnable, idle, Waker{}, "runnable"}, {Disk, idle, Waker{}, "disk"},
		{Sleep, nil, Waker{}, "sleep"}, {Throttled, nil, Waker{}, "throttled"}, {Other, nil, Waker{}, "other"},
	} {
		got := (&Wait{State: test.state, Waker: test.waker}).Kind(7, test.frames)
		assert.Check(t, got == test.want, "%+v is %s", test, got)
	}
}

// Names of kinds of wakers are read as they are written; others are an error.
func TestWakerKinds(t *testing.T) {
	for kind := range numWakerKinds {
		text, err := kind.MarshalText()
		var got WakerKind
		assert.Check(t, err == nil && got.UnmarshalText(text) == nil && got == kind, "%s: %v, %v", text, got, err)
	}
	assert.Check(t, new(WakerKind).UnmarshalText([]byte("x")) != nil)
}
