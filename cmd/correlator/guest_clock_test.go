//go:build guest

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/kernels/console"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// clockRun is an agent that exports the samples of a process, while the clock or the machine is
// tampered with.
type clockRun struct {
	t       *testing.T
	agent   *agentProcess
	process *demo.Process
	backend *backend.Backend
	began   time.Time
	checked int    // intervals
	before  int    // lines of the log, until samples arrived for the first time
	shown   []span // by the clock, since those intervals
	stalled bool   // while its clocks went on
}

// A span is what the clock showed from one time on, until it was set. Nanoseconds.
type span struct{ from, until uint64 }

// holds reports whether an interval is of the span. The first one may have begun a while before it: its
// length is measured by another clock.
func (s span) holds(i backend.Interval) bool {
	const leeway = uint64(15 * time.Second)
	return s.from-leeway <= i.Start && i.Start < i.End && s.from <= i.End && i.End <= s.until
}

func timeOfDay() uint64 { return uint64(time.Now().UnixNano()) }

// patient has no sample be late because CPUs are emulated: one that is late was measured wrongly. It
// is shorter than any step of a clock here.
var patient = []string{"--samples-delay", "5s"}

// startClockRun returns when samples arrive.
func startClockRun(t *testing.T, flags ...string) *clockRun {
	t.Helper()
	needSampler(t)
	socket := filepath.Join(t.TempDir(), "otlp")
	r := &clockRun{t: t, began: time.Now(), backend: openBackend(t, socket)}
	r.process = demo.Start(t, demo.Options{Busy: 1, Manual: true})
	r.agent = startExporting(t, "  profiles-interval: 1s\n  metrics-interval: 1s\n"+
		"  destinations: [{endpoint: unix:"+socket+", timeout: 1m}]\n", append(flags, "--samples-per-second",
		strconv.Itoa(rate), "--otlp-symbolize=false", "--unwinder", "frame-pointers")...)
	r.process.Registration(1)
	r.shown = []span{{from: timeOfDay()}}
	r.arrive("at first")
	r.before = len(r.agent.entries())
	return r
}

// arrive waits until samples of a new transaction have arrived, at the process and at the backend,
// and checks the times of profiles and metrics. The clock is as it is until the call has returned.
func (r *clockRun) arrive(clock string) {
	t := r.t
	t.Helper()
	since := timeOfDay()
	trace := r.process.Begin(1).TraceID
	hasSamples(r.process, trace)
	testenv.Poll(t, deadline, "exported samples, "+clock, func() bool { return r.exported(trace) >= several })
	const metric = "correlator_otlp_profile_samples_total"
	testenv.Poll(t, deadline, "metrics, "+clock, func() bool {
		m := r.backend.Metrics()[metric]
		return m.At >= since && m.At <= timeOfDay() && m.Start <= m.At
	})
	intervals := r.backend.Profiles().Intervals[r.checked:]
	r.checked += len(intervals)
	now := timeOfDay()
	current := span{since, now}
	if !slices.ContainsFunc(intervals, current.holds) {
		t.Errorf("%s: no profile is of %v: %v", clock, current, intervals)
	}
	r.shown[len(r.shown)-1].until = now
	for _, i := range intervals {
		holds := func(s span) bool { return s.holds(i) }
		if !slices.ContainsFunc(r.shown, holds) || i.End-i.Start > uint64(30*time.Second) {
			t.Errorf("%s: a profile is of %v, the clock showed %v", clock, i, r.shown)
		}
	}
	r.shown = []span{{from: since}} // a profile may be on its way
	r.process.End(1)
}

// exported is how many samples of a trace the backend has: all that were taken.
func (r *clockRun) exported(trace demo.TraceID) (n uint64) {
	for sample, count := range r.backend.Profiles().Samples {
		if sample.TraceID == trace.String() {
			n += count
		}
	}
	return n
}

// endInTime is end, and checks that each sample arrived, and in time.
func (r *clockRun) endInTime() {
	r.t.Helper()
	counted, report := r.end()
	if dropped := counted.sum("samples_dropped_"); dropped != 0 || report.LateSamples != 0 {
		r.t.Errorf("of %d samples, %d arrived late and %d were dropped", counted["samples_sent"]+dropped,
			report.LateSamples, dropped)
	}
}

