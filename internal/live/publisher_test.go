package live

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"correlator/internal/agent"
	"correlator/internal/process"
	"correlator/internal/testenv"
	"correlator/procscan"
	"correlator/profile"
)

// fakeConsumer keeps the last snapshot.
type fakeConsumer struct {
	want      want
	published int
	last      *snapshot
}

func (c *fakeConsumer) wanted() want { return c.want }

func (c *fakeConsumer) publish(s *snapshot, _ want) { c.published, c.last = c.published+1, s }

func newPublisher(source Source) (*publisher, *fakeConsumer) {
	c := &fakeConsumer{}
	p := &publisher{about: testAbout, source: source, tracker: NewTracker(20), name: testObjects.name,
		log:          zap.NewNop(),
		stacksWanted: func() {}}
	p.add(c)
	return p, c
}

func TestNothingIsReadWhileUnwanted(t *testing.T) {
	source := newSource(3)
	p, c := newPublisher(source)
	now := time.Now()
	for i := range 5 {
		if next := p.publish(now.Add(time.Duration(i) * time.Second)); next != 0 {
			t.Errorf("to be published again in %v", next)
		}
	}
	if source.reads.Load() != 0 || p.tracker.wanted.Load() != 0 {
		t.Error("something is read")
	}
	c.want = wantThreads | wantTransactions | wantStacks
	p.publish(now.Add(10 * time.Second))
	if source.reads.Load() != 0 {
		t.Error("the status is read for types that need none")
	}
	c.want = wantHosts
	p.publish(now.Add(20 * time.Second))
	if source.reads.Load() != 1 || p.tracker.wanted.Load() != 0 || len(c.last.processes) != 0 ||
		len(c.last.hosts) != 1 {
		t.Errorf("%d reads, wanted of samples: %b", source.reads.Load(), p.tracker.wanted.Load())
	}
	c.want = 0
	p.publish(now.Add(21 * time.Second))
	if p.used != nil || p.status.Processes != nil || len(c.last.hosts) != 0 {
		t.Error("what was read is kept")
	}
}

// However often guests join and leave, the status is read twice a second at most.
func TestJoiningOften(t *testing.T) {
	source := newSource(3)
	p, c := newPublisher(source)
	now := time.Now()
	for i := range 20 {
		c.want = wantHosts | want(i%2)*wantProcesses
		p.publish(now.Add(time.Duration(i) * pause))
	}
	if got := source.reads.Load(); got > 4 {
		t.Errorf("%d reads in 2 s", got)
	}
	if c.published != 20 {
		t.Errorf("%d of 20 changes of what is wanted are answered at once", c.published)
	}
	before := c.published
	for range 10 {
		p.publish(now.Add(19*pause + time.Millisecond)) // nothing else is wanted
	}
	if c.published != before {
		t.Error("published again at once")
	}
}

func TestProcessesAndHost(t *testing.T) {
	_, stat, _ := strings.Cut(string(testenv.ReadFile(t, "/proc/self/stat")), ") ")
	started, err := strconv.ParseUint(strings.Fields(stat)[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
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
	if _, known := c.last.hosts[0].CPU.Get(); known {
		t.Error("it is known at once how much CPU is used in a second")
	}
	for time.Since(start) < time.Second { // uses a CPU, at least half of it
	}
	for range 3 {
		p.publish(start.Add(time.Second)) // once
	}
	o := &output{bus: &recorder{}}
	_, _ = o.sync(c.last, wantProcesses)
	byPID := map[uint32]string{}
	for _, e := range o.processes.known {
		byPID[e.object.Pid.Value()] = e.object.Service.Value()
		if _, ok := e.object.CPU.Get(); ok != (e.object.Pid.Value() == uint32(self.PID)) {
			t.Errorf("%+v", e.object)
		}
		if e.object.Pid.Value() == 1<<22 && e.object.LastError.Value() != "bad\ufffd" {
			t.Errorf("%+v", e.object)
		}
	}
	if len(byPID) != 2 || byPID[uint32(self.PID)] != "new" {
		t.Errorf("%v", byPID)
	}
	if cpu := c.last.hosts[0].CPU.Value(); cpu <= 0 || c.last.hosts[0].AgentCPU.Value() <= 0 {
		t.Errorf("%v CPUs", cpu)
	}
}

// A name that comes later is published; what will not come is not asked for forever.
func TestNamesThatComeLater(t *testing.T) {
	asked, known := 0, false
	o := objectsOf{host: "h", name: func(_ *profile.Resource, f profile.Frame) (string, bool) {
		asked++
		if known {
			return f.Name(), true
		}
		return "libc.so+0x10", false
	}}
	tracker := newTracker(wantStacks)
	sample := newSample(1000, 1, 1, 1, noon)
	sample.Stack = frames("memcpy\x00")
	tracker.Sampled(sample)
	tracker.Named(sample)
	next := func() []string {
		_, stacks := tracker.snapshot(&snapshot{}, &o, wantStacks, noon)
		return o.stacks(stacks)[0].Frames.Value()
	}
	if got := next(); got[0] != "libc.so+0x10" {
		t.Errorf("%q", got)
	}
	if known = true; next()[0] != "memcpy\ufffd" {
		t.Error("the name is not published")
	}
	before := asked
	if next(); asked != before {
		t.Error("names that are known are asked for")
	}
	tracker = newTracker(wantStacks)
	tracker.Sampled(sample)
	tracker.Named(sample)
	known, asked = false, 0
	for range 2 * maxTries {
		next()
	}
	if asked != maxTries {
		t.Errorf("asked %d times", asked)
	}
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

func (c *lockedConsumer) publish(s *snapshot, _ want) {
	select {
	case c.snapshots <- s:
	default:
	}
}
