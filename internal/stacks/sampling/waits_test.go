package sampling

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// openWaiting opens one that keeps accounts.
func openWaiting(t *testing.T, options Options) *sampled {
	t.Helper()
	options.Waits = true
	s := openWith(t, options)
	if status := s.Waits(); !status.Kept {
		testenv.Missing(t, status.Error)
	}
	return s
}

// Accounts come to the sink of their program, at the times that they are of; those of a program that is not
// sampled any more are counted.
func TestAccounts(t *testing.T) {
	s := openWaiting(t, Options{})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := newReceiver(t, 1<<20)
	s.start(p, r)
	began := time.Now()
	waited := p.WaitIn(1, "pipe", time.Millisecond)
	ended := time.Now()
	var got profile.Account
	s.poll("an account", func() (whole bool) {
		got, whole = r.account(waited.TraceID)
		return whole
	})
	of := got.Times[profile.Pipe]
	assert.Check(t, got.TID == waited.TID && got.TransactionID == waited.TransactionID && of.Count == 1 &&
		of.Sum == of.Longest && of.Sum > 0 && of.Sum <= waited.Waited, "%v: %+v", waited.Waited, got)
	assert.Check(t, got.First.After(began) && !got.Last.Before(got.First) && got.Last.Before(ended),
		"%v to %v, in %v to %v", got.First, got.Last, began, ended)
	s.forget(r.inbox)
	p.WaitIn(1, "pipe", time.Millisecond)
	s.poll("an account of nobody", func() bool { return s.counters.AccountsUnknown.Load() > 0 })
}

// account returns that of a trace, and whether it is whole: the thread has come to the transaction, and has left it.
func (r *receiver) account(trace demo.TraceID) (sum profile.Account, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accounts {
		if a.TraceID == trace {
			first := sum.First
			times := sum.Times
			if sum = a; !first.IsZero() {
				sum.First = first
			}
			sum.Times.Add(&times)
		}
	}
	return sum, sum.Times[profile.Unknown].Count >= 2
}

// In whatever way a Java thread waits, it has waited for as long by its account as by its own clock, but for the time
// that it ran or waited for a CPU, or for memory or a file.
func TestAccountsOfJava(t *testing.T) {
	for _, home := range []string{"/usr/lib/jvm/java-17-openjdk-", "/usr/lib/jvm/temurin-25-jdk-"} {
		t.Run(filepath.Base(home), func(t *testing.T) {
			s := openWaiting(t, Options{})
			p := demo.StartJVM(t, demo.JVMOptions{Threads: 1, Home: home + runtime.GOARCH})
			p.Begin(1) // else the thread has no slot
			p.End(1)
			r := newReceiver(t, 1<<20)
			s.start(p, r)
			for _, kind := range []string{"monitor", "lock", "future", "queue", "sleep", "park", "object"} {
				// On a busy machine, the other thread may end it before it begins.
				s.poll("most of a wait", func() bool {
					waited := p.WaitIn(1, kind, 50*time.Millisecond)
					s.drains(3)
					got, whole := r.account(waited.TraceID)
					if !whole { // or its switches were seen while the slot could not be read
						return false
					}
					var other time.Duration // the JVM may load code, too
					for state, of := range got.Times {
						if state := profile.ThreadState(state); state < profile.Sleep || state > profile.Poll {
							other += of.Sum
						}
					}
					blocked := got.Times[profile.Futex].Sum
					other -= blocked
					assert.Check(t, got.TID == waited.TID && blocked <= waited.Took && blocked+other >= waited.Waited,
						"%s: %+v: %+v", kind, waited, got)
					return 2*blocked > waited.Waited
				})
			}
		})
	}
}

// Accounts are kept while somebody wants them: the kernel does nothing for them before, and afterwards.
func TestAccountsWanted(t *testing.T) {
	var wanted atomic.Bool
	s := openWaiting(t, Options{WaitsWanted: wanted.Load})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := newReceiver(t, 1<<20)
	s.start(p, r)
	for range 2 {
		s.poll("idleness", func() bool { return s.Waits().Idle })
		before := s.counters.Accounts.Load()
		unwanted := p.WaitIn(1, "pipe", time.Millisecond)
		s.drains(2)
		assert.Check(t, s.counters.Accounts.Load() == before, "accounts that nobody wants")
		wanted.Store(true)
		s.poll("accounts", func() bool { return !s.Waits().Idle })
		p.WaitIn(1, "pipe", time.Millisecond)
		s.poll("an account", func() bool { return s.counters.Accounts.Load() > before })
		r.mu.Lock()
		assert.Check(t, !slices.ContainsFunc(r.accounts, func(a profile.Account) bool {
			return a.TraceID == unwanted.TraceID
		}))
		r.mu.Unlock()
		wanted.Store(false)
	}
}

