package sampling

import (
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

// Only who waits in the loop of a ForkJoinPool for work is idle, not who waits in work.
func TestIsIdle(t *testing.T) {
	const pool, park = "java.util.concurrent.ForkJoinPool.", "jdk.internal.misc.Unsafe.park"
	for _, c := range []struct {
		stack []profile.Frame
		want  bool
	}{
		{javaStack(park, pool+"awaitWork", pool+"runWorker", "java.util.concurrent.ForkJoinWorkerThread.run"), true},
		{javaStack("native", park, "java.util.concurrent.locks.LockSupport.park", pool+"awaitWork", pool+"runWorker"), true},
		{javaStack("void jdk.internal.misc.Unsafe.park(boolean, long)", "long "+pool+"awaitWork(java.lang.Object, int)",
			"void "+pool+"runWorker(java.lang.Object)"), true},
		{javaStack(park, "Shop.run", pool+"runWorker"), false},
		{javaStack(park, pool+"awaitWork", "Shop.run", pool+"runWorker"), false},
		{javaStack(park, pool+"awaitWork"), false},
		{javaStack(park, "com.example.ForkJoinPool.awaitWork", "com.example.ForkJoinPool.runWorker"), false},
		{nil, false},
	} {
		assert.Check(t, isIdle(c.stack) == c.want, "%v", c.stack)
	}
	native := profile.NewRuntimeFrame(profile.PythonFrame, profile.NewFunction(pool+"awaitWork", ""), 1)
	assert.Check(t, !isIdle([]profile.Frame{native, native}))
}

// A wait of an idle thread is not handed on, and counted.
func TestIdleIsNotHandedOn(t *testing.T) {
	s, p := &Sampling{counters: new(Counters)}, &program{sink: nil} // which would panic
	const pool = "java.util.concurrent.ForkJoinPool."
	sample := profile.Sample{TID: 7, TraceID: [16]byte{1}, Count: 1, Wait: &profile.Wait{State: profile.Futex, Sum: 3},
		Stack: &profile.Stack{Frames: javaStack(pool+"awaitWork", pool+"runWorker")}}
	s.handOver(p, &sample, time.Now())
	account := profile.Account{TID: 7, TraceID: [16]byte{1}}
	account.Times[profile.Futex].Sum = 5
	s.idle.takeFrom(p, &account)
	assert.Check(t, s.counters.WaitsIdle.Load() == 1 && account.Times[profile.Futex].Sum == 2, "%+v", account)
}

// What idle threads waited is taken out of the accounts of their contexts, as far as these have it, and out of no
// others; the rest is taken from the next one.
func TestIdleTimes(t *testing.T) {
	var idle idleTimes
	one, other := new(program), new(program)
	trace, transaction := [16]byte{1}, [8]byte{2}
	sample := func(context profile.ContextKind, state profile.ThreadState, sum time.Duration) *profile.Sample {
		return &profile.Sample{TID: 7, TraceID: trace, TransactionID: transaction, Context: context,
			Wait: &profile.Wait{State: state, Sum: sum}}
	}
	account := func(transaction [8]byte) (a profile.Account) {
		a = profile.Account{TID: 7, TraceID: trace, TransactionID: transaction}
		a.Times[profile.Futex] = profile.StateTimes{Sum: 10, Longest: 8, Count: 3}
		a.Times[profile.Runnable] = profile.StateTimes{Sum: 5, Longest: 5, Count: 1}
		return a
	}
	taken := func(p *program, a profile.Account) profile.Account {
		idle.takeFrom(p, &a)
		return a
	}
	idle.add(one, sample(0, profile.Futex, 4))
	idle.add(one, sample(0, profile.Futex, 9))
	idle.add(one, sample(0, profile.Runnable, 5))
	assert.Check(t, taken(other, account(transaction)) == account(transaction))
	assert.Check(t, taken(one, account([8]byte{})) == account([8]byte{}))
	want := account(transaction)
	want.Times = profile.Times{}
	assert.Check(t, taken(one, account(transaction)) == want)
	want = account(transaction)
	want.Times[profile.Futex] = profile.StateTimes{Sum: 7, Longest: 7, Count: 3}
	assert.Check(t, taken(one, account(transaction)) == want)
	assert.Check(t, taken(one, account(transaction)) == account(transaction) && len(idle.times) == 0)

	idle.add(one, sample(profile.OTelContext, profile.Futex, 10))
	assert.Check(t, taken(one, account([8]byte{})).Times[profile.Futex] == profile.StateTimes{})
	for i := range 3 * maxIdle {
		s := sample(0, profile.Futex, 1)
		s.TID = i
		idle.add(one, s)
		assert.Assert(t, len(idle.times) <= maxIdle)
	}
}
