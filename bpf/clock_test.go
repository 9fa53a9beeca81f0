package bpf

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

func sampledCPUs(c *clock) (cpus []int) {
	for cpu := range c.events {
		cpus = append(cpus, cpu)
	}
	slices.Sort(cpus)
	return cpus
}

func TestRefresh(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 4, Gap: -1})
	online, err := procscan.ReadCPUs(procscan.OnlineCPUs)
	assert.NilError(t, err)
	cpus := sampledCPUs(s.clock)
	assert.Check(t, slices.Equal(cpus, online), "sampling CPUs %v of %v", cpus, online)
	addDemo(t, s, p)
	refresh := func() {
		t.Helper()
		assert.NilError(t, s.Refresh())
	}

	// All CPUs but one go offline, and come back online.
	s.clock.list = filepath.Join(t.TempDir(), "online")
	write := func(list string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(s.clock.list, []byte(list), 0o600))
	}
	write("0\n")
	refresh()
	cpus = sampledCPUs(s.clock)
	assert.Check(t, slices.Equal(cpus, []int{0}), "sampling CPUs %v", cpus)
	s.clock.list = procscan.OnlineCPUs
	refresh()
	cpus = sampledCPUs(s.clock)
	assert.Check(t, slices.Equal(cpus, online), "sampling CPUs %v of %v", cpus, online)
	waitForOutcome(t, s, Correlated)

	// The event of a CPU that was offline for a moment does not count any more.
	events := make(map[int]*clockEvent)
	for cpu, event := range s.clock.events {
		events[cpu] = event
		assert.NilError(t, unix.IoctlSetInt(event.fd, unix.PERF_EVENT_IOC_DISABLE, 0))
	}
	testenv.Poll(t, waiting, "new events", func() bool {
		refresh()
		for cpu, event := range s.clock.events {
			if events[cpu] == event {
				return false
			}
		}
		return len(s.clock.events) == len(online)
	})
	waitForOutcome(t, s, Correlated)

	stop(t, s)
	before := readCounters(t, s)
	refresh()
	assert.Check(t, len(s.clock.events) == 0 && readCounters(t, s) == before, "samples are taken after Stop")
}

// No samples are taken after Stop though a child of ours still has the descriptors that are closed there, as
// between its fork and its exec.
func TestStopWhileForking(t *testing.T) {
	s := openSampler(t, SamplerOptions{SamplesPerSecond: 1000})
	taken := func() uint64 {
		counters := readCounters(t, s)
		return counters.Taken()
	}
	testenv.Poll(t, waiting, "samples", func() bool { return taken() > 0 })
	for _, event := range s.clock.events {
		inherited, err := unix.FcntlInt(uintptr(event.fd), unix.F_DUPFD_CLOEXEC, 0)
		assert.NilError(t, err)
		t.Cleanup(func() { unix.Close(inherited) })
	}
	stop(t, s)
	before, stopped := taken(), Now()
	testenv.Poll(t, waiting, "time to pass", func() bool { return Now()-stopped >= uint64(100*time.Millisecond) })
	after := taken()
	assert.Check(t, after == before, "%d samples were taken after Stop", after-before)
}

// Every tick of every CPU's clock is either sampled or counted as missed.
func TestMissedTicks(t *testing.T) {
	const rate = 1000
	opening := Now()
	s := openSampler(t, SamplerOptions{SamplesPerSecond: rate})
	opened := Now()
	waitForSamples := func() {
		t.Helper()
		before := readCounters(t, s)
		testenv.Poll(t, waiting, "samples", func() bool {
			after := readCounters(t, s)
			return after.Taken() >= before.Taken()+5
		})
	}
	waitForSamples()
	cpus := uint64(len(s.clock.events))
	if counters := readCounters(t, s); s.Missed() != 0 {
		t.Errorf("%d missed before the first Refresh, counters %v", s.Missed(), counters)
	}

	// As while the kernel throttles a clock.
	const held = 100
	hold := func(request uint) {
		t.Helper()
		for _, event := range s.clock.events {
			assert.NilError(t, unix.IoctlSetInt(event.fd, request, 0))
		}
	}
	hold(unix.PERF_EVENT_IOC_DISABLE)
	began := Now()
	testenv.Poll(t, waiting, "time to pass", func() bool {
		return Now()-began >= held*uint64(time.Second)/rate
	})
	hold(unix.PERF_EVENT_IOC_ENABLE)
	waitForSamples()
	assert.NilError(t, s.Refresh())
	before := s.Missed()
	assert.Check(t, before >= cpus*(held-2), "%d ticks missed on %d CPUs that were held for %d", before, cpus, held)

	// Whatever is missed on a busy machine, in the end the sums match.
	stopping := Now()
	stop(t, s)
	stopped := Now()
	counters := readCounters(t, s)
	ticks := func(ns uint64) uint64 { return cpus * (ns * rate / uint64(time.Second)) }
	sum := counters.Taken() + s.Missed()
	if sum < ticks(stopping-opened)-2*cpus || sum > ticks(stopped-opening)+2*cpus {
		t.Errorf("%d samples and %d missed, of at least %d ticks and at most %d",
			counters.Taken(), s.Missed(), ticks(stopping-opened), ticks(stopped-opening))
	}
	assert.Check(t, s.Missed() >= before, "%d missed, and before %d", s.Missed(), before)
}