// switchLinks returns how many programs of ours the kernel runs at each switch of a thread.
func switchLinks(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fdinfo")
	assert.NilError(t, err)
	for _, file := range files {
		content, _ := os.ReadFile("/proc/self/fdinfo/" + file.Name()) // it may be closed by now
		if strings.Contains(string(content), "tp_name:\tsched_switch\n") {
			n++
		}
	}
	return n
}

// Where all processes are sampled, the kernel does nothing for accounts before one of them may have a context. Of that
// one nothing is lost, from the first, whenever the next drain is.
func TestAccountsOfContexts(t *testing.T) {
	s := openWaiting(t, Options{Lazy: true, SamplerOptions: bpf.SamplerOptions{KeepUntraced: true},
		Interval: time.Hour})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := newReceiver(t, 1<<20)
	assert.Check(t, s.Waits().Idle && switchLinks(t) == 0)
	s.start(p, r)
	assert.Check(t, !s.Waits().Idle && switchLinks(t) == 1)
	waited := p.WaitIn(1, "pipe", time.Millisecond)
	s.poll("an account", func() bool {
		s.drain()
		_, whole := r.account(waited.TraceID)
		return whole
	})
	s.traced.Store(false) // as if it had none
	s.drain()
	assert.Check(t, s.Waits().Idle && switchLinks(t) == 0)
}

// That accounts cannot be kept is said while somebody wants them, to the next one, too, for whom it is tried again.
func TestAccountsNotResumed(t *testing.T) {
	var wanted atomic.Bool
	s := openWaiting(t, Options{WaitsWanted: wanted.Load})
	s.poll("idleness", func() bool { return s.Waits().Idle })
	var works atomic.Bool
	s.resume = func() error {
		if !works.Load() {
			return errors.New("no memory")
		}
		return s.waits.Resume()
	}
	for range 2 {
		wanted.Store(true)
		s.poll("an error", func() bool { return s.Waits().Error == "no memory" })
		wanted.Store(false)
		s.poll("none", func() bool { return s.Waits().Error == "" && s.Waits().Idle })
	}
	works.Store(true)
	wanted.Store(true)
	s.poll("accounts", func() bool { return s.Waits().Kept && !s.Waits().Idle })
}

// A wait comes to the sink of its program with the stack that it was spent in, what it was for, and who ended it; waits
// are counted apart from samples.
func TestWaited(t *testing.T) {
	s := openWaiting(t, Options{})
	if status := s.Waits(); !status.Stacks {
		testenv.Missing(t, status.StacksError)
	}
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := newReceiver(t, 1<<20)
	s.start(p, r)
	stop := r.serve(s)
	var got profile.Sample
	var waited demo.Wait
	s.poll("a wait", func() bool {
		waited = p.WaitIn(1, "futex", 20*time.Millisecond)
		s.drains(2)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, sample := range r.waits {
			if sample.TraceID == waited.TraceID && sample.Wait.State == profile.Futex &&
				len(sample.Stack.Frames) > 2 && sample.Stack.Frames[0].Kind() == profile.NativeFrame {
				got = sample // no short wait in a function of the C library without a frame; and where that is is known
			}
		}
		return got.Wait != nil
	})
	assert.Check(t, got.TID == waited.TID && got.Thread == p.Threads()[1].Name &&
		got.TransactionID == waited.TransactionID && !got.Unwound &&
		got.Wait.Longest <= waited.Waited && got.Wait.Sum >= got.Wait.Longest && got.Wait.Futex != 0, "%+v", got.Wait)
	assert.Check(t, got.Wait.Waker.Kind == profile.ThreadWaker && got.Wait.Waker.PID == p.PID &&
		got.Wait.Waker.TID != waited.TID && got.Wait.Waker.Thread != "", "%+v", got.Wait.Waker)
	s.forget(r.inbox)
	s.poll("a wait of nobody", func() bool {
		p.WaitIn(1, "pipe", 20*time.Millisecond)
		return s.counters.Waits[process.OutcomeUnknownProcess].Load() > 0
	})
	s.end()
	stop()
	assert.Check(t, s.counters.Waits.Sum() == s.counters.Walks.Load(), "%d of %d", s.counters.Waits.Sum(),
		s.counters.Walks.Load())
}

