package agent

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

const (
	limit    = 20
	attacker = 4711
	never    = 10 * time.Minute // when a process publishes that maps the library and only wants to be served
)

func few(c *Config) { c.MaxProcesses = limit }

// A user's processes that map the library and never publish, and processes that the filter leaves out by
// the service that they publish, keep nobody out who publishes: neither who comes after them, nor who was
// there before. They are not probed again and again.
func TestIdleProcessesKeepNobodyOut(t *testing.T) {
	early := demo.Start(t, idle)
	r := run(t, few, func(c *Config) { c.Filter.ExcludeServices = patterns(t, "crowd") })
	early.Registration(1)
	const crowd = 5 * limit
	demo.StartMany(t, crowd, demo.Options{PublishAfter: never, Placement: demo.Placement{UID: attacker, GID: attacker}})
	demo.StartMany(t, crowd, demo.Options{Service: "crowd"})
	testenv.Poll(t, deadline, "more processes than are served", func() bool {
		return len(r.registrations.All()) >= limit && r.Counters().Filtered.Load() > 0
	})
	r.swept(1)
	known, most := len(r.registrations.All()), limit+lifecycle.ExtraProcesses
	assert.Check(t, known <= most, "%d processes are open, want at most %d", known, most)
	for range limit - 1 {
		demo.Start(t, idle).Registration(1)
	}
	r.state(early, process.StateRegistered, "")
	assert.Check(t, early.Report().Registrations == 1 && r.Counters().Evicted[lifecycle.EvictedShare].Load() == 0,
		"a process that was served had to give way to some that publish nothing")
	testenv.Poll(t, deadline, "all to be known as filtered", func() bool {
		return r.Counters().Filtered.Load() >= crowd
	})
	r.swept(1)
	probes, sweeps := r.Counters().Probes.Load(), r.Counters().Sweeps.Load()
	r.swept(10) // full ones among them
	probes, sweeps = r.Counters().Probes.Load()-probes, r.Counters().Sweeps.Load()-sweeps+1
	assert.Check(t, probes <= sweeps*uint64(most), "%d probes in %d sweeps", probes, sweeps)
	filtered := r.Counters().Filtered.Load() // one that gave way and came in again counts again
	assert.Check(t, filtered < 2*crowd, "%d of %d processes counted as filtered", filtered, crowd)
	s := r.Status()
	assert.Check(t, s.WithoutPlace.Others > 0 && s.WithoutPlace.Publishing == 0 && s.NotReady == "",
		"%+v, not ready: %q", s.WithoutPlace, s.NotReady)
}

// A user whose processes publish, more than are served, keeps no other user out. The registrations
// that end for that end properly. The agent is not ready while some that publish are left out.
func TestPublishersOfOneUserKeepNobodyOut(t *testing.T) {
	r := run(t, few)
	const publishing = 3 * limit
	crowd := demo.StartMany(t, publishing, demo.Options{Placement: demo.Placement{UID: attacker, GID: attacker}})
	testenv.Poll(t, deadline, "all to be registered with, or refused", func() bool {
		census := r.Census()
		return census.Processes[process.StateRegistered] == limit &&
			census.WithoutPlace.Publishing == publishing-limit
	})
	err := r.Ready()
	assert.Check(t, err != nil && strings.Contains(err.Error(), "40 more processes publish than the 20"), "%v", err)
	const honest = limit / 2
	var others []*demo.Process
	for i := range honest {
		p := demo.Start(t, idle)
		p.Registration(1)
		r.served(p, 1, [16]byte{byte(i)})
		others = append(others, p)
	}
	evicted := func() uint64 { return r.Counters().Evicted[lifecycle.EvictedShare].Load() }
	testenv.Poll(t, deadline, "the end of as many registrations", func() bool {
		return evicted() == honest && r.Counters().ConnectionsWithdrawn.Load() >= honest
	})
	r.swept(10) // those that had to go do not come back for others that have to go
	registered := r.Census().Processes[process.StateRegistered]
	assert.Check(t, evicted() == honest && registered == limit,
		"%d had to go, %d are registered", evicted(), registered)
	// While these quit, one after the other, there is room, and those that had to go come back.
	var read uint64
	for pid, report := range crowd.Quit() {
		assert.Check(t, report.Registrations <= 2 && report.Malformed == 0 && report.Unregistered == 0,
			"process %d: %+v", pid, report)
		read += report.Registrations
	}
	for _, p := range others { // two, where the exec was reported after the library
		read += p.Report().Registrations
	}
	testenv.Poll(t, deadline, "the agent to be ready again", func() bool { return r.Ready() == nil })
	sent, connected := r.Counters().Messages.Registrations.Load(), r.Counters().Connections.Load()
	assert.Check(t, read <= sent && sent <= connected, "%d registrations were read, %d sent, by %d connections", read,
		sent, connected)
}

// More processes publish than may be served: that is logged once, the agent is not ready and says
// why, and the others are served when there is room.
func TestMaxProcesses(t *testing.T) {
	first := demo.Start(t, idle)
	r := run(t, func(c *Config) { c.MaxProcesses = 1 }, atRate(20))
	first.Registration(1)
	second := demo.Start(t, idle)
	testenv.Poll(t, deadline, "a process to be refused",
		func() bool { return r.Counters().Refused[lifecycle.RefusedPublishing].Load() > 0 })
	err := r.Ready()
	assert.Check(t, err != nil && strings.Contains(err.Error(), "1 more processes publish than the 1 that are served"),
		"ready: %v", err)
	assert.NilError(t, r.Started()) // a process cannot bring that about
	s := r.Status()
	assert.Check(t, s.WithoutPlace == WithoutPlace{Publishing: 1} && s.NotReady == err.Error(), "%+v, not ready: %q",
		s.WithoutPlace, s.NotReady)
	logged := r.logs.FilterMessage("processes are not served; counted from here on").Len()
	assert.Check(t, logged == 1, "logged %d times", logged)
	first.Kill()
	second.Registration(1)
	r.served(second, 1, [16]byte{1})
	testenv.Poll(t, deadline, "the agent to be ready again", func() bool { return r.Ready() == nil })
}
