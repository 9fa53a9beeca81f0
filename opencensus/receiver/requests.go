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

// requests are the ExportTraceServiceRequests that trace workers build together. They wait while one
// is sent.
type requests struct {
	limit int                          // of a request, in bytes
	send  func(body []byte, spans int) // may wait

	mu    sync.Mutex // held while a request is sent, too
	body  []byte     // the request under construction
	spans int
	timer *time.Timer // calls flush
}

func newRequests(maxRequestBytes int, send func(body []byte, spans int)) *requests {
	return &requests{limit: min(requestBytes, maxRequestBytes), send: send}
}

// add appends encoded ResourceSpans to a request.
func (r *requests) add(resourceSpans []byte, spans int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.body)+len(resourceSpans) > r.limit {
		r.complete()
	}
	if len(r.body) == 0 {
		r.timer = time.AfterFunc(requestAge, r.flush)
	}
	r.body = append(r.body, resourceSpans...)
	r.spans += spans
	if len(r.body) >= r.limit {
		r.complete()
	}
}

// flush sends the request under construction.
func (r *requests) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete()
}

// complete is flush with mu held.
func (r *requests) complete() {
	if len(r.body) == 0 {
		return
	}
	r.timer.Stop()
	body, spans := r.body, r.spans
	// The next one will most likely be about as large.
	r.body, r.spans = make([]byte, 0, len(body)+len(body)/8), 0
	r.send(body, spans)
}

// sendTraces passes a request to the queue. It waits while the queue has no room.
func (r *Receiver) sendTraces(body []byte, spans int) {
	err := r.enqueue(r.drained, otlp.NewBatch(otlp.Traces, body, spans, time.Now()))
	if errors.Is(err, otlp.ErrUnsupported) {
		r.refuseTraces(time.Now())
	}
	r.counters.countSpans(spans, err)
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