// A walk is one wait, or two: that which blocked, and that for a CPU afterwards. Together they are what its stack
// stands for.
func TestWaitsOfWalk(t *testing.T) {
	for _, c := range []struct {
		walk bpf.Walk
		want []profile.Wait
	}{
		{bpf.Walk{State: bpf.Sleep, NS: 5, Longest: 4, Queue: 1}, []profile.Wait{
			{State: profile.Sleep, Sum: 5, Longest: 4, Queue: 1}}},
		{bpf.Walk{State: bpf.Sleep, NS: 5, Longest: 4, Queued: 3, Queue: 2, Futex: 1}, []profile.Wait{
			{State: profile.Sleep, Sum: 5, Longest: 4, Queue: 2, Futex: 1}, {State: profile.Runnable, Sum: 3,
				Longest: 2}}},
		{bpf.Walk{State: bpf.Sleep, Longest: 4, Queued: 3, Queue: 2}, []profile.Wait{
			{State: profile.Runnable, Sum: 3, Longest: 2}}},
		{bpf.Walk{State: bpf.Runnable, NS: 1, Queue: 2, Waker: bpf.Waker{Kind: bpf.ThreadWaker, Name: "cc1", PID: 2,
			TID: 3}},
			[]profile.Wait{{State: profile.Runnable, Sum: 1, Longest: 2,
				Waker: profile.Waker{Kind: profile.ThreadWaker, Thread: "cc1", PID: 2, TID: 3}}}},
		{bpf.Walk{State: bpf.Throttled, NS: 1, Queued: 3, Queue: 2}, []profile.Wait{
			{State: profile.Throttled, Sum: 4, Longest: 2}}},
		{bpf.Walk{State: bpf.Net, NS: 1, Waker: bpf.Waker{Kind: bpf.ThreadWaker, OTel: true, Name: "w", PID: 2, TID: 3,
			TraceID: [16]byte{4}}}, []profile.Wait{{State: profile.Net, Sum: 1, Waker: profile.Waker{
			Kind: profile.ThreadWaker, Context: profile.OTelContext, Thread: "w", PID: 2, TID: 3,
			TraceID: [16]byte{4}}}}},
	} {
		got := newWaits(&c.walk)
		assert.Check(t, slices.Equal(got, c.want), "%+v: %+v", c.walk, got)
	}
}

// The stacks of a JVM's waits are walked by the engine's chain: they have the methods. A chain that was lost is
// set again.
func TestWaitedInJVM(t *testing.T) {
	testenv.NeedUnwinding(t)
	for _, home := range []string{"/usr/lib/jvm/java-17-openjdk-", "/usr/lib/jvm/temurin-25-jdk-"} {
		t.Run(filepath.Base(home), func(t *testing.T) {
			s := openWaiting(t, Options{Unwinder: AutoUnwinder})
			s.unwinding.reload = 0
			if status := s.Waits(); !status.Stacks {
				testenv.Missing(t, status.StacksError)
			}
			p := demo.StartJVM(t, demo.JVMOptions{Threads: 1, Home: home + runtime.GOARCH})
			p.Begin(1) // else the thread has no slot
			p.End(1)
			r := newReceiver(t, 1<<20)
			s.start(p, r)
			stop := r.serve(s)
			s.Settle(t.Context())
			status := s.Unwinding()
			assert.Assert(t, status.Err() == nil && status.Unwound == 1, "%+v", status)
			assert.Check(t, s.Waits().StacksError == "", "%+v", s.Waits())
			runtime.GC() // what the chain needs is not closed
			parts := []string{"LockSupport.park<", "LinkedBlockingQueue.take<Wait.end<", "<java.lang.Thread.run"}
			s.poll("a wait in Java, with "+strings.Join(parts, ", "), func() bool {
				waited := p.WaitIn(1, "queue", 50*time.Millisecond)
				s.drains(2)
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, sample := range r.waits {
					if sample.TraceID != waited.TraceID || !sample.Unwound || sample.Wait.State != profile.Futex {
						continue
					}
					var names []string
					for _, f := range sample.Stack.Frames {
						if f.Kind() == profile.JVMFrame {
							names = append(names, f.Name())
						}
					}
					text := strings.Join(names, "<")
					t.Logf("cut: %v, %s", sample.Stack.Cut, text)
					if sample.TID == waited.TID && !sample.Stack.Cut && !slices.ContainsFunc(parts,
						func(part string) bool { return !strings.Contains(text, part) }) {
						return true
					} // else the JVM had the thread wait, as for a safepoint
				}
				return false
			})
			s.poll("a wait of an idle thread", func() bool {
				p.WaitIn(1, "pool", 50*time.Millisecond)
				return s.counters.WaitsIdle.Load() > 0
			})
			lost := &bpf.Unwinder{WaitError: errors.New("lost")}
			assert.NilError(t, s.sampler.SetWaitUnwinder(lost))
			s.unwinding.notify()
			s.poll("a chain that is set again", func() bool { return s.sampler.Chainless() == nil })
			s.end()
			stop()
		})
	}
}

// A setting that is none is an error, and those that there are can be read again.
func TestWaitsSetting(t *testing.T) {
	for w := range numWaits {
		var again Waits
		text, err := w.MarshalText()
		assert.Check(t, err == nil && again.UnmarshalText(text) == nil && again == w, "%s, %v", text, err)
	}
	var none Waits
	assert.ErrorContains(t, none.UnmarshalText([]byte("on")), "none of auto and off")
}
