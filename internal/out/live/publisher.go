package live

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"correlator/dots/broker"
	"correlator/dots/value"
	"correlator/internal/out"
	"correlator/internal/out/agent"
	"correlator/internal/out/bootclock"
	"correlator/internal/out/live/types"
	"correlator/internal/worker/cost"
	"correlator/procscan"
)

const (
	// interval is how often changes are published: what a person can follow.
	interval = time.Second

	// pause is between two publications, however often guests join and leave.
	pause = 100 * time.Millisecond

	// linger is for how long what is wanted no more is still published: a guest that leaves and joins in
	// turn would have everything removed and made again each time.
	linger = 3 * time.Second
)

// hostKey returns what tells the objects of this host from those of others.
func hostKey(about *out.About) string {
	if about.HostID != "" {
		return clean(about.HostID)
	}
	return clean(about.HostName)
}

// A Source knows the processes that take part.
type Source interface {
	Status() agent.Status
	// Work returns what was found, since the last call, that threads work on: see agent.Agent.Work.
	Work() (found []agent.ProcessWork, readAt map[procscan.ProcessID]time.Time, err error)
}

// publisher takes snapshots of what is wanted, and hands them to those who publish them.
type publisher struct {
	about     out.About
	source    Source
	tracker   *Tracker
	clock     *bootclock.Clock
	name      namer
	log       *zap.Logger
	interval  time.Duration // interval, shorter in tests
	mu        sync.Mutex
	consumers []consumer

	// Owned by run.
	status    agent.Status // read at ticked
	ticked    time.Time
	own       processTime
	used      map[procscan.ProcessID]*processTime
	wanted    map[procscan.ProcessID]bool // somebody wants its stacks, as far as that was asked
	asked     int                         // of how many processes it was, in their order
	demands   map[consumer]*lingering
	timelines timelines
	lastWant  []want    // of each consumer
	last      time.Time // when the last snapshot was taken

	worked     time.Time // when it was last read what threads work on
	workFailed bool      // was logged
	// Since when threads are wanted, and when those of each process were read.
	joinedThreads time.Time
	workRead      map[procscan.ProcessID]time.Time
}

// A consumer publishes snapshots. Its methods do not wait for others.
type consumer interface {
	wanted() want
	selects(x broker.Instance) bool // of a type for transactions, of which no more is known
	publish(s *snapshot, w want)
}

// lingering is what a consumer wants, or wanted a moment ago.
type lingering [numWants]time.Time // when it was wanted last

// wants returns that, given what is wanted now.
func (l *lingering) wants(now want, at time.Time) (w want) {
	for i := range l {
		if now>>i&1 != 0 {
			l[i] = at
		}
		if passed := at.Sub(l[i]); passed >= 0 && passed < linger {
			w |= 1 << i
		}
	}
	return w
}

func (p *publisher) add(c consumer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers = append(p.consumers, c)
}

func (p *publisher) remove(c consumer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers = slices.DeleteFunc(p.consumers, func(other consumer) bool { return other == c })
}

// run publishes until ctx ends: once a second, and at once when wake says that something more is
// wanted. When nothing has been for a while, it only waits.
func (p *publisher) run(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	wait := func(d time.Duration, wake <-chan struct{}) bool {
		timer.Reset(d)
		select {
		case <-ctx.Done():
			return false
		case <-wake:
		case <-timer.C:
		}
		return true
	}
	for {
		next := p.publish(time.Now())
		if !wait(pause, nil) {
			return
		}
		if next == 0 {
			next = 24 * time.Hour
		}
		if !wait(max(0, next-pause), wake) {
			return
		}
	}
}

// publish has published what is wanted, unless that was done a moment ago. It returns in what time that
// is to be done again; 0: when something is wanted.
func (p *publisher) publish(now time.Time) (next time.Duration) {
	p.mu.Lock()
	consumers := slices.Clone(p.consumers)
	p.mu.Unlock()
	maps.DeleteFunc(p.demands, func(c consumer, _ *lingering) bool { return !slices.Contains(consumers, c) })
	wanted := make([]want, len(consumers))
	var all want
	for i, c := range consumers {
		wanted[i] = p.demand(c).wants(c.wanted(), now)
		all |= wanted[i]
	}
	if passed := now.Sub(p.last); slices.Equal(wanted, p.lastWant) && passed >= 0 && passed < p.interval-pause/2 {
		if all == 0 {
			return 0
		}
		return p.interval - passed
	}
	p.last, p.lastWant = now, wanted
	s := p.snapshot(all, now)
	for i, c := range consumers {
		c.publish(s, wanted[i])
	}
	if all == 0 {
		return 0
	}
	return p.interval
}

