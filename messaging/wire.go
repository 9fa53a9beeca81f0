package messaging

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Everything below is from part 3 of the APM correlation protocol, version 1: native-endian,
// packed. Every message starts with the header:
//
//	offset size field          type
//	     0    2 message-type   uint16
//	     2    2 minor-version  uint16, 1 today
//
// registration (type 2):
//
//	offset size field             type
//	     4    4 samples-delay-ms  uint32
//	     8    4 length            uint32
//	    12    - host-id           length bytes of UTF-8, no terminator
//
// trace correlation (type 1):
//
//	offset size field           type
//	     4   16 trace-id
//	    20    8 transaction-id
//	    28   16 stack-trace-id
//	    44    2 count           uint16
const (
	typeCorrelation  = 1
	typeRegistration = 2
	minorVersion     = 1

	headerBytes       = 4
	registrationBytes = 12 // without host-id
	correlationBytes  = 46
)

const (
	// MaxHostIDBytes keeps a registration within the 1024 bytes that agents read it into.
	MaxHostIDBytes = 1012

	// MaxCount is the largest count of a message: agents read it as a signed 16-bit number.
	MaxCount = 32767
)

var (
	// ErrHostID reports that a host id is longer than MaxHostIDBytes or not UTF-8.
	ErrHostID = errors.New("unusable host id")
	// ErrSamplesDelay reports a delay that does not fit the message's unsigned 32-bit milliseconds, or
	// is zero.
	ErrSamplesDelay = errors.New("unusable samples delay")
	// ErrMessage reports bytes that are not a message of the protocol.
	ErrMessage = errors.New("malformed message")
)

// Registration announces to an APM agent that correlations follow. Repeating it is safe.
type Registration struct {
	// SamplesDelay is the promised upper bound of the time from a sample to its message: the
	// agent holds finished transactions back for that long. On the wire it is rounded up to
	// milliseconds.
	SamplesDelay time.Duration
	HostID       string // may be empty
}

// Key is what samples are aggregated by.
type Key struct {
	TraceID       [16]byte
	TransactionID [8]byte
	StackTraceID  [16]byte
}

// Correlation is how often a stack was sampled in a transaction since the last message with the same
// key.
type Correlation struct {
	Key
	Count uint16
}

// AppendRegistration appends the message to b. Its errors are ErrHostID and ErrSamplesDelay;
// then b is returned unchanged.
func AppendRegistration(b []byte, r Registration) ([]byte, error) {
	if len(r.HostID) > MaxHostIDBytes {
		return b, fmt.Errorf("%w: %d bytes, agents take at most %d", ErrHostID, len(r.HostID), MaxHostIDBytes)
	}
	if !utf8.ValidString(r.HostID) {
		return b, fmt.Errorf("%w: %q is not UTF-8", ErrHostID, r.HostID)
	}
	millis := r.SamplesDelay.Milliseconds()
	if r.SamplesDelay%time.Millisecond > 0 {
		millis++
	}
	if r.SamplesDelay < 0 || millis > math.MaxUint32 {
		return b, fmt.Errorf("%w: %v", ErrSamplesDelay, r.SamplesDelay)
	}
	b = appendHeader(b, typeRegistration)
	b = binary.NativeEndian.AppendUint32(b, uint32(millis))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(r.HostID)))
	return append(b, r.HostID...), nil
}

// AppendCorrelation appends the message to b. The caller must split a count over MaxCount, which the
// receiver would read as a negative number.
func AppendCorrelation(b []byte, c Correlation) []byte {
	b = appendHeader(b, typeCorrelation)
	b = append(b, c.TraceID[:]...)
	b = append(b, c.TransactionID[:]...)
	b = append(b, c.StackTraceID[:]...)
	return binary.NativeEndian.AppendUint16(b, c.Count)
}

func appendHeader(b []byte, messageType uint16) []byte {
	b = binary.NativeEndian.AppendUint16(b, messageType)
	return binary.NativeEndian.AppendUint16(b, minorVersion)
}

// Message is a Registration or a Correlation.
type Message interface{ message() }

func (Registration) message() {}
func (Correlation) message()  {}

// Decode decodes a datagram, as a receiver does. A higher minor version may append fields, which are
// ignored; a message of our own version has exactly the fields above. The error is ErrMessage.
func Decode(b []byte) (Message, error) {
	if len(b) < headerBytes {
		return nil, fmt.Errorf("%w: %d bytes are no header", ErrMessage, len(b))
	}
	messageType := binary.NativeEndian.Uint16(b)
	minor := binary.NativeEndian.Uint16(b[2:])
	if minor < minorVersion {
		return nil, fmt.Errorf("%w: minor version %d", ErrMessage, minor)
	}
	var message Message
	var size int
	var err error
	switch messageType {
	case typeRegistration:
		message, size, err = decodeRegistration(b)
	case typeCorrelation:
		message, size, err = decodeCorrelation(b)
	default:
		return nil, fmt.Errorf("%w: type %d", ErrMessage, messageType)
	}
	if err != nil {
		return nil, err
	}
	if minor == minorVersion && len(b) != size {
		return nil, fmt.Errorf("%w: %d bytes after its end", ErrMessage, len(b)-size)
	}
	return message, nil
}

func decodeRegistration(b []byte) (Message, int, error) {
	if len(b) < registrationBytes {
		return nil, 0, fmt.Errorf("%w: a registration of %d bytes", ErrMessage, len(b))
	}
	length := binary.NativeEndian.Uint32(b[8:])
	if uint64(length) > uint64(len(b)-registrationBytes) {
		return nil, 0, fmt.Errorf("%w: a host-id of %d bytes in %d", ErrMessage, length, len(b))
	}
	size := registrationBytes + int(length)
	hostID := b[registrationBytes:size]
	if !utf8.Valid(hostID) {
		return nil, 0, fmt.Errorf("%w: host-id %q is not UTF-8", ErrMessage, hostID)
	}
	millis := binary.NativeEndian.Uint32(b[4:])
	return Registration{SamplesDelay: time.Duration(millis) * time.Millisecond, HostID: string(hostID)}, size, nil
}

func decodeCorrelation(b []byte) (Message, int, error) {
	if len(b) < correlationBytes {
		return nil, 0, fmt.Errorf("%w: a correlation of %d bytes", ErrMessage, len(b))
	}
	var c Correlation
	copy(c.TraceID[:], b[4:])
	copy(c.TransactionID[:], b[20:])
	copy(c.StackTraceID[:], b[28:])
	c.Count = binary.NativeEndian.Uint16(b[44:])
	if c.Count == 0 || c.Count > MaxCount {
		return nil, 0, fmt.Errorf("%w: a count of %d, which an agent reads as no positive number", ErrMessage, c.Count)
	}
	return c, correlationBytes, nil
}
