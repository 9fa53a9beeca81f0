package receiver

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"correlator/otlp"
)

const (
	// requestBytes is the size from which on a request is sent. Larger ones do not cost less CPU time,
	// and twice the size takes a third more memory.
	requestBytes = 256 << 10
	// requestAge is how long spans wait for others.
	requestAge = time.Second
	// unsupportedTime is how long it is believed that nobody takes a signal. A destination that has
	// refused one is asked again after minutes.
	unsupportedTime = 10 * time.Second
)

// requests are the ExportTraceServiceRequests that trace workers build together, and a sender takes.
// Workers wait while one is complete and not taken.
type requests struct {
	limit int // of a request, in bytes

	mu      sync.Mutex
	changed *sync.Cond
	body    []byte // the request under construction
	spans   int
	ready   bool // to be taken
	timer   *time.Timer
	closed  bool
}

func newRequests(maxRequestBytes int) *requests {
	r := &requests{limit: min(requestBytes, maxRequestBytes)}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// add appends encoded ResourceSpans to a request. It waits until there is room.
func (r *requests) add(resourceSpans []byte, spans int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.ready || len(r.body) > 0 && len(r.body)+len(resourceSpans) > r.limit {
		r.complete()
		r.changed.Wait()
	}
	if len(r.body) == 0 {
		r.timer = time.AfterFunc(requestAge, r.expire)
	}
	r.body = append(r.body, resourceSpans...)
	r.spans += spans
	if len(r.body) >= r.limit {
		r.complete()
	}
}

// complete has the sender take the request. mu is held.
func (r *requests) complete() {
	if !r.ready {
		r.ready = true
		r.changed.Broadcast()
	}
}

// expire completes a request that has waited for more spans.
func (r *requests) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.body) > 0 {
		r.complete()
	}
}

// take waits for a request. It returns nil once requests is closed and there is none.
func (r *requests) take() (body []byte, spans int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.ready && !r.closed {
		r.changed.Wait()
	}
	if len(r.body) == 0 {
		return nil, 0
	}
	r.timer.Stop()
	body, spans = r.body, r.spans
	// The next one will most likely be about as large.
	r.body, r.spans, r.ready = make([]byte, 0, len(body)+len(body)/8), 0, false
	r.changed.Broadcast()
	return body, spans
}

// close has take return what there is and then nil. Nothing may be added any more.
func (r *requests) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.changed.Broadcast()
}

// sendTraces passes requests to the queue until they are closed. While the queue has no room it
// waits, and so do the trace workers then.
func (r *Receiver) sendTraces() {
	for {
		body, spans := r.requests.take()
		if body == nil {
			return
		}
		err := r.enqueue(r.drained, otlp.NewBatch(otlp.Traces, body, spans, time.Now()))
		if errors.Is(err, otlp.ErrUnsupported) {
			r.refuseTraces(time.Now())
		}
		r.counters.countSpans(spans, err)
	}
}

// errPanic is that the queue has panicked, which is a defect.
var errPanic = errors.New("panic of the queue")

// enqueue passes a batch to the queue, which may wait for room until ctx is done.
func (r *Receiver) enqueue(ctx context.Context, b *otlp.Batch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.panicIn("queue", v, debug.Stack())
			err = errPanic
		}
	}()
	return r.queue.EnqueueReceived(ctx, b)
}
