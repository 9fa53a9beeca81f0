package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

func openWaits(t testing.TB, s *Sampler, options WaitOptions) *Waits {
	t.Helper()
	w, err := s.OpenWaits(options)
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, w.Close()) })
	return w
}

func countersOf(t testing.TB, w *Waits) WaitCounters {
	t.Helper()
	counters, err := w.Counters()
	assert.NilError(t, err)
	return counters
}

// traces are accounts by their trace, each the sum of several.
type traces map[demo.TraceID]*Account

func (a traces) add(got *Account) {
	sum := a[demo.TraceID(got.TraceID)]
	if sum == nil {
		sum = &Account{Target: got.Target, TID: got.TID, TraceID: got.TraceID, TransactionID: got.TransactionID,
			OTel: got.OTel, First: got.First}
		a[demo.TraceID(got.TraceID)] = sum
	}
	sum.First, sum.Last = min(sum.First, got.First), max(sum.Last, got.Last)
	for i, state := range got.States {
		of := &sum.States[i]
		of.NS += state.NS
		of.Count += state.Count
		of.Longest = max(of.Longest, state.Longest)
	}
}

// await drains until the account of a trace is whole: a thread has come to it, and has left it.
func (a traces) await(t *testing.T, w *Waits, trace demo.TraceID) *Account {
	t.Helper()
	testenv.Poll(t, waiting, "an account", func() bool {
		assert.NilError(t, w.Drain(a.add))
		return a[trace] != nil && a[trace].States[Changed].Count >= 2
	})
	return a[trace]
}

func (a *Account) sum(without ThreadState) (ns uint64) {
	for state, of := range a.States {
		if ThreadState(state) != without {
			ns += of.NS
		}
	}
	return ns
}

// ran returns the time that a thread was not blocked, or for memory only.
func (a *Account) ran() (ns uint64) {
	for _, state := range []ThreadState{OnCPU, Changed, Runnable, Throttled, Fault} {
		ns += a.States[state].NS
	}
	return ns
}

// A wait is of its kind, thread and transaction, and not longer than by the program's clock; but for the time that the
// thread ran or waited for a CPU it is not shorter. But for the runs that begin and end it, all of the transaction's
// time is that from the first switch to the last, to the nanosecond. That holds for threads that were there before, and
// for later ones.
func TestWaits(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	target := addDemo(t, s, p)
	p.StartThreads(1, "idle")
	all := make(traces)
	for kind, state := range map[string]ThreadState{
		"sleep": Sleep, "futex": Futex, "pipe": Pipe, "unix": Unix, "net": Net, "poll": Poll,
	} {
		for thread := 1; thread <= 2; thread++ {
			waited := p.WaitIn(thread, kind, 20*time.Millisecond)
			got := all.await(t, w, waited.TraceID)
			of := got.States[state]
			assert.Check(t, got.Target == target && got.TID == waited.TID && !got.OTel &&
				got.TransactionID == waited.TransactionID, "%s: %+v", kind, got)
			assert.Check(t, of.Count > 0 && of.Longest > 0 && of.Longest <= uint64(waited.Waited) &&
				of.NS+got.ran() >= uint64(waited.Waited), "%s of %v: %+v", kind, waited.Waited, got)
			assert.Check(t, got.sum(Changed) == got.Last-got.First, "%s: %+v", kind, got)
			for other, of := range got.States[Futex:] {
				if other := Futex + ThreadState(other); other != state && other != Futex { // it joins a thread
					assert.Check(t, of.Count == 0 || other == Fault || other == Other, "%s: %+v", kind, got)
				}
			}
		}
	}
	counters := countersOf(t, w)
	assert.Check(t, counters.Lost == 0 && counters.Stateless == 0, "%+v", counters)
}

// The same holds for what is written to a disk.
func TestWaitsForDisk(t *testing.T) {
	dir := diskDir(t)
	s := openSampler(t, SamplerOptions{})
	got := newSpent(t, openWaits(t, s, WaitOptions{}))
	c := startWaits(t, s)
	began := time.Now()
	c.do("sync " + filepath.Join(dir, "file"))
	took := time.Since(began)
	got.await(begins(0xcc))
	for _, a := range got.traces {
		disk := a.States[Disk].NS
		assert.Check(t, disk > 0 && disk <= uint64(took) && disk+a.ran() >= uint64(c.waited), "%v, %v: %+v", c.waited,
			took, a)
	}
}

