package receiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"correlator/internal/sockfile"
	"correlator/otlp"
)

// Queue takes what was received. *otlp.Exporter is one.
type Queue interface {
	// EnqueueReceived takes a batch, or refuses it with an error: *otlp.OverloadError, otlp.ErrTooLarge,
	// otlp.ErrUnsupported, otlp.ErrClosed. It may wait for room, not longer than
	// the context allows.
	EnqueueReceived(context.Context, *otlp.Batch) error
}

// Receiver serves OTLP. It is safe for concurrent use.
type Receiver struct {
	queue    Queue
	limit    int // of a request, in bytes
	since    time.Time
	server   *grpc.Server
	listener *listener
	file     *sockfile.File // of a Unix socket
	counters counters

	calls    atomic.Int32  // that are open, in work or not
	slots    chan struct{} // one for each request in work
	room     *room         // for the larger ones of them
	checking sync.Mutex    // of the one that is checked
	inflater inflater      // guarded by checking

	draining chan struct{} // closed when no more are taken
	once     sync.Once     // closes it
	served   sync.WaitGroup
}

// Open listens and serves until Shutdown, which the caller must call. A Unix socket is bound as sockfile.Bind
// does, which errors come from. Later on nothing ends it: if connections cannot be accepted, Status says so,
// and it is tried again.
func Open(c Config, queue Queue) (*Receiver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Certificate != "" {
		if _, err := c.tls(); err != nil {
			return nil, err
		}
	}
	l, file, err := c.listen()
	if err != nil {
		return nil, fmt.Errorf("listening for OTLP: %w", err)
	}
	return serve(&c, l, file, queue), nil
}

func serve(c *Config, l net.Listener, file *sockfile.File, queue Queue) *Receiver {
	r := &Receiver{
		queue: queue, limit: cmp.Or(c.MaxRequestBytes, DefaultMaxRequestBytes), since: time.Now(),
		listener: newListener(l), file: file, slots: make(chan struct{}, maxInWork), draining: make(chan struct{}),
	}
	r.room = newRoom(r.limit)
	r.server = grpc.NewServer(
		grpc.Creds(c.credentials(r.listener.report)),
		grpc.ForceServerCodecV2(answerCodec{}),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(maxStreams*window),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.InTapHandle(r.admit),
		grpc.WaitForHandlers(true),
	)
	for signal := range otlp.NumSignals {
		r.server.RegisterService(r.service(signal), nil)
	}
	r.served.Go(func() { r.server.Serve(r.listener) }) // ends with the listener
	return r
}

// service describes the service of a signal. Its method is unary; as a stream it is called before the
// request was read, which gives it a say in when that is.
func (r *Receiver) service(signal otlp.Signal) *grpc.ServiceDesc {
	service, method := path.Split(signal.Method())
	return &grpc.ServiceDesc{
		ServiceName: strings.Trim(service, "/"),
		Streams: []grpc.StreamDesc{{
			StreamName: method,
			Handler:    func(_ any, stream grpc.ServerStream) error { return r.export(signal, stream) },
		}},
	}
}

// Addr is where it listens.
func (r *Receiver) Addr() net.Addr { return r.listener.Addr() }

// Shutdown takes no more requests: what comes is answered with UNAVAILABLE and a time after which to try
// again. When those in work are answered, connections are closed; when ctx is done before, they are cut, and
// its error is returned. The queue is not used afterwards. It may be called again.
func (r *Receiver) Shutdown(ctx context.Context) error {
	r.once.Do(func() { close(r.draining) })
	err := r.drain(ctx)
	if r.file != nil {
		r.file.Remove() // while the listener is open: as long as it is, the path is ours
	}
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		r.server.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		err = ctx.Err()
		// Stop knows only those that have shaken hands, and waits for the others.
		r.listener.Close()
		r.listener.hangUp(func(*conn) bool { return true })
	}
	r.server.Stop()
	<-graceful
	r.served.Wait()
	return err
}

// drain waits until no request is in work, and leaves no room for any.
func (r *Receiver) drain(ctx context.Context) error {
	taken := 0
	defer func() {
		for range taken {
			<-r.slots
		}
	}()
	for taken < maxInWork {
		select {
		case r.slots <- struct{}{}:
			taken++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// answerCodec passes answers through. Requests do not come to it.
type answerCodec struct{}

func (answerCodec) Name() string { return "proto" }

func (answerCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("marshaling a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (answerCodec) Unmarshal(mem.BufferSlice, any) error {
	return errors.New("requests are read otherwise")
}
