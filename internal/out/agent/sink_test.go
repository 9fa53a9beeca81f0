package agent

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// moodyExporter takes samples at times.
type moodyExporter struct {
	takes bool
	got   int
}

func (e *moodyExporter) TakesSamples() bool { return e.takes }

func (e *moodyExporter) TakesAccounts() bool { return e.takes }

func (e *moodyExporter) Accounted(*profile.Account) { e.got++ }

func (e *moodyExporter) Waited(*profile.Sample) { e.got++ }

func (e *moodyExporter) Sampled(*profile.Sample) { e.got++ }

func (e *moodyExporter) TakesUntraced() bool { return true }

// An exporter without a use for samples costs nothing: they are not moved to the heap.
func TestSamplesNobodyTakes(t *testing.T) {
	e := &moodyExporter{}
	p := program{registration: &registration{agent: &Agent{exporter: e}}, resource: &profile.Resource{}}
	sample := profile.Sample{Count: 1}
	n := testing.AllocsPerRun(100, func() { p.Sampled(sample) })
	p.Accounted(new(profile.Account))
	p.Waited(sample)
	assert.Check(t, n == 0 && e.got == 0, "%v allocations, %d samples exported", n, e.got)
	e.takes = true
	p.Sampled(sample)
	p.Accounted(new(profile.Account))
	p.Waited(sample)
	assert.Check(t, e.got == 3, "%d exported of a sample, an account and a wait", e.got)
}
