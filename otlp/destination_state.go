package otlp

import (
	"time"

	"google.golang.org/grpc/codes"
)

// unsupportedFor is how long a signal stays switched off at a destination that does not know it: receivers
// learn a service by being upgraded, which takes minutes.
const unsupportedFor = 5 * time.Minute

// pipeline is everything that decides about one destination: its queue, its gate, its counters. It has no
// clock and no goroutine. The exporter's lock guards it.
type destinationState struct {
	scheduler *scheduler
	conf      *Destination

	queue   queue
	circuit circuit

	bytes       int64 // of all batches held, those in flight included
	unevictable int64 // of them, those that cannot make room for others: in flight or acknowledged
	flying      int64 // of them, those that are in flight and were not acknowledged

	counters [NumSignals]counters
	support  [NumSignals]support

	rejected bool      // the last answer that told was that our credentials are not good
	failing  time.Time // since when the destination takes nothing at all; zero: it does, or nobody knows
	lapsed   bool      // see lapse
	told     bool      // an outage goes on, and an event has said so

	lastError   string
	lastErrorAt time.Time

	items, requestBytes rate    // what was sent
	latency             float64 // seconds, smoothed over about 8 requests that succeeded

	finalAttempt finalAttempt
	draining     bool
	stopped      bool // what ends now without success is lost
	lost         holding

	partialText string
	partial     limiter
	waiting     limiter
	refused     [numCodes]limiter
}

// support is whether a destination knows a signal.
type support struct {
	off   bool
	until time.Time // then one batch tries again
	trial *entry    // that batch
}

// chance is the one attempt that a waiting destination gets when the exporter is shut down.
type finalAttempt uint8

const (
	finalAttemptUnused finalAttempt = iota
	finalAttemptGiven
	finalAttemptUsed
)

func (s *support) admits(now time.Time) bool {
	return !s.off || s.trial == nil && !now.Before(s.until)
}

// makeRoom drops the oldest batches that are not acknowledged until that many bytes fit, or none if they would not.
func (p *destinationState) makeRoom(size int64) bool {
	if p.unevictable+size > p.conf.QueueBytes {
		return false
	}
	for p.bytes+size > p.conf.QueueBytes {
		p.discard(p.queue.first(func(e *entry) bool { return !e.acknowledged }), QueueFull)
	}
	return true
}

// add queues a batch, for which there is room. Nothing is acknowledged for a destination that has lapsed.
func (p *destinationState) add(b *Batch, received bool) {
	p.scheduler.seq++
	e := &entry{batch: b, state: p, seq: p.scheduler.seq, acknowledged: received && !p.lapsed}
	if s := &p.support[b.signal]; s.off {
		s.trial = e
	}
	p.scheduler.hold(e)
	p.bytes += b.size()
	if e.acknowledged {
		p.pin(b)
	}
	p.enqueue(e)
}

func (p *destinationState) enqueue(e *entry) {
	p.queue.insert(e)
	p.counters[e.batch.signal].queued.add(e.batch)
}

func (p *destinationState) dequeue(e *entry) {
	p.queue.remove(e)
	p.counters[e.batch.signal].queued.sub(e.batch)
}

func (p *destinationState) pin(b *Batch)   { p.unevictable += b.size(); p.scheduler.pin(b) }
func (p *destinationState) unpin(b *Batch) { p.unevictable -= b.size(); p.scheduler.unpin(b) }

// discard drops a batch from the queue.
func (p *destinationState) discard(e *entry, reason Reason) {
	p.dequeue(e)
	if e.acknowledged {
		p.unpin(e.batch)
	}
	p.drop(e, reason)
}

// drop lets go of a batch that is neither queued nor in flight any more.
func (p *destinationState) drop(e *entry, reason Reason) {
	p.counters[e.batch.signal].drop(e.batch, reason)
	if reason == Shutdown {
		p.lost.add(e.batch)
	}
	p.release(e)
}

func (p *destinationState) release(e *entry) {
	if s := &p.support[e.batch.signal]; s.trial == e {
		s.trial = nil
	}
	if e.attempts > 0 {
		e.batch.release()
	}
	p.bytes -= e.batch.size()
	p.scheduler.release(e)
}

// take begins an attempt with the oldest batch, or says after which wait one may begin; 0 means when
// something changes.
func (p *destinationState) take(now time.Time) (e *entry, wait time.Duration) {
	ok, wait := p.circuit.ready(now)
	if !ok {
		if p.queue.length == 0 {
			wait = 0
		}
		return nil, wait
	}
	for e = p.queue.front; e != nil && p.expired(e, now); e = p.queue.front {
		p.discard(e, Expired)
	}
	if e == nil || !p.canSend(e) {
		return nil, 0
	}

	b, c := e.batch, &p.counters[e.batch.signal]
	p.dequeue(e)
	if !e.acknowledged {
		p.pin(b)
		p.flying += b.size()
	}
	c.inFlight.add(b)
	e.attempt = p.circuit.begin()
	if p.draining && e.attempt.probe {
		p.finalAttempt = finalAttemptUsed
	}
	if e.attempts++; e.attempts > 1 {
		c.retries++
	} else {
		b.retain()
	}
	if e.doubtful && !e.resent {
		e.resent = true
		c.duplicated++
	}
	return e, 0
}

