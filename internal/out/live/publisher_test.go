package live

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"go.uber.org/zap"

	"correlator/dots/broker"
	"correlator/internal/attach/process"
	"correlator/internal/lab/clocks"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/bootclock"
	"correlator/internal/out/live/types"
	"correlator/procscan"
)

// fakeConsumer keeps the last snapshot.
type fakeConsumer struct {
	want      want
	only      string // the transaction that is selected; empty: all
	pid       uint32 // the process that is; 0: all
	published int
	asked     int // whether something is selected
	last      *snapshot
}

func (c *fakeConsumer) wanted() want { return c.want }

func (c *fakeConsumer) publish(s *snapshot, _ want) { c.published, c.last = c.published+1, s }

func (c *fakeConsumer) selects(x broker.Instance) bool {
	c.asked++
	if of, isProfile := x.(*types.CorrelatorProcessStack); isProfile {
		return c.want&wantProfiles != 0 && (c.pid == 0 || of.Pid.Value() == c.pid)
	}
	stack, isStack := x.(*types.CorrelatorTransactionStack)
	return c.only == "" || isStack && stack.TransactionID.Value() == c.only
}

// Stacks are collected of a number of transactions at most, the first ones, though those of all are wanted.
func TestSelectedAreBounded(t *testing.T) {
	p, _ := newPublisher(nil)
	all := make([]shownTransaction, maxCollecting+3)
	for i := range all {
		all[i].id.trace = [16]byte{byte(i), byte(i >> 8), 1}
	}
	selected, timed := p.selected(&testObjects, wantStacks, all)
	assert.Check(t, len(selected) == maxCollecting && len(timed) == 0 &&
		selected[maxCollecting-1] == all[maxCollecting-1])
}

func newPublisher(source Source) (*publisher, *fakeConsumer) {
	c := &fakeConsumer{}
	p := &publisher{about: testAbout, source: source, tracker: NewTracker(20), name: testNamer,
		clock: testObjects.clock,
		log:   zap.NewNop(), interval: interval}
	p.add(c)
	return p, c
}

func TestNothingIsReadWhileUnwanted(t *testing.T) {
	source := newSource(3)
	p, c := newPublisher(source)
	now := time.Now()
	for i := range 5 {
		next := p.publish(now.Add(time.Duration(i) * time.Second))
		assert.Check(t, next == 0, "to be published again in %v", next)
	}
	assert.Check(t, source.reads.Load() == 0 && p.tracker.wanted.Load() == 0, "something is read")
	c.want = wantThreads | wantTransactions | wantStacks
	p.publish(now.Add(10 * time.Second))
	assert.Check(t, source.reads.Load() == 0, "the status is read for types that need none")
	c.want = wantHosts
	p.publish(now.Add(20 * time.Second))
	if source.reads.Load() != 1 || p.tracker.wanted.Load() != 0 || len(c.last.processes) != 0 ||
		len(c.last.hosts) != 1 {
		t.Errorf("%d reads, wanted of samples: %b", source.reads.Load(), p.tracker.wanted.Load())
	}
	c.want = 0
	if next := p.publish(now.Add(21 * time.Second)); next == 0 || len(c.last.hosts) != 1 || source.reads.Load() != 2 {
		t.Errorf("what was wanted a moment ago: %d reads, %d hosts; again in %v", source.reads.Load(), len(c.last.hosts),
			next)
	}
	next := p.publish(now.Add(21*time.Second + linger))
	assert.Check(t, next == 0 && p.used == nil && p.status.Processes == nil && len(c.last.hosts) == 0,
		"what was read is kept; to be published again in %v", next)
	p.consumers = nil
	p.publish(now.Add(30 * time.Second))
	assert.Check(t, len(p.demands) == 0, "a consumer that is gone is kept")
}

// However often guests join and leave, also the first and the last one, the status is read twice a second
// at most, and nothing is removed and published again.
func TestJoiningOften(t *testing.T) {
	for _, always := range []want{0, wantHosts} {
		source := newSource(3)
		p, c := newPublisher(source)
		bus := &recorder{}
		o := output{bus: bus}
		now := time.Now()
		for i := range 20 {
			c.want = always | want(i%2)*wantProcesses
			before := c.published
			p.publish(now.Add(time.Duration(i) * pause))
			if c.published > before {
				_, _ = o.sync(c.last, p.lastWant[0])
			}
			assert.Check(t, i != 1 || len(c.last.processes) == 3 || always != 0,
				"one who joins is not answered at once")
		}
		got := source.reads.Load()
		assert.Check(t, got >= 1 && got <= 4, "%d reads in 2 s", got)
		created := 0
		for _, change := range bus.take() {
			assert.Check(t, !change.Remove, "removed: %+v", change.Object)
			if _, ok := change.Object.(*types.CorrelatorProcess); ok {
				created++
			}
		}
		assert.Check(t, created == 3, "%d processes published", created)
		before := c.published
		for range 10 {
			p.publish(now.Add(19*pause + time.Millisecond)) // nothing else is wanted
		}
		assert.Check(t, c.published == before, "published again at once")
	}
}

