package otlp

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed means that the exporter is shutting down, or has been shut down.
	ErrClosed = errors.New("exporter is shut down")
	// ErrTooLarge means that no destination will ever accept the batch because of its size.
	ErrTooLarge = errors.New("batch is too large")
	// ErrUnsupported means that no destination accepts the signal.
	ErrUnsupported = errors.New("no destination takes this signal")
)

// OverloadError reports that received data is refused for now because the queue of a destination is
// full.
type OverloadError struct {
	Destination string
	// RetryAfter is an estimate of when there will be room, at least minRetryAfter. It is jittered,
	// so that senders that were refused together do not return together.
	RetryAfter time.Duration
}

func (e *OverloadError) Error() string {
	return fmt.Sprintf("queue of destination %s is full, room is expected in %v", e.Destination, e.RetryAfter)
}

const (
	minRetryAfter = 250 * time.Millisecond // a refusal costs the sender a round trip and a timer
	maxRetryAfter = 30 * time.Second       // a circuit probes at least that often
	// retryJitter is by how much RetryAfter is longer or shorter than estimated, as a fraction.
	retryJitter = 0.2
)

// receivedShare is the fraction of a quota beyond which received data is refused, so that the
// agent's own data, which cannot be refused but only lost, always has room.
const receivedShare = 0.75

func receivedLimit(quota int64) int64 { return int64(receivedShare * float64(quota)) }

// scheduler decides what happens to every batch at every destination. It has no clock, no goroutine
// and no network; the exporter's lock guards it.
type scheduler struct {
	destinations []*destinationState
	random       func() float64 // in [0,1)
	seq          uint64
	closed       bool
	waiting      []*waiter // received batches for which there is no room yet, oldest first
	events       []Event   // not yet passed to Options.Observe
}

// waiter is a received batch that waits for room.
type waiter struct {
	batch *Batch
	done  chan error // receives one value; never blocks the sender
}

// Quotas returns the limit of bytes of each destination. Those without QueueBytes of their own
// share queueBytes (0: DefaultQueueBytes) equally, but a share has room for the largest request, or
// as much as queueBytes has.
func Quotas(queueBytes int64, destinations []Destination) []int64 {
	if queueBytes == 0 {
		queueBytes = DefaultQueueBytes
	}
	sharing := int64(0)
	for i := range destinations {
		if destinations[i].QueueBytes == 0 {
			sharing++
		}
	}
	quotas := make([]int64, len(destinations))
	for i := range destinations {
		d := &destinations[i]
		if quotas[i] = d.QueueBytes; quotas[i] == 0 {
			quotas[i] = max(queueBytes/sharing, min(queueBytes, int64(d.MaxRequestBytes)+overhead))
		}
	}
	return quotas
}

func newScheduler(queueBytes int64, destinations []Destination, random func() float64) *scheduler {
	s := &scheduler{random: random}
	for i, quota := range Quotas(queueBytes, destinations) {
		s.destinations = append(s.destinations, &destinationState{
			scheduler: s, config: &destinations[i], quota: quota,
			circuit: newCircuit(destinations[i].Concurrency, random),
			outages: limiter{burst: outageBurst},
		})
	}
	return s
}

// enqueue queues a batch of our own data at every destination that takes its signal. Where there is
// no room, the destination's oldest own data is dropped.
func (s *scheduler) enqueue(b *Batch, now time.Time) {
	if b.items <= 0 {
		return
	}
	for _, d := range s.destinations {
		if !d.config.Takes(b.signal) {
			continue
		}
		c := &d.counters[b.signal]
		c.accepted += uint64(b.items)
		reason, rejected := d.rejectReason(b, now)
		switch {
		case s.closed:
			c.drop(b, Shutdown)
			d.lost.add(b)
		case rejected:
			c.drop(b, reason)
		case !d.makeRoom(b.size()):
			c.drop(b, QueueFull)
		default:
			d.add(b, false)
		}
	}
}

// enqueueReceived queues received data at every destination that takes its signal, or at none. It
// leaves the room for which other received data waits, of whatever signal.
func (s *scheduler) enqueueReceived(b *Batch, now time.Time) error {
	return s.tryReceived(b, s.refusal(b, now), now)
}

