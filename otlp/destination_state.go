package otlp

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// downAfter is how long a destination may go without accepting anything before it counts as
	// down. Senders to --otlp-listen keep refused data for minutes at most, in memory of their own;
	// so one destination's outage may hold them up for a restart of the receiver, not longer.
	downAfter = time.Minute

	// unsupportedFor is how long a signal stays switched off at a destination that does not know
	// it: receivers learn a service by being upgraded, which takes minutes.
	unsupportedFor = 5 * time.Minute

	// minSilence is how long requests must have gone without an answer before Status reports it:
	// longer than a busy receiver takes.
	minSilence = 2 * time.Second
)

// destinationState decides about one destination: its queue, its memory, when a request may start,
// and what happens to a batch after an attempt. It has no clock and no goroutine; the exporter's
// lock guards it.
type destinationState struct {
	scheduler *scheduler
	config    *Destination
	quota     int64 // limit of bytes

	queue   queue
	circuit circuit

	bytes       int64 // of all batches held, in flight included
	unevictable int64 // of them, those in flight or acknowledged: our own data must not evict them

	// reserved are the bytes of received batches that wait for room and come before the one that
	// the scheduler decides about; it means nothing otherwise.
	reserved int64

	counters [NumSignals]counters
	support  [NumSignals]support

	rejected bool      // the last answer that said anything about our credentials rejected them
	failing  time.Time // since when the destination has accepted no request; zero: it accepts them
	// unanswered is since when no request was answered, refusals included; zero: all were.
	unanswered time.Time

	lastError   string
	lastErrorAt time.Time

	items, requestBytes rate    // what was sent
	latency             float64 // seconds, smoothed over about 8 requests that succeeded

	finalAttempt finalAttempt
	draining     bool
	stopped      bool // what fails from now on is lost
	lost         holding

	outageEmitted bool // the current outage has been reported
	outages       limiter
	partialText   string
	partial       limiter
	refused       [numCodes]limiter
}

// support records whether a destination knows a signal.
type support struct {
	off   bool
	until time.Time // then one batch tries again
	trial *entry    // that batch
}

func (s *support) admits(now time.Time) bool {
	return !s.off || s.trial == nil && !now.Before(s.until)
}

// down reports whether the destination has failed for so long that it must not hold up others: it
// no longer keeps received data from being acknowledged, and its losses are only counted.
func (d *destinationState) down(now time.Time) bool {
	return !d.failing.IsZero() && now.Sub(d.failing) >= downAfter
}

// rejectReason returns why a destination would not take a batch however much room it had.
func (d *destinationState) rejectReason(b *Batch, now time.Time) (reason Reason, rejected bool) {
	switch {
	case len(b.request) > d.config.MaxRequestBytes || b.size() > d.quota:
		return TooLarge, true
	case !d.support[b.signal].admits(now):
		return Unsupported, true
	}
	return 0, false
}

// hasRoom reports whether received data of that size fits without evicting anything. A single large
// batch may exceed the share of received data.
func (d *destinationState) hasRoom(size int64) bool {
	within := d.unevictable == 0 || d.unevictable+size <= receivedLimit(d.quota)
	return within && d.bytes+size <= d.quota
}

// makeRoom drops the oldest batches of our own until size bytes fit, or none if they would not.
func (d *destinationState) makeRoom(size int64) bool {
	if d.unevictable+size > d.quota {
		return false
	}
	for d.bytes+size > d.quota {
		d.discard(d.queue.oldest(false), QueueFull)
	}
	return true
}

// makeRoomForReceived drops the oldest batches, acknowledged ones included, until received data of
// that size fits, or none if it would not. There is nothing to drop unless the destination is down.
func (d *destinationState) makeRoomForReceived(size int64) bool {
	if d.hasRoom(size) {
		return true
	}
	if d.inFlightBytes()+size > d.quota {
		return false
	}
	for d.unevictable+size > receivedLimit(d.quota) {
		e := d.queue.oldest(true)
		if e == nil {
			break
		}
		d.discard(e, QueueFull)
	}
	for d.bytes+size > d.quota {
		d.discard(d.queue.front, QueueFull)
	}
	return true
}

func (d *destinationState) inFlightBytes() (n int64) {
	for s := range d.counters {
		n += d.counters[s].inFlight.bytes
	}
	return n
}

