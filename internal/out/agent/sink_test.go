package agent

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// moodyExporter takes samples at times.
type moodyExporter struct {
	takes    bool
	got      int
	services []string // of wakers
}

func (e *moodyExporter) TakesSamples() bool { return e.takes }

func (e *moodyExporter) TakesAccounts() bool { return e.takes }

func (e *moodyExporter) Accounted(*profile.Account) { e.got++ }

func (e *moodyExporter) Waited(s *profile.Sample) {
	e.got++
	e.services = append(e.services, s.Wait.Waker.Service)
}

func (e *moodyExporter) Sampled(*profile.Sample) { e.got++ }

func (e *moodyExporter) TakesUntraced() bool { return true }

// An exporter without a use for samples costs nothing: they are not moved to the heap.
func TestSamplesNobodyTakes(t *testing.T) {
	e := &moodyExporter{}
	p := program{registration: &registration{agent: &Agent{exporter: e}}, resource: &profile.Resource{}}
	sample := profile.Sample{Count: 1, Wait: new(profile.Wait)}
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

// Who ended a wait has the name of its service if it takes part, and none if that is not known.
func TestServiceOfWaker(t *testing.T) {
	e := &moodyExporter{takes: true}
	a := &Agent{exporter: e}
	p := program{registration: &registration{agent: a}, resource: &profile.Resource{}}
	a.resources.Store(7, &profile.Resource{PID: 7, Service: profile.Service{Name: "cart"}})
	for _, pid := range []int{7, 8, 0} {
		p.Waited(profile.Sample{Wait: &profile.Wait{Waker: profile.Waker{Kind: profile.ThreadWaker, PID: pid}}})
	}
	assert.Check(t, slices.Equal(e.services, []string{"cart", "", ""}), "%q", e.services)
}
