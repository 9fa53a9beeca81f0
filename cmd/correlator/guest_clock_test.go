//go:build guest

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/backend"
	"correlator/internal/demo"
	"correlator/internal/testenv"
)

// clockRun is an agent that exports the samples of a process, while the clock or the machine is
// tampered with.
type clockRun struct {
	t       *testing.T
	agent   *agentProcess
	process *demo.Process
	backend *backend.Backend
	began   time.Time
	checked int // intervals
}

func startClockRun(t *testing.T) *clockRun {
	t.Helper()
	needSampler(t)
	socket := filepath.Join(t.TempDir(), "otlp")
	r := &clockRun{t: t, began: time.Now(), backend: openBackend(t, socket)}
	r.process = demo.Start(t, demo.Options{Busy: 1, Manual: true})
	r.agent = startExporting(t, "  profiles-interval: 1s\n  metrics-interval: 1s\n  symbolize: false\n"+
		"  destinations: [{endpoint: unix:"+socket+"}]\n", "--samples-per-second", "97")
	r.process.Registration(1)
	return r
}

// arrive waits until samples of a new transaction have arrived, at the process and at the backend,
// and checks the times of profiles and metrics. The clock is as it is until the call has returned.
func (r *clockRun) arrive(clock string) {
	t := r.t
	t.Helper()
	since := time.Now().UnixNano()
	trace := r.process.Begin(1).TraceID
	hasSamples(r.process, trace)
	exported := func() (n uint64) {
		for sample, count := range r.backend.Profiles().Samples {
			if sample.TraceID == trace.String() {
				n += count
			}
		}
		return n
	}
	testenv.Poll(t, deadline, "exported samples, "+clock, func() bool { return exported() >= several })
	const metric = "correlator_otlp_profile_samples_total"
	testenv.Poll(t, deadline, "metrics, "+clock, func() bool {
		m := r.backend.Metrics()[metric]
		return m.At >= uint64(since) && m.At <= uint64(time.Now().UnixNano()) && m.Start <= m.At
	})
	// The first profile may be of the time before.
	const longest, leeway = 30 * time.Second, 15 * time.Second
	intervals := r.backend.Profiles().Intervals[r.checked:]
	r.checked += len(intervals)
	now := time.Now()
	inTime := 0
	for _, i := range intervals {
		if i.End <= i.Start || i.End-i.Start > uint64(longest) {
			t.Errorf("%s: a profile is of %d to %d", clock, i.Start, i.End)
		}
		if int64(i.Start) >= since-int64(leeway) && int64(i.End) <= now.UnixNano() {
			inTime++
		}
	}
	if inTime == 0 || inTime < len(intervals)-3 {
		t.Errorf("%s: %d of %d profiles are of the present: %v, since %d to %d", clock, inTime, len(intervals), intervals,
			since, now.UnixNano())
	}
	r.process.End(1)
}

// end checks that nothing was lost, and that the agent was in no trouble.
func (r *clockRun) end() {
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
	for _, e := range r.agent.entries() {
		late := strings.HasPrefix(e.Msg, "samples-delay is not kept") // since the machine is emulated
		if (e.Level == "warn" || e.Level == "error") && !late {
			t.Errorf("logged: %+v", e)
		}
	}
}

// The clock is set, forth and back, also to before the start of the agent. Samples have the time
// that it shows when they are taken; nothing is lost, late or sent more often.
func TestClockSet(t *testing.T) {
	r := startClockRun(t)
	r.arrive("at first")
	const hour, day = time.Hour, 24 * time.Hour
	for _, by := range []time.Duration{hour, -hour, -hour, hour, day, -day, -day, day} {
		now := time.Now().Add(by)
		tv := unix.NsecToTimeval(now.UnixNano())
		if err := unix.Settimeofday(&tv); err != nil {
			t.Fatal(err)
		}
		r.arrive("set by " + by.String())
	}
	r.end()
}

func clockGettime(t *testing.T, clock int32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// suspended is how long the machine was suspended so far.
func suspended(t *testing.T) time.Duration {
	t.Helper()
	return clockGettime(t, unix.CLOCK_BOOTTIME) - clockGettime(t, unix.CLOCK_MONOTONIC)
}

// The machine is suspended and woken by its clock. For who measures with CLOCK_MONOTONIC, no time
// has passed.
func TestSuspend(t *testing.T) {
	for _, f := range []string{"/sys/power/state", "/sys/power/mem_sleep", "/sys/class/rtc/rtc0/name", "/sys/class/rtc/rtc0/wakealarm"} {
		text, err := os.ReadFile(f)
		t.Logf("%s: %q %v", f, text, err)
	}
	r := startClockRun(t)
	r.arrive("at first")
	const pause = 10 * time.Second
	before, wall := suspended(t), time.Now().Round(0)
	if err := os.WriteFile("/sys/class/rtc/rtc0/wakealarm", []byte("+10"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/sys/power/state", []byte("mem"), 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("suspended for %v, of %v", suspended(t)-before, time.Since(wall))
	r.arrive("after a suspension")
	r.end()
	_ = pause
}
