package live

import (
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/internal/host/share"
	"correlator/internal/out/agent"
	"correlator/internal/out/live/types"
	"correlator/procscan"
	"correlator/profile"
)

// threads are what a Tracker tells of threads, by tid.
func (w *waitingTest) threads() map[uint32]types.CorrelatorThread {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := make(map[uint32]types.CorrelatorThread)
	for _, x := range testObjects.threads(w.Tracker) {
		found[x.Tid.Value()] = x
	}
	return found
}

// waitingTest is a Tracker of threads of process 7, at seconds from a time on.
type waitingTest struct {
	*Tracker
	t     *testing.T
	start time.Time
}

func newWaitingTest(t *testing.T) *waitingTest {
	w := &waitingTest{NewTracker(20), t, time.Now().Add(-time.Hour)}
	w.Want(wantThreads)
	return w
}

func (w *waitingTest) at(second float64) time.Time {
	return w.start.Add(time.Duration(second * float64(time.Second)))
}

func (w *waitingTest) sample(second float64, tid int, transaction byte) {
	w.Sampled(&profile.Sample{Resource: &profile.Resource{PID: 7}, TID: tid, Thread: "name", Count: 1, At: w.at(second),
		TraceID: [16]byte{1}, TransactionID: [8]byte{transaction}})
}

func works(tid int, transaction byte) agent.ThreadWork {
	return agent.ThreadWork{TID: tid, Known: true, TraceID: [16]byte{1}, TransactionID: [8]byte{transaction},
		SpanID: [8]byte{3}}
}

func (w *waitingTest) read(second float64, threads ...agent.ThreadWork) {
	w.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 7}, ReadAt: w.at(second), Threads: threads}})
}

func (w *waitingTest) tickAt(second float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick(w.at(second))
}

// want checks which threads are told of, with their transactions.
func (w *waitingTest) want(want map[uint32]string) {
	w.t.Helper()
	got := make(map[uint32]string)
	for tid, x := range w.threads() {
		got[tid] = x.TransactionID.Value()
	}
	assert.Check(w.t, maps.Equal(got, want), "got %v, want %v", got, want)
}

const tx1, tx2 = "0100000000000000", "0200000000000000"

// Of the threads of a process, those that were found to work on a transaction wait in it, but for what they run; a
// sample alone does not tell that the thread still works. Of processes that were not read, that is not known.
func TestWaitingOfProcesses(t *testing.T) {
	source := newSource(4)
	p, c := newPublisher(source)
	c.want = wantProcesses
	now := time.Now()
	p.publish(now)
	assert.Check(t, !c.last.processes[0].Waiting.IsSet(), "nobody has joined threads")
	c.want |= wantThreads
	source.readAt = map[procscan.ProcessID]time.Time{{PID: 1002, StartTime: 1}: now} // before somebody joined
	p.publish(now.Add(time.Second))
	for _, x := range c.last.processes {
		assert.Check(t, !x.Waiting.IsSet(), "before the first reading: %+v", x)
	}
	for pid := 1000; pid < 1002; pid++ {
		source.readAt[procscan.ProcessID{PID: pid, StartTime: 1}] = now.Add(1500 * time.Millisecond)
	}
	p.tracker.Sampled(newSample(1000, 1, 1, 15, now.Add(time.Second))) // 0.75 s
	p.tracker.Sampled(newSample(1000, 2, 2, 1, now.Add(time.Second)))
	p.tracker.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 1000},
		ReadAt: now.Add(1500 * time.Millisecond), Partial: true,
		Threads: []agent.ThreadWork{works(1, 1), works(3, 3)}}})
	p.publish(now.Add(2 * time.Second))
	for _, x := range c.last.processes {
		want, read := map[uint32]float64{1000: 1.25, 1001: 0}[x.Pid.Value()]
		assert.Check(t, x.Waiting.IsSet() == read && math.Abs(x.Waiting.Value()-want) < 0.002, "%+v", x)
	}
}

// A thread that was never seen running is there from the first read on, without a time when it ran, and
// until a read says that it works on nothing: however long that takes.
func TestWaitingThread(t *testing.T) {
	w := newWaitingTest(t)
	w.read(1, works(5, 1))
	w.tickAt(100)
	w.want(map[uint32]string{5: tx1})
	x := w.threads()[5]
	assert.Check(t, !x.LastRun.IsSet() && x.CPU.Value() == 0 &&
		x.Since.Value().Time().Sub(w.at(1)).Abs() <= time.Millisecond && x.SpanID.Value() == "0300000000000000",
		"%+v", x)
	w.read(101, works(5, 1), works(6, 2))
	w.want(map[uint32]string{5: tx1, 6: tx2})
	w.read(102, works(6, 1)) // 5 has ended its transaction, 6 has begun another one
	w.want(map[uint32]string{6: tx1})
	since := w.threads()[6].Since.Value().Time()
	assert.Check(t, since.Sub(w.at(102)).Abs() <= time.Millisecond, since)
	w.read(103)
	w.want(map[uint32]string{})
}

// A thread that has run is kept while it waits, and its share of the CPU decays.
func TestWaitingAfterRunning(t *testing.T) {
	w := newWaitingTest(t)
	w.sample(1, 5, 1)
	w.tickAt(1.5)
	for second := 2.0; second < 40; second++ {
		w.read(second, works(5, 1))
		w.tickAt(second)
	}
	x := w.threads()[5]
	assert.Check(t, x.CPU.Value() == 0 && x.LastRun.Value().Time().Sub(w.at(1)).Abs() <= time.Millisecond &&
		x.Since.Value().Time().Sub(w.at(1)).Abs() <= time.Millisecond && x.Name.Value() == "name",
		"%+v", x)
	w.sample(40, 5, 2) // what it waited for has come: from here on, samples tell
	w.want(map[uint32]string{5: tx2})
	w.tickAt(51)
	w.want(map[uint32]string{})
}

