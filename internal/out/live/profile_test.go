package live

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/out/agent"
	"correlator/procscan"
	"correlator/profile"
)

// This file tests what is shown of processes of any kind: threads that work on nothing, and stacks of processes.

// untracedSample returns samples of a thread of a process of newSource that works on no transaction.
func untracedSample(pid, tid int, count uint64, at time.Time, names ...string) *profile.Sample {
	s := newSample(pid, tid, 0, count, at)
	s.Resource.Process = procscan.ProcessID{PID: pid, StartTime: 1}
	s.TraceID, s.TransactionID, s.SpanID, s.Stack = [16]byte{}, [8]byte{}, [8]byte{}, frames(names...)
	return s
}

// feedNamed feeds a sample, and reports whether its stack is collected.
func feedNamed(t *Tracker, sample *profile.Sample) bool {
	taken := t.Sampled(sample)
	if taken {
		t.Named(sample)
	}
	return taken
}

// The CPU time of all threads, and of all stacks of a process since it was selected, is that of the samples, in
// transactions or not; others' are not in it. They end with the selection, and with the process.
func TestProfileOfProcess(t *testing.T) {
	source := newSource(3)
	p, c := newPublisher(source)
	p.tracker.untraced = true
	c.want, c.pid = wantProcesses|wantThreads|wantProfiles, 1001
	now := time.Now().Add(-time.Minute)
	p.publish(now)
	for second := range 10 {
		at := now.Add(time.Duration(second)*time.Second + time.Second/2)
		traced := newSample(1001, 3, 1, 5, at)
		traced.Resource.Process, traced.Stack = procscan.ProcessID{PID: 1001, StartTime: 1}, frames("handle", "main")
		assert.Check(t, feedNamed(p.tracker, traced))
		assert.Check(t, feedNamed(p.tracker, untracedSample(1001, 1, 10, at, "wait\x1b", "main")))
		assert.Check(t, feedNamed(p.tracker, untracedSample(1001, 2, 5, at, "idle", "main")))
		assert.Check(t, !feedNamed(p.tracker, untracedSample(1002, 4, 20, at, "other", "main")))
		p.publish(now.Add(time.Duration(second+1) * time.Second))
	}
	var cpu, used float64
	for _, th := range c.last.threads {
		cpu += th.CPU.Value()
		works := th.Tid.Value() == 3
		assert.Check(t,
			th.TraceID.IsSet() == works && th.TransactionID.IsSet() == works && th.Context.IsSet() == works &&
				th.Since.IsSet() == works, "%+v", th)
	}
	assert.Check(t, len(c.last.threads) == 4 && math.Abs(cpu-2) < 0.01, "%d threads use %v CPUs", len(c.last.threads),
		cpu)
	for _, x := range c.last.processStacks {
		assert.Check(t, x.Pid.Value() == 1001)
		used += float64(x.CPUTime.Value())
	}
	assert.Check(t, len(c.last.processStacks) == 3 && math.Abs(used-10) < 0.001, "%v s in %+v", used,
		c.last.processStacks)
	var names []string
	for _, x := range c.last.stacks {
		names = append(names, x.Frames.Value()[0])
	}
	slices.Sort(names)
	assert.Check(t, slices.Equal(names, []string{"handle", "idle", "wait\ufffd"}), "%q", names)
	for _, x := range c.last.processes {
		since, counted := x.StacksSince.Get()
		assert.Check(t, counted == (x.Pid.Value() == 1001) && (!counted || since.Time().Unix() == now.Unix()), "%+v", x)
	}

	// One that had the pid before, or has it later, is another one.
	later := untracedSample(1001, 1, 1, now, "later")
	later.Resource.Process.StartTime = 2
	assert.Check(t, !feedNamed(p.tracker, later))
	all := *source.processes.Load()
	left := slices.Concat(all[:1], all[2:])
	source.processes.Store(&left)
	p.publish(now.Add(11 * time.Second))
	assert.Check(t, len(c.last.processStacks)+len(c.last.stacks) == 0, "of a process that has ended")
	wantNoStacks(t, p.tracker)

	source.processes.Store(&all)
	p.publish(now.Add(12 * time.Second))
	assert.Check(t, feedNamed(p.tracker, untracedSample(1001, 1, 1, now, "main")))
	c.want = wantProcesses
	p.publish(now.Add(20 * time.Second))
	p.publish(now.Add(30 * time.Second))
	assert.Check(t, len(c.last.processStacks)+len(p.tracker.stacks.profiles) == 0, "nobody wants them")
	wantNoStacks(t, p.tracker)
}

