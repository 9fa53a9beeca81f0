package otlp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// maxHeaders is the largest header or trailer that is read: the status with its details.
	maxHeaders = maxResponse
	// probeDial is how long a probe waits for a broken connection to be made again. A new
	// connection takes far less; where it takes longer, the next probe finds it made.
	probeDial = time.Second
	// readBuffer is enough for responses of a few bytes.
	readBuffer = 4 << 10
	// never is 146 years. The largest duration of all would switch off more than pings.
	never = time.Duration(1 << 62)
)

// grpcTransport sends requests by gRPC.
type grpcTransport struct {
	endpoint string
	conn     *grpc.ClientConn
	headers  metadata.MD
	secrets  *strings.Replacer // redacts the values of headers
	timeout  time.Duration
	via      proxySetting
	gzip     *compressor // nil: none
}

// openGRPC is openTransport for gRPC.
func openGRPC(
	d *Destination, where endpoint, via proxySetting, version string, gzip *compressor,
) (*grpcTransport, error) {
	creds, err := where.credentials(d)
	if err != nil {
		return nil, err
	}
	redial := backoff.DefaultConfig
	redial.MaxDelay = maxBackoff
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent(userAgent(version)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: d.Timeout}),
		// The circuit decides about retries: grpc's would be per request and ignore RetryInfo.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxHeaders),
		// No pings: receivers punish them. But grpc uses the timeout also as TCP_USER_TIMEOUT,
		// which ends a connection to nowhere: otherwise that takes a quarter of an hour of
		// timeouts.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: never, Timeout: 2 * d.Timeout}),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(wireCodec{}), grpc.WaitForReady(false), grpc.MaxCallRecvMsgSize(maxResponse),
			grpc.StaticMethod(),
		),
	}
	if d.dial != nil {
		options = append(options, grpc.WithContextDialer(d.dial))
	}
	t := &grpcTransport{
		endpoint: d.Endpoint, timeout: d.Timeout, headers: d.Headers.metadata(), secrets: d.Headers.secrets(),
		via: via,
	}
	if d.Compression == Gzip {
		t.gzip = gzip
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzipName)))
	}
	if t.conn, err = grpc.NewClient(where.target(), options...); err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", d.Endpoint, err)
	}
	return t, nil
}

func (t *grpcTransport) close() { t.conn.Close() }

// grpcCall keeps what every request needs.
type grpcCall struct {
	transport *grpcTransport
	ctx       context.Context // with our headers
	profiles  context.Context // the same, and the version of profiles
	options   []grpc.CallOption

	// Of the last request. Only an error is examined for more than the response.
	result          result
	response        wireResponse
	header, trailer metadata.MD
	remote          peer.Peer
}

func (t *grpcTransport) newCall(ctx context.Context) call {
	c := &grpcCall{transport: t, ctx: metadata.NewOutgoingContext(ctx, t.headers)}
	profiles := t.headers.Copy()
	profiles.Set(ProfilesVersionKey, ProfilesVersion)
	c.profiles = metadata.NewOutgoingContext(ctx, profiles)
	c.options = []grpc.CallOption{grpc.Header(&c.header), grpc.Trailer(&c.trailer), grpc.Peer(&c.remote)}
	return c
}

func (c *grpcCall) export(b *Batch, probe bool) *result {
	t, start := c.transport, time.Now()
	of := c.ctx
	if b.signal == Profiles {
		of = c.profiles
	}
	ctx, cancel := context.WithTimeout(of, t.timeout)
	defer cancel()
	if probe {
		t.redial(ctx)
	}
	request := wireRequest(b.request)
	if t.gzip != nil {
		request = b.compressed(t.gzip)
	}
	c.response, c.header, c.trailer, c.remote = wireResponse{}, nil, nil, peer.Peer{}
	err := t.conn.Invoke(ctx, b.signal.Method(), request, &c.response, c.options...)
	r := &c.result
	*r = result{partial: c.response.partial, malformed: c.response.malformed, took: time.Since(start)}
	if err != nil {
		r.readError(err, c.remote.Addr != nil, len(c.header) > 0, len(c.trailer) > 0)
		r.message = clip(t.secrets.Replace(r.message))
		if r.unanswered {
			r.message += t.via.through()
		}
	}
	if r.partial.message != "" {
		r.partial.message = clip(t.secrets.Replace(r.partial.message))
	}
	return r
}

