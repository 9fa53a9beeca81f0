package bpf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/kallsyms"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

// openWalks is openWaits where stacks can be walked.
func openWalks(t testing.TB, s *Sampler, options WaitOptions) *Waits {
	t.Helper()
	w := openWaits(t, s, options)
	if err := w.Walkless(); err != nil {
		testenv.Missing(t, err.Error())
	}
	return w
}

// spent is the time of threads that was accounted, and that stacks stand for.
type spent struct {
	t          *testing.T
	w          *Waits
	traces     traces
	accounted  map[int]uint64 // not on a CPU, by thread
	stackTimes map[int]uint64
	queue      map[int]int64 // the former less the latter, of waits for a CPU
	walks      []Walk
	off        [2]int64 // accounted less stackTimes, of what blocked, and of waits for a CPU: since an unseen switch
	unasked    int64    // what was counted until then
}

func newSpent(t *testing.T, w *Waits) *spent {
	return &spent{t: t, w: w, traces: make(traces), accounted: make(map[int]uint64), stackTimes: make(map[int]uint64),
		queue: make(map[int]int64)}
}

func (s *spent) drainAccounts() {
	s.t.Helper()
	assert.NilError(s.t, s.w.Drain(func(a *Account) {
		s.traces.add(a)
		for state, of := range a.States {
			if ThreadState(state) >= Runnable {
				s.accounted[a.TID] += of.NS
			}
			if isQueue(ThreadState(state)) {
				s.queue[a.TID] += int64(of.NS)
			}
		}
	}))
}

// await drains accounts until that of a trace is whole.
func (s *spent) await(is func(demo.TraceID) bool) {
	s.t.Helper()
	testenv.Poll(s.t, waiting, "an account", func() bool {
		s.drainAccounts()
		for trace, a := range s.traces {
			if is(trace) && a.States[Changed].Count >= 2 {
				return true
			}
		}
		return false
	})
}

// wait has a demo wait, and returns when that is accounted.
func (s *spent) wait(p *demo.Process, kind string, least time.Duration) demo.Wait {
	s.t.Helper()
	waited := p.WaitIn(1, kind, least)
	s.await(func(trace demo.TraceID) bool { return trace == waited.TraceID })
	return waited
}

// begins reports whether a trace is of testdata/waits.c.
func begins(first byte) func(demo.TraceID) bool {
	return func(trace demo.TraceID) bool { return trace[0] == first }
}

func (s *spent) drain() {
	s.t.Helper()
	s.drainAccounts()
	assert.NilError(s.t, s.w.DrainWalks(func(w *Walk) {
		if w.Stack.Target == 0 {
			return
		}
		assert.Check(s.t, w.Thread != "", "%+v", w)
		s.stackTimes[w.TID] += w.NS + w.Queued
		s.queue[w.TID] -= int64(ofQueue(w))
		kept := *w
		kept.Attributes = bytes.Clone(w.Attributes)
		s.walks = append(s.walks, kept)
	}))
}

func isQueue(state ThreadState) bool { return state == Runnable || state == Throttled }

// ofQueue returns what a stack stands for of waits for a CPU.
func ofQueue(w *Walk) uint64 {
	if isQueue(w.State) {
		return w.NS + w.Queued
	}
	return w.Queued
}

const (
	queuePeriods = time.Duration(waitsBudgetQUEUE_PERIODS)
	queueUnit    = uint64(waitsBudgetQUEUE_UNIT)
)

// addsUp reports whether what stacks of a thread stand for, which is the only one, and what is counted that none does,
// is its time off a CPU, within a period for what blocked it, and one of waits for a CPU. No stack stands for waits
// with switches that were not seen: after those, what was added since the last call counts.
func (s *spent) addsUp(tid int, period time.Duration) bool {
	s.drain()
	c := s.counters()
	queue, unasked := s.queue[tid], int64(c.UnaskedNS)-s.unasked
	off := [2]int64{int64(s.accounted[tid]) - int64(s.stackTimes[tid]) - queue, queue}
	blocked, queued := off[0]-s.off[0], off[1]-s.off[1]
	if c.Unseen > 0 {
		s.off, s.unasked = off, int64(c.UnaskedNS)
	}
	within := func(off int64, period time.Duration) bool {
		return -int64(period) < off && off < int64(period)+unasked
	}
	return within(blocked, period) && within(queued, queuePeriods*period) &&
		blocked+queued-unasked > -int64((1+queuePeriods)*period)
}

func (s *spent) counters() WaitCounters {
	s.t.Helper()
	return countersOf(s.t, s.w)
}

// of returns the walk of a trace in a state.
func (s *spent) of(trace demo.TraceID, state ThreadState) *Walk {
	i := slices.IndexFunc(s.walks, func(w Walk) bool { return w.TraceID == trace && w.State == state })
	if i < 0 {
		return nil
	}
	return &s.walks[i]
}