// Whether a thread leaves its CPU unseen, or comes to one, or both: its account is as long as if that were seen. The
// CPU time is what the scheduler says, the rest is a wait, of a kind that is not known if it began unseen.
func TestWaitsUnseen(t *testing.T) {
	const spent = 5e6
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{})
	p := demo.StartOTel(t, demo.OTelOptions{Form: demo.OTelTLSDESC, Threads: 1})
	rule := otelRule(t, p)
	addRules(t, s, p.PID, func() TargetRules { return TargetRules{OTel: rule} })
	task := fmt.Sprintf("/proc/%d/task/%d/", p.PID, p.Threads()[1].TID)
	ran := func() (ns uint64) {
		_, err := fmt.Sscan(string(testenv.ReadFile(t, task+"schedstat")), &ns)
		assert.NilError(t, err)
		return ns
	}
	become := func(busy bool) {
		p.Busy(1, busy)
		from := ran()
		testenv.Poll(t, waiting, "the thread to run or sleep", func() bool {
			return busy && ran() > from+spent || !busy && bytes.Contains(testenv.ReadFile(t, task+"stat"),
				[]byte(") S "))
		})
	}
	unseen := func() uint64 {
		counters := countersOf(t, w)
		return counters.Unseen
	}
	for name, of := range map[string]struct {
		before bool   // whether the thread is on a CPU
		unseen []bool // the same, as it changes
	}{"out": {true, []bool{false}}, "in": {false, []bool{true}}, "in and out": {false, []bool{true, false}}} {
		t.Run(name, func(t *testing.T) {
			for number := byte(1); ; number++ { // it may be switched before and after what is not seen
				record := otelRecord(number, nil)
				p.Begin(1, record)
				before := unseen()
				become(of.before)
				assert.NilError(t, w.links[len(w.links)-1].Close())
				for _, busy := range of.unseen {
					become(busy)
				}
				var err error
				w.links[len(w.links)-1], err = link.AttachTracing(link.TracingOptions{Program: w.objects.Switch})
				assert.NilError(t, err)
				p.Busy(1, false)
				p.Clear(1)
				got := make(traces).await(t, w, record.TraceID)
				assert.Check(t, got.sum(Changed) == got.Last-got.First, "%+v", got)
				assert.Assert(t, number < 50, "%d: %+v", unseen()-before, got)
				if unseen() > before && (of.before && got.States[Other].NS > 0 ||
					!of.before && got.States[OnCPU].NS >= spent && got.States[Futex].NS > 0) {
					return
				}
			}
		})
	}
}

// What a thread did until it ended is accounted, also if its process was killed in a wait.
func TestWaitsKilled(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	addDemo(t, s, p)
	begun := p.Begin(1)
	testenv.Poll(t, waiting, "the thread to sleep", func() bool {
		stat := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/task/%d/stat", p.PID, begun.Thread.TID))
		return bytes.Contains(stat, []byte(") S "))
	})
	p.Kill()
	got := make(traces).await(t, w, begun.TraceID)
	assert.Check(t, got.TID == begun.Thread.TID && got.States[Futex].Count > 0, "%+v", got)
}

// Only traces that are sampled are accounted, unless others are wanted, too.
func TestWaitsUnsampled(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := openSampler(t, SamplerOptions{KeepUnsampled: keep})
		w := openWaits(t, s, WaitOptions{})
		unsampled := demo.Start(t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
		sampled := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		addDemo(t, s, unsampled)
		addDemo(t, s, sampled)
		all := make(traces)
		first := unsampled.WaitIn(1, "sleep", time.Millisecond)
		if keep {
			all.await(t, w, first.TraceID)
		}
		all.await(t, w, sampled.WaitIn(1, "sleep", time.Millisecond).TraceID)
		assert.Check(t, (all[first.TraceID] != nil) == keep, "%v: %+v", keep, all)
	}
}

// A record of OpenTelemetry's is a context, whose transaction is not known.
func TestWaitsOTel(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{})
	p := demo.StartOTel(t, demo.OTelOptions{Form: demo.OTelTLSDESC, Threads: 1})
	rule := otelRule(t, p)
	target := addRules(t, s, p.PID, func() TargetRules { return TargetRules{OTel: rule} })
	record := otelRecord(7, nil)
	p.Begin(1, record)
	p.Clear(1)
	got := make(traces).await(t, w, record.TraceID)
	assert.Check(t, got.Target == target && got.OTel &&
		got.TransactionID == [8]byte{}, "%+v", got)
}