// A stack that a transaction and its process have is published once, and stays while one of them is selected.
func TestStackOfTransactionAndProcess(t *testing.T) {
	p, c := newPublisher(newSource(1))
	p.tracker.untraced = true
	c.want = wantTransactions | wantStacks | wantProfiles
	now := time.Now()
	feed := func() {
		s := newSample(1000, 1, 1, 2, now)
		s.Resource.Process, s.Stack = procscan.ProcessID{PID: 1000, StartTime: 1}, frames("handle", "main")
		feedNamed(p.tracker, s)
	}
	for second := range 4 {
		p.publish(now.Add(time.Duration(second-3) * time.Second))
		feed()
	}
	p.publish(now.Add(time.Second))
	assert.Check(t, len(c.last.stacks) == 1 && len(c.last.stackVersions) == 1 && len(c.last.processStacks) == 1 &&
		len(c.last.transactionStacks) == 1, "%+v", c.last)
	c.only, c.pid = "none", 1000
	p.publish(now.Add(2 * time.Second))
	assert.Check(t, len(c.last.stacks) == 1 && len(c.last.processStacks) == 1 && len(c.last.transactionStacks) == 0,
		"%+v", c.last)
	c.pid = 1
	p.publish(now.Add(3 * time.Second))
	wantNoStacks(t, p.tracker)
}

// A thread that works on a transaction no more is shown without one while it runs, not forgotten.
func TestThreadAfterTransaction(t *testing.T) {
	tracker := newTracker(wantThreads)
	tracker.untraced = true
	tracker.Sampled(newSample(1000, 1, 1, 1, noon))
	tracker.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 1000}, ReadAt: noon.Add(time.Second)}})
	s := snapshotAt(tracker, wantThreads, 2*time.Second)
	assert.Assert(t, len(s.threads) == 1)
	assert.Check(t, !s.threads[0].TraceID.IsSet() && !s.threads[0].SpanID.IsSet() && !s.threads[0].Since.IsSet())
	s = snapshotAt(tracker, wantThreads, forget+2*time.Second)
	assert.Check(t, len(s.threads) == 0, "%+v", s.threads)
}

// Where contexts alone are shown, neither threads that work on nothing are, nor stacks of processes.
func TestProfilesOfContextsAlone(t *testing.T) {
	p, c := newPublisher(newSource(1))
	c.want = wantHosts | wantProcesses | wantThreads | wantProfiles
	now := time.Now()
	p.publish(now)
	assert.Check(t, !feedNamed(p.tracker, untracedSample(1000, 1, 1, now, "main")))
	p.publish(now.Add(time.Second))
	assert.Check(t, len(c.last.threads)+len(c.last.processStacks) == 0 && !c.last.hosts[0].AllProcesses.IsSet() &&
		!c.last.processes[0].StacksSince.IsSet(), "%+v", c.last)
	p.tracker.untraced = true
	p.publish(now.Add(2 * time.Second))
	assert.Check(t, c.last.hosts[0].AllProcesses.Value())
}

// Stacks of one owner's processes take half of the room at most, and their time without a stack is told: all samples
// are in stacks or lost.
func TestProfilesAreBounded(t *testing.T) {
	p, c := newPublisher(newSource(2))
	p.tracker.untraced = true
	c.want = wantProcesses | wantProfiles
	now := time.Now()
	p.publish(now)
	const samples = 4000
	for i := range samples {
		s := stackSample("hog", 0, i, 80, 60)
		s.Resource.Process = procscan.ProcessID{PID: 1000, StartTime: 1}
		s.TraceID, s.TransactionID = [16]byte{}, [8]byte{}
		feedNamed(p.tracker, s)
	}
	assert.Check(t, feedNamed(p.tracker, untracedSample(1001, 1, 1, now, "of another", "main")))
	bare := untracedSample(1001, 1, 2, now)
	assert.Check(t, feedNamed(p.tracker, bare))
	bare.Stack = nil
	assert.Check(t, feedNamed(p.tracker, bare))
	p.publish(now.Add(time.Second))
	held := p.tracker.stacks.bytes.Held("hog")
	assert.Check(t, held > maxStackBytes/4 && held <= maxStackBytes/2, "%d bytes", held)
	sums := make(map[uint32]time.Duration)
	for _, x := range c.last.processStacks {
		sums[x.Pid.Value()] += x.CPUTime.Value().Duration()
	}
	for _, x := range c.last.processes {
		sums[x.Pid.Value()] += x.StacksLost.Value().Duration()
		assert.Check(t, x.Pid.Value() == 1000 && x.StacksLost.Value() > 0 || x.StacksLost.Value() == 0.2, "%+v", x)
	}
	assert.Check(t,
		(sums[1000]-samples*50*time.Millisecond).Abs() < time.Millisecond && sums[1001] == 250*time.Millisecond,
		"%v", sums)
	assert.Check(t, p.tracker.lost().samples[untrackedStack] > 0)
}

