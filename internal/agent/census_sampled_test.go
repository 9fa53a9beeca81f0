package agent

import (
	"maps"
	"testing"
	"time"

	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/procscan"
)

// Registered processes that are not sampled are counted, by what prevents it now.
func TestNotSampled(t *testing.T) {
	a := known(t, 100)
	for _, p := range a.processes {
		p.follower = sampling.NewFollower(nil, nil, nil)
	}
	if n := a.NotSampled(); len(n) > 0 {
		t.Errorf("%v, and no samples are taken at all", n)
	}
	a.sampling = &sampling.Sampling{}
	if n := a.NotSampled(); len(n) > 0 {
		t.Errorf("%v, and the registrations still wait for room", n)
	}
}

func TestWhyNotSampled(t *testing.T) {
	now := time.Now()
	unresolved := process.NewView(procscan.ProcessID{}).TLS
	got, want := make(map[string]int), make(map[string]int)
	for _, c := range []struct {
		tls    string
		reason process.Reason // of the last error
		at     time.Time
		want   string
	}{
		{tls: unresolved, want: "unresolved"},
		{tls: "dynamic", want: "other"},
		{tls: unresolved, reason: process.ReasonTLS, at: now, want: "tls_unsupported"},
		{tls: unresolved, reason: process.ReasonTLS, at: now.Add(-time.Second), want: "unresolved"}, // of the registration before
		{tls: "static", reason: process.ReasonSampling, at: now.Add(time.Second), want: "sampling"},
		{tls: "static", reason: process.ReasonSocketFull, at: now.Add(time.Second), want: "other"},
	} {
		s := shown{registered: now, view: process.View{TLS: c.tls}}
		if c.reason != process.ReasonNone {
			s.lastError = &ProcessError{Reason: c.reason.String(), At: c.at}
		}
		if why := s.notSampled(); why != c.want {
			t.Errorf("%+v: %s", c, why)
		}
		got[s.notSampled()] = 0
	}
	for _, reason := range NotSampledReasons() {
		want[reason] = 0
	}
	if !maps.Equal(got, want) {
		t.Errorf("reasons %v, want %v", got, want)
	}
}