// A wait that is longer than the period has its stack, and that stands for all of it; who ended it is known, also when
// that was no thread, and the peer or address that it was for.
func TestWalks(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	got := newSpent(t, openWalks(t, s, WaitOptions{}))
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	target := addDemo(t, s, p)
	loopback := netip.MustParseAddr("127.0.0.1")
	for kind, want := range map[string]struct {
		state ThreadState
		waker WakerKind
	}{
		"sleep": {Sleep, TimerWaker}, "futex": {Futex, ThreadWaker}, "pipe": {Pipe, ThreadWaker},
		"unix": {Unix, ThreadWaker}, "net": {Net, NetworkWaker}, "poll": {Poll, ThreadWaker},
	} {
		var w *Walk
		var waited demo.Wait
		testenv.Poll(t, waiting, kind, func() bool { // a walk may be missed, and another be of what comes before
			waited = got.wait(p, kind, 20*time.Millisecond)
			got.drain()
			w = got.of(waited.TraceID, want.state)
			// Who ended it is not known where others before it have added up to more.
			return w != nil && w.Longest >= uint64(20*time.Millisecond) && w.Waker.Kind != UnknownWaker
		})
		a := got.traces[waited.TraceID].States[want.state]
		assert.Check(t, w.Stack.Target == target && w.TID == waited.TID && w.TransactionID == waited.TransactionID &&
			!w.OTel && w.SpanID == [8]byte{}, "%s: %+v", kind, w)
		assert.Check(t, w.Longest <= a.Longest && w.NS >= w.Longest, "%s: %+v of %+v", kind, w, a)
		assert.Check(t, len(w.Frames.User) > 1 && len(w.Frames.Kernel) == 0, "%s: %+v", kind, w)
		assert.Check(t, w.Waker.Kind == want.waker, "%s: %+v", kind, w.Waker)
		if of := w.Waker; want.waker == ThreadWaker {
			assert.Check(t, of.PID == p.PID && of.TID != 0 && of.TID != w.TID && of.Name != "" &&
				of.TraceID == [16]byte{}, "%s: %+v", kind, of)
		} else {
			assert.Check(t, of == Waker{Kind: want.waker}, "%s: %+v", kind, of)
		}
		assert.Check(t, (w.Futex != 0) == (want.state == Futex), "%s: %+v", kind, w)
		if want.state == Net {
			assert.Check(t, w.Peer.Addr() == loopback && w.Peer.Port() != 0, "%+v", w)
		} else {
			assert.Check(t, w.Peer == netip.AddrPort{} && w.Path == "", "%s: %+v", kind, w)
		}
	}
}

// What the stacks of a thread stand for is its time off a CPU, within a period, also of waits that are much shorter
// than that.
func TestWalksAddUp(t *testing.T) {
	const period = 5 * time.Millisecond
	s := openSampler(t, SamplerOptions{})
	got := newSpent(t, openWalks(t, s, WaitOptions{Period: period, MaxWalks: 1 << 20}))
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	addDemo(t, s, p)
	for i := range 40 {
		got.wait(p, []string{"sleep", "pipe", "futex"}[i%3], time.Duration(1+i%8)*time.Millisecond)
	}
	testenv.Poll(t, waiting, "all to be told", func() bool { // what was missed is told with the next wait
		return got.addsUp(got.wait(p, "sleep", period).TID, period)
	})
	c := got.counters()
	assert.Check(t, c.Unasked == 0 && c.Walked == uint64(len(got.walks)) && len(got.walks) > 5, "%+v", c)
	for _, w := range got.walks {
		queued := ofQueue(&w)
		blocked := w.NS + w.Queued - queued
		assert.Check(t, blocked == 0 || blocked >= uint64(period), "%+v", w)
		assert.Check(t, queued == 0 || queued >= uint64(queuePeriods*period), "%+v", w)
	}
}

// period returns the longest of a target on a CPU, 0: none longer than the least.
func (s *spent) period(target Target) (period time.Duration) {
	s.t.Helper()
	for cpu := range s.w.cpus {
		var pace waitsPace
		at := uint32(cpu*(paces+ownerPaces) + int(target)%paces)
		assert.NilError(s.t, s.w.objects.Paces.Lookup(at, &pace))
		period = max(period, time.Duration(pace.Period))
	}
	return period
}

// Above the bound nothing is walked, which is counted; stacks never stand for more time than there was, and the period
// follows.
func TestWalksTooMany(t *testing.T) {
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{Period: 1, MaxWalks: 1})
	var tid int
	testenv.Poll(t, waiting, "a longer period", func() bool {
		tid = c.do("naps 200")
		got.drain()
		period := got.period(c.target)
		return period > time.Millisecond && got.counters().Unasked > 0
	})
	got.drain()
	counters := got.counters()
	assert.Check(t, counters.UnaskedNS > 0 && got.stackTimes[tid]+counters.UnaskedNS <= got.accounted[tid]+1,
		"%d and %+v of %d", got.stackTimes[tid], counters, got.accounted[tid])
}