// surely is how long a thread sleeps that has a switch in that, also on CPUs that take milliseconds to go to sleep.
const surely = 20 * time.Millisecond

// A target with more contexts than its share of a table loses them, which is counted, and no other target
// does.
func TestWaitsShare(t *testing.T) {
	const room = 8
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{MaxAccounts: room})
	greedy := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	other := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	addDemo(t, s, greedy)
	target := addDemo(t, s, other)
	for range 2 * room {
		greedy.WaitIn(1, "sleep", surely)
	}
	waited := other.WaitIn(1, "sleep", surely)
	all := make(traces)
	testenv.Poll(t, waiting, "losses", func() bool {
		counters := countersOf(t, w)
		return counters.Lost > 0
	})
	assert.Check(t, all.await(t, w, waited.TraceID).Target == target)
	assert.Check(t, len(all) == 1+room/partOfAccounts, "%d accounts", len(all))
	again := greedy.WaitIn(1, "sleep", surely) // after a drain there is room again
	all.await(t, w, again.TraceID)
}

// Targets of one owner share what it may have of a table, whether they were there before or came later, and take none
// of another's; nor does who comes after an owner whose targets are gone.
func TestWaitsOwner(t *testing.T) {
	const room = 8
	s := openSampler(t, SamplerOptions{})
	var all []*demo.Process
	var targets []Target
	add := func(owner string) {
		p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		all = append(all, p)
		targets = append(targets, addRules(t, s, p.PID, func() TargetRules {
			return TargetRules{Elastic: demoRule(t, p), Owner: owner}
		}))
	}
	add("greedy")
	add("other")
	w := openWaits(t, s, WaitOptions{MaxAccounts: room})
	for range 3 {
		add("greedy")
	}
	for range 2 {
		var last demo.Wait
		for _, i := range []int{0, 2, 3, 4, 1} {
			for range room / partOfAccounts {
				last = all[i].WaitIn(1, "sleep", surely)
			}
		}
		got := make(traces)
		got.await(t, w, last.TraceID)
		of := make(map[Target]int)
		for _, a := range got {
			of[a.Target]++
		}
		assert.Check(t, of[targets[1]] == room/partOfAccounts && len(got)-of[targets[1]] == room/2, "%v", of)
		counters := countersOf(t, w)
		assert.Check(t, counters.Lost > 0, "%+v", counters)
		for _, i := range []int{0, 2, 3, 4} {
			assert.NilError(t, s.RemoveTarget(targets[i]))
		}
		targets, all = targets[:0:0], all[:0:0]
		add("new")
		add("other")
		for range 3 {
			add("new")
		}
	}
}

// However many owners take what they can get of a table, somebody else can have some.
func TestWaitsOwners(t *testing.T) {
	const room = 12
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{MaxAccounts: room})
	var last demo.Wait
	owners := make(map[Target]string)
	for _, owner := range []string{"first", "second", "other"} {
		for range 2 {
			p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
			owners[addRules(t, s, p.PID, func() TargetRules {
				return TargetRules{Elastic: demoRule(t, p), Owner: owner}
			})] = owner
			for range room / 2 {
				last = p.WaitIn(1, "sleep", surely)
			}
			if owner == "other" {
				break
			}
		}
	}
	testenv.Poll(t, waiting, "losses of the last", func() bool { // of its six contexts
		counters := countersOf(t, w)
		return counters.Accounts+counters.Lost >= 5*room/2
	})
	of := make(map[string]int)
	assert.NilError(t, w.Drain(func(a *Account) { of[owners[a.Target]]++ }))
	assert.Check(t, of["first"] == 6 && of["second"] == 3 && of["other"] == 2, "%v, after %v", of, last)
}

