package receiver

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// source is the stream of a call, as far as it lets us read. grpc.ServerStream reads and inflates a message
// before it says how long it is, so there is no telling what a request costs before it has cost it. What is below
// it, in a call's context, is asked instead. That it has these methods is no promise of grpc's: if it had not,
// no request at all would be taken, and every test would say so.
type source interface {
	// ReadMessageHeader reads len(b) bytes of what came, and lets the client send as many. io.EOF is the end
	// before the first of them, io.ErrUnexpectedEOF one before the last.
	ReadMessageHeader(b []byte) error
	// RecvCompress is the encoding of a message that is marked as compressed.
	RecvCompress() string
}

// message is one message of gRPC that is being read.
type message struct {
	source
	size   int
	zipped bool
}

var (
	errNoSource = status.Error(codes.Internal, "no access to the stream")
	errTooMany  = status.Error(codes.Internal, "more than one message")
	errEncoding = status.Error(codes.Internal, "message is compressed, but its encoding is not said")
)

func tooLarge(limit int) error {
	return status.Errorf(codes.ResourceExhausted, "request is larger than %d bytes, which is the limit here", limit)
}

// prefixSize is the prefix of a message: whether it is compressed (1 byte), its size (4, big-endian). Source:
// doc/PROTOCOL-HTTP2.md of gRPC.
const prefixSize = 5

// openMessage reads the prefix of the only message of a call. Errors are those to answer with.
func openMessage(stream grpc.ServerStream, limit int) (*message, error) {
	from, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(source)
	if !ok {
		return nil, errNoSource
	}
	var prefix [prefixSize]byte
	if err := from.ReadMessageHeader(prefix[:]); err != nil {
		return nil, readError(err)
	}
	m := &message{source: from}
	switch prefix[0] {
	case 0:
	case 1:
		// Others are none that grpc knows, and were answered: there is only gzip.
		if name := from.RecvCompress(); name == "" || name == encoding.Identity {
			return nil, errEncoding
		}
		m.zipped = true
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

// read reads the message, up to the end of the call. It takes nothing but its size.
func (m *message) read() ([]byte, error) {
	body := make([]byte, m.size)
	if err := m.ReadMessageHeader(body); m.size > 0 && err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, readError(err)
	}
	var more [1]byte
	switch err := m.ReadMessageHeader(more[:]); {
	case err == nil:
		return nil, errTooMany
	case err != io.EOF:
		return nil, readError(err)
	}
	return body, nil
}

// readError is what to answer if a message did not come to its end.
func readError(err error) error {
	switch {
	case err == io.EOF:
		return status.Error(codes.Internal, "no message")
	case err == io.ErrUnexpectedEOF:
		return status.Error(codes.Internal, "message ends before its end")
	}
	if _, ok := status.FromError(err); ok { // the call's time is over, or the client gave it up
		return err
	}
	return status.Error(codes.Canceled, err.Error()) // the connection is gone
}

// inflater makes gzip larger again, one message at a time.
type inflater struct {
	gzip gzip.Reader // with a window of 32 KiB, which is kept
	in   bytes.Reader
}

// inflate is the message in body, of at most limit bytes: more are not read. Errors are those to answer with.
func (z *inflater) inflate(body []byte, limit int) ([]byte, error) {
	z.in.Reset(body)
	defer z.in.Reset(nil)
	if err := z.gzip.Reset(&z.in); err != nil {
		return nil, broken(err)
	}
	// The last four bytes are the size (RFC 1952, little-endian), if it is one file as nearly always, and no lie.
	said := binary.LittleEndian.Uint32(body[max(len(body)-4, 0):][:4])
	out := make([]byte, 0, min(uint64(said), uint64(limit)))
	for {
		if len(out) < cap(out) {
			n, err := z.gzip.Read(out[len(out):cap(out)])
			out = out[:len(out)+n]
			if err == io.EOF {
				break
			} else if err != nil {
				return nil, broken(err)
			}
			continue
		}
		var more [1]byte
		if _, err := io.ReadFull(&z.gzip, more[:]); err == io.EOF {
			break
		} else if err != nil {
			return nil, broken(err)
		}
		if len(out) == limit {
			return nil, tooLarge(limit)
		}
		out = append(append(make([]byte, 0, limit), out...), more[0])
	}
	if cap(out)-len(out) > len(out)/8 { // it may lie in a queue for long
		out = bytes.Clone(out)
	}
	return out, nil
}

func broken(err error) error {
	return status.Error(codes.Internal, fmt.Sprintf("decompressing the message: %v", err))
}