// change changes what is known of the first thread of a process, which must be off its CPU, once that is as it should
// be.
func (s *spent) change(pid int, is func(*waitsThread) bool, change func(*waitsThread)) {
	s.t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	assert.NilError(s.t, err)
	defer unix.Close(pidfd)
	var thread waitsThread
	threads := s.w.objects.Threads
	testenv.Poll(s.t, waiting, "a thread off its CPU", func() bool {
		assert.NilError(s.t, threads.Lookup(uint32(pidfd), &thread))
		return thread.Out != 0 && is(&thread)
	})
	if change != nil {
		change(&thread)
		assert.NilError(s.t, threads.Put(uint32(pidfd), &thread))
	}
}

func inAny(*waitsThread) bool { return true }

// What waits have added up to without a stack is of the context that they were in: no stack of another one stands for
// more than some steps of it, of each sort. The rest is counted.
func TestWalksOfContext(t *testing.T) {
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{})
	const step = uint64(queuePeriods * 10e6) // of waits for a CPU
	const rest, queueRest = 70e6, 20e9       // sums of both sorts
	pid := c.do("naps 1")
	add := func(thread *waitsThread) { thread.Rest, thread.Account.QueueRest = rest, uint32(queueRest/queueUnit) }
	testenv.Poll(t, waiting, "a stack", func() bool {
		before := got.counters().UnaskedNS
		got.change(pid, inAny, add)
		c.do("naps 0")
		got.change(pid, inAny, func(thread *waitsThread) {
			assert.Check(t, thread.Rest == rest && queueUnit*uint64(thread.Account.QueueRest) < step, "%+v", thread)
		})
		counted := got.counters().UnaskedNS - before
		assert.Check(t, counted >= queueRest && counted < queueRest+rest, "%d", counted)
		got.change(pid, inAny, add)
		c.do("naps 30")
		got.drain()
		return len(got.walks) > 0
	})
	for _, w := range got.walks {
		assert.Check(t, w.Queued < w.Queue+2*step, "%+v", w)
	}
}

// What waits have added up to without a stack is counted once there can be none.
func TestWalksOfEnded(t *testing.T) {
	const rest, queueRest = uint64(70e6), uint64(1e9) // some steps; the former goes on in another context
	var s *Sampler
	var got *spent
	kill := func(c *waits, pid int) { assert.NilError(t, unix.Kill(pid, unix.SIGKILL)) }
	for name, of := range map[string]struct {
		options WaitOptions
		end     func(c *waits, pid int)
	}{
		"killed":            {WaitOptions{}, kill},
		"killed, by thread": {WaitOptions{ByThread: true}, kill},
		"paused, by thread": {WaitOptions{ByThread: true}, func(*waits, int) { assert.NilError(t, got.w.Pause()) }},
		"another target now": {WaitOptions{}, func(c *waits, pid int) {
			assert.NilError(t, s.RemoveTarget(c.target))
			addRules(t, s, pid, func() TargetRules { return c.rules })
			c.do("naps 1")
		}},
	} {
		t.Run(name, func(t *testing.T) { // only one can be open
			s = openSampler(t, SamplerOptions{KeepUntraced: of.options.ByThread})
			got = newSpent(t, openWalks(t, s, of.options))
			c := startWaits(t, s)
			pid := c.do("naps 1")
			got.change(pid, inAny, func(thread *waitsThread) {
				thread.Rest, thread.Step = rest, math.MaxUint16
				thread.Account.QueueRest, thread.QueueStep = uint32(queueRest/queueUnit), math.MaxUint16
			})
			before := got.counters().UnaskedNS
			of.end(c, pid)
			testenv.Poll(t, waiting, name, func() bool { return got.counters().UnaskedNS >= before+rest+queueRest })
		})
	}
}

// What no stack stands for is counted on the CPU that finds out: those of others count at the same time.
func TestWalksCountedHere(t *testing.T) {
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{})
	pid := c.do("naps 1")
	cpu := firstCPU(t)
	assert.NilError(t, unix.SchedSetaffinity(pid, &cpu)) // and threads that it starts
	other := 0
	if cpu.IsSet(0) {
		other = got.w.cpus - 1
	}
	before, err := got.w.readCPU(other)
	assert.NilError(t, err)
	total := got.counters().UnaskedNS
	fmt.Fprintln(c.stdin, "arrive")
	got.change(pid, func(thread *waitsThread) bool { return thread.State == uint8(Net) }, func(thread *waitsThread) {
		thread.Weight, thread.Owed, thread.Cpu = uint64(time.Hour), uint8(Sleep), uint16(other)
	})
	c.done()
	after, err := got.w.readCPU(other)
	assert.NilError(t, err)
	assert.Check(t, after.UnaskedNs == before.UnaskedNs && got.counters().UnaskedNS >= total+uint64(time.Hour),
		"%+v, %+v", before, after)
}