// demand returns what a consumer wants or wanted.
func (p *publisher) demand(c consumer) *lingering {
	if p.demands == nil {
		p.demands = make(map[consumer]*lingering)
	}
	d := p.demands[c]
	if d == nil {
		d = new(lingering)
		p.demands[c] = d
	}
	return d
}

// snapshot returns what is known of what is wanted.
func (p *publisher) snapshot(w want, now time.Time) *snapshot {
	p.tracker.Want(w)
	s := &snapshot{}
	o := objectsOf{hostKey(&p.about), p.clock}
	p.clock.Look(now)
	p.observe(w, now)
	p.readWork(w, now)
	traced, shown, collecting := p.tracker.snapshot(s, &o, w, now)
	var timed []shownTransaction
	if w&wantCollected != 0 {
		collecting, timed = p.selected(&o, w, collecting)
		p.tracker.collect(collecting, now)
	}
	if w&wantTimelines != 0 {
		s.timelines = o.timelineObjects(p.timelines.update(timed, now))
	} else {
		p.timelines.made = nil
	}
	if w&wantProfiles != 0 {
		p.tracker.profile(p.profiled(o.host), now)
	} else {
		p.wanted, p.asked = nil, 0 // whoever wants them later may want others
	}
	if w&(wantCollected|wantProfiles) != 0 {
		p.tracker.nameStacks(p.name)
	}
	p.tracker.addTransactions(s, &o, w, shown, collecting)
	if w&wantHosts != 0 {
		s.hosts = []types.CorrelatorHost{p.host(&o)}
	}
	if w&wantProcesses != 0 {
		s.processes = p.processes(&o, traced, s.waiting)
	}
	return s
}

// selected returns the transactions whose stacks, waits or timelines somebody wants, as many as are collected, and
// those of them whose timelines are wanted. Of each, guests' filters are asked once for a type at most.
func (p *publisher) selected(o *objectsOf, w want, transactions []shownTransaction) (
	selected, timed []shownTransaction,
) {
	p.mu.Lock()
	consumers := slices.Clone(p.consumers)
	p.mu.Unlock()
	for _, tx := range transactions {
		host, trace, transaction := value.Some(o.host), hexadecimal(tx.id.trace[:]), hexadecimal(tx.id.transaction[:])
		stack := &types.CorrelatorTransactionStack{Host: host, TraceID: trace, TransactionID: transaction}
		wait := &types.CorrelatorTransactionWait{Host: host, TraceID: trace, TransactionID: transaction}
		timeline := o.timelineOf(tx.id)
		isTimed := func(c consumer) bool { return c.selects(&timeline) }
		isCollected := func(c consumer) bool { return c.selects(stack) || c.selects(wait) }
		if w&wantTimelines != 0 && slices.ContainsFunc(consumers, isTimed) {
			timed = append(timed, tx)
		} else if !slices.ContainsFunc(consumers, isCollected) {
			continue
		}
		if selected = append(selected, tx); len(selected) == maxCollecting {
			break
		}
	}
	return selected, timed
}

// maxProfilesAsked is of how many processes it is asked at each publication whether somebody wants their stacks:
// guests' filters can cost a millisecond each. Of more processes than that, in turn.
const maxProfilesAsked = 256

// profiled returns the processes whose stacks somebody wants, as far as that was asked: the busiest, as many as are
// collected.
func (p *publisher) profiled(host string) (selected []procscan.ProcessID) {
	if !p.tracker.untraced {
		return nil
	}
	p.mu.Lock()
	consumers := slices.Clone(p.consumers)
	p.mu.Unlock()
	wanted := make(map[procscan.ProcessID]bool)
	n := len(p.status.Processes)
	for i := range n {
		id := p.status.Processes[i].ID
		wanted[id] = p.wanted[id]
	}
	for i := range min(n, maxProfilesAsked) {
		id := p.status.Processes[(p.asked+i)%n].ID
		stack := &types.CorrelatorProcessStack{Host: value.Some(host), Pid: value.Some(uint32(id.PID))}
		wanted[id] = slices.ContainsFunc(consumers, func(c consumer) bool { return c.selects(stack) })
	}
	if n > 0 {
		p.asked = (p.asked + min(n, maxProfilesAsked)) % n
	}
	p.wanted = wanted
	for i := range n {
		if id := p.status.Processes[i].ID; wanted[id] {
			selected = append(selected, id)
		}
	}
	slices.SortStableFunc(selected, func(a, b procscan.ProcessID) int {
		return cmp.Compare(p.used[b].average(), p.used[a].average())
	})
	return selected[:min(len(selected), maxCollecting)]
}

