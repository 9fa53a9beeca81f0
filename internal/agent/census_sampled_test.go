package agent

import (
	"maps"
	"testing"
	"time"

	"correlator/internal/demo"
	"correlator/internal/lifecycle"
	"correlator/internal/process"
	"correlator/internal/testenv"
	"correlator/procscan"
)

// Registered processes that are not sampled are counted, by what prevents it now, if samples are
// taken.
func TestNotSampled(t *testing.T) {
	// Nothing binds the variable.
	p := demo.Start(t, demo.Options{Flavor: demo.GlibcDynamic, Manual: true, Untouched: 1})
	for _, perSecond := range []int{0, 20} {
		r := run(t, atRate(perSecond))
		view := r.state(p, process.StateRegistered, "")
		want := make(map[string]int)
		if perSecond > 0 && view.TLS == notSampledUnresolved {
			want[notSampledUnresolved] = 1
		}
		testenv.Poll(t, deadline, "the process to be counted", func() bool { return maps.Equal(r.NotSampled(), want) })
		if view.TLS != notSampledUnresolved {
			t.Errorf("the variable is bound: %+v", view)
		}
		r.end()
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
		{tls: unresolved, reason: process.ReasonTLS, at: now.Add(-time.Second), want: "unresolved"}, // before it
		{tls: "static", reason: process.ReasonSampling, at: now.Add(time.Second), want: "sampling"},
		{tls: "static", reason: process.ReasonSocketFull, at: now.Add(time.Second), want: "other"},
	} {
		s := lifecycle.Status{AttachedAt: now, View: process.View{TLS: c.tls}}
		if c.reason != process.ReasonNone {
			s.LastError = &ProcessError{Reason: c.reason.String(), At: c.at}
		}
		if why := notSampled(&s); why != c.want {
			t.Errorf("%+v: %s", c, why)
		}
		got[notSampled(&s)] = 0
	}
	for _, reason := range NotSampledReasons() {
		want[reason] = 0
	}
	if !maps.Equal(got, want) {
		t.Errorf("reasons %v, want %v", got, want)
	}
}