// A target that wants all walks of its CPUs changes nothing for another one.
func TestWalksShare(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	got := newSpent(t, openWalks(t, s, WaitOptions{Period: 1, MaxWalks: 8}))
	greedy, other := startWaits(t, s), startWaits(t, s)
	testenv.Poll(t, waiting, "a long period", func() bool {
		greedy.do("naps 200")
		got.drain()
		return got.period(greedy.target) > time.Millisecond && got.counters().Unasked > 0
	})
	testenv.Poll(t, waiting, "a stack of the other", func() bool {
		fmt.Fprintln(greedy.stdin, "naps 50")
		tid := other.do("naps 1")
		greedy.done()
		got.drain()
		return slices.ContainsFunc(got.walks, func(w Walk) bool {
			return w.TID == tid && w.NS >= uint64(time.Millisecond)
		})
	})
	of, greedys := got.period(other.target), got.period(greedy.target)
	assert.Check(t, of < greedys, "%v, %v", of, greedys)
}

// Processes of an owner together that want all walks of their CPUs leave some to
// another one.
func TestWalksOwners(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	got := newSpent(t, openWalks(t, s, WaitOptions{Period: time.Microsecond}))
	var greedy []*waits
	for range 3 {
		greedy = append(greedy, startWaitsOf(t, s, "greedy"))
	}
	other := startWaitsOf(t, s, "other")
	testenv.Poll(t, waiting, "walks that are refused, and a stack of the other's", func() bool {
		for _, p := range greedy {
			fmt.Fprintln(p.stdin, "naps 100")
		}
		tid := other.do("naps 1")
		for _, p := range greedy {
			p.done()
		}
		got.walks = nil
		got.drain()
		return got.counters().Unasked > 0 && slices.ContainsFunc(got.walks, func(w Walk) bool { return w.TID == tid })
	})
	for cpu := range got.w.cpus {
		var pace waitsPace
		assert.NilError(t, got.w.objects.Paces.Lookup(uint32(cpu*(paces+ownerPaces)+paces), &pace))
		assert.Check(t, pace.Until <= Now()+uint64(2*window), "%+v", pace)
	}
}

// With the kernel's frames stacks of waits begin where the thread has left its CPU, whoever walks the rest: they have
// none of the interrupt in which they are walked.
func TestWalksKernel(t *testing.T) {
	s := openSampler(t, SamplerOptions{KernelStacks: true})
	got := newSpent(t, openWalks(t, s, WaitOptions{Period: time.Millisecond, MaxWalks: 1 << 20}))
	chain := openChain(t)
	c := startWaits(t, s)
	var frames [][]uint64 // of the kernel
	await := func(what string, is func(Stack) bool) {
		t.Helper()
		testenv.Poll(t, waiting, what, func() bool {
			got.walks = nil
			c.do("naps 3")
			got.drain()
			return slices.ContainsFunc(got.walks, func(w Walk) bool {
				if w.State != Sleep {
					return false
				}
				frames = append(frames, w.Frames.Kernel)
				return is(w.Frames)
			})
		})
	}
	await("a stack", func(got Stack) bool { return len(got.User) > 1 && got.User[0] < 1<<63 })
	setUnwinder(t, s, chain.forWaits(chain.unwinder()))
	assert.NilError(t, s.Chainless())
	chain.ask(asked{KernelFrames: 2, Words: 10, Error: 5})
	unwind(t, s, c.target)
	await("an unwound stack", func(got Stack) bool { return slices.Equal(got.Words, wordsFrom(3, 10)) })
	chain.ask(asked{Words: 1000})
	await("a deep stack", func(got Stack) bool {
		return got.Error == TooManyWords && slices.Equal(got.Words, wordsFrom(1, 768-len(got.Kernel)))
	})
	chain.ask(asked{Words: 0})
	await("a stack that is walked instead", func(got Stack) bool { return len(got.User) > 1 && got.User[0] < 1<<63 })
	known := kernelNames(t, slices.Concat(frames...))
	for _, addrs := range frames {
		var names []string
		for _, addr := range addrs {
			names = append(names, known[addr])
		}
		assert.Check(t, slices.Contains(names, "hrtimer_nanosleep"), "%v", names)
		assert.Check(t, !strings.Contains(strings.Join(names, " "), "irq"), "%v", names)
	}
}

// kernelNames returns the names of the kernel's functions at addresses: of the last ones that begin before.
func kernelNames(t *testing.T, addrs []uint64) map[uint64]string {
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	names, begin := make([]string, len(addrs)), make([]uint64, len(addrs))
	functions := 0
	assert.NilError(t, kallsyms.Read(bytes.NewReader(testenv.ReadFile(t, "/proc/kallsyms")),
		func(s kallsyms.Symbol) bool {
			addr, ok := s.Addr()
			if !ok || !s.Code() {
				return true
			}
			functions++
			from, _ := slices.BinarySearch(addrs, addr)
			for i := from; i < len(addrs) && begin[i] <= addr; i++ {
				names[i], begin[i] = string(s.Name), addr
			}
			return true
		}))
	if functions < 2 {
		testenv.Missing(t, "addresses of the kernel's functions")
	}
	known := make(map[uint64]string)
	for i, addr := range addrs {
		known[addr] = names[i]
	}
	return known
}

