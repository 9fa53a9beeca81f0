package bpf

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
)

// Without a rate there is a table of targets, and no samples.
func TestTableOnly(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Busy: 1})
	s, err := OpenSampler(SamplerOptions{})
	assert.NilError(t, err)
	defer s.Close()
	addDemo(t, s, p)
	assert.Check(t, s.Refresh())
	n := len(drainAll(t, s))
	assert.Check(t, n == 0, "%d counts", n)
	stop(t, s)
	if counters := readCounters(t, s); counters.Taken()+s.Missed() != 0 {
		t.Errorf("%d samples taken, %d missed", counters.Taken(), s.Missed())
	}
}
