package receiver

import (
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"correlator/internal/host/connlimit"
	"correlator/otlp"
)

// OTLP/HTTP with protobuf, over HTTP/1.1 and HTTP/2: OTLP 1.11.0, "OTLP/HTTP". The encoding as JSON,
// which servers should accept, too, is refused: SDKs send protobuf unless told otherwise, and a
// second decoder of hostile bytes would serve next to nobody.

// protobufType is the media type of requests and responses.
const protobufType = "application/x-protobuf"

// errFormat is the status of a request that is neither protobuf nor gzip of that.
var errFormat = status.Error(codes.Unimplemented,
	"content-type must be "+protobufType+", and content-encoding gzip or none")

// serveHTTP serves a request that is not gRPC.
func (r *Receiver) serveHTTP(conn *connlimit.Conn, w http.ResponseWriter, q *http.Request) {
	if q.Header.Get("Origin") != "" {
		// Only browsers send that, with every POST. A page whose name resolves to this host (DNS
		// rebinding) must not pass for a program of this host.
		r.counters.stray(q, StrayBrowser)
		refuseHTTP(w, http.StatusForbidden, "pages in browsers may not send")
		return
	}
	for signal := range otlp.NumSignals {
		if q.URL.Path != signal.Path() {
			continue
		}
		if q.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			r.counters.stray(q, StrayMethod)
			refuseHTTP(w, http.StatusMethodNotAllowed, "requests are POST")
			return
		}
		r.serve(httpProtocol, signal, conn, w, q)
		return
	}
	r.counters.stray(q, StrayPath)
	refuseHTTP(w, http.StatusNotFound, "unknown path")
}

// httpMessage is the body of a request.
type httpMessage struct {
	ctx        context.Context
	body       io.Reader
	limit      int
	version    int    // of HTTP
	length     int    // -1: unknown
	head       []byte // of unknown length: the beginning
	ended      bool   // that is all
	compressed bool   // by gzip
}

// openHTTP checks what is in the headers. Of a body whose length they do not tell, as much is read
// as a flow-control window has.
func openHTTP(ctx context.Context, q *http.Request, limit int) (message, error) {
	m := &httpMessage{
		ctx: ctx, body: q.Body, limit: limit, version: q.ProtoMajor, length: int(min(q.ContentLength, math.MaxInt)),
	}
	contentType, _, err := mime.ParseMediaType(q.Header.Get("Content-Type"))
	if err != nil || contentType != protobufType {
		return nil, errFormat
	}
	switch strings.ToLower(strings.Join(q.Header.Values("Content-Encoding"), ",")) {
	case "", "identity":
	case "gzip":
		m.compressed = true
	default:
		return nil, errFormat
	}
	if m.length > limit {
		return nil, tooLarge(limit)
	}
	if m.length < 0 {
		m.head = make([]byte, min(window, limit+1))
		m.head, err = m.fill(m.head, 0)
	}
	return m, err
}

func (m *httpMessage) gzipped() bool { return m.compressed }

func (m *httpMessage) memory() int {
	switch {
	case m.length >= 0:
		return m.length
	case m.ended:
		return len(m.head)
	default:
		return m.limit
	}
}

func (m *httpMessage) read() ([]byte, error) {
	if m.length >= 0 {
		return m.fill(make([]byte, m.length), 0)
	}
	body, err := m.head, error(nil)
	if !m.ended {
		body = make([]byte, m.limit+1)
		body, err = m.fill(body, copy(body, m.head))
	}
	if err == nil && len(body) > m.limit {
		return nil, tooLarge(m.limit)
	}
	return body, err
}

// fill reads into b, from an offset on, until it is full or the body ends, and returns what was
// read. net/http ends a body at its length, and returns an error if it ends before.
func (m *httpMessage) fill(b []byte, off int) ([]byte, error) {
	for off < len(b) {
		n, err := m.body.Read(b[off:])
		off += n
		if err == io.EOF {
			m.ended = true
			break
		} else if err != nil {
			return nil, m.readError(err)
		}
	}
	return b[:off], nil
}

// readError returns the status for an error of reading the body. By HTTP/1.1, what is none of the
// connection is one of the chunks: their sender is still there, and takes the response for final.
// By HTTP/2, there are no chunks.
func (m *httpMessage) readError(err error) error {
	var network net.Error // also of a deadline
	switch {
	case m.version != 1, m.ctx.Err() != nil, errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return brokenOff(m.ctx, err)
	default:
		return status.Error(codes.InvalidArgument, "reading the body: "+err.Error())
	}
}

// respondHTTP writes the response to a call, or, if err is not nil, its status.
func respondHTTP(w http.ResponseWriter, response []byte, err error) {
	h := w.Header()
	h.Set("Content-Type", protobufType)
	if err != nil {
		s := status.Convert(err)
		if delay := retryInfo(s); delay > 0 { // whole seconds
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(delay.Seconds()))))
		}
		response, _ = proto.Marshal(s.Proto()) // of valid UTF-8
		w.WriteHeader(httpStatus(err))
	}
	_, _ = w.Write(response) // without a connection there is nobody to report an error to
}

// refuseHTTP answers a request that is not a call.
func refuseHTTP(w http.ResponseWriter, code int, text string) {
	body, _ := proto.Marshal(status.New(codes.Unimplemented, text).Proto())
	w.Header().Set("Content-Type", protobufType)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// retryInfo returns the delay of a RetryInfo, or 0.
func retryInfo(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// httpStatus returns the status code of HTTP for an error. 503 alone is sent again by clients.
func httpStatus(err error) int {
	switch {
	case errors.Is(err, errFormat):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, errHeaders):
		return http.StatusRequestHeaderFieldsTooLarge
	case errors.Is(err, errDefect):
		return http.StatusInternalServerError
	}
	switch status.Code(err) {
	case codes.ResourceExhausted:
		return http.StatusRequestEntityTooLarge
	case codes.Unimplemented:
		return http.StatusNotFound
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled: // who has given it up may come again
		return http.StatusServiceUnavailable
	default: // INVALID_ARGUMENT, and INTERNAL, which is what gRPC calls a broken compression
		return http.StatusBadRequest
	}
}