// What was to be walked and was not is what the thread's next stack stands for, of the same trace and state: when
// nobody drains, and when there is no interrupt. What no stack stands for any more is counted.
func TestWalksLost(t *testing.T) {
	const period = time.Millisecond // as long as a nap at the most
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{Period: period, MaxWalks: 1 << 20})
	assert.NilError(t, got.w.walks.hook.Close())
	tid := c.do("naps 10")
	testenv.Poll(t, waiting, "what no stack stands for", func() bool {
		if got.addsUp(tid, period) && got.counters().UnaskedNS > uint64(period) {
			return true
		}
		c.do("naps 1") // the last that each CPU missed is counted with its next
		return false
	})
	assert.Check(t, got.counters().Missed > 0 && len(got.walks) == 0)

	tid = c.do("sleeper")
	standsForMore := func(w Walk) bool { return w.NS >= w.Longest+uint64(period) }
	// It stands for no more if the thread has waited for a CPU before.
	testenv.Poll(t, waiting, "a stack that stands for what was missed", func() bool {
		missed := got.counters().Missed
		testenv.Poll(t, waiting, "walks that are missed", func() bool { return got.counters().Missed >= missed+4 })
		var err error
		got.w.walks.hook, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: walkHook(),
			Program: got.w.walks.objects.Walk})
		assert.NilError(t, err)
		first := -1
		testenv.Poll(t, waiting, "a stack", func() bool {
			got.drain()
			first = slices.IndexFunc(got.walks, func(w Walk) bool { return w.TID == tid && w.State == Sleep })
			return first >= 0
		})
		if standsForMore(got.walks[first]) {
			return true
		}
		assert.NilError(t, got.w.walks.hook.Close())
		got.drain()
		got.walks = nil
		return false
	})
	testenv.Poll(t, waiting, "a stack that stands for what had no room", func() bool {
		lost := func() uint64 { counters := got.counters(); return counters.Unrung + counters.Unsent }
		before := lost()
		testenv.Poll(t, waiting, "no room", func() bool { return lost() > before }) // nobody drains
		got.drain()
		got.walks = nil
		testenv.Poll(t, waiting, "a stack", func() bool {
			got.drain()
			return len(got.walks) > 0
		})
		return slices.ContainsFunc(got.walks, standsForMore)
	})
}

// Without an interrupt in which stacks can be walked there are accounts all the same, and a reason.
func TestWalkless(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	for hook, want := range map[string]string{
		"sched_process_hang": "missing a tracepoint in the interrupt",
		"no_such_tracepoint": "missing a tracepoint in the interrupt",
	} {
		w := openWaits(t, s, WaitOptions{hook: hook})
		assert.Check(t, errors.Is(w.Walkless(), errors.ErrUnsupported))
		assert.ErrorContains(t, w.Walkless(), want)
		p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		addDemo(t, s, p)
		got := newSpent(t, w)
		got.wait(p, "sleep", time.Millisecond)
		got.drain()
		assert.Check(t, len(got.walks) == 0)
		assert.NilError(t, w.Close()) // only one can be open
	}
}

// waits is a process of testdata/waits.c.
type waits struct {
	t      *testing.T
	stdin  io.Writer
	stdout *bufio.Reader
	rules  TargetRules
	target Target
	waited time.Duration // by its clock, for what it did last
}

// startWalking starts a process whose waits are walked.
func startWalking(t *testing.T, options SamplerOptions, of WaitOptions) (*spent, *waits) {
	t.Helper()
	s := openSampler(t, options)
	got := newSpent(t, openWalks(t, s, of))
	return got, startWaits(t, s)
}

func startWaits(t *testing.T, s *Sampler) *waits { return startWaitsOf(t, s, "") }

func startWaitsOf(t *testing.T, s *Sampler, owner string) *waits {
	t.Helper()
	cmd := exec.Command(testenv.Compile(t, "cc", "testdata/waits.c", "-pthread", "-fno-omit-frame-pointer"))
	stdin, stdout := testenv.Start(t, cmd)
	c := &waits{t: t, stdin: stdin, stdout: bufio.NewReader(stdout)}
	var offset int64
	var tid int
	_, err := fmt.Fscanln(c.stdout, &offset, &tid)
	assert.NilError(t, err)
	c.rules = TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static, Offset: offset}, Owner: owner}
	c.target = addRules(t, s, cmd.Process.Pid, func() TargetRules { return c.rules })
	return c
}