// observe reads the status, and how much CPU time the processes and the agent have used, if that is
// wanted and was not done a moment ago. That a process has ended is in the status when its pid can be
// that of another one, unless that happens meanwhile: then nothing is known of it.
func (p *publisher) observe(w want, now time.Time) {
	if w&(wantHosts|wantProcesses|wantProfiles) == 0 {
		p.status, p.used, p.own = agent.Status{}, nil, processTime{}
		return
	}
	passed := now.Sub(p.ticked)
	if p.used != nil && passed >= 0 && passed < p.interval/2 {
		return
	}
	p.ticked = now
	p.status = p.source.Status()
	p.own.add(cost.CPUTime(), max(passed, pause), now)
	if p.used == nil {
		p.used = make(map[procscan.ProcessID]*processTime, len(p.status.Processes))
	}
	for i := range p.status.Processes {
		id := p.status.Processes[i].ID
		total, err := procscan.CPUTime(id.PID)
		if err != nil {
			continue // it is gone, as the next status will say
		}
		u := p.used[id]
		if u == nil {
			u = new(processTime)
			p.used[id] = u
		}
		if total != u.total || u.seen.IsZero() { // it may have executed a program
			if u.command, err = p.command(id); errors.Is(err, procscan.ErrGone) {
				continue // the pid may be another's, and so the time
			}
		}
		u.add(total, max(passed, pause), now)
	}
	for id, u := range p.used {
		if u.seen != now {
			delete(p.used, id)
		}
	}
}

// command returns the name of the first thread of a process; empty, with the error: it cannot be read.
func (p *publisher) command(id procscan.ProcessID) (string, error) {
	handle, err := procscan.OpenProcess(p.about.ProcRoot, id)
	if err != nil {
		return "", err
	}
	defer handle.Close()
	return handle.ThreadName(id.PID)
}

// processTime is how much CPU time a process has used.
type processTime struct {
	total   time.Duration
	seen    time.Time
	rate    rate
	command string // name of the first thread
}

// add takes account of the total now. The first one says nothing of what is used in a second.
func (p *processTime) add(total, passed time.Duration, now time.Time) {
	if !p.seen.IsZero() {
		p.rate.used = max(0, total-p.total)
		p.rate.tick(passed)
	}
	p.total, p.seen = total, now
}

// average returns how many CPUs it uses.
func (p *processTime) average() float64 {
	if p == nil {
		return 0
	}
	return p.rate.average()
}

// share returns the share of the CPU, which is not known at first.
func (p *processTime) share() (o value.Opt[float64]) {
	if p == nil || p.rate.weight == 0 {
		return o
	}
	return cpuShare(p.rate.average())
}

func (p *publisher) host(o *objectsOf) types.CorrelatorHost {
	x := types.CorrelatorHost{
		Host: value.Some(o.host), Name: text(p.about.HostName), AgentVersion: text(p.about.Version),
		AgentSince: o.at(p.status.StartedAt), Cpus: value.Some(uint32(runtime.NumCPU())),
		SamplesPerSecond: value.Some(uint32(p.about.SamplesPerSecond)),
		Processes:        value.Some(uint32(len(p.status.Processes))), AgentCPU: p.own.share(),
	}
	if p.own.rate.weight > 0 { // as is known of all others then
		var all float64
		for _, u := range p.used {
			all += u.rate.average()
		}
		x.CPU = cpuShare(all)
	}
	if p.tracker.untraced {
		x.AllProcesses = value.Some(true)
	}
	if p.timelines.make == nil {
		x.NoTimelines = value.Some("nothing is kept (--keep)")
	}
	return x
}

// processes returns the processes; traced is how much CPU they use in transactions, waiting how many threads wait in
// some, of those whose work was read.
func (p *publisher) processes(o *objectsOf, traced, waiting map[int]float64) []types.CorrelatorProcess {
	objects := make([]types.CorrelatorProcess, 0, len(p.status.Processes))
	for i := range slices.Backward(p.status.Processes) { // of two with a pid, the later one lives
		s := &p.status.Processes[i]
		x := types.CorrelatorProcess{
			Host: value.Some(o.host), Pid: value.Some(uint32(s.PID)), StartTime: at(s.StartTime),
			State: text(s.StateText()), Service: text(s.ServiceName), Environment: text(s.ServiceEnvironment),
			ContainerID: text(s.ContainerID), Contexts: value.Some(s.Contexts), CPU: p.used[s.ID].share(),
		}
		if p.about.SamplesPerSecond > 0 {
			x.TracedCPU = cpuShare(traced[s.PID])
		}
		if at := p.workRead[s.ID]; !at.IsZero() && !at.Before(p.joinedThreads) {
			x.Waiting = cpuShare(waiting[s.PID])
		}
		if s.LastError != nil {
			x.LastError = text(s.LastError.Message)
		}
		if u := p.used[s.ID]; u != nil {
			x.Command = text(u.command)
		}
		if since, lost := p.tracker.profileOf(s.ID); !since.IsZero() {
			x.StacksSince, x.StacksLost = o.at(since), value.Some(value.DurationOf(lost))
		}
		objects = append(objects, x)
	}
	return objects
}
