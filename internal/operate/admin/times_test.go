package admin

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/clocks"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/opencensus/receiver"
	"correlator/otlp"
	otlpreceiver "correlator/otlp/receiver"
)

// How long ago something was is what has passed since, also when the clock was set, or the machine suspended.
func TestTimes(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*clocks.Clocks)
		ago       time.Duration
	}{
		"nothing":   {func(*clocks.Clocks) {}, 0},
		"forward":   {func(m *clocks.Clocks) { m.Set(5 * time.Hour) }, 0},
		"back":      {func(m *clocks.Clocks) { m.Set(-5 * time.Hour) }, 0},
		"suspended": {func(m *clocks.Clocks) { m.Suspend(5 * time.Hour) }, 5 * time.Hour},
		"suspended again": {func(m *clocks.Clocks) {
			for range 3 {
				m.Suspend(5 * time.Hour)
				m.Pass(time.Minute)
			}
		}, 15*time.Hour + 3*time.Minute},
		"set, and suspended": {func(m *clocks.Clocks) {
			m.Set(20 * time.Hour)
			m.Suspend(5 * time.Hour)
		}, 5 * time.Hour},
	} {
		m := clocks.New()
		times := newTimes(m.Instant())
		m.Pass(time.Second)
		began := m.Now()
		registered := began
		failed, failure := &agent.ProcessError{At: began}, otlp.NewFailure("e", began)
		export := &export.Status{
			Destinations: []otlp.Status{{LastError: failure, NoAnswerSince: began, Until: began}},
			Receiver:     &otlpreceiver.Status{LastError: failure},
			OpenCensus:   &receiver.Status{LastError: failure},
		}
		m.Pass(time.Minute)
		c.meanwhile(m)
		s := Status{Status: agent.Status{At: m.Now(), StartedAt: began,
			Processes: []agent.ProcessStatus{{RegisteredSince: &registered, LastError: failed}, {}}}, OTLP: export}
		times.correct(&s, m.Instant())
		p, d, in, php := s.Processes[0], s.OTLP.Destinations[0], s.OTLP.Receiver, s.OTLP.OpenCensus
		for i, at := range []time.Time{s.StartedAt, *p.RegisteredSince, p.LastError.At, d.LastError.At, d.NoAnswerSince,
			d.Until, in.LastError.At, php.LastError.At} {
			ago := s.At.Round(0).Sub(at.Round(0))
			assert.Check(t, ago == time.Minute+c.ago, "%s: time %d is %v ago", name, i, ago)
		}
		assert.Check(t, failed.At == began && failure.At == began && registered == began,
			"what others have was changed")
	}
}