// do has it do something, and returns the tid of the thread that did.
func (c *waits) do(command string) (tid int) {
	c.t.Helper()
	fmt.Fprintln(c.stdin, command)
	return c.done()
}

func (c *waits) done() (tid int) {
	c.t.Helper()
	_, err := fmt.Fscanln(c.stdout, &tid, &c.waited)
	assert.NilError(c.t, err)
	return tid
}

// Who waits for a lock is woken by the thread that held it, in that one's trace.
func TestWalksHolder(t *testing.T) {
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{})
	var w *Walk
	testenv.Poll(t, waiting, "a wait for a lock", func() bool {
		tid := c.do("lock")
		got.await(begins(0xbb))
		got.drain()
		for i := range got.walks {
			if of := &got.walks[i]; of.TID == tid && of.State == Futex {
				w = of
			}
		}
		return w != nil
	})
	assert.Check(t, w.TraceID[0] == 0xbb && w.Futex != 0 && w.Waker.Kind == ThreadWaker && w.Waker.TraceID[0] == 0xaa &&
		w.Waker.TransactionID == [8]byte{7, 7, 7, 7, 7, 7, 7, 7} && !w.Waker.OTel, "%+v", w)
}

// Who waits for a socket for as long as that waits is woken by a timer, not by the network; and by that before.
func TestWalksExpired(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWalks(t, s, WaitOptions{})
	for command, want := range map[string]struct {
		state ThreadState
		waker WakerKind
	}{
		"expire inet": {Net, TimerWaker}, "expire unix": {Unix, TimerWaker}, "arrive": {Net, NetworkWaker},
	} {
		got, c := newSpent(t, w), startWaits(t, s)
		is := Waker{Kind: want.waker}
		waits := func(w Walk) bool { return w.Stack.Target == c.target && w.State == want.state }
		testenv.Poll(t, waiting, command, func() bool {
			c.do(command)
			got.drain()
			return slices.ContainsFunc(got.walks, func(w Walk) bool { return waits(w) && w.Waker == is })
		})
		for _, w := range got.walks { // it is not known where a thread lost its CPU before it waited
			assert.Check(t, !waits(w) || w.Waker == is || w.Waker == Waker{}, "%s: %+v", command, w)
		}
	}
}

// A wait for a connection whose descriptor is another's when it ends has the peer of neither.
func TestWalksReplaced(t *testing.T) {
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{})
	testenv.Poll(t, waiting, "a wait for a connection", func() bool {
		c.do("replace")
		got.drain()
		return slices.ContainsFunc(got.walks, func(w Walk) bool { return w.TraceID[0] == 0xee && w.State == Net })
	})
	for _, w := range got.walks {
		assert.Check(t, w.Peer == netip.AddrPort{}, "%+v", w)
	}
}

func diskDir(t *testing.T) string {
	dir := t.TempDir()
	var fs unix.Statfs_t
	assert.NilError(t, unix.Statfs(dir, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		testenv.Missing(t, "a directory on a disk")
	}
	return dir
}

// A wait for the disk has the end of the file's path.
func TestWalksPath(t *testing.T) {
	dir := diskDir(t)
	got, c := startWalking(t, SamplerOptions{}, WaitOptions{Period: 1, MaxWalks: 1 << 20})
	path := filepath.Join(dir, "a file")
	path = strings.ReplaceAll(path, " ", "_")
	testenv.Poll(t, waiting, "a wait for a disk", func() bool {
		c.do("sync " + path)
		got.drain()
		return slices.ContainsFunc(got.walks, func(w Walk) bool { return w.State == Disk && w.Path != "" })
	})
	names := strings.Split(path, "/")
	want := "…/" + strings.Join(names[max(len(names)-4, 1):], "/")
	for _, w := range got.walks {
		assert.Check(t, w.Path == "" || w.Path == want, "%q, not %q", w.Path, want)
	}
}

// forWaits has a chain walk the stacks of waits, too, with the same records.
func (c *chain) forWaits(u *Unwinder) *Unwinder {
	c.t.Helper()
	spec := compileProgram(c.t, "chain")
	for _, p := range spec.Programs {
		p.Type = ebpf.RawTracepoint
	}
	var objects chainObjects
	assert.NilError(c.t, spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"records": c.Records, ".bss": c.Variables},
	}))
	c.t.Cleanup(func() {
		_SamplerClose(objects.Enter, objects.Walk, objects.Records, objects.Programs, objects.Variables)
	})
	assert.NilError(c.t, objects.Programs.Put(uint32(0), objects.Walk))
	u.WaitEntry = objects.Enter
	u.SetWaitLast = func(last *ebpf.Program) error { return objects.Programs.Put(uint32(1), last) }
	return u
}

