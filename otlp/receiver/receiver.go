package receiver

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"

	"correlator/internal/host/metric"
	"correlator/otlp"
)

// Queue accepts the requests that were received. *otlp.Exporter implements it.
type Queue interface {
	// EnqueueReceived accepts a batch or returns *otlp.OverloadError, otlp.ErrTooLarge,
	// otlp.ErrUnsupported or otlp.ErrClosed. If the queue is full it may wait for room until the
	// context is done; with a context that is done it tries once.
	EnqueueReceived(context.Context, *otlp.Batch) error
}

// Receiver serves OTLP. It is a prometheus.Collector of its own counters. It is safe for concurrent
// use.
type Receiver struct {
	metric.Unchecked

	queue    Queue
	limit    int // of a request, in bytes
	server   *http.Server
	listener *listener
	counters counters

	slots  *pool // one for each call in work
	memory *pool // bytes of calls in work that are larger than a window

	checking sync.Mutex // held for the one call being checked
	inflater inflater   // guarded by checking

	panicked sync.Once // calls onPanic
	onPanic  func(value any, stack []byte)

	running context.Context // done once no more requests are accepted
	stop    context.CancelFunc
	served  sync.WaitGroup
}

// Open listens and serves until Shutdown, which the caller must call. A Unix socket is bound by
// sockfile.Listen, whose errors Open returns. Errors of accept do not end the Receiver: they are in
// its Status, and accept is retried.
func Open(c Config, queue Queue) (*Receiver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Certificate != "" {
		if _, err := c.loadTLS(); err != nil {
			return nil, err
		}
	}
	l, err := c.listen()
	if err != nil {
		return nil, fmt.Errorf("listening for OTLP: %w", err)
	}
	return serve(&c, l, queue), nil
}

func serve(c *Config, l net.Listener, queue Queue) *Receiver {
	limit := cmp.Or(c.MaxRequestBytes, DefaultMaxRequestBytes)
	r := &Receiver{
		queue: queue, limit: limit,
		onPanic: c.OnPanic,
	}
	r.listener = newListener(l, func() { r.counters.strayed(StrayMalformed) })
	r.running, r.stop = context.WithCancel(context.Background())
	r.slots = newPool(r.running, maxInWork, maxOpen-maxInWork)
	r.memory = newPool(context.Background(), memoryLimit(limit), maxInWork)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // TLS is the listener's
	r.server = &http.Server{
		Handler:           r,
		Protocols:         &protocols,
		ReadHeaderTimeout: handshakeTimeout,
		ConnContext:       withConn,
		ConnState:         r.listener.setState, // instead of IdleTimeout
		MaxHeaderBytes:    headerRoom,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              frameSize,
			MaxReceiveBufferPerStream:     window,
			MaxReceiveBufferPerConnection: connectionWindow,
			WriteByteTimeout:              callTimeout,
			CountError:                    r.listener.countError,
		},
		ErrorLog: log.New(r.listener, "", 0), // what clients do wrong is counted
	}
	if c.Certificate != "" {
		r.listener.tls = c.serverTLS(r.listener.Report)
	}
	r.served.Go(func() { _ = r.server.Serve(r.listener) })
	return r
}

// Addr is the address it listens on.
func (r *Receiver) Addr() net.Addr { return r.listener.Addr() }

// Shutdown refuses further requests with UNAVAILABLE and a time after which to retry, waits for the
// requests in work, and closes all connections. If ctx is done first, requests in work are
// cancelled and Shutdown returns the context's error. The queue is not used after Shutdown has
// returned. It may be called more than once.
func (r *Receiver) Shutdown(ctx context.Context) error {
	r.stop()
	err := r.slots.wait(ctx)
	if err == nil {
		linger, cancel := context.WithTimeout(ctx, lingerTimeout)
		_ = r.server.Shutdown(linger) // Close ends what it could not
		cancel()
	}
	r.server.Close()
	r.served.Wait()
	_ = r.slots.wait(context.Background()) // requests that were cancelled
	return err
}

// memoryLimit is the memory for requests that are larger than a window: two of the largest, so that
// one that arrives slowly does not keep others out.
func memoryLimit(limit int) int64 { return 2 * int64(limit) }
