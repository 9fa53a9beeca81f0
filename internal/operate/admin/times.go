package admin

import (
	"slices"
	"time"

	"correlator/bpf"
	"correlator/otlp"
)

// times tells when something was by the clock as it is set now, with which clients compare it.
type times struct {
	began, now bpf.Instant
}

func newTimes(began bpf.Instant) times { return times{began: began} }

// correct corrects the times of a status, which were all read of time.Now. Of what others may have, it makes copies.
func (c times) correct(s *Status, now bpf.Instant) {
	c.now = now
	ran := time.Duration(now.BoottimeNs-c.began.BoottimeNs) + c.began.Sub(s.StartedAt)
	s.StartedAt = c.ago(s.StartedAt, ran)
	s.Processes = slices.Clone(s.Processes)
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.RegisteredSince != nil {
			since := c.by(*p.RegisteredSince)
			p.RegisteredSince = &since
		}
		if p.LastError != nil {
			last := *p.LastError
			last.At = c.by(last.At)
			p.LastError = &last
		}
	}
	if s.OTLP == nil {
		return
	}
	o := *s.OTLP
	s.OTLP, o.Destinations = &o, slices.Clone(o.Destinations)
	for i := range o.Destinations {
		d := &o.Destinations[i]
		d.Until, d.NoAnswerSince, d.LastError = c.by(d.Until), c.by(d.NoAnswerSince), c.failure(d.LastError)
	}
	if o.Receiver != nil {
		r := *o.Receiver
		o.Receiver, r.LastError = &r, c.failure(r.LastError)
	}
	if o.OpenCensus != nil {
		r := *o.OpenCensus
		o.OpenCensus, r.LastError = &r, c.failure(r.LastError)
	}
}

// by returns a time by the clock as it is set now. Since then as much has passed as by Go's clock, and at most what the
// machine was suspended; within that, what the clock of the day says is believed.
func (c times) by(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	slept := time.Duration(c.now.BoottimeNs-c.began.BoottimeNs) - time.Duration(c.now.MonotonicNs-c.began.MonotonicNs)
	least := c.now.Sub(t)
	return c.ago(t, min(max(c.day(t), least), least+max(slept, 0)))
}

// day returns how long ago a time is by the clock of the day.
func (c times) day(t time.Time) time.Duration { return c.now.Round(0).Sub(t.Round(0)) }

// ago returns a time with the seconds by which the clock was set, if it is so long ago.
func (c times) ago(t time.Time, ago time.Duration) time.Time {
	return t.Round(0).Add((c.day(t) - ago).Round(time.Second))
}

func (c times) failure(f *otlp.Failure) *otlp.Failure {
	if f == nil {
		return nil
	}
	return &otlp.Failure{Message: f.Message, At: c.by(f.At)}
}