// Processes of an owner share room for the states of threads, and take none of another's. It is there again when
// threads or processes have ended, whoever the next owner is, and after a pause.
func TestWaitsOwnedThreads(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	targets := make(map[*demo.Process]Target)
	start := func(owner string) *demo.Process {
		p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		targets[p] = addRules(t, s, p.PID, func() TargetRules {
			return TargetRules{Elastic: demoRule(t, p), Owner: owner}
		})
		return p
	}
	first := start("greedy")
	w := openWaits(t, s, WaitOptions{MaxThreads: len(first.Threads()) + 1}) // with the one that reads the socket
	all := make(traces)
	drain := func() { t.Helper(); assert.NilError(t, w.Drain(all.add)) }
	stateless := func() uint64 {
		counters := countersOf(t, w)
		return counters.Stateless
	}
	drain()
	before := stateless() // of the first, until it had states
	second := start("greedy")
	assert.Check(t, stateless() == before)
	third := start("greedy")
	without := third.WaitIn(1, "sleep", time.Millisecond)
	assert.Check(t, stateless() > before)
	all.await(t, w, start("other").WaitIn(1, "sleep", time.Millisecond).TraceID)
	all.await(t, w, first.WaitIn(1, "sleep", time.Millisecond).TraceID)
	assert.Check(t, all[without.TraceID] == nil)
	end := func(all ...*demo.Process) {
		for _, p := range all {
			p.Kill()
			assert.NilError(t, s.RemoveTarget(targets[p]))
		}
	}
	end(third, first)
	fourth := start("greedy") // before anything is drained
	all.await(t, w, fourth.WaitIn(1, "sleep", time.Millisecond).TraceID)
	last := start("greedy")
	drain()
	before = stateless()
	last.WaitIn(1, "sleep", time.Millisecond)
	assert.Check(t, stateless() > before)
	end(second, fourth, last)
	all.await(t, w, start("new").WaitIn(1, "sleep", time.Millisecond).TraceID) // an owner of the same number
	for range 2 {                                                              // what there is is counted anew
		assert.NilError(t, w.Pause())
		assert.NilError(t, w.Resume())
	}
	start("new")
	drain()
	before = stateless()
	start("new").WaitIn(1, "sleep", time.Millisecond)
	assert.Check(t, stateless() > before)
}

// A target that is added while accounts are resumed has its threads counted once.
func TestWaitsResumedMeanwhile(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{Paused: true})
	cmd := exec.Command("cat")
	testenv.Start(t, cmd)
	static := TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static}} // accounts know those that may have contexts
	for range 100 {
		resumed := make(chan error, 1)
		go func() { resumed <- w.Resume() }()
		var target Target
		for done := false; !done; {
			if target != 0 {
				assert.NilError(t, s.RemoveTarget(target))
			}
			target = addRules(t, s, cmd.Process.Pid, func() TargetRules { return static })
			select {
			case err := <-resumed:
				assert.NilError(t, err)
				done = true
			default:
			}
		}
		var of waitsUsage
		_, err := w.usages.ReadAt(asBytes(unsafe.Slice(&of, 1)), usageAt(uint32(uint16(target))))
		assert.NilError(t, err)
		assert.Assert(t, of.Threads == 1, "%d threads of one", of.Threads)
		assert.NilError(t, w.Pause())
		assert.NilError(t, s.RemoveTarget(target))
	}
}

// Threads that a process begins while it has more than it may have have no account, which is counted; those that it
// has keep theirs. Of a process that has more when it is found none has one.
func TestWaitsThreads(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	crowded := demo.Start(t, demo.Options{Manual: true, Idle: 5})
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
	assert.NilError(t, err)
	w := openWaits(t, s, WaitOptions{MaxThreads: len(threads) + 1})
	addDemo(t, s, p)
	addDemo(t, s, crowded)
	p.StartThreads(1, "idle")
	p.StartThreads(1, "idle")
	all := make(traces)
	for _, without := range []demo.Wait{
		p.WaitIn(3, "sleep", time.Millisecond), crowded.WaitIn(1, "sleep", time.Millisecond),
	} {
		for thread := 1; thread <= 2; thread++ {
			all.await(t, w, p.WaitIn(thread, "sleep", time.Millisecond).TraceID)
		}
		assert.Check(t, all[without.TraceID] == nil, "%+v", all[without.TraceID])
	}
	counters := countersOf(t, w)
	assert.Check(t, counters.Stateless > 0, "%+v", counters)
}

// Spans are not told apart: a thread that changes from one to the next is in the same account.
func TestWaitsSpans(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	addDemo(t, s, p)
	begun := p.Begin(1)
	for span := range 5 {
		p.Span(1, span)
	}
	p.End(1)
	got := make(traces).await(t, w, begun.TraceID)
	assert.Check(t, got.States[Changed].Count == 2 && got.sum(Changed) == got.Last-got.First, "%+v", got)
}

