package agent

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

func newServices(limit int) *services {
	return &services{limit: limit, named: make(map[string]*ServiceCounts)}
}

// served is the status of a process that has had samples.
func served(service string, state process.State, sent, late, exported, dropped, withoutTrace uint64) *ProcessStatus {
	s := &ProcessStatus{Sent: sent, Late: late, Exported: exported, WithoutTrace: withoutTrace,
		Dropped: map[string]uint64{"refused": dropped}}
	s.ServiceName, s.State = service, state
	return s
}

// text is what there is, without services of which nothing was counted.
func (s *services) text() string {
	var lines []string
	for _, c := range s.snapshot() {
		lines = append(lines, fmt.Sprint(c.Name, c.samples))
	}
	return strings.Join(lines, " ")
}

// Samples are counted once, by the name that the process has when they are, and stay when it ends.
func TestServices(t *testing.T) {
	s := newServices(10)
	var shop, cart serviceAccount
	for _, c := range []struct {
		account *serviceAccount
		status  *ProcessStatus
		want    string
	}{
		{&cart, served("", process.StateNoStorage, 0, 0, 0, 0, 0), ""},
		{&shop, served("shop", process.StateRegistered, 5, 4, 3, 2, 1), "shop[5 3 4 2 1]"},
		{&shop, served("shop", process.StateRegistered, 5, 4, 3, 2, 1), "shop[5 3 4 2 1]"},
		{&shop, served("shop", process.StateError, 6, 4, 3, 2, 1), "shop[6 3 4 2 1]"},
		{&cart, served("", process.StateAttached, 0, 0, 7, 0, 0), "shop[6 3 4 2 1] unknown_service[0 7 0 0 0]"},
		{&cart, served("shop", process.StateAttached, 0, 0, 9, 0, 0), "shop[6 5 4 2 1] unknown_service[0 7 0 0 0]"},
		{&shop, served("renamed", process.StateRegistered, 6, 4, 3, 2, 1),
			"renamed[0 0 0 0 0] shop[6 5 4 2 1] unknown_service[0 7 0 0 0]"},
		{&shop, served("", "", 7, 4, 3, 2, 1),
			"renamed[1 0 0 0 0] shop[6 5 4 2 1] unknown_service[0 7 0 0 0]"},
	} {
		s.add(c.account, c.status)
		got := s.text()
		assert.Check(t, got == c.want, "%+v: %s, want %s", c.status, got, c.want)
	}
}

// However many names processes invent, there are as many as configured, and one more.
func TestServicesAreBounded(t *testing.T) {
	s := newServices(3)
	for i := range 1000 {
		s.add(new(serviceAccount), served(fmt.Sprint("s", i), process.StateRegistered, 1, 0, 0, 0, 0))
	}
	s.add(new(serviceAccount), served(otherServices, process.StateRegistered, 1, 0, 0, 0, 0))
	got, want := s.text(), "_other[998 0 0 0 0] s0[1 0 0 0 0] s1[1 0 0 0 0] s2[1 0 0 0 0]"
	assert.Check(t, got == want, "%s, want %s", got, want)
}

// Names are labels, whatever processes publish.
func TestServiceNames(t *testing.T) {
	for name, want := range map[string]string{
		"shop":                         "shop",
		"a\xffb\n":                     "a\uFFFDb\n",
		strings.Repeat("x", 200):       strings.Repeat("x", maxServiceName),
		strings.Repeat("x", 127) + "ä": strings.Repeat("x", 127),
		strings.Repeat("\x80", 1000):   "\uFFFD",
	} {
		got := cleanServiceName(name)
		assert.Check(t, got == want && utf8.ValidString(got), "%q: %q, want %q", name, got, want)
	}
}

// Samples of a process that has ended are still those of its service.
func (r *running) servicesOfProcesses() {
	t := r.t
	p := demo.Start(t, demo.Options{Busy: 1, Service: "shop"})
	shop := func() (c ServiceCounts) {
		for _, s := range r.Services() {
			if s.Name == "shop" {
				c = s
			}
		}
		return c
	}
	testenv.Poll(t, deadline, "samples", func() bool {
		return shop().samples[serviceSent] > 10 && shop().Processes == 1
	})
	sender := r.registration(p).sender
	p.Kill()
	r.gone(p)
	testenv.Poll(t, deadline, "all of its samples", func() bool {
		return shop().samples[serviceSent] == sender.Stats().Sent && shop().Processes == 0
	})
}

// The metrics by service are those of the source, and there are none without.
func TestCollectorOfServices(t *testing.T) {
	got := gatherValues(t, &fixedSource{services: []ServiceCounts{
		{Name: "a\uFFFD", Processes: 2, samples: serviceSamples{serviceLate: 3}}, {Name: "b"},
	}})
	for series, want := range map[string]float64{
		"correlator_service_processes{service=\"a\uFFFD\"}":                      2,
		"correlator_service_samples_total{outcome=\"late\",service=\"a\uFFFD\"}": 3,
		`correlator_service_samples_total{outcome="sent",service="b"}`:           0,
	} {
		value, ok := got[series]
		assert.Check(t, ok && value == want, "%s is %v (collected: %v), want %v", series, value, ok, want)
	}
	for series := range gatherValues(t, new(fixedSource)) {
		assert.Check(t, !strings.HasPrefix(series, "correlator_service_"), "%s is collected", series)
	}
}