// readError makes a result of an error of grpc. connected: there was a connection to send on.
// headers and trailers: the response had some. (Receivers report errors in trailers alone; a
// response with a message has headers. Both have a content type at least.)
func (r *result) readError(err error, connected, headers, trailers bool) {
	s := status.Convert(err)
	r.code, r.message = known(s.Code()), s.Message()
	r.unanswered = !headers && !trailers
	r.readDetails(s.Proto().GetDetails())
	switch {
	case r.code == codes.ResourceExhausted && headers && strings.Contains(r.message, tooLargeText):
		r.final, r.malformed = true, true
	case r.code == codes.DeadlineExceeded:
		r.doubtful = connected
	case r.code == codes.Unavailable, r.code == codes.Canceled:
		r.doubtful = connected && !trailers
	case connected && !trailers && strings.HasPrefix(r.message, resetText):
		// The stream was cut, by the receiver or in between, before or within the response. grpc
		// maps the reason to a code.
		r.code, r.doubtful = codes.Unavailable, true
	}
}

// The texts by which grpc-go reports that a response exceeds maxResponse, and that a stream was
// reset. Both come with codes that receivers use for other reasons.
const (
	tooLargeText = "larger than max"
	resetText    = "stream terminated by RST_STREAM"
)

// redial makes a broken connection try again now, and waits for a moment, because grpc fails calls
// until that has succeeded.
func (t *grpcTransport) redial(ctx context.Context) {
	t.conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(ctx, min(probeDial, t.timeout/2)) // the rest is for the request
	defer cancel()
	if t.conn.GetState() == connectivity.TransientFailure {
		t.conn.WaitForStateChange(ctx, connectivity.TransientFailure)
	}
}

// tryConnect makes the connection. It sends no request: a service is found by calling it, and gRPC
// itself has nothing that could be called.
func (t *grpcTransport) tryConnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	t.conn.Connect()
	for state := t.conn.GetState(); state != connectivity.Ready; state = t.conn.GetState() {
		if state == connectivity.TransientFailure {
			return t.connectError(ctx)
		}
		if !t.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connecting to %s: %w%s", t.endpoint, ctx.Err(), t.via.through())
		}
	}
	return nil
}

// connectError returns why the connection cannot be made. grpc reports it to calls only; this one
// has nothing that could be sent.
func (t *grpcTransport) connectError(ctx context.Context) error {
	err := t.conn.Invoke(ctx, Metrics.Method(), nothing{}, &wireResponse{})
	return fmt.Errorf("connecting to %s: %s%s", t.endpoint, clip(status.Convert(err).Message()), t.via.through())
}

// nothing is a message that the codec cannot marshal.
type nothing struct{}

// wireRequest is an encoded request, possibly compressed.
type wireRequest []byte

// wireResponse is a decoded Export response.
type wireResponse struct {
	partial   partialSuccess
	malformed bool
}

// wireCodec passes on finished requests and decodes responses. It never fails to decode: an OK is
// an OK whatever the response is.
type wireCodec struct{}

func (wireCodec) Name() string { return "proto" }

func (wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(wireRequest)
	if !ok {
		return nil, fmt.Errorf("marshaling a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(r)}, nil
}

func (wireCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*wireResponse)
	if !ok {
		return fmt.Errorf("unmarshaling into a %T", v)
	}
	if data.Len() == 0 {
		return nil
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	r.partial, ok = decodeResponse(buf.ReadOnlyData())
	r.malformed = !ok
	return nil
}