// What threads do while their process is no target is not accounted, whatever they do when it is one again: no
// time is longer than since then.
func TestWaitsRemoved(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{})
	p := demo.Start(t, demo.Options{Busy: 2, Idle: 1, Transaction: 20 * time.Millisecond, Gap: -1})
	removed := addDemo(t, s, p)
	all := make(traces)
	for round := range 5 {
		testenv.Poll(t, waiting, "accounts", func() bool {
			assert.NilError(t, w.Drain(all.add))
			return len(all) > 10
		})
		assert.NilError(t, s.RemoveTarget(removed))
		busy := p.StartThreads(1, "idle") // which takes all threads some switches
		assert.NilError(t, w.Drain(func(*Account) {}))
		since := Now()
		target := addDemo(t, s, p)
		clear(all)
		testenv.Poll(t, waiting, "accounts of the new target", func() bool {
			assert.NilError(t, w.Drain(func(a *Account) {
				if a.Target == target {
					all.add(a)
				}
			}))
			return len(all) > 10
		})
		longest := Now() - since
		for _, a := range all {
			for state, of := range a.States {
				assert.Check(t, of.Longest <= longest, "%d: state %d of %v: %+v", round, state, busy, a)
			}
		}
		removed = target
		clear(all)
	}
}

// While accounts are paused the kernel does nothing for them, and afterwards none has anything of that time, nor of
// the time before: also not of a thread that waits in one transaction all the while.
func TestWaitsPaused(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	w := openWaits(t, s, WaitOptions{Paused: true})
	p := demo.Start(t, demo.Options{Busy: 2, Idle: 1, Transaction: 20 * time.Millisecond, Gap: -1})
	addDemo(t, s, p)
	for round := range 3 {
		p.Begin(3) // of the idle threads
		before, err := w.Counters()
		assert.NilError(t, err)
		p.StartThreads(1, "idle") // which takes all threads some switches
		after := countersOf(t, w)
		assert.Check(t, before == after, "%+v, %+v", before, after)
		assert.NilError(t, w.Drain(func(*Account) {}))
		since := Now()
		assert.NilError(t, w.Resume())
		assert.NilError(t, w.Resume()) // which changes nothing
		all := make(traces)
		p.End(3)
		second := p.Begin(3)
		p.End(3)
		testenv.Poll(t, waiting, "accounts", func() bool {
			assert.NilError(t, w.Drain(all.add))
			return len(all) > 10 && all[second.TraceID] != nil
		})
		longest := Now() - since
		for trace, a := range all {
			assert.Check(t, a.First >= since, "%d: %v begins %d ns too early: %+v", round, trace, since-a.First, a)
			assert.Check(t, a.sum(Changed) == a.Last-a.First, "%d: %+v", round, a)
			for state, of := range a.States {
				assert.Check(t, of.Longest <= longest, "%d: state %d: %+v", round, state, a)
			}
		}
		assert.NilError(t, w.Pause())
		assert.NilError(t, w.Drain(all.add))
	}
}

