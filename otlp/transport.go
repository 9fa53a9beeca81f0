package otlp

import (
	"context"
	"fmt"
	"net"
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
	// maxResponse is the largest answer that is read, also after decompression. The usual one is empty.
	maxResponse = 4 << 20
	// maxHeaders is the largest header or trailer that is read: the status of an answer, with its details.
	maxHeaders = maxResponse
	// probeDial is how long a probe waits for a broken connection to be made again. A new connection takes
	// far less; where it takes longer, the next probe finds it made.
	probeDial = time.Second
	// readBuffer is enough for answers of a few bytes.
	readBuffer = 4 << 10
	// never is 146 years. The largest duration of all switches off more.
	never = time.Duration(1 << 62)
)

// transport is the connection to one destination. It has no queue and no retry.
type transport struct {
	conn    *grpc.ClientConn
	headers metadata.MD
	secrets *strings.Replacer // hides the values of headers
	timeout time.Duration
	gzip    *compressor // nil: none
}

// dialer makes connections; nil is the usual one.
type dialer func(ctx context.Context, target string) (net.Conn, error)

// connect prepares a connection; it is made when the first request needs it. Certificates are read now.
func connect(d *Destination, version string, gzip *compressor, dial dialer) (*transport, error) {
	where, err := parseEndpoint(d.Endpoint, d.Insecure)
	if err != nil {
		return nil, err
	}
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
		// What the gate does is not to be done again below, per request and without RetryInfo.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxHeaders),
		// No pings: receivers punish them. But grpc takes the timeout also for the kernel's (TCP_USER_TIMEOUT),
		// by which a connection to nowhere ends: otherwise only after a quarter of an hour of timeouts.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: never, Timeout: 2 * d.Timeout}),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(wireCodec{}), grpc.WaitForReady(false), grpc.MaxCallRecvMsgSize(maxResponse), grpc.StaticMethod(),
		),
	}
	if dial != nil {
		options = append(options, grpc.WithContextDialer(dial))
	}
	t := &transport{timeout: d.Timeout, headers: d.Headers.metadata(), secrets: d.Headers.secrets()}
	if d.Compression == Gzip {
		t.gzip = gzip
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzipName)))
	}
	if t.conn, err = grpc.NewClient(where.target, options...); err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", d.Endpoint, err)
	}
	return t, nil
}

func userAgent(version string) string {
	return "correlator/" + version + " OTel-OTLP-Exporter-Go/" + version
}

func (t *transport) close() { t.conn.Close() }

// export sends a batch once and waits for the answer, at most for the timeout.
func (t *transport) export(ctx context.Context, b *Batch, probe bool) *answer {
	start := time.Now()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(ctx, t.headers), t.timeout)
	defer cancel()
	if probe {
		t.redial(ctx)
	}
	request := wireRequest(b.request)
	if t.gzip != nil {
		request = b.compressed(t.gzip)
	}
	var (
		response        wireResponse
		header, trailer metadata.MD
		remote          peer.Peer
	)
	err := t.conn.Invoke(ctx, b.signal.Method(), request, &response,
		grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&remote))
	a := &answer{partial: response.partial, malformed: response.malformed, took: time.Since(start)}
	if err != nil {
		a.readError(err, remote.Addr != nil, len(header) > 0, len(trailer) > 0)
	}
	a.message, a.partial.message = clip(t.secrets.Replace(a.message)), clip(t.secrets.Replace(a.partial.message))
	return a
}

// readError makes an answer of an error of grpc: connected says that there was a connection to send on, headed
// that an answer began like one with a message, refused that it was one without, complete in its trailers.
// (That is how receivers tell errors. Both have a content type at least, trailers after a message need not.)
func (a *answer) readError(err error, connected, headed, refused bool) {
	s := status.Convert(err)
	a.code, a.message = known(s.Code()), s.Message()
	a.readDetails(s.Proto().GetDetails())
	switch {
	case a.code == codes.ResourceExhausted && headed && strings.Contains(a.message, tooLargeText):
		a.final, a.malformed = true, true
	case a.code == codes.DeadlineExceeded:
		a.doubtful = connected
	case a.code == codes.Unavailable, a.code == codes.Canceled:
		a.doubtful = connected && !refused
	case connected && !refused && strings.HasPrefix(a.message, resetText):
		// The stream was cut, by the receiver or between, before there was an answer or in the midst of it. grpc
		// makes a code of the reason.
		a.code, a.doubtful = codes.Unavailable, true
	}
}

// The texts by which grpc-go tells that an answer exceeds maxResponse, and that a stream was reset. Both
// come with codes that a receiver sends for other reasons.
const (
	tooLargeText = "larger than max"
	resetText    = "stream terminated by RST_STREAM"
)

// redial makes a broken connection try again now. grpc fails calls until that has succeeded; so it waits for
// it, though not long.
func (t *transport) redial(ctx context.Context) {
	t.conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(ctx, min(probeDial, t.timeout/2)) // or else nothing is left for the request
	defer cancel()
	if t.conn.GetState() == connectivity.TransientFailure {
		t.conn.WaitForStateChange(ctx, connectivity.TransientFailure)
	}
}

// TryConnect makes a connection to a destination as an exporter would, with its TLS, and closes it. It
// sends no request: there is no empty one that may be sent.
func TryConnect(ctx context.Context, d Destination, version string) error {
	if err := d.Validate(); err != nil {
		return err
	}
	t, err := connect(&d, version, nil, d.dial)
	if err != nil {
		return err
	}
	defer t.close()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	t.conn.Connect()
	for state := t.conn.GetState(); state != connectivity.Ready; state = t.conn.GetState() {
		if state == connectivity.TransientFailure {
			return t.reason(ctx, d.Endpoint)
		}
		if !t.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connecting to %s: %w", d.Endpoint, ctx.Err())
		}
	}
	return nil
}

// reason is why the connection cannot be made. Only a call gets to know it; this one has nothing that could
// be sent.
func (t *transport) reason(ctx context.Context, endpoint string) error {
	err := t.conn.Invoke(ctx, Metrics.Method(), nothing{}, &wireResponse{})
	return fmt.Errorf("connecting to %s: %s", endpoint, clip(status.Convert(err).Message()))
}

// nothing is what the codec cannot marshal.
type nothing struct{}

// wireRequest is a request as it is sent.
type wireRequest []byte

// wireResponse is what an Export response says.
type wireResponse struct {
	partial   partialSuccess
	malformed bool
}

// wireCodec passes on finished requests and reads responses. It never fails: an OK is an OK, whatever the
// response is.
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
