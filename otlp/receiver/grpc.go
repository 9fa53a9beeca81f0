package receiver

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// gRPC over HTTP/2, as far as a server of unary calls needs it: doc/PROTOCOL-HTTP2.md of gRPC.

// grpcType begins the media types of gRPC.
const grpcType = "application/grpc"

// isGRPC reports whether a request is a gRPC call with protobuf messages. Clients that name no
// message format mean protobuf.
func isGRPC(q *http.Request) bool {
	contentType, _, _ := strings.Cut(q.Header.Get("Content-Type"), ";")
	return q.ProtoMajor == 2 && q.Method == http.MethodPost &&
		(contentType == grpcType || contentType == grpcType+"+proto")
}

// limit limits the time until a request has been read and its response written. That of a request
// that is refused unread is limited, too: before net/http responds by HTTP/1.1, it reads on.
func limit(w http.ResponseWriter, deadline time.Time) error {
	c := http.NewResponseController(w)
	if err := errors.Join(
		c.SetReadDeadline(deadline),
		c.SetWriteDeadline(deadline.Add(slotTimeout)), // a client that never reads its response
	); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// withDeadline returns a context that ends with the call's deadline: the client's (grpc-timeout) or
// callTimeout, whichever is earlier. Reads of the body end with it, too.
func withDeadline(w http.ResponseWriter, q *http.Request) (context.Context, context.CancelFunc, error) {
	timeout, err := parseTimeout(q.Header.Get("Grpc-Timeout"))
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(min(timeout, callTimeout))
	if err := limit(w, deadline); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithDeadline(q.Context(), deadline)
	return ctx, cancel, nil
}

// timeoutUnits are the units of grpc-timeout.
var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
}

// parseTimeout parses grpc-timeout: at most 8 digits and a unit.
func parseTimeout(text string) (time.Duration, error) {
	if text == "" {
		return callTimeout, nil
	}
	digits, last := text[:len(text)-1], text[len(text)-1]
	n, err := strconv.ParseUint(digits, 10, 32)
	unit := timeoutUnits[last]
	if err != nil || unit == 0 || len(digits) > 8 {
		return 0, status.Error(codes.Internal, "malformed grpc-timeout")
	}
	if time.Duration(n) > callTimeout/unit { // the product could overflow
		return callTimeout, nil
	}
	return time.Duration(n) * unit, nil
}

// grpcMessage is the only message of a call.
type grpcMessage struct {
	ctx        context.Context
	body       io.Reader
	size       int
	compressed bool // by gzip
}

func (m *grpcMessage) memory() int   { return m.size }
func (m *grpcMessage) gzipped() bool { return m.compressed }

// prefixSize is the size of the prefix of a message.
//
//	offset  size  field
//	0       1     1 if the message is compressed, else 0
//	1       4     length, big-endian
const prefixSize = 5

// openGRPC reads the prefix of the message.
func openGRPC(ctx context.Context, q *http.Request, limit int) (message, error) {
	encoding := q.Header.Get("Grpc-Encoding")
	if encoding != "" && encoding != "identity" && encoding != "gzip" {
		return nil, status.Error(codes.Unimplemented, "grpc-encoding is neither identity nor gzip")
	}
	m := &grpcMessage{ctx: ctx, body: q.Body}
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(m.body, prefix[:]); err != nil {
		return nil, m.readError(err)
	}
	switch prefix[0] {
	case 0:
	case 1:
		if encoding != "gzip" {
			return nil, status.Error(codes.Internal, "message is compressed, but grpc-encoding names no compression")
		}
		m.compressed = true
	default:
		return nil, status.Errorf(codes.Internal, "message with flags %#x", prefix[0])
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if uint64(size) > uint64(limit) {
		return nil, tooLarge(limit)
	}
	m.size = int(size)
	return m, nil
}

// read reads the message and the end of the call.
func (m *grpcMessage) read() ([]byte, error) {
	body := make([]byte, m.size)
	if _, err := io.ReadFull(m.body, body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, m.readError(err)
	}
	var more [1]byte
	switch _, err := io.ReadFull(m.body, more[:]); err {
	case io.EOF:
		return body, nil
	case nil:
		return nil, status.Error(codes.Internal, "more than one message")
	default:
		return nil, m.readError(err)
	}
}

// readError returns the status for an error of reading the body.
func (m *grpcMessage) readError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return status.Error(codes.Internal, "no message")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Error(codes.Internal, "message is truncated")
	default:
		return brokenOff(m.ctx, err)
	}
}

// brokenOff returns the status of a request whose sender did not send all of it.
func brokenOff(ctx context.Context, err error) error {
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout(), ctx.Err() == context.DeadlineExceeded:
		return status.FromContextError(context.DeadlineExceeded).Err()
	default: // the client has cancelled the call or closed the connection
		return status.Error(codes.Canceled, err.Error())
	}
}

func tooLarge(limit int) error {
	return status.Errorf(codes.ResourceExhausted, "request is larger than %d bytes, which is the limit here", limit)
}

// respondGRPC writes the response to a call, or, if err is not nil, its status.
func respondGRPC(w http.ResponseWriter, response []byte, err error) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	if err != nil { // without a body, headers are the trailers
		h.Set("Grpc-Accept-Encoding", "gzip")
		writeStatus(h, "", status.Convert(err))
		return
	}
	prefixed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(response)))
	_, _ = w.Write(append(prefixed, response...)) // without a connection there is nobody to report an error to
	writeStatus(h, http.TrailerPrefix, status.New(codes.OK, ""))
}

// writeStatus adds a status to headers or trailers.
func writeStatus(h http.Header, prefix string, s *status.Status) {
	h.Set(prefix+"Grpc-Status", strconv.Itoa(int(s.Code())))
	if s.Message() != "" {
		h.Set(prefix+"Grpc-Message", percentEncode(s.Message()))
	}
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			h.Set(prefix+"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(b))
		}
	}
}

// percentEncode encodes all but printable ASCII, and the percent sign.
func percentEncode(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}
