package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
)

// alone ends the test when the agent has served other processes than these: its counters would tell
// of what runs beside the test on this machine.
func (r *running) alone(processes ...*demo.Process) {
	r.t.Helper()
	for _, entry := range r.logs.FilterMessage("registered").All() {
		pid := entry.ContextMap()["pid"]
		if !slices.ContainsFunc(processes, func(p *demo.Process) bool { return pid == int64(p.PID) }) {
			testenv.Missing(r.t, fmt.Sprintf("process %v takes part, too, and is none of this test", pid))
		}
	}
}

// swept waits for so many more sweeps: as long in one test as in another.
func (r *running) swept(times uint64) {
	r.t.Helper()
	until := r.Counters().Sweeps.Load() + times
	testenv.Poll(r.t, deadline+time.Duration(times)*r.config.ScanInterval, "sweeps", func() bool {
		return r.Counters().Sweeps.Load() >= until
	})
}

// republishing is what it costs to follow a process that republishes at an interval.
type republishing struct {
	times, looks, connects, registrations, troubles uint64
	took                                            time.Duration
}

func republishingCost(t *testing.T, interval time.Duration) (cost republishing) {
	p := demo.Start(t, demo.Options{Busy: 1})
	r := run(t, atRate(97))
	p.Registration(1)
	p.RepublishEvery(interval)
	c := r.Counters()
	if interval < time.Second { // what is allowed in a row is over soon
		testenv.Poll(t, deadline, "republishing to be too often", func() bool { return c.TooOften.Load() > 0 })
	}
	troubles := func() (sum uint64) {
		for i := range c.Errors {
			sum += c.Errors[i].Load()
		}
		return sum
	}
	began := time.Now()
	before := republishing{looks: c.Probes.Load(), connects: c.Connected.Load(),
		registrations: c.Messages.Registrations.Load(), troubles: troubles()}
	sweeps := uint64(70) // 3.5 s
	if *long {
		sweeps *= 15
	}
	r.swept(sweeps)
	cost = republishing{looks: c.Probes.Load() - before.looks, connects: c.Connected.Load() - before.connects,
		registrations: c.Messages.Registrations.Load() - before.registrations, troubles: troubles() - before.troubles,
		took: time.Since(began)}
	cost.times = p.StopRepublishing()
	t.Logf("republished every %v: %+v", interval, cost)
	// It is served again as soon as it is at rest.
	r.sampledReport(p, p.Report().Samples+1)
	r.alone(p)
	r.end()
	clean(t, p.Quit())
	r.sampledAdded()
	return cost
}

// A process that republishes ten thousand times a second, each time with another storage and
// another socket, is probed, connected to and registered with about as often as one that does so
// once a second.
func TestDeliveryRepublishing(t *testing.T) {
	often := republishingCost(t, 100*time.Microsecond)
	seldom := republishingCost(t, time.Second)
	assert.Check(t, often.times >= 1000*seldom.times,
		"republished %d times against %d: that is no storm", often.times, seldom.times)
	// Each is connected to once a second at most; a sweep may take longer in one test than in the other.
	most := max(seldom.connects, seldom.registrations, uint64(often.took/time.Second)) + 2
	assert.Check(t, often.connects <= most && often.registrations <= most,
		"connected %d times against %d, registered %d times against %d", often.connects, seldom.connects,
		often.registrations, seldom.registrations)
	assert.Check(t, often.looks <= 4*seldom.looks+10, "probed %d times against %d", often.looks, seldom.looks)
}

// Of a process that maps too many libraries some are not used. That is logged once, and it is
// served by the others.
func TestDeliveryManyLibraries(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	data, err := os.ReadFile(p.Library)
	assert.NilError(t, err)
	for range 20 {
		library := filepath.Join(p.Dir, demo.LibraryName(false))
		assert.NilError(t, os.WriteFile(library, data, 0o600))
		assert.NilError(t, p.Command(nil, "load", library))
	}
	p.Publish()
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	r.swept(3)
	r.alone(p)
	n := r.Counters().Truncated.Load()
	assert.Check(t, n == 1, "counted %d times, want once", n)
}

// More threads than are asked for have a reason of their own.
func TestDeliveryManyThreads(t *testing.T) {
	err := fmt.Errorf("reading threads: %w", bpf.ErrTooManyThreads)
	reason := process.ReasonOf(err)
	assert.Check(t, reason == process.ReasonTooManyThreads, "reason %v", reason)
}

// Samples that wait for a process that hangs are refused as soon as they are older than the
// samples-delay: they do not fill all the room that there is for them.
func TestDeliveryHangingHoldsLittle(t *testing.T) {
	r := run(t, atRate(997))
	var p *demo.Process
	sampled := false
	for try := 0; !sampled; try++ { // it is not if it was probed while it changed its storage
		assert.Assert(t, try != 5, "a process whose storage hangs is not sampled any more")
		p = demo.Start(t, demo.Options{Busy: 1, PageOut: true, Gap: -1})
		r.sampledReport(p, 1)
		p.Hostile("storage-hangs", "")
		r.state(p, process.StateError, process.ReasonTimeout.String())
		if sampled = r.isSampled(p); !sampled {
			p.Kill()
			r.gone(p)
		}
	}
	outcomes := &r.Counters().Sampling.Outcomes
	testenv.Poll(t, 4*deadline, "more samples than there is room for", func() bool {
		return outcomes[process.OutcomeStale].Load()+outcomes[process.OutcomeBacklog].Load() > sampling.MaxPending
	})
	full := outcomes[process.OutcomeBacklog].Load()
	assert.Check(t, full == 0, "there was no room for %d samples", full)
	p.Kill()
	r.gone(p)
	r.end()
	r.sampledAdded()
}

// What is counted has the same names whatever the processes do, and what they are called by.
func TestDeliveryCountersAreFixed(t *testing.T) {
	names := func(c *Counters) (names []string) {
		c.Each(func(name string, _ uint64) { names = append(names, name) })
		return names
	}
	r := run(t, atRate(97))
	before := names(r.Counters())
	unique := slices.Compact(slices.Sorted(slices.Values(before)))
	assert.Check(t, len(unique) == len(before) && !slices.Contains(before, ""),
		"%d counters have %d names", len(before), len(unique))
	p := demo.Start(t, demo.Options{Busy: 1, Service: "very-special", Environment: "odd"})
	r.sampledReport(p, 1)
	for _, kind := range []string{"storage-length", "socket-fifo"} {
		p.Hostile(kind, "")
		testenv.Poll(t, deadline, "trouble", func() bool {
			views := r.processStatuses()
			return slices.ContainsFunc(views, func(v ProcessStatus) bool {
				return v.PID == p.PID &&
					v.State == process.StateError
			})
		})
		p.Publish()
		r.state(p, process.StateRegistered, "")
	}
	p.Quit()
	r.gone(p)
	r.end()
	after := names(r.Counters())
	assert.Check(t, slices.Equal(before, after), "names before: %v\nand after: %v", before, after)
}

// isSampled reports whether a process is sampled.
func (r *running) isSampled(p *demo.Process) bool {
	return slices.ContainsFunc(r.registrations.All(), func(one *registration) bool {
		return one.pid == p.PID && one.process.IsSampled()
	})
}
