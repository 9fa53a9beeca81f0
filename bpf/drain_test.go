package bpf

import (
	"testing"
	"time"

	"correlator/internal/demo"
)

// Whoever drains without pause gets each sample once: none is counted in a table that is being
// emptied.
func TestDrainWithoutPause(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1, Transaction: time.Millisecond})
	s := openSampler(t, SamplerOptions{SamplesPerSecond: MaxSamplesPerSecond})
	addDemo(t, s, p)
	samples := uint64(20_000)
	if *long {
		samples = 1_000_000
	}
	var got uint64
	for drain := uint64(0); got < samples; drain++ {
		for _, c := range drainAll(t, s) {
			got += uint64(c.Samples)
		}
	}
	stop(t, s)
	for _, c := range drainAll(t, s) {
		got += uint64(c.Samples)
	}
	if counters := readCounters(t, s); counters[Correlated] != got {
		t.Errorf("%d samples counted, %d drained", counters[Correlated], got)
	}
}

// Without a rate there is a table of targets, and no samples.
func TestTableOnly(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1})
	stop(t, openSampler(t, SamplerOptions{})) // makes a skip of what is missing
	s, err := OpenSampler(SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	addDemo(t, s, p)
	if err := s.Refresh(); err != nil {
		t.Error(err)
	}
	if n := len(drainAll(t, s)); n != 0 {
		t.Errorf("%d counts", n)
	}
	stop(t, s)
	if counters := readCounters(t, s); counters.Taken()+s.Missed() != 0 {
		t.Errorf("%d samples taken, %d missed", counters.Taken(), s.Missed())
	}
}