// canSend says if a batch may be in flight besides those that are. One may always.
func (p *destinationState) canSend(e *entry) bool {
	return e.acknowledged || p.flying == 0 || p.flying+e.batch.size() <= p.scheduler.flight
}

func (p *destinationState) expired(e *entry, now time.Time) bool {
	return p.conf.MaxAge > 0 && now.Sub(e.batch.created) > p.conf.MaxAge
}

// finish takes back a batch with what its attempt ended with.
func (p *destinationState) finish(e *entry, a *answer, now time.Time) {
	b, c := e.batch, &p.counters[e.batch.signal]
	c.inFlight.sub(b)
	p.unpin(b)
	if !e.acknowledged {
		p.flying -= b.size()
	}
	c.attempts[a.code]++
	c.seconds.observe(&secondsBounds, a.took.Seconds())
	c.bytes.observe(&bytesBounds, float64(len(b.request)))
	if a.code != codes.OK {
		p.lastError, p.lastErrorAt = statusCodes[a.code].name+": "+a.message, now
	}

	switch v := judge(a, p.conf.RetryResourceExhausted); {
	case v == verdictDone:
		p.delivered(e, a, now)
	case v == verdictRetry && p.stopped:
		p.circuit.cancelled(e.attempt)
		p.drop(e, Shutdown)
	case v == verdictRetry:
		p.retry(e, a, now)
	default:
		p.refuse(e, a, now)
	}
	if a.malformed {
		c.badResponse++
	}
	p.noteGate(a, now)
	p.finishDrain(now)
}

// delivered: all items that the answer does not reject are with the receiver.
func (p *destinationState) delivered(e *entry, a *answer, now time.Time) {
	b, c := e.batch, &p.counters[e.batch.signal]
	rejected, ok := b.rejected(a.partial.rejected)
	a.malformed = a.malformed || !ok
	c.sent += uint64(b.items) - rejected
	c.dropped[Rejected] += rejected
	if rejected > 0 || a.partial.message != "" {
		p.notePartial(b, a, rejected, now)
	}

	p.circuit.succeeded(e.attempt, now)
	p.rejected = false
	p.failing, p.lapsed = time.Time{}, false
	if took := a.took.Seconds(); p.latency == 0 {
		p.latency = took
	} else {
		p.latency += (took - p.latency) / 8
	}
	if s := &p.support[b.signal]; s.off {
		s.off = false
		p.emit(Event{Kind: EventSupported, Signal: b.signal})
	}
	p.items.add(float64(uint64(b.items)-rejected), now)
	p.requestBytes.add(float64(len(b.request)), now)
	p.release(e)
}

// fails: the destination takes nothing now, whatever the request. One that refuses a request may take others.
func (p *destinationState) fails(now time.Time) {
	if p.failing.IsZero() {
		p.failing = now
	}
}

// retry puts the batch back to where it was in the queue.
func (p *destinationState) retry(e *entry, a *answer, now time.Time) {
	b, c := e.batch, &p.counters[e.batch.signal]
	if a.delay > 0 {
		c.throttled++
	}
	c.throttledBy += p.circuit.failed(e.attempt, now, a.delay)
	p.fails(now)
	e.doubtful = e.doubtful || a.doubtful
	if s := &p.support[b.signal]; s.off && s.trial != e {
		p.drop(e, Unsupported)
		return
	}
	if e.acknowledged = e.acknowledged && !p.lapsed; e.acknowledged {
		p.pin(b)
	}
	p.enqueue(e)
}

// refuse drops a batch that must not be sent again.
func (p *destinationState) refuse(e *entry, a *answer, now time.Time) {
	b := e.batch
	p.circuit.refused(e.attempt, now)
	switch a.code {
	case codes.Unimplemented:
		trial := p.support[b.signal].trial == e
		p.drop(e, Unsupported)
		p.switchOff(b.signal, trial, a, now)
		return
	case codes.PermissionDenied, codes.Unauthenticated:
		p.rejected = true
		p.fails(now)
	}
	p.counters[b.signal].refuse(b, a.code)
	p.release(e)
	if p.refused[a.code].allow(now) {
		p.emit(Event{
			Kind: EventRefused, Signal: b.signal, Code: statusCodes[a.code].name, Message: a.message,
			Hint: sizeHint(a.code, len(b.request)), Items: uint64(b.items),
		})
	}
}

// switchOff stops a signal for some time, and drops what waits of it.
func (p *destinationState) switchOff(signal Signal, trial bool, a *answer, now time.Time) {
	s := &p.support[signal]
	if s.off && !trial {
		return // one that was in flight when the first came back
	}
	if !s.off {
		p.emit(Event{
			Kind: EventUnsupported, Signal: signal, Code: statusCodes[a.code].name, Message: a.message, Wait: unsupportedFor,
		})
	}
	s.off, s.until = true, now.Add(unsupportedFor)
	for e := p.queue.front; e != nil; {
		next := e.next
		if e.batch.signal == signal {
			p.discard(e, Unsupported)
		}
		e = next
	}
}