// Samples of an idle CPU have an outcome of their own. There are none while others keep all CPUs busy.
func TestIdle(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	before := idleTime(t)
	counters := Counters{}
	testenv.Poll(t, waiting, "samples of an idle CPU, or many", func() bool {
		counters = readCounters(t, s)
		return counters[Idle] >= 5 || counters.Taken() >= 5_000
	})
	idle := idleTime(t) - before
	assert.Check(t, counters[Idle] >= 5 || idle <= time.Second, "the CPUs were idle for %v: %v", idle, counters)
}

// idleTime returns for how long the CPUs have been idle together.
func idleTime(t *testing.T) time.Duration {
	t.Helper()
	fs, err := procfs.NewDefaultFS()
	assert.NilError(t, err)
	stat, err := fs.Stat()
	assert.NilError(t, err)
	return time.Duration(stat.CPUTotal.Idle * float64(time.Second))
}

// The missed ticks of an event are kept when its CPU goes offline.
func TestMissedOnCPUThatWent(t *testing.T) {
	testenv.NeedRoot(t)
	taken := uint64(7)
	c := &clock{
		period: 1,
		taken:  func(int) (uint64, error) { return taken, nil },
		list:   filepath.Join(t.TempDir(), "online"),
		events: make(map[int]*clockEvent),
	}
	fd, err := openCPUClock(0, time.Hour)
	assert.NilError(t, err)
	c.events[0] = &clockEvent{fd: fd, begun: Now() - uint64(time.Hour), before: taken}
	_, err = c.update(0, c.events[0])
	assert.NilError(t, err)
	missed := c.totalMissed()
	assert.Check(t, missed >= uint64(time.Hour)-1, "%d missed", missed)
	assert.NilError(t, c.remove(0, c.events[0]))
	assert.Check(t, c.totalMissed() == missed && len(c.events) == 0,
		"%d missed, and without CPU %d", missed, c.totalMissed())
}

func TestSamplerOptions(t *testing.T) {
	for _, rate := range []int{-1, MaxSamplesPerSecond + 1} {
		if s, err := OpenSampler(SamplerOptions{SamplesPerSecond: rate}); err == nil {
			t.Errorf("%d samples per second: no error", rate)
			s.Close()
		}
	}
	for _, test := range []struct{ rate, cpus, counts int }{
		{20, 2, 1024}, {997, 2, 2048}, {997, 64, 65536}, {1024, 2, 2048}, {10_000, 128, 65536},
	} {
		o := (SamplerOptions{SamplesPerSecond: test.rate}).withDefaults(test.cpus)
		assert.Check(t, o.MaxCounts == test.counts, "%+v: %+v", test, o)
	}
}

// Clocks that were read while we got no CPU in between are read again, and the best are taken. Between two instants
// they have counted the same time, to the nanosecond.
func TestReadInstant(t *testing.T) {
	for name, test := range map[string]struct {
		took []time.Duration
		want uint64
	}{
		"at once":         {[]time.Duration{time.Microsecond, 0}, 1},
		"interrupted":     {[]time.Duration{5 * time.Second, time.Millisecond, time.Microsecond, 0}, 3},
		"again and again": {[]time.Duration{3, 9, 8, 2, 7, 7, 7, 7, 7, 3, 1}, 4},
	} {
		calls := uint64(0)
		got := readInstant(func() (Instant, time.Duration) {
			calls++
			took := test.took[calls-1]
			if name == "again and again" {
				took *= time.Second
			}
			return Instant{MonotonicNs: calls}, took
		})
		assert.Check(t, got.MonotonicNs == test.want && calls <= 10, "%s: that of attempt %d of %d, not %d", name,
			got.MonotonicNs, calls, test.want)
	}
	before, wall := Now(), time.Now()
	now := ReadInstant()
	assert.Check(t, now.MonotonicNs+uint64(time.Second) >= before && now.MonotonicNs <= Now() &&
		now.BoottimeNs >= now.MonotonicNs && !now.Before(wall) && !now.After(time.Now()), "%+v", now)
	later := ReadInstant()
	assert.Check(t, later.MonotonicNs-now.MonotonicNs == uint64(later.Sub(now.Time)), "%+v, %+v", now, later)
}
