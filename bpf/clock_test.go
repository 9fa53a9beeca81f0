package bpf

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/demo"
	"correlator/internal/testenv"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{
		"0":           {0},
		"0-3":         {0, 1, 2, 3},
		"0,2-3,8191":  {0, 2, 3, 8191},
		"":            nil,
		"1-0":         nil,
		"0-8192":      nil,
		"-1":          nil,
		"0-":          nil,
		"x":           nil,
		"0-1-2":       nil,
		"99999999999": nil,
	} {
		cpus, err := parseCPUs(list)
		if !slices.Equal(cpus, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", list, cpus, err)
		}
	}
}

func sampledCPUs(c *clock) (cpus []int) {
	for cpu := range c.events {
		cpus = append(cpus, cpu)
	}
	slices.Sort(cpus)
	return cpus
}

func TestRefresh(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 4, Gap: -1})
	s := openSampler(t, SamplerOptions{})
	online, err := readCPUs(onlineCPUs)
	if err != nil {
		t.Fatal(err)
	}
	if cpus := sampledCPUs(s.clock); !slices.Equal(cpus, online) {
		t.Errorf("sampling CPUs %v of %v", cpus, online)
	}
	addDemo(t, s, p)
	refresh := func() {
		t.Helper()
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
	}

	// All but one go, and come back.
	s.clock.list = filepath.Join(t.TempDir(), "online")
	write := func(list string) {
		t.Helper()
		if err := os.WriteFile(s.clock.list, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0\n")
	refresh()
	if cpus := sampledCPUs(s.clock); !slices.Equal(cpus, []int{0}) {
		t.Errorf("sampling CPUs %v", cpus)
	}
	s.clock.list = onlineCPUs
	refresh()
	if cpus := sampledCPUs(s.clock); !slices.Equal(cpus, online) {
		t.Errorf("sampling CPUs %v of %v", cpus, online)
	}
	waitForOutcome(t, s, Correlated)

	// A CPU that was away for a moment leaves an event that counts no longer.
	events := make(map[int]*clockEvent)
	for cpu, event := range s.clock.events {
		events[cpu] = event
		if err := unix.IoctlSetInt(event.fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
			t.Fatal(err)
		}
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
	if len(s.clock.events) != 0 || readCounters(t, s) != before {
		t.Error("samples are taken after the end")
	}
}

func TestSamplerOptions(t *testing.T) {
	for _, rate := range []int{-1, 0, MaxSamplesPerSecond + 1} {
		if s, err := OpenSampler(SamplerOptions{SamplesPerSecond: rate}); err == nil {
			t.Errorf("%d samples per second: no error", rate)
			s.Close()
		}
	}
	for _, test := range []struct{ rate, cpus, counts int }{
		{20, 2, 1024}, {997, 2, 2048}, {997, 64, 65536}, {1024, 2, 2048}, {10_000, 128, 65536},
	} {
		if o := (SamplerOptions{SamplesPerSecond: test.rate}).withDefaults(test.cpus); o.MaxCounts != test.counts {
			t.Errorf("%+v: %+v", test, o)
		}
	}
}
