package otlp

import (
	"context"
	"sync"
	"time"
)

// senders send what one destination's state decides to send.
type senders struct {
	exporter  *Exporter
	state     *destinationState // guarded by the exporter's lock
	transport transport

	wake    *sync.Cond  // of the exporter's lock: there may be something to take
	timer   *time.Timer // calls onDeadline
	armed   time.Time   // when it does; zero: it is stopped. Guarded by the exporter's lock
	running sync.WaitGroup
}

func (x *Exporter) newSenders(d *destinationState, t transport) *senders {
	s := &senders{exporter: x, state: d, transport: t, wake: sync.NewCond(&x.mu)}
	s.timer = time.AfterFunc(time.Hour, s.onDeadline)
	s.timer.Stop()
	return s
}

// start begins sending. It ends when the destination is drained; ctx cancels what is in flight.
func (s *senders) start(ctx context.Context) {
	for range s.state.config.Concurrency {
		s.running.Go(func() { s.send(ctx) })
	}
}

func (s *senders) send(ctx context.Context) {
	x, c := s.exporter, s.transport.newCall(ctx)
	for e := s.next(); e != nil; e = s.next() {
		r := c.export(e.batch, e.attempt.probe)
		now := time.Now()
		x.mu.Lock()
		s.state.finish(e, r, now)
		x.admitWaiting(now)
		s.changed(now)
		x.unlock()
	}
}

// next waits for a batch that may be sent. It returns nil when there will be none any more. Whoever
// takes a batch wakes the next sender, so that one signal is enough for any number of changes.
func (s *senders) next() *entry {
	x := s.exporter
	x.mu.Lock()
	defer x.unlock()
	for !s.state.drained() {
		now := time.Now()
		if e := s.state.take(now); e != nil {
			if s.state.queue.length > 0 {
				s.wake.Signal()
			}
			return e
		}
		s.changed(now) // some may have expired
		if !s.state.drained() {
			s.wake.Wait()
		}
	}
	return nil
}

// changed arms the timer for the destination's next deadline, and wakes all senders if the
// destination is drained. The exporter's lock is held.
func (s *senders) changed(now time.Time) {
	if s.state.drained() {
		s.wake.Broadcast()
		return
	}
	at := s.state.deadline(now)
	// A timer that is armed for an earlier time is left alone: to fire in vain once is cheaper than
	// to reset it for every batch.
	if !at.IsZero() && (s.armed.IsZero() || at.Before(s.armed)) {
		s.armed = at
		s.timer.Reset(at.Sub(now))
	}
}

// onDeadline drops what has expired, and wakes a sender if a wait has ended.
func (s *senders) onDeadline() {
	x := s.exporter
	x.mu.Lock()
	defer x.unlock()
	now := time.Now()
	s.armed = time.Time{}
	s.state.expire(now)
	x.admitWaiting(now)
	s.changed(now)
	s.wake.Signal()
}
