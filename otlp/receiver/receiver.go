package receiver

import (
	"context"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"

	"correlator/internal/sockfile"
	"correlator/otlp"
)

const (
	// maxStreams is how many requests of one connection are looked at; exporters send up to that many. More
	// wait on their side.
	maxStreams = 16
	// maxInWork is how many requests are received or checked at a time, of all connections. More wait in the
	// flow control of HTTP/2: they are not read.
	maxInWork = 64
	// callTimeout is how long a request may take to come, waiting included. It is what exporters give it.
	callTimeout = 10 * time.Second
	// handshakeTimeout is how long a new connection may take to become one.
	handshakeTimeout = 10 * time.Second
	// window is what is read of a request that waits, and of a connection: the least that HTTP/2 knows. On
	// one machine there is no latency for which more would be needed.
	window = 64<<10 - 1
	// maxHeaders is the headers of a request: some 10 lines. HTTP servers take as much.
	maxHeaders = 64 << 10
	// Buffers of a connection: requests are large, answers small. There may be many idle connections.
	readBuffer  = 16 << 10
	writeBuffer = 4 << 10
)

// Queue takes what was received. *otlp.Exporter is one.
type Queue interface {
	// TryOffer takes a batch, or refuses it with an error: *otlp.OverloadError, otlp.ErrTooLarge,
	// otlp.ErrUnsupported, otlp.ErrClosed. It does not wait.
	TryOffer(*otlp.Batch) error
}

// Receiver serves OTLP. It is safe for concurrent use.
type Receiver struct {
	queue    Queue
	server   *grpc.Server
	listener net.Listener
	file     *sockfile.File // of a Unix socket
	counters counters

	slots    chan struct{} // one for each request in work
	draining chan struct{} // closed when no more are taken
	once     sync.Once     // closes it
	served   sync.WaitGroup
}

// Open listens and serves until Shutdown, which the caller must call. A Unix socket is bound as sockfile.Bind
// does, which errors come from.
func Open(c Config, queue Queue) (*Receiver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	listener, file, err := c.listen()
	if err != nil {
		return nil, fmt.Errorf("listening for OTLP: %w", err)
	}
	limit := c.MaxRequestBytes
	if limit == 0 {
		limit = DefaultMaxRequestBytes
	}
	return serve(listener, file, creds, limit, queue), nil
}

func serve(l net.Listener, file *sockfile.File, creds credentials.TransportCredentials, limit int, queue Queue) *Receiver {
	r := &Receiver{
		queue: queue, listener: l, file: file,
		slots: make(chan struct{}, maxInWork), draining: make(chan struct{}),
	}
	r.server = grpc.NewServer(
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(bytesCodec{}),
		grpc.MaxRecvMsgSize(limit),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(maxStreams*window),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.InTapHandle(limitTime),
		grpc.WaitForHandlers(true),
	)
	for signal := range otlp.NumSignals {
		r.server.RegisterService(r.service(signal), nil)
	}
	r.served.Go(func() { r.server.Serve(l) }) // ends with the listener
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

// limitTime gives a call its deadline, before anything is read of it.
func limitTime(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	context.AfterFunc(ctx, cancel) // the call's end is the end of ctx
	return ctx, nil
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

// bytesCodec passes requests and answers through: what is wrong with a request is for export to say, which
// knows a better code than the one that gRPC has for it.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("marshaling a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshaling into a %T", v)
	}
	*b = data.Materialize()
	return nil
}
