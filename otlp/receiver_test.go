package otlp

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// reply is what the fake receiver does with one request.
type reply struct {
	code     codes.Code
	message  string
	retry    *durationpb.Duration // in a RetryInfo
	details  []protoadapt.MessageV1
	bare     bool          // with retry nil: a RetryInfo without a delay
	delay    time.Duration // before the answer
	hang     bool          // no answer until the client gives up
	reset    bool          // cuts the connection instead of answering
	response []byte        // of an OK, encoded
}

// request is one that came.
type request struct {
	at         time.Time
	method     string
	headers    metadata.MD
	body       string
	compressed int // bytes on the wire
}

// receiver is a real gRPC server that answers by script. The last reply is repeated for ever.
type receiver struct {
	t        testing.TB
	server   *grpc.Server
	listener *bufconn.Listener

	mu       sync.Mutex
	script   []reply
	requests []request
	now, max int // requests being answered: now, and the most so far
	dials    int
	down     bool
	conns    []net.Conn
}

func newReceiver(t testing.TB, script ...reply) *receiver {
	t.Helper()
	r := &receiver{t: t, script: script, listener: bufconn.Listen(1 << 20)}
	r.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(r.handle), grpc.StatsHandler(wireSizes{}),
		grpc.MaxRecvMsgSize(64<<20), grpc.WaitForHandlers(true),
	)
	go r.server.Serve(r.listener)
	t.Cleanup(r.server.Stop)
	return r
}

// destination returns the configuration for this receiver.
func (r *receiver) destination(name string) Destination {
	d := NewDestination("unix:/receiver")
	d.Name, d.dial = name, r.dial
	return d
}

func (r *receiver) dial(ctx context.Context, _ string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dials++
	if r.down {
		return nil, net.ErrClosed
	}
	c, err := r.listener.DialContext(ctx)
	if err == nil {
		r.conns = append(r.conns, c)
	}
	return c, err
}

// setDown makes the receiver unreachable, or reachable again.
func (r *receiver) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
	if down {
		r.cut()
	}
}

func (r *receiver) cut() {
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// answer replaces what is left of the script.
func (r *receiver) answer(script ...reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script
}

func (r *receiver) handle(_ any, stream grpc.ServerStream) error {
	var body []byte
	if err := stream.RecvMsg(&body); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	headers, _ := metadata.FromIncomingContext(stream.Context())
	size, _ := stream.Context().Value(wireSizeKey{}).(*int)

	r.mu.Lock()
	r.requests = append(r.requests, request{
		at: time.Now(), method: method, headers: headers, body: string(body), compressed: *size,
	})
	next := reply{}
	if len(r.script) > 0 {
		next = r.script[0]
	}
	if len(r.script) > 1 {
		r.script = r.script[1:]
	}
	r.now++
	r.max = max(r.max, r.now)
	if next.reset {
		r.cut()
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.now--
		r.mu.Unlock()
	}()

	if next.hang {
		<-stream.Context().Done()
		time.Sleep(time.Millisecond) // or the answer of a server whose deadline has passed may come in time
		return stream.Context().Err()
	}
	if next.delay > 0 {
		select {
		case <-time.After(next.delay):
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	if next.code != codes.OK {
		return next.status().Err()
	}
	return stream.SendMsg(next.response)
}

func (r reply) status() *status.Status {
	s := status.New(r.code, r.message)
	details := r.details
	if r.retry != nil || r.bare {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: r.retry}))
	}
	if len(details) > 0 {
		s, _ = s.WithDetails(details...)
	}
	return s
}

// most is how many requests were there at a time.
func (r *receiver) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.max
}

// dialed is how many connections were tried.
func (r *receiver) dialed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

func (r *receiver) got() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

// partialResponse is an Export response with a partial success, written field by field.
func partialResponse(rejected int64, message string) []byte {
	var inner []byte
	inner = protowire.AppendTag(inner, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, uint64(rejected))
	inner = protowire.AppendTag(inner, 2, protowire.BytesType)
	inner = protowire.AppendString(inner, message)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)
}

// rawCodec gives the server requests and takes answers as bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

type wireSizeKey struct{}

// wireSizes notes how large a request was on the wire.
type wireSizes struct{}

func (wireSizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, wireSizeKey{}, new(int))
}
func (wireSizes) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		*ctx.Value(wireSizeKey{}).(*int) = in.CompressedLength
	}
}
func (wireSizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (wireSizes) HandleConn(context.Context, stats.ConnStats)                       {}
