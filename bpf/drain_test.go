package bpf

import (
	"testing"

	"correlator/internal/lab/demo"
)

// Without a rate there is a table of targets, and no samples.
func TestTableOnly(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1})
	stop(t, openSampler(t, SamplerOptions{})) // skips the test if something is missing
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