// A sample is counted once as one whose stack there was no room for, though it lacks in its transaction and in its
// process.
func TestUntrackedOnce(t *testing.T) {
	p, c := newPublisher(newSource(1))
	p.tracker.untraced = true
	c.want = wantTransactions | wantStacks | wantProcesses | wantProfiles
	now := time.Now()
	sample := stackSample("hog", 1, 0, 80, 60)
	sample.At, sample.Last, sample.Resource.Process = now, now, procscan.ProcessID{PID: 1000, StartTime: 1}
	for second := range 3 {
		p.publish(now.Add(time.Duration(second-3) * time.Second))
		p.tracker.Sampled(sample)
	}
	assert.Check(t, len(p.tracker.stacks.collecting) == 1 && len(p.tracker.stacks.profiles) == 1)
	budget := p.tracker.stacks.bytes
	for budget.Take("hog", stackBytes) {
	}
	sample.Count = 3
	p.tracker.Named(sample)
	assert.Check(t, p.tracker.lost().samples[untrackedStack] == 3, "%v", p.tracker.lost().samples)
}

// Where the stacks of all processes are wanted, those of the busiest are collected.
func TestBusiestProcessesHaveStacks(t *testing.T) {
	p, c := newPublisher(newSource(maxCollecting + 50))
	c.want = wantProfiles
	p.tracker.untraced, p.used = true, make(map[procscan.ProcessID]*processTime)
	p.status.Processes = *newSource(maxCollecting + 50).processes.Load()
	busiest := p.status.Processes[maxCollecting+7].ID
	u := new(processTime)
	u.add(0, time.Second, noon)
	u.add(time.Second, time.Second, noon.Add(time.Second))
	p.used[busiest] = u
	selected := p.profiled("host-id")
	assert.Check(t, len(selected) == maxCollecting && selected[0] == busiest, "%d, first %v", len(selected),
		selected[0])
}

// Of many processes, it is asked in turn whose stacks are wanted, and anew where nobody has wanted any meanwhile.
func TestProfilesAskedInTurn(t *testing.T) {
	p, c := newPublisher(newSource(3 * maxProfilesAsked))
	p.tracker.untraced = true
	c.want = wantProcesses | wantProfiles
	now := time.Now()
	publish := func(wanted want, pid uint32) map[procscan.ProcessID]*collection {
		c.want, c.pid, now = wanted, pid, now.Add(linger)
		p.publish(now)
		return p.tracker.stacks.profiles
	}
	last := uint32(1000 + 3*maxProfilesAsked - 1)
	for i := range 3 {
		n := len(publish(wantProcesses|wantProfiles, last))
		assert.Check(t, n == i/2, "%d after %d", n, i)
	}
	publish(wantProcesses|wantProfiles, 0)
	assert.Check(t, len(p.wanted) == 3*maxProfilesAsked && len(p.tracker.stacks.profiles) == maxCollecting)
	n := len(publish(wantProcesses, 0))
	assert.Check(t, n == 0, n)
	n = len(publish(wantProcesses|wantProfiles, 1001))
	assert.Check(t, n == 1, "%d are collected, which nobody wants", n)
}

func testPageOfAnyProcess(t *testing.T, w *window) {
	processes := *newSource(2).processes.Load()
	processes[1].View = process.NewView(procscan.ProcessID{PID: 1001, StartTime: 1})
	source := &fakeSource{}
	source.processes.Store(&processes)
	l := openLive(t, Config{Listen: []string{newSocket(t)}, Untraced: true})
	l.Start(source)
	w.open(listen(t, l.broker))
	feed := func() {
		for i := range 3 {
			l.Sampled(untracedSample(1001, 11+i, 1, time.Now(), fmt.Sprintf("<b>%d</b>", i), "main"))
		}
	}
	w.pollRows("processes", 2, feed)
	w.pollRows("threads", 3, feed)
	assert.Check(t, slices.Equal(w.column("threads", 2), []string{"", "", ""}), "%q", w.column("threads", 2))

	// A click on a process shows its threads and its flame graph; another one, neither.
	row := `[...document.querySelectorAll("#processes tbody tr")].find(r => r.cells[3].textContent.includes("pid 1001"))`
	w.poll(row+`.click() === undefined`, nil)
	w.poll(shownNames+`.split(",").sort().join() == "<b>0</b>,<b>1</b>,<b>2</b>,main"`, feed)
	w.poll(`/process 1001/.test(document.querySelector("#flame small").textContent)`, feed)
	w.want(`[...view.objects("CorrelatorProcessStack").values()].every(o => o.pid == 1001)`, "true")
	w.shoot("any-process")
	w.poll(row+`.click() === undefined`, nil)
	w.poll(`document.querySelector("#flame .empty").checkVisibility()`, feed)

	// A click on a thread that works on nothing shows that of its process.
	w.Click("#threads tbody tr")
	w.poll(shownNames+`.includes("main")`, feed)
	none := processes[:1]
	source.processes.Store(&none)
	w.poll(`/it has ended/.test(document.querySelector("#flame small").textContent)`, feed)
	w.want(shownNames+`.includes("main")`, "true")
}