// tryReceived is enqueueReceived, given the refusal that the batch would get.
func (s *scheduler) tryReceived(b *Batch, refusal error, now time.Time) error {
	switch {
	case s.closed:
		return ErrClosed
	case b.items <= 0:
		return nil
	case refusal != nil:
		return refusal
	}
	b.created = now // it may have waited, and what was queued meanwhile is in front of it
	for _, d := range s.destinations {
		if !d.config.Takes(b.signal) {
			continue
		}
		c := &d.counters[b.signal]
		c.accepted += uint64(b.items)
		if reason, rejected := d.rejectReason(b, now); rejected {
			c.drop(b, reason)
		} else if !d.makeRoomForReceived(b.size()) { // it is down
			c.drop(b, QueueFull)
		} else {
			d.add(b, true)
		}
	}
	return nil
}

// refusal returns the error for received data that cannot be queued behind what waits for room.
func (s *scheduler) refusal(b *Batch, now time.Time) error {
	s.unreserve()
	for _, w := range s.waiting {
		s.reserve(w.batch, now)
	}
	return s.overload(b, now)
}

// unreserve forgets what has been reserved.
func (s *scheduler) unreserve() {
	for _, d := range s.destinations {
		d.reserved = 0
	}
}

// reserve keeps room for a batch that waits, at every destination that it is for, against the
// batches behind it. Otherwise small ones would take whatever room there is, and a large one would
// wait for as long as they come.
func (s *scheduler) reserve(b *Batch, now time.Time) {
	for _, d := range s.destinations {
		if _, rejected := d.rejectReason(b, now); d.config.Takes(b.signal) && !rejected {
			d.reserved += b.size()
		}
	}
}

// overload returns an error if there is no room for received data besides what is reserved.
// Destinations that never take the batch do not keep it from the others, and neither do those that
// are down, unless all are: then the sender had better keep the data.
func (s *scheduler) overload(b *Batch, now time.Time) error {
	var (
		never          = ErrUnsupported
		up, takers     int
		fullUp, full   int
		worst, worstUp *OverloadError
	)
	slower := func(worst *OverloadError, d *destinationState) *OverloadError {
		if wait := d.timeToRoom(d.reserved+b.size(), now); worst == nil || wait > worst.RetryAfter {
			return &OverloadError{Destination: d.config.Name, RetryAfter: wait}
		}
		return worst
	}
	for _, d := range s.destinations {
		if !d.config.Takes(b.signal) {
			continue
		}
		if reason, rejected := d.rejectReason(b, now); rejected {
			if reason == TooLarge {
				never = fmt.Errorf("%w: %d bytes", ErrTooLarge, len(b.request))
			}
			continue
		}
		down, hasRoom := d.down(now), d.hasRoom(d.reserved+b.size())
		takers++
		if !down {
			up++
		}
		if hasRoom {
			continue
		}
		full++
		worst = slower(worst, d)
		if !down {
			fullUp++
			worstUp = slower(worstUp, d)
		}
	}
	switch {
	case takers == 0:
		return never
	case fullUp > 0:
		worst = worstUp
	case up > 0 || full < takers:
		return nil
	}
	spread := 1 + retryJitter*(2*s.random()-1)
	worst.RetryAfter = max(time.Duration(spread*float64(worst.RetryAfter)), minRetryAfter)
	return worst
}

// admitWaiting queues the received batches that waited and now fit besides those that came before
// them and still wait. It reports whether there were any.
func (s *scheduler) admitWaiting(now time.Time) (admitted bool) {
	if len(s.waiting) == 0 {
		return false
	}
	s.unreserve()
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		err := s.tryReceived(w.batch, s.overload(w.batch, now), now)
		if isOverload(err) {
			s.reserve(w.batch, now)
			kept = append(kept, w)
			continue
		}
		w.done <- err
		admitted = true
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
	return admitted
}

func isOverload(err error) bool {
	var overload *OverloadError
	return errors.As(err, &overload)
}