// end checks that nothing was lost without a count, and that the agent was in no trouble, but that an
// emulated worker may answer too late: then the process is tried again.
func (r *clockRun) end() (counters, demo.Report) {
	t := r.t
	t.Helper()
	counted := r.agent.end()
	counted.addUp(t)
	report := r.process.Quit()
	clean(t, report)
	if report.Registrations != 1 {
		t.Errorf("%d registrations", report.Registrations)
	}
	if arrived := report.Samples + report.LateSamples; counted["samples_sent"] != arrived {
		t.Errorf("%d samples arrived of %d sent", arrived, counted["samples_sent"])
	}
	profiles := r.backend.Profiles()
	var exported uint64
	for _, n := range profiles.Samples {
		exported += n
	}
	if exported != counted["sampled_correlated"] {
		t.Errorf("%d samples were exported of %d", exported, counted["sampled_correlated"])
	}
	// One a second, and others where the clock was set.
	if most := time.Since(r.began)/time.Second + 20; len(profiles.Intervals) > int(most) {
		t.Errorf("%d profiles, in %v", len(profiles.Intervals), time.Since(r.began))
	}
	for _, e := range r.agent.entries()[r.before:] {
		// Since the machine is emulated, or was stopped.
		late := strings.HasPrefix(e.Msg, "samples-delay is not kept") || e.Reason == process.ReasonTimeout.String() ||
			r.stalled && strings.HasSuffix(e.Error, procscan.ErrStuck.Error())
		if (e.Level == "warn" || e.Level == "error") && !late {
			t.Errorf("logged: %+v", e)
		}
	}
	return counted, report
}

// keepClock has the time of day go on, at the end of the test, as if nobody had set it.
func keepClock(t *testing.T) {
	booted := clockGettime(t, unix.CLOCK_REALTIME) - clockGettime(t, unix.CLOCK_BOOTTIME)
	t.Cleanup(func() {
		now := unix.NsecToTimeval(int64(booted + clockGettime(t, unix.CLOCK_BOOTTIME)))
		assert.Check(t, unix.Settimeofday(&now))
	})
}

// The clock is set, forth and back, also to before the start of the agent. Samples have the time
// that it shows when they are taken; nothing is lost, late or sent more often.
func TestClockSet(t *testing.T) {
	keepClock(t)
	r := startClockRun(t, patient...)
	const hour, day = time.Hour, 24 * time.Hour
	for _, by := range []time.Duration{hour, -hour, -hour, hour, day, -day, -day, day} {
		r.setClock(by)
		r.arrive("set by " + by.String())
	}
	r.endInTime()
}

func (r *clockRun) setClock(by time.Duration) {
	r.t.Helper()
	now := timeOfDay()
	r.shown[len(r.shown)-1].until = now
	tv := unix.NsecToTimeval(int64(now) + int64(by))
	assert.NilError(r.t, unix.Settimeofday(&tv))
	r.shown = append(r.shown, span{from: now + uint64(by)})
}

func clockGettime(t *testing.T, clock int32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	assert.NilError(t, unix.ClockGettime(clock, &ts))
	return time.Duration(ts.Nano())
}

// suspended is how long the machine was suspended so far.
func suspended(t *testing.T) time.Duration {
	t.Helper()
	return clockGettime(t, unix.CLOCK_BOOTTIME) - clockGettime(t, unix.CLOCK_MONOTONIC)
}

// The machine is suspended to memory and woken by its clock of the time of day: CLOCK_MONOTONIC stands
// still meanwhile, CLOCK_BOOTTIME and the time of day do not. All CPUs but the first go offline for it.
func TestSuspend(t *testing.T) {
	const state, kinds, wake = "/sys/power/state", "/sys/power/mem_sleep", "/sys/class/rtc/rtc0/wakealarm"
	if text, _ := os.ReadFile(kinds); !strings.Contains(string(text), "deep") {
		testenv.Missing(t, "this machine cannot be suspended to memory")
	}
	r := startClockRun(t, patient...)
	const pause = 10 * time.Second
	before := suspended(t)
	for _, write := range []struct{ file, text string }{{wake, "+10"}, {kinds, "deep"}, {state, "mem"}} {
		assert.NilError(t, os.WriteFile(write.file, []byte(write.text), 0))
	}
	length := suspended(t) - before
	assert.Check(t, length >= pause/2, "suspended for %v, not %v", length, pause)
	hasSamples(r.process, onCPU(t, r.process, 1)) // which was offline meanwhile
	r.arrive("after a suspension")
	r.endInTime()
}