// The stacks of waits are what the unwinder finds, where it walks those of the target. What it loses is counted, and
// is what the next stack stands for; one without a chain for waits has them walked by frame pointers.
func TestWalksUnwound(t *testing.T) {
	const period = time.Millisecond
	s := openSampler(t, SamplerOptions{})
	got := newSpent(t, openWalks(t, s, WaitOptions{Period: period, MaxWalks: 1 << 20}))
	chain := openChain(t)
	c := startWaits(t, s)
	await := func(what string, is func(Stack) bool) {
		t.Helper()
		testenv.Poll(t, waiting, what, func() bool {
			got.walks = nil
			c.do("naps 3")
			got.drain()
			return slices.ContainsFunc(got.walks, func(w Walk) bool { return is(w.Frames) })
		})
	}
	hasWords := func(want Stack) func(Stack) bool {
		return func(got Stack) bool { return slices.Equal(got.Words, want.Words) && got.Error == want.Error }
	}
	isWalked := func(got Stack) bool { return len(got.Words) == 0 && len(got.User) > 1 }

	setUnwinder(t, s, chain.forWaits(chain.unwinder()))
	chain.ask(asked{KernelFrames: 2, Words: 10, Error: 5})
	await("a stack that is walked before Unwind", isWalked)
	unwind(t, s, c.target)
	await("an unwound stack", hasWords(Stack{Words: wordsFrom(3, 10), Error: 5}))
	chain.ask(asked{Words: 1000})
	await("a deep stack", hasWords(Stack{Words: wordsFrom(1, 768), Error: TooManyWords}))
	chain.ask(asked{Words: 0})
	await("a stack that is walked instead", isWalked)

	chain.ask(asked{Words: 3, Loses: 2})
	testenv.Poll(t, waiting, "a lost stack", func() bool { c.do("naps 3"); return got.counters().Unfinished > 0 })
	chain.ask(asked{Words: 3})
	testenv.Poll(t, waiting, "what was lost", func() bool { return got.addsUp(c.do("naps 1"), period) })

	broken := errors.New("broken")
	without := chain.unwinder()
	without.WaitError = broken
	assert.NilError(t, s.SetWaitUnwinder(without))
	assert.Check(t, errors.Is(s.Chainless(), broken))
	await("a stack that is walked", isWalked)
	assert.NilError(t, s.SetWaitUnwinder(chain.forWaits(chain.unwinder())))
	assert.Check(t, s.Chainless() == nil)
	await("an unwound stack, of a target that was unwound before", hasWords(Stack{Words: wordsFrom(1, 3)}))
	setUnwinder(t, s, without)
	unwind(t, s, c.target)
	assert.Check(t, errors.Is(s.Chainless(), broken))
	await("a stack that is walked", isWalked)
	failing := chain.forWaits(chain.unwinder())
	failing.SetWaitLast = func(*ebpf.Program) error { return broken }
	setUnwinder(t, s, failing)
	assert.Check(t, errors.Is(s.Chainless(), broken))
	assert.NilError(t, s.SetWaitUnwinder(chain.forWaits(chain.unwinder())))
	assert.Check(t, s.Chainless() == nil)
	setUnwinder(t, s, nil)
	assert.Check(t, s.Chainless() == nil)
	await("a stack that is walked", isWalked)
}

// A wait in a record of OpenTelemetry's has that one's span and wanted attributes, and no transaction.
func TestWalksOTel(t *testing.T) {
	s := openSampler(t, SamplerOptions{BySpan: true})
	got := newSpent(t, openWalks(t, s, WaitOptions{Period: 1}))
	p := demo.StartOTel(t, demo.OTelOptions{Form: demo.OTelTLSDESC, Threads: 1})
	rule := otelRule(t, p)
	addRules(t, s, p.PID, func() TargetRules { return TargetRules{OTel: rule, Keys: []uint8{1}, KnownKeys: 2} })
	attributes := demo.OTelAttribute(demo.OTelAttribute(nil, 0, "00f067aa0ba902b7"), 1, "/pay/:id")
	record, wanted := otelRecord(7, attributes), demo.OTelAttribute(nil, 1, "/pay/:id")
	found := false
	testenv.Poll(t, waiting, "a wait in a record", func() bool {
		p.Begin(1, record)
		p.Clear(1)
		assert.NilError(t, got.w.DrainWalks(func(w *Walk) {
			if w.Stack.Target == 0 {
				return
			}
			found = true
			assert.Check(t, w.OTel && w.TraceID == record.TraceID && w.SpanID == record.SpanID &&
				w.TransactionID == [8]byte{} && bytes.Equal(w.Attributes, wanted), "%+v", w)
		}))
		return found
	})
}

