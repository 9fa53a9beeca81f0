package admin

import (
	"slices"
	"sync"
	"time"

	"correlator/bpf"
	"correlator/internal/out/bootclock"
	"correlator/otlp"
)

// times tells when something was by the clock as it is set now, with which clients compare it.
type times struct {
	mu    sync.Mutex
	clock *bootclock.Clock
}

func newTimes(read func() bpf.Instant) *times { return &times{clock: bootclock.New(read)} }

// correct corrects the times of a status, which were all read of time.Now. Of what others may have, it makes copies.
func (c *times) correct(s *Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.Look(s.At)
	s.StartedAt = c.by(s.StartedAt)
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

// by returns a time by the clock as it is set now.
func (c *times) by(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return c.clock.Time(c.clock.Ns(t)).In(t.Location())
}

func (c *times) failure(f *otlp.Failure) *otlp.Failure {
	if f == nil {
		return nil
	}
	return &otlp.Failure{Message: f.Message, At: c.by(f.At)}
}