// timeToRoom estimates when received data of that size will fit. Batches leave at the rate of
// (requests at a time) / latency, and have the mean size of those that are held.
func (d *destinationState) timeToRoom(size int64, now time.Time) time.Duration {
	excess := max(d.bytes+size-d.quota, d.unevictable+size-receivedLimit(d.quota))
	var wait float64
	if held := d.queue.length + d.circuit.inFlight; held > 0 {
		batches := max(float64(excess)*float64(held)/float64(d.bytes), 1)
		wait = batches * d.latency / float64(d.circuit.allowed)
		silence := now.Sub(d.unanswered).Seconds()
		if d.circuit.inFlight > 0 && silence > 2*d.latency {
			wait = max(wait, silence) // answers are overdue: it may well be as long again
		}
	}
	if d.circuit.state == circuitWaiting {
		wait += d.circuit.end().Sub(now).Seconds()
	}
	// Compared as seconds: the product may be too large for a Duration.
	wait = min(max(wait, minRetryAfter.Seconds()), maxRetryAfter.Seconds())
	return time.Duration(wait * float64(time.Second))
}

// add queues a batch for which there is room.
func (d *destinationState) add(b *Batch, received bool) {
	d.scheduler.seq++
	e := &entry{batch: b, seq: d.scheduler.seq, acknowledged: received}
	if s := &d.support[b.signal]; s.off {
		s.trial = e
	}
	d.bytes += b.size()
	if received {
		d.unevictable += b.size()
	}
	d.enqueue(e)
}

func (d *destinationState) enqueue(e *entry) {
	d.queue.insert(e)
	d.counters[e.batch.signal].queued.add(e.batch)
}

func (d *destinationState) dequeue(e *entry) {
	d.queue.remove(e)
	d.counters[e.batch.signal].queued.sub(e.batch)
}

// discard drops a batch from the queue.
func (d *destinationState) discard(e *entry, reason Reason) {
	d.dequeue(e)
	if e.acknowledged {
		d.unevictable -= e.batch.size()
	}
	d.drop(e, reason)
}

// drop counts a batch that is neither queued nor in flight any more as dropped.
func (d *destinationState) drop(e *entry, reason Reason) {
	d.counters[e.batch.signal].drop(e.batch, reason)
	if reason == Shutdown {
		d.lost.add(e.batch)
	}
	d.release(e)
}

func (d *destinationState) release(e *entry) {
	if s := &d.support[e.batch.signal]; s.trial == e {
		s.trial = nil
	}
	if e.attempts > 0 {
		e.batch.release()
	}
	d.bytes -= e.batch.size()
}

func (d *destinationState) expired(e *entry, now time.Time) bool {
	return d.config.MaxAge > 0 && now.Sub(e.batch.created) >= d.config.MaxAge
}

// expire drops the batches that have become too old. Our own are made right before they are queued,
// and the age of received ones counts from then, so the front of the queue is the oldest.
func (d *destinationState) expire(now time.Time) {
	for d.queue.front != nil && d.expired(d.queue.front, now) {
		d.discard(d.queue.front, Expired)
	}
}

// deadline returns when something happens without a new batch or an answer: a wait ends, or the
// oldest batch expires. It returns the zero time if nothing does.
func (d *destinationState) deadline(now time.Time) (at time.Time) {
	if d.queue.front == nil {
		return at
	}
	if end := d.circuit.end(); d.circuit.state == circuitWaiting && end.After(now) {
		at = end
	}
	if d.config.MaxAge > 0 {
		if expiry := d.queue.front.batch.created.Add(d.config.MaxAge); at.IsZero() || expiry.Before(at) {
			at = expiry
		}
	}
	return at
}

