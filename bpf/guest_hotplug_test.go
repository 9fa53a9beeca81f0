//go:build guest

package bpf

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// CPU 1 goes offline and comes back, seen by Refresh or between two calls of it. It is sampled
// again, and each tick that it may have had was taken or is counted as missed.
func TestCPUHotplug(t *testing.T) {
	const rate, cpu, unseen = 97, 1, 50 // ticks until Refresh is called
	s := openSampler(t, SamplerOptions{SamplesPerSecond: rate})
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	opened := Now()
	addDemo(t, s, p)
	refresh := func() {
		t.Helper()
		assert.NilError(t, s.Refresh())
	}
	taken := func() uint64 {
		t.Helper()
		n, err := s.takenOn(cpu)
		assert.NilError(t, err)
		return n
	}
	// sampled waits for samples of the CPU, without and with Refresh.
	sampled := func() {
		t.Helper()
		before := taken()
		testenv.Poll(t, waiting, "samples of CPU 1", func() bool { return taken() >= before+5 })
		refresh()
		waitForOutcome(t, s, Correlated)
	}
	pass := func() {
		t.Helper()
		began := Now()
		testenv.Poll(t, waiting, "time to pass", func() bool { return Now()-began > unseen*uint64(time.Second)/rate })
	}
	var online uint64 // how long CPU 1 was, at least, ns
	came := opened
	for _, seen := range []bool{true, false, false, true} {
		sampled()
		online += Now() - came
		testenv.SetOnline(t, cpu, false)
		before := s.clock.events[cpu]
		if seen {
			refresh()
			assert.Check(t, s.clock.events[cpu] == nil, "CPU 1 is offline and has an event")
			waitForOutcome(t, s, Correlated) // of CPU 0
			refresh()
		}
		testenv.SetOnline(t, cpu, true)
		came = Now()
		pass()
		refresh()
		if !seen && s.clock.events[cpu] == before {
			pass()
			refresh()
		}
		event := s.clock.events[cpu]
		assert.Check(t, event != nil && event != before, "CPU 1 is online again and has no other event")
	}
	sampled()
	online += Now() - came
	always := Now() - opened
	stop(t, s)
	ticks := func(ns uint64) uint64 { return ns * rate / uint64(time.Second) }
	// Of each event, the first tick and the last one may not be due, and one that is due may still come.
	const events, each = 2 + 4, 3
	counters := readCounters(t, s)
	sum := counters.Taken() + s.Missed()
	least, most := ticks(always+online)-events*each, 2*ticks(Now()-opened+uint64(maxSpread))+events*each
	assert.Check(t, sum >= least && sum <= most,
		"%d samples taken and %d missed of %d to %d ticks", counters.Taken(), s.Missed(), least, most)
}
