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
	places   = 20
	attacker = 4711
)

// few has the agent serve few processes.
func few(c *Config) { c.MaxProcesses = places }

// never is when a process publishes that maps the library and only wants a place.
const never = 10 * time.Minute

// known is how many processes have a place, to be served or to be probed.
func (r *running) known() int { return len(r.registrations.All()) }

// fullOf waits until more processes are there than are served, and some were not let in.
func (r *running) fullOf(what string, n int) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, what, func() bool {
		return r.known() >= places && r.known() < n
	})
	swept(r, 1)
	if known, most := r.known(), places+lifecycle.ExtraProcesses; known > most {
		r.t.Errorf("%d processes are open, want at most %d", known, most)
	}
}

// A user's processes that map the library and never publish keep nobody out who publishes: neither
// who comes after them, nor who was there before.
func TestIdleProcessesKeepNobodyOut(t *testing.T) {
	early := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, few)
	early.Registration(1)
	const idle = 10 * places
	demo.StartMany(t, idle, demo.Options{PublishAfter: never, Placement: demo.Placement{UID: attacker, GID: attacker}})
	r.fullOf("idle processes", idle)
	for range places - 1 {
		late := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		late.Registration(1)
	}
	r.state(early, process.StateRegistered, "")
	assert.Check(t, r.Ready(), "processes that publish nothing make the agent not ready")
	assert.Check(t, early.Report().Registrations == 1 && r.Counters().Evicted[lifecycle.EvictedShare].Load() == 0,
		"a process that was served had to give way to some that publish nothing")
}

// The same of processes that the filter leaves out by the service that they publish. They are not
// probed again and again.
func TestFilteredProcessesKeepNobodyOut(t *testing.T) {
	r := run(t, few, func(c *Config) { c.Filter.ExcludeServices = patterns(t, "crowd") })
	const filtered = 10 * places
	demo.StartMany(t, filtered, demo.Options{Service: "crowd"})
	r.fullOf("filtered processes", filtered)
	for range places {
		demo.Start(t, demo.Options{Manual: true, Idle: 1}).Registration(1)
	}
	testenv.Poll(t, deadline, "all to be known as filtered",
		func() bool { return r.Counters().Filtered.Load() >= filtered })
	swept(r, 1)
	before := r.Counters().Probes.Load()
	swept(r, 20) // full ones among them
	if probes := r.Counters().Probes.Load() - before; probes > 20*(places+lifecycle.ExtraProcesses) {
		t.Errorf("%d probes in 20 sweeps, of %d processes", probes, filtered)
	}
	n := r.Counters().Filtered.Load()
	assert.Check(t, n == filtered, "%d processes counted as filtered, want %d", n, filtered)
	if s := r.Status(); s.WithoutPlace.Others == 0 || s.WithoutPlace.Publishing != 0 || s.NotReady != "" {
		t.Errorf("without a place: %+v, not ready: %q", s.WithoutPlace, s.NotReady)
	}
}

// A user whose processes publish, more than are served, keeps no other user out. The registrations
// that end for that end properly. The agent is not ready while some that publish are left out.
func TestPublishersOfOneUserKeepNobodyOut(t *testing.T) {
	r := run(t, few)
	const publishing = 3 * places
	crowd := demo.StartMany(t, publishing, demo.Options{Placement: demo.Placement{UID: attacker, GID: attacker}})
	testenv.Poll(t, deadline, "all to be registered with, or refused", func() bool {
		census := r.Census()
		return census.Processes[process.StateRegistered] == places &&
			census.WithoutPlace.Publishing == publishing-places
	})
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "40 more processes publish than the 20") {
		t.Errorf("ready: %v", err)
	}
	const honest = places / 2
	var others []*demo.Process
	for i := range honest {
		p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		p.Registration(1)
		r.served(p, 1, [16]byte{byte(i)})
		others = append(others, p)
	}
	evicted := func() uint64 { return r.Counters().Evicted[lifecycle.EvictedShare].Load() }
	testenv.Poll(t, deadline, "the end of as many registrations", func() bool {
		return evicted() == honest && r.Counters().Withdrawn.Load() >= honest
	})
	swept(r, 20) // those that had to go do not come back for others that have to go
	if evicted() != honest || r.Census().Processes[process.StateRegistered] != places {
		t.Errorf("%d had to go, want %d; %d are registered with", evicted(), honest,
			r.Census().Processes[process.StateRegistered])
	}
	testenv.Poll(t, deadline, "as many registrations as were read, one in the crowd each", func() bool {
		registrations := uint64(places)
		for _, p := range others { // two, where the exec was reported after the library
			registrations += p.Report().Registrations
		}
		return r.Counters().Connected.Load() == registrations
	})
	// While these quit, one after the other, places become free, and those that had to go come back.
	for pid, report := range crowd.Quit() {
		assert.Check(t, report.Registrations <= 2 && report.Malformed == 0 && report.Unregistered == 0,
			"process %d: %+v", pid, report)
	}
	testenv.Poll(t, deadline, "the agent to be ready again", func() bool { return r.Ready() == nil })
}