// What is newer wins, in whichever order it comes.
func TestWaitingOrder(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*waitingTest)
		want map[uint32]string
	}{
		{"read after sample", func(w *waitingTest) { w.sample(1, 5, 1); w.read(2, works(5, 2)) },
			map[uint32]string{5: tx2}},
		{"late read", func(w *waitingTest) { w.sample(3, 5, 1); w.read(2, works(5, 2)) }, map[uint32]string{5: tx1}},
		{"late read of nothing", func(w *waitingTest) { w.sample(3, 5, 1); w.read(2) }, map[uint32]string{5: tx1}},
		{"late sample", func(w *waitingTest) { w.read(2, works(5, 2)); w.sample(1, 5, 1) }, map[uint32]string{5: tx2}},
		{"late sample of the same", func(w *waitingTest) { w.read(2, works(5, 2)); w.sample(1, 5, 2) },
			map[uint32]string{5: tx2}},
		{"not known", func(w *waitingTest) {
			w.read(1, works(5, 1))
			w.read(2, agent.ThreadWork{TID: 5}, agent.ThreadWork{TID: 6})
		}, map[uint32]string{5: tx1}},
		{"ended process", func(w *waitingTest) {
			w.Waiting([]agent.ProcessWork{
				{Process: procscan.ProcessID{PID: 7}, ReadAt: w.at(1), Threads: []agent.ThreadWork{works(5, 1)}},
				{Process: procscan.ProcessID{PID: 7}, ReadAt: w.at(2)},
			})
		}, map[uint32]string{}},
		{"other process", func(w *waitingTest) {
			w.read(1, works(5, 1))
			w.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 8}, ReadAt: w.at(2)}})
		}, map[uint32]string{5: tx1}},
		{"not wanted", func(w *waitingTest) { w.Want(0); w.read(1, works(5, 1)); w.Want(wantThreads) },
			map[uint32]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWaitingTest(t)
			c.do(w)
			w.want(c.want)
		})
	}
}

// A thread that was not looked at is kept as long as one of which there are no samples any more.
func TestWaitingNotLookedAt(t *testing.T) {
	w := newWaitingTest(t)
	w.sample(1, 5, 1)
	w.read(2, works(5, 1))
	w.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 7}, ReadAt: w.at(3), Partial: true}})
	w.tickAt(10)
	w.want(map[uint32]string{5: tx1})
	w.tickAt(12)
	w.want(map[uint32]string{})
}

// Threads that there is no room for are counted.
func TestWaitingBound(t *testing.T) {
	w := newWaitingTest(t)
	var all []agent.ThreadWork
	for tid := range maxWaiting/2 + 3 {
		all = append(all, works(tid+1, 1))
	}
	w.read(1, all...)
	if got := len(w.threads()); got != maxWaiting/2 || w.unshown != 3 {
		t.Errorf("%d threads, %d not shown", got, w.unshown)
	}
}

// One that has run counts as one that waits when it has not for long; if there is no room, it goes.
func TestWaitingAfterRunningBound(t *testing.T) {
	w := newWaitingTest(t)
	for tid := range 2 {
		w.sample(1, tid+1, 1)
	}
	w.read(2, works(1, 1), works(2, 1))
	assert.Check(t, w.ofRunning.Used() == 2 && w.ofWaiting.Used() == 0,
		"%d run, %d wait", w.ofRunning.Used(), w.ofWaiting.Used())
	w.ofWaiting = share.NewBudget[string](3) // one for an owner alone
	w.tickAt(12)
	if w.ofRunning.Used() != 0 || w.ofWaiting.Used() != 1 || len(w.threads()) != 1 {
		t.Errorf("%d run, %d wait, %d threads", w.ofRunning.Used(), w.ofWaiting.Used(), len(w.threads()))
	}
}

// workSource is a Source that knows what threads work on.
type workSource struct {
	*fakeSource
	asked int
	work  []agent.ProcessWork
	err   error
}

func (s *workSource) Work() ([]agent.ProcessWork, map[procscan.ProcessID]time.Time, error) {
	s.asked++
	return s.work, nil, s.err
}

// What threads work on is asked for while somebody wants to know it, and published; that it cannot be
// known is no reason to publish nothing.
func TestPublisherReadsWork(t *testing.T) {
	now := time.Now()
	source := &workSource{work: []agent.ProcessWork{
		{Process: procscan.ProcessID{PID: 7}, ReadAt: now, Threads: []agent.ThreadWork{works(5, 1)}},
	}}
	source.fakeSource = newSource(1)
	p := &publisher{about: testAbout, source: source, tracker: NewTracker(20), name: testNamer,
		clock: testObjects.clock,
		log:   zap.NewNop()}
	p.snapshot(wantProcesses|wantTransactions, now)
	assert.Check(t, source.asked == 0, "asked what nobody wants to know")
	s := p.snapshot(wantThreads, now)
	assert.Check(t, len(s.threads) == 1 && source.asked == 1, "%+v", s.threads)
	source.work, source.err = nil, errors.New("no eBPF")
	if s := p.snapshot(wantThreads, now.Add(time.Second)); len(s.threads) != 1 || !p.workFailed {
		t.Errorf("%+v, noticed: %v", s.threads, p.workFailed)
	}
}