// With ByThread, each thread of a process of any kind has one account without ids, whatever context it has: what it
// does from Resume to Pause, to the nanosecond, also if it waits or runs all that time, or ends before. It has the
// thread's name of then.
func TestWaitsByThread(t *testing.T) {
	s := openSampler(t, SamplerOptions{KeepUntraced: true})
	w := openWaits(t, s, WaitOptions{ByThread: true, Paused: true})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 2})
	addDemo(t, s, p)
	ending := exec.Command("sh", "-c", "read x; printf renamed >/proc/$$/comm")
	stdin, err := ending.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, ending.Start())
	stat := fmt.Sprintf("/proc/%d/stat", ending.Process.Pid)
	await := func(state string) {
		t.Helper()
		testenv.Poll(t, waiting, state, func() bool { return bytes.Contains(testenv.ReadFile(t, stat), []byte(state)) })
	}
	await("(sh) S ") // else its wait may begin before switches are seen
	target := addRules(t, s, ending.Process.Pid, func() TargetRules { return TargetRules{} })
	before := Now()
	assert.NilError(t, w.Resume())
	begun := Now()
	waited := p.WaitIn(1, "pipe", 20*time.Millisecond)
	p.StartThreads(1, "idle")
	later := p.WaitIn(3, "sleep", 20*time.Millisecond)
	assert.Check(t, stdin.Close())
	await("(renamed) Z ")
	ended := Now()
	assert.NilError(t, w.Pause())
	after := Now()
	assert.NilError(t, ending.Wait())
	all := make(map[int]*Account)
	assert.NilError(t, w.Drain(func(a *Account) {
		assert.Check(t, a.TraceID == [16]byte{} && a.TransactionID == [8]byte{} && !a.OTel, "%+v", a)
		sum := all[a.TID]
		if sum == nil {
			first := *a
			all[a.TID] = &first
			return
		}
		assert.Check(t, a.Target == sum.Target, "%+v", a)
		if a.Last > sum.Last { // that of another name
			sum.Thread = a.Thread
		}
		sum.First, sum.Last = min(sum.First, a.First), max(sum.Last, a.Last)
		for state := range a.States {
			sum.States[state].NS += a.States[state].NS
			sum.States[state].Count += a.States[state].Count
		}
	}))
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
	assert.NilError(t, err)
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		a := all[tid]
		assert.Assert(t, a != nil, "no account of %d: %v", tid, all)
		assert.Check(t, a.sum(ThreadState(ThreadStates)) == a.Last-a.First && a.Last >= ended && a.Last <= after,
			"%d: %+v", tid, a)
		assert.Check(t, a.First >= before && (a.First <= begun || tid == later.TID), "%d: %+v", tid, a)
		name := strings.TrimSpace(string(testenv.ReadFile(t, fmt.Sprintf("/proc/%d/task/%d/comm", p.PID, tid))))
		assert.Check(t, a.States[Changed].Count == 0 && a.Thread == name, "%d: %+v, called %q", tid, a, name)
	}
	assert.Check(t, all[waited.TID].States[Pipe].NS > 0 && all[later.TID].States[Sleep].NS > 0, "%+v, %+v",
		all[waited.TID], all[later.TID])
	of := all[ending.Process.Pid]
	assert.Assert(t, of != nil && of.Target == target && of.Thread == "renamed", "%+v", of)
	assert.Check(t, of.States[Pipe].NS > 0 && of.States[OnCPU].NS > 0 && of.First >= before && of.First <= begun &&
		of.Last <= after && of.sum(ThreadState(ThreadStates)) == of.Last-of.First, "%+v", of)
	assert.Check(t, of.States[Other].Count == 0, "its end is a wait: %+v", of)
	counters := countersOf(t, w)
	assert.Check(t, counters.Lost == 0, "%+v", counters)
	assert.NilError(t, w.Drain(func(a *Account) { t.Errorf("after Pause: %+v", a) }))
}

// What a worker of io_uring waits for is a disk, or other than what a system call waits for: it is in none.
func TestWaitsByThreadOfUring(t *testing.T) {
	dir := diskDir(t)
	pipe := filepath.Join(dir, "pipe")
	assert.NilError(t, unix.Mkfifo(pipe, 0o600))
	cmd := exec.Command(testenv.Compile(t, "cc", "testdata/uring.c"), pipe, filepath.Join(dir, "file"))
	stdin, stdout := testenv.Start(t, cmd)
	first := make([]byte, 1)
	_, err := stdout.Read(first)
	assert.NilError(t, err)
	if first[0] == '-' {
		testenv.Missing(t, "io_uring")
	}
	do := func() {
		fmt.Fprintln(stdin)
		_, err := stdout.Read(make([]byte, 1))
		assert.NilError(t, err)
	}
	do()
	s := openSampler(t, SamplerOptions{KeepUntraced: true})
	w := openWaits(t, s, WaitOptions{ByThread: true, Paused: true})
	addRules(t, s, cmd.Process.Pid, func() TargetRules { return TargetRules{} })
	assert.NilError(t, w.Resume())
	var workers Account
	testenv.Poll(t, waiting, "waits of workers", func() bool {
		do()
		assert.NilError(t, w.Drain(func(a *Account) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", cmd.Process.Pid, a.TID))
			if err != nil || !strings.HasPrefix(string(comm), "iou-wrk") {
				return
			}
			for state, of := range a.States {
				workers.States[state].NS += of.NS
			}
		}))
		return workers.States[Disk].NS > 0 && workers.States[Other].NS > 0
	})
	for state := Futex; state <= Fault; state++ {
		assert.Check(t, state == Disk || workers.States[state].NS == 0, "%d: %+v", state, workers)
	}
}