// take begins an attempt with the oldest batch. It returns nil if none may begin now.
func (d *destinationState) take(now time.Time) *entry {
	if !d.circuit.ready(now) {
		return nil
	}
	d.expire(now)
	e := d.queue.front
	if e == nil {
		return nil
	}
	b, c := e.batch, &d.counters[e.batch.signal]
	d.dequeue(e)
	if !e.acknowledged {
		d.unevictable += b.size()
	}
	c.inFlight.add(b)
	e.attempt = d.circuit.begin()
	if d.unanswered.IsZero() {
		d.unanswered = now
	}
	if d.draining && e.attempt.probe {
		d.finalAttempt = finalAttemptUsed
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
	return e
}

// finish ends an attempt with its result.
func (d *destinationState) finish(e *entry, r *result, now time.Time) {
	b, c := e.batch, &d.counters[e.batch.signal]
	c.inFlight.sub(b)
	d.unevictable -= b.size()
	c.attempts[r.code]++
	c.seconds.Observe(secondsBounds, r.took.Seconds())
	c.bytes.Observe(bytesBounds, float64(len(b.request)))
	if r.code != codes.OK {
		d.lastError, d.lastErrorAt = statusCodes[r.code].name+": "+r.message, now
	}

	switch v := judge(r, d.config.RetryResourceExhausted); {
	case v == verdictDone:
		d.delivered(e, r, now)
	case v == verdictRetry && d.stopped:
		d.circuit.cancelled(e.attempt)
		d.drop(e, Shutdown)
	case v == verdictRetry:
		d.retry(e, r, now)
	default:
		d.refuse(e, r, now)
	}
	if r.malformed {
		c.badResponse++
	}
	switch {
	case r.unanswered:
	case d.circuit.inFlight > 0:
		d.unanswered = now // when those were sent, nobody has recorded; it is no longer ago than this
	default:
		d.unanswered = time.Time{}
	}
	d.emitOutage(r, now)
	d.finishDrain(now)
}

// delivered records that the receiver has all items that the response does not reject.
func (d *destinationState) delivered(e *entry, r *result, now time.Time) {
	b, c := e.batch, &d.counters[e.batch.signal]
	rejected, ok := b.rejected(r.partial.rejected)
	r.malformed = r.malformed || !ok
	c.sent += uint64(b.items) - rejected
	c.dropped[Rejected] += rejected
	if rejected > 0 {
		d.lastError = fmt.Sprintf("OK: %d of %d items rejected: %s", rejected, b.items,
			cmp.Or(r.partial.message, "the receiver says no reason"))
		d.lastErrorAt = now
	}
	if rejected > 0 || r.partial.message != "" {
		d.emitPartial(b, r, rejected, now)
	}

	d.circuit.succeeded(e.attempt, now)
	d.rejected = false
	d.accepts(now)
	if took := r.took.Seconds(); d.latency == 0 {
		d.latency = took
	} else {
		d.latency += (took - d.latency) / 8
	}
	if s := &d.support[b.signal]; s.off {
		s.off = false
		d.emit(Event{Kind: EventSupported, Signal: b.signal})
	}
	d.items.add(float64(uint64(b.items)-rejected), now)
	d.requestBytes.add(float64(len(b.request)), now)
	d.release(e)
}

// accepts records that the destination deals with requests. An older request may have been told to
// wait meanwhile: then it fails from now on.
func (d *destinationState) accepts(now time.Time) {
	d.failing = time.Time{}
	if d.circuit.state != circuitOpen {
		d.failing = now
	}
}

// fails records that the destination accepts no request at all at this time.
func (d *destinationState) fails(now time.Time) {
	if d.failing.IsZero() {
		d.failing = now
	}
}

// retry puts the batch back to its place in the queue.
func (d *destinationState) retry(e *entry, r *result, now time.Time) {
	b, c := e.batch, &d.counters[e.batch.signal]
	if r.delay > 0 {
		c.throttled++
	}
	c.throttledBy += d.circuit.failed(e.attempt, now, r.delay)
	d.fails(now)
	e.doubtful = e.doubtful || r.doubtful
	if s := &d.support[b.signal]; s.off && s.trial != e {
		d.drop(e, Unsupported)
		return
	}
	if d.expired(e, now) {
		d.drop(e, Expired)
		return
	}
	if e.acknowledged {
		d.unevictable += b.size()
	}
	d.enqueue(e)
}

// refuse drops a batch that must not be sent again.
func (d *destinationState) refuse(e *entry, r *result, now time.Time) {
	b := e.batch
	d.circuit.refused(e.attempt, now)
	switch r.code {
	case codes.Unimplemented:
		d.accepts(now)
		trial := d.support[b.signal].trial == e
		d.drop(e, Unsupported)
		d.switchOff(b.signal, trial, r, now)
		return
	case codes.PermissionDenied, codes.Unauthenticated:
		d.rejected = true
		d.fails(now)
	default:
		d.accepts(now) // other requests, presumably
	}
	d.counters[b.signal].refuse(b, r.code)
	d.release(e)
	if d.refused[r.code].allow(now) {
		d.emit(Event{
			Kind: EventRefused, Signal: b.signal, Code: statusCodes[r.code].name, Message: r.message,
			Hint: sizeHint(r.code, len(b.request)), Items: uint64(b.items),
		})
	}
}

// switchOff stops a signal for some time and drops the batches of it that wait.
func (d *destinationState) switchOff(signal Signal, trial bool, r *result, now time.Time) {
	s := &d.support[signal]
	if s.off && !trial {
		return // it was in flight when the first one returned
	}
	if !s.off {
		d.emit(Event{
			Kind: EventUnsupported, Signal: signal, Code: statusCodes[r.code].name, Message: r.message,
			Wait: unsupportedFor,
		})
	}
	s.off, s.until = true, now.Add(unsupportedFor)
	for e := d.queue.front; e != nil; {
		next := e.next
		if e.batch.signal == signal {
			d.discard(e, Unsupported)
		}
		e = next
	}
}