// Only waits in traces that are sampled have stacks, unless others are wanted, too. Those of spans are told apart only
// if that is wanted.
func TestWalksUnsampled(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := openSampler(t, SamplerOptions{KeepUnsampled: keep, BySpan: keep})
		got := newSpent(t, openWalks(t, s, WaitOptions{Period: 1}))
		unsampled := demo.Start(t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
		sampled := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		not := addDemo(t, s, unsampled)
		is := addDemo(t, s, sampled)
		wait := func(p *demo.Process, target Target) (walked bool) {
			p.WaitIn(1, "sleep", time.Millisecond)
			got.drain()
			for _, w := range got.walks {
				walked = walked || w.Stack.Target == target
				assert.Check(t, (w.SpanID != [8]byte{}) == keep, "%+v", w)
			}
			return walked
		}
		testenv.Poll(t, waiting, "a stack", func() bool {
			walked := wait(unsampled, not)
			assert.Check(t, keep || !walked)
			return wait(sampled, is) && walked == keep
		})
	}
}

// What is in the kernel's ring buffer is checked: sizes, and states.
func TestDecodeWalk(t *testing.T) {
	var d walksWalked
	head := int(unsafe.Offsetof(d.Stack) + unsafe.Offsetof(d.Stack.Addrs))
	encode := func() []byte { return slices.Clone(asBytes(unsafe.Slice(&d, 1))[:head+2*8+3]) }
	d.Target, d.Tid, d.State, d.Stack.UserFrames, d.AttributesSize = 1, 2, uint32(Disk), 2, 3
	d.Family, d.Port = unix.AF_INET6, binary.NativeEndian.Uint16([]byte{0x15, 0x38})
	d.Address = netip.MustParseAddr("::ffff:10.0.0.7").As16()
	for i, name := range []string{"log", "shop", "var"} {
		copy(asBytes(d.Path[i][:]), name)
	}
	copy(asBytes(d.Waker.Name[:]), "a name of 16 byt")
	copy(asBytes(d.Thread[:]), "pool-1")
	w, err := decodeWalk(encode())
	assert.NilError(t, err)
	assert.Check(t, w.Stack.Target == 1 && w.TID == 2 && w.State == Disk && len(w.Frames.User) == 2 &&
		len(w.Attributes) == 3 && w.Peer == netip.MustParseAddrPort("10.0.0.7:5432") && w.Path == "…/var/shop/log" &&
		w.Waker.Name == "a name of 16 byt" && w.Thread == "pool-1", "%+v", w)
	d.Port = 0
	w, err = decodeWalk(encode())
	assert.Check(t, err == nil && w.Peer == netip.AddrPort{}, "%v, %v", w.Peer, err)
	d.Port, d.Family = 1, unix.AF_INET
	w, err = decodeWalk(encode())
	assert.Check(t, err == nil && w.Peer == netip.MustParseAddrPort("0.0.0.0:256"), "%v, %v", w.Peer, err)

	_, err = decodeWalk(encode()[:head-1])
	assert.Check(t, errors.Is(err, errDeferredShort), "%v", err)
	d.AttributesSize = 4
	_, err = decodeWalk(encode())
	assert.Check(t, errors.Is(err, errDeferredAttributes), "%v", err)
	d.AttributesSize, d.Stack.UserFrames = 3, 3
	_, err = decodeWalk(encode())
	assert.Check(t, errors.Is(err, errStackFrames), "%v", err)
	d.Stack.UserFrames, d.State = 2, uint32(ThreadStates)
	_, err = decodeWalk(encode())
	assert.Check(t, errors.Is(err, ErrMalformed), "%v", err)
}

// firstCPU is one that this process may run on.
func firstCPU(t *testing.T) (one unix.CPUSet) {
	t.Helper()
	assert.NilError(t, unix.SchedGetaffinity(0, &one))
	for cpu, first := 0, true; cpu < 8*int(unsafe.Sizeof(one)); cpu++ {
		if one.IsSet(cpu) && !first {
			one.Clear(cpu)
		}
		first = first && !one.IsSet(cpu)
	}
	return one
}

// Of a wait for a CPU it is known who left that: of two threads that have one CPU together, the other one, at times.
func TestLeaverOfCPU(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	const period = time.Millisecond
	w := openWalks(t, s, WaitOptions{Period: period, MaxWalks: 1000})
	p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Minute})
	one := firstCPU(t)
	var tids []int
	for _, thread := range p.Threads() {
		tids = append(tids, thread.TID)
		assert.NilError(t, unix.SchedSetaffinity(thread.TID, &one))
	}
	addDemo(t, s, p)
	testenv.Poll(t, waiting, "a thread that left the CPU to another one", func() (found bool) {
		assert.NilError(t, w.Drain(func(*Account) {}))
		assert.NilError(t, w.DrainWalks(func(walk *Walk) {
			by := walk.Waker
			queued := ofQueue(walk)
			assert.Check(t, queued == 0 || queued >= uint64(queuePeriods*period), "%+v", walk)
			if walk.State == Runnable && by.Kind == ThreadWaker {
				assert.Check(t, by.TID != walk.TID && by.Name != "" && by.TraceID == [16]byte{}, "%+v", walk)
				found = found || by.PID == p.PID && slices.Contains(tids, by.TID)
			}
		}))
		return found
	})
}