// startShell starts a shell that first writes a line: what was started may not be what it will be yet.
func startShell(t *testing.T, shell *exec.Cmd) {
	t.Helper()
	stdout, err := shell.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, shell.Start())
	_, err = stdout.Read(make([]byte, 1))
	assert.NilError(t, err)
}

// A thread that ran when accounts began, and waits since before switches were seen, has waited; one that ended there
// has not. The scheduler says how long they ran, which it adds up at ticks: it may say too much by the time of one.
func TestWaitsByThreadUnseen(t *testing.T) {
	s := openSampler(t, SamplerOptions{KeepUntraced: true})
	started := filepath.Join(t.TempDir(), "started")
	loop := "echo; while [ ! -e " + started + " ]; do :; done; "
	reader, ending := exec.Command("sh", "-c", loop+"read x"), exec.Command("sh", "-c", loop)
	stdin, err := reader.StdinPipe()
	assert.NilError(t, err)
	state := func(p *exec.Cmd) string {
		_, stat, _ := strings.Cut(string(testenv.ReadFile(t, fmt.Sprintf("/proc/%d/stat", p.Process.Pid))), ") ")
		return stat[:1]
	}
	var blocked uint64
	w := openWaits(t, s, WaitOptions{ByThread: true, Paused: true, begun: func() {
		testenv.WriteFile(t, started, "")
		testenv.Poll(t, waiting, "a wait and an end", func() bool { return state(reader)+state(ending) == "SZ" })
		blocked = Now()
		time.Sleep(time.Second) // many ticks
	}})
	for _, p := range []*exec.Cmd{reader, ending} {
		startShell(t, p)
		addRules(t, s, p.Process.Pid, func() TargetRules { return TargetRules{} })
	}
	assert.NilError(t, w.Resume())
	pausing := Now()
	assert.NilError(t, w.Pause())
	assert.NilError(t, stdin.Close())
	assert.Check(t, reader.Wait() != nil) // read has found the end
	assert.NilError(t, ending.Wait())
	counted := 0
	assert.NilError(t, w.Drain(func(a *Account) {
		counted++
		ran := a.States[OnCPU].NS + a.States[Runnable].NS
		assert.Check(t, a.sum(ThreadState(ThreadStates)) == a.Last-a.First, "%+v", a)
		if a.TID == reader.Process.Pid {
			assert.Check(t, ran > 0 && a.States[Pipe].NS >= (pausing-blocked)/2 && a.Last >= pausing, "%+v", a)
		} else {
			assert.Check(t, a.TID == ending.Process.Pid && ran == a.Last-a.First, "%+v", a)
		}
	}))
	assert.Check(t, counted == 2)
}

// The stacks of waits are walked of threads without a context, too, and have no ids.
func TestWalksByThread(t *testing.T) {
	s := openSampler(t, SamplerOptions{KeepUntraced: true})
	w := openWaits(t, s, WaitOptions{ByThread: true, Paused: true})
	if err := w.Walkless(); err != nil {
		testenv.Missing(t, err.Error())
	}
	p := exec.Command("sh", "-c", "echo; while :; do sleep 0.03; done")
	startShell(t, p)
	defer func() { assert.Check(t, p.Process.Kill()); _ = p.Wait() }()
	target := addRules(t, s, p.Process.Pid, func() TargetRules { return TargetRules{} })
	assert.NilError(t, w.Resume())
	walked, named := 0, false
	testenv.Poll(t, waiting, "stacks", func() bool {
		assert.NilError(t, w.DrainWalks(func(walk *Walk) {
			if walk.Stack.Target == 0 { // that of the test whether walks work
				return
			}
			if walk.State == Other && named { // then the thread's name is where others have their ids
				walked++
			}
			assert.Check(t, walk.Stack.Target == target && walk.TID == p.Process.Pid && walk.TraceID == [16]byte{} &&
				walk.SpanID == [8]byte{}, "%+v", walk)
		}))
		assert.NilError(t, w.Drain(func(a *Account) { named = named || a.Thread != "" }))
		return walked >= 3
	})
}
