package receiver

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inflater decompresses gzip, one message at a time.
type inflater struct {
	gzip gzip.Reader // has a window of 32 KiB, which is reused
	in   bytes.Reader
}

// inflate decompresses body to at most limit bytes: it reads no further. Errors are statuses to
// respond with.
func (z *inflater) inflate(body []byte, limit int) ([]byte, error) {
	z.in.Reset(body)
	defer z.in.Reset(nil)
	if err := z.gzip.Reset(&z.in); err != nil {
		return nil, corrupt(err)
	}
	// The last four bytes are the size (RFC 1952, little-endian) if this is a single gzip member,
	// as nearly always, and an honest one.
	announced := binary.LittleEndian.Uint32(body[max(len(body)-4, 0):][:4])
	out := make([]byte, 0, min(uint64(announced), uint64(limit)))
	for {
		if len(out) < cap(out) {
			n, err := z.gzip.Read(out[len(out):cap(out)])
			out = out[:len(out)+n]
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, corrupt(err)
			}
			continue
		}
		var more [1]byte
		if _, err := io.ReadFull(&z.gzip, more[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, corrupt(err)
		}
		if len(out) == limit {
			return nil, tooLarge(limit)
		}
		out = append(append(make([]byte, 0, limit), out...), more[0])
	}
	if cap(out)-len(out) > len(out)/8 { // it may stay in a queue for long
		out = bytes.Clone(out)
	}
	return out, nil
}

func corrupt(err error) error {
	return status.Errorf(codes.Internal, "decompressing the message: %v", err)
}
