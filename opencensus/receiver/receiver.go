package receiver

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"correlator/internal/host/connlimit"
	"correlator/internal/host/metric"
	"correlator/opencensus/spans"
	"correlator/opencensus/stats"
	"correlator/otlp"
)

// Queue accepts the requests that are made of what was received. *otlp.Exporter implements it.
type Queue interface {
	// EnqueueReceived accepts a batch or returns *otlp.OverloadError, otlp.ErrTooLarge,
	// otlp.ErrUnsupported or otlp.ErrClosed. If the queue is full it may wait for room until the
	// context is done; with a context that is done it tries once.
	EnqueueReceived(context.Context, *otlp.Batch) error
}

// Options are what a Receiver works with.
type Options struct {
	Queue Queue
	// ProcRoot is a procfs of our own pid namespace.
	ProcRoot string
	// Spans encodes traces, and Stats keeps measures and views. The State may not be used by another
	// Receiver at the same time.
	Spans *spans.Encoder
	Stats *stats.State
	// MaxRequestBytes is the size of requests with spans that every destination accepts; 0 is
	// otlp.DefaultMaxRequestBytes.
	MaxRequestBytes int

	// OnPanic is called for the first panic, which is a defect; nil ignores it. All are counted.
	OnPanic func(value any, stack []byte)
	// OnEvent is called for what may be worth a line in the log, one at a time. While it blocks,
	// further events are left out. nil ignores them.
	OnEvent func(Event)
}

// Receiver serves OpenCensus clients. It is a prometheus.Collector of its own counters. It is safe
// for concurrent use.
type Receiver struct {
	metric.Unchecked

	config          Config
	queue           Queue
	procRoot        string
	spans           *spans.Encoder
	stats           *stats.State
	maxRequestBytes int
	since           time.Time

	listener *listener
	budget   *budget
	readers  chan *reader
	queues   [numQueues]*fairQueue
	requests *requests
	counters counters
	events   *events

	unsent        []stats.Request // of dropped views, for the next export
	tracesRefused atomic.Int64    // until when nobody takes traces, ns after since

	panicked sync.Once // calls onPanic
	onPanic  func(value any, stack []byte)

	accepting, reading, working, exporting sync.WaitGroup

	stopExporting context.CancelFunc
	drained       context.Context // done when there is no time to process what has been received
	abandon       context.CancelFunc
	ending        sync.Once
	endErr        error
}

// Open binds the socket and serves it until Shutdown, which the caller must call. The errors of
// sockfile.Listen are returned. Errors of accept do not end the Receiver: they are in its Status, and
// accept is retried.
func Open(c Config, o Options) (*Receiver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	l, err := listen(&c)
	if err != nil {
		return nil, fmt.Errorf("listening for OpenCensus: %w", err)
	}
	r := &Receiver{
		config: c, queue: o.Queue, procRoot: o.ProcRoot, spans: o.Spans, stats: o.Stats, since: time.Now(),
		maxRequestBytes: cmp.Or(o.MaxRequestBytes, otlp.DefaultMaxRequestBytes),
		listener:        l, budget: newBudget(c.BufferBytes), readers: newReaders(), events: newEvents(o.OnEvent),
		onPanic: o.OnPanic,
	}
	r.requests = newRequests(r.maxRequestBytes, r.sendTraces)
	for i := range r.queues {
		r.queues[i] = newFairQueue(i)
	}
	r.drained, r.abandon = context.WithCancel(context.Background())
	r.start()
	return r, nil
}

// start starts all goroutines.
func (r *Receiver) start() {
	var exporting context.Context
	exporting, r.stopExporting = context.WithCancel(context.Background())
	r.exporting.Go(func() { r.exportMetrics(exporting) })
	r.working.Go(r.statsWorker)
	for range runtime.GOMAXPROCS(0) {
		r.working.Go(r.traceWorker)
	}
	r.accepting.Go(func() {
		_ = r.listener.accepting.Serve(func(c *connlimit.Conn) { r.reading.Go(func() { r.serve(c) }) })
	})
}

// Path is that of the socket.
func (r *Receiver) Path() string { return r.listener.Addr().String() }

// Shutdown removes the socket, reads what clients have sent until now, passes all of it on with a
// last export of the views, and closes the connections. If ctx is done first, what has not been
// passed on is dropped and counted, and Shutdown returns the context's error. The queue is not used
// after Shutdown has returned. It may be called more than once; later calls have no effect.
func (r *Receiver) Shutdown(ctx context.Context) error {
	r.ending.Do(func() { r.endErr = r.end(ctx) })
	return r.endErr
}

func (r *Receiver) end(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.abandon)()
	r.stopExporting()
	r.listener.close(ctx)
	r.accepting.Wait()
	for _, c := range r.listener.conns.All() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // fails if it is closed already
	}
	r.reading.Wait()
	for _, queue := range r.queues {
		queue.close()
	}
	r.working.Wait()
	r.requests.flush()
	r.exporting.Wait()
	r.sendMetrics(ctx)
	r.dropUnsent()
	r.events.close()
	r.abandon()
	return ctx.Err()
}

// panicIn counts a panic of a goroutine that goes on.
func (r *Receiver) panicIn(where string, value any, stack []byte) {
	r.counters.panics.Add(1)
	if r.onPanic != nil {
		r.panicked.Do(func() { r.onPanic(fmt.Sprintf("%s: %v", where, value), stack) })
	}
}