// behind is how much the time of day is behind the clock of the board.
func behind(t *testing.T) time.Duration {
	t.Helper()
	const board = "/sys/class/rtc/rtc0/since_epoch"
	text, err := os.ReadFile(board)
	if err != nil {
		testenv.Missing(t, "this machine has no clock of its board: "+err.Error())
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	assert.NilError(t, err, board)
	return time.Duration(seconds)*time.Second - clockGettime(t, unix.CLOCK_REALTIME)
}

// The machine is stopped for ten seconds by its monitor, and its clocks with it, but the one of the board,
// which the kernel does not look at. For the agent no time has passed: nothing is late.
func TestPause(t *testing.T) {
	before := behind(t)
	r := startClockRun(t, patient...)
	hasSamples(r.process, r.process.Begin(1).TraceID)
	askForStop(t, console.Stop{Pause: stalled})
	testenv.Poll(t, deadline, "the machine to be stopped by its monitor", func() bool {
		return behind(t)-before > stalled/2
	})
	r.process.End(1)
	r.arrive("after the machine was stopped by its monitor")
	r.endInTime()
}

// The machine is stopped for ten seconds while its clocks go on, and then the agent alone. What waited is
// late, and not sent in a flood; where the agent was stopped, that is much, which is dropped and counted.
// Processes stay registered.
func TestStall(t *testing.T) {
	r := startClockRun(t)
	machine := r.process.Begin(1).TraceID
	hasSamples(r.process, machine)
	r.stalled = true
	stallMachine(t)
	r.process.End(1)
	r.arrive("after the machine was stopped")
	agent := r.stallAgent()
	r.arrive("after the agent was stopped")

	counted, report := r.end()
	about, _ := report.Transaction(machine)
	most := uint64(rate*report.SamplesDelayMillis/1000) + 1
	if about.LateSamples > most {
		t.Errorf("the machine was stopped: %d samples taken, %d arrived and %d late: %v", r.exported(machine),
			about.Samples, about.LateSamples, counted)
	}
	about, _ = report.Transaction(agent)
	if taken := r.exported(agent); about.Samples+about.LateSamples != 0 || taken <= most {
		t.Errorf("the agent was stopped: %d samples taken, %d arrived and %d late: %v", taken, about.Samples,
			about.LateSamples, counted)
	}
}

const stalled = 10 * time.Second

// askForStop has internal/lab/kernels stop the machine. It may not have begun when this returns.
func askForStop(t *testing.T, stop console.Stop) {
	t.Helper()
	line := append([]byte("\n"), console.Line(stop)...) // whatever was printed before
	assert.NilError(t, os.WriteFile("/dev/console", line, 0))
}

// stallMachine returns when the machine has been stopped, and goes on.
func stallMachine(t *testing.T) {
	t.Helper()
	before := clockGettime(t, unix.CLOCK_MONOTONIC)
	askForStop(t, console.Stop{Stall: stalled})
	testenv.Poll(t, deadline, "the machine to be stopped", func() bool {
		now := clockGettime(t, unix.CLOCK_MONOTONIC)
		length := now - before
		before = now
		return length > stalled/2
	})
}

// stallAgent stops the agent, and returns the trace of a transaction that began and ended meanwhile.
func (r *clockRun) stallAgent() demo.TraceID {
	t := r.t
	t.Helper()
	pid := r.agent.command.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus // says that it is stopped when all its threads are
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the agent is not stopped: status %#x, %v", status, err)
	}
	began := clockGettime(t, unix.CLOCK_MONOTONIC)
	trace := r.process.Begin(1).TraceID
	testenv.Poll(t, deadline, "ten seconds to pass", func() bool {
		return clockGettime(t, unix.CLOCK_MONOTONIC)-began > stalled
	})
	r.process.End(1)
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	return trace
}
