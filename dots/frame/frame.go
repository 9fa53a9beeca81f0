package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"correlator/dots/cbor"
	"correlator/dots/value"
)

// Format is how transmissions are framed on a stream. Nothing on the stream tells it.
type Format uint8

// The formats of streams.
const (
	V2 Format = iota // the usual one
	V1               // of older guests
)

// DefaultLimit is how long a frame may be unless configured: both older implementations send less,
// and a peer that announces more must send it before memory is used for it.
const DefaultLimit = 64 << 20

// prefix is the first byte of a frame of v2: an unsigned integer of 4 bytes.
const prefix = 0x1a

// Errors of frames. After any of them the stream cannot be read on.
var (
	ErrTooLarge = errors.New("frame too large")
	ErrPrefix   = errors.New("frame without its prefix")
	ErrSize     = errors.New("frame of another size than it says")
	ErrMissing  = errors.New("transport header lacks a header or the size of the instance")
)

// Next decodes the first frame in data: its header into h, and where its instance is. It returns
// the length of the frame, 0 if data ends within it. A frame longer than limit is an error as soon
// as its beginning is there. The type name and the instance remain parts of data.
func Next(f Format, data []byte, limit int, h *Header) (instance []byte, n int, err error) {
	if f == V1 {
		return nextV1(data, limit, h)
	}
	if len(data) > 0 && data[0] != prefix {
		return nil, 0, fmt.Errorf("byte %#02x: %w", data[0], ErrPrefix)
	}
	if len(data) < 5 {
		return nil, 0, nil
	}
	size := uint64(binary.BigEndian.Uint32(data[1:])) + 5
	if size > uint64(limit) {
		return nil, 0, fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	if uint64(len(data)) < size {
		return nil, 0, nil
	}
	start, err := h.Decode(data[5:size])
	if err != nil {
		return nil, 0, err
	}
	return data[5+start : size : size], int(size), nil
}

func nextV1(data []byte, limit int, h *Header) (instance []byte, n int, err error) {
	if len(data) < 2 {
		return nil, 0, nil
	}
	start := 2 + int(binary.LittleEndian.Uint16(data))
	if start > limit {
		return nil, 0, fmt.Errorf("header of %d bytes: %w", start-2, ErrTooLarge)
	}
	if len(data) < start {
		return nil, 0, nil
	}
	payload, err := h.decodeTransport(data[2:start])
	if err != nil {
		return nil, 0, fmt.Errorf("decoding a transport header: %w", err)
	}
	size := uint64(start) + uint64(payload)
	if size > uint64(limit) {
		return nil, 0, fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	if uint64(len(data)) < size {
		return nil, 0, nil
	}
	return data[start:size:size], int(size), nil
}

// decodeTransport decodes a transport header and returns the size of the instance.
func (h *Header) decodeTransport(data []byte) (payload uint32, err error) {
	const header, payloadSize = 1 << 3, 1 << 4
	r := cbor.NewReader(data)
	set := 0
	for n := r.Map(); n > 0 && r.Err() == nil; n-- {
		switch r.Uint(64) {
		case 3:
			h.read(&r)
			set |= header
		case 4:
			payload = uint32(r.Uint(32))
			set |= payloadSize
		default:
			r.Skip()
		}
	}
	switch {
	case r.Err() != nil:
		return 0, r.Err()
	case r.Len() != 0:
		return 0, fmt.Errorf("%d bytes after the header: %w", r.Len(), ErrSize)
	case set != header|payloadSize:
		return 0, ErrMissing
	}
	return payload, nil
}

// Frame is a frame whose instance is still to be appended.
type Frame struct {
	format   Format
	start    int // of the frame
	instance int // where the instance begins
}

// Begin appends a frame as far as its instance, which the caller appends before End. For format v1
// it wants to know whether the type has the flag internal, and the time for a header without one.
func Begin(
	dst []byte, f Format, h *Header, internal bool, now value.Timepoint,
) ([]byte, Frame) {
	frame := Frame{format: f, start: len(dst)}
	if f == V1 {
		dst = beginV1(dst, h, internal, now)
	} else {
		dst = h.Append(append(dst, prefix, 0, 0, 0, 0))
	}
	frame.instance = len(dst)
	return dst, frame
}

func beginV1(dst []byte, h *Header, internal bool, now value.Timepoint) []byte {
	dst = append(dst, 0, 0)
	name := string(h.TypeName)
	if internal && name != "DotsClient" && name != "DotsDescriptorRequest" {
		dst = cbor.AppendMap(dst, 4)
		dst = cbor.AppendString(append(dst, 1), "SYS")
	} else {
		dst = cbor.AppendMap(dst, 3)
	}
	dst = cbor.AppendText(append(dst, 2), h.TypeName)
	complete := *h
	if complete.Set&SentTime == 0 {
		complete.SentTime = now
	}
	if complete.Set&Sender == 0 {
		complete.Sender = 1
	}
	complete.Set |= SentTime | Sender
	dst = complete.Append(append(dst, 3))
	return append(dst, 4, 0)
}

// End writes the sizes of a frame, now that its instance is complete. A frame that its format
// cannot hold is taken away again, with an error.
func End(dst []byte, f Frame) ([]byte, error) {
	if f.format == V1 {
		return endV1(dst, f)
	}
	size := len(dst) - f.start - 5
	if uint64(size) > math.MaxUint32 {
		return dst[:f.start], fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	binary.BigEndian.PutUint32(dst[f.start+1:], uint32(size))
	return dst, nil
}

// endV1 writes the size of the instance before it, which moves the instance if it is long.
func endV1(dst []byte, f Frame) ([]byte, error) {
	size := len(dst) - f.instance
	var buf [9]byte
	number := cbor.AppendUint(buf[:0], uint64(size))
	header := f.instance - 1 + len(number) - (f.start + 2)
	if header > math.MaxUint16 || uint64(size) > math.MaxUint32 {
		return dst[:f.start], fmt.Errorf("header of %d bytes, instance of %d: %w", header, size, ErrTooLarge)
	}
	if more := len(number) - 1; more > 0 {
		dst = append(dst, number[:more]...)
		copy(dst[f.instance+more:], dst[f.instance:f.instance+size])
	}
	copy(dst[f.instance-1:], number)
	binary.LittleEndian.PutUint16(dst[f.start:], uint16(header))
	return dst, nil
}

// Append appends a frame with an instance that is encoded already, as Begin and End do.
func Append(
	dst []byte, f Format, h *Header, internal bool, now value.Timepoint, instance []byte,
) ([]byte, error) {
	dst, frame := Begin(dst, f, h, internal, now)
	return End(append(dst, instance...), frame)
}