func TestProcessesAndHost(t *testing.T) {
	_, stat, _ := strings.Cut(string(testenv.ReadFile(t, "/proc/self/stat")), ") ")
	started, err := strconv.ParseUint(strings.Fields(stat)[19], 10, 64)
	assert.Assert(t, err == nil, err)
	self := procscan.ProcessID{PID: os.Getpid(), StartTime: started}
	old, gone := self, procscan.ProcessID{PID: 1 << 22, StartTime: 1}
	old.StartTime--
	status := func(id procscan.ProcessID, name string) agent.ProcessStatus {
		v := process.NewView(id)
		v.ServiceName, v.State, v.Contexts = name, process.StateRegistered, []string{"elastic"}
		return agent.ProcessStatus{View: v}
	}
	all := []agent.ProcessStatus{status(old, "old"), status(self, "new"), status(gone, "")}
	all[2].LastError = &agent.ProcessError{Message: "bad\n"}
	source := newSource(0)
	source.processes.Store(&all)
	p, c := newPublisher(source)
	c.want = wantHosts | wantProcesses
	start := time.Now()
	p.publish(start)
	if x := c.last.hosts[0]; x.Host.Value() != "host-id" || x.Name.Value() != "host-1" || x.Processes.Value() != 3 ||
		x.SamplesPerSecond.Value() != 20 || x.AgentVersion.Value() != "1.2" {
		t.Errorf("%+v", x)
	}
	assert.Check(t, p.used[old] == nil, "of one whose pid is another's by now: %+v", p.used[old])
	_, known := c.last.hosts[0].CPU.Get()
	assert.Check(t, !known, "it is known at once how much CPU is used in a second")
	p.own.total, p.used[self].total = -time.Hour, -time.Hour // as if it had used an hour since
	for range 3 {
		p.publish(start.Add(time.Second)) // once
	}
	bus := &recorder{}
	o := &output{bus: bus}
	_, _ = o.sync(c.last, wantProcesses)
	byPID := map[uint32]string{}
	for _, change := range bus.take() {
		x := change.Object.(*types.CorrelatorProcess)
		byPID[x.Pid.Value()] = x.Service.Value()
		_, ok := x.CPU.Get()
		assert.Check(t, ok == (x.Pid.Value() == uint32(self.PID)), "%+v", x)
		assert.Check(t, x.Pid.Value() != 1<<22 || x.LastError.Value() == "bad\ufffd", "%+v", x)
	}
	assert.Check(t, len(byPID) == 2 && byPID[uint32(self.PID)] == "new", "%v", byPID)
	cpu := c.last.hosts[0].CPU.Value()
	assert.Check(t, cpu > 0 && c.last.hosts[0].AgentCPU.Value() > 0, "%v CPUs", cpu)
}

func TestRunAnswersJoinsAtOnce(t *testing.T) {
	p, _ := newPublisher(newSource(1))
	l := &lockedConsumer{snapshots: make(chan *snapshot, 100)}
	p.consumers = []consumer{l}
	ctx, cancel := context.WithCancel(context.Background())
	wake, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx, wake)
	}()
	<-l.snapshots // nothing is wanted
	l.want.Store(uint32(wantProcesses))
	wake <- struct{}{}
	testenv.Poll(t, patience, "the objects of who has joined", func() bool {
		return len((<-l.snapshots).processes) == 1
	})
	cancel()
	<-done
}

// lockedConsumer is for publisher.run.
type lockedConsumer struct {
	want      atomic.Uint32
	snapshots chan *snapshot
}

func (c *lockedConsumer) wanted() want { return want(c.want.Load()) }

func (c *lockedConsumer) selects(broker.Instance) bool { return true }

func (c *lockedConsumer) publish(s *snapshot, _ want) {
	select {
	case c.snapshots <- s:
	default:
	}
}

// A time is published by the clock as it is set, which those who see it compare it with.
func TestTimesWhenClockIsSet(t *testing.T) {
	m := clocks.New()
	p, _ := newPublisher(newSource(1))
	p.clock = bootclock.New(m.Instant)
	began := m.Now()
	for _, step := range []func(time.Duration){m.Suspend, m.Set} {
		step(time.Hour)
		m.Pass(p.interval)
		p.publish(m.Now())
		o := objectsOf{"h", p.clock}
		shown := o.at(m.Now()).Value().Time()
		assert.Check(t, shown.Sub(m.Now().Round(0)).Abs() <= time.Microsecond, "now is %v, not %v", shown, m.Now())
	}
	o := objectsOf{"h", p.clock}
	shown := o.at(began).Value().Time()
	assert.Check(t, shown.Sub(began.Add(time.Hour).Round(0)).Abs() <= time.Microsecond, "%v, not an hour after %v",
		shown, began)
}
