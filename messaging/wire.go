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

	// maxCount is the largest count of a message: agents read it as a signed 16-bit number.
	maxCount = 32767
)

var (
	// errHostID reports that a host id is longer than MaxHostIDBytes or not UTF-8.
	errHostID = errors.New("unusable host id")
	// errSamplesDelay reports a delay that does not fit the message's unsigned 32-bit milliseconds,
	// or is zero.
	errSamplesDelay = errors.New("unusable samples delay")
)

// Registration announces to an APM agent that correlations follow. Repeating it is safe.
type Registration struct {
	// SamplesDelay is the promised upper bound of the time from a sample to its message: the agent
	// holds finished transactions back for that long. On the wire it is rounded up to milliseconds.
	SamplesDelay time.Duration
	HostID       string // may be empty
}

// Key is what samples are aggregated by.
type Key struct {
	TraceID       [16]byte
	TransactionID [8]byte
	StackTraceID  [16]byte
}

// correlation is how often a stack was sampled in a transaction since the last message with the
// same key.
type correlation struct {
	Key
	Count uint16
}

// appendRegistration appends the message to b. Its errors are errHostID and errSamplesDelay; then b
// is returned unchanged.
func appendRegistration(b []byte, r Registration) ([]byte, error) {
	if len(r.HostID) > MaxHostIDBytes {
		return b, fmt.Errorf("%w: %d bytes, agents take at most %d", errHostID, len(r.HostID), MaxHostIDBytes)
	}
	if !utf8.ValidString(r.HostID) {
		return b, fmt.Errorf("%w: %q is not UTF-8", errHostID, r.HostID)
	}
	millis := r.SamplesDelay.Milliseconds()
	if r.SamplesDelay%time.Millisecond > 0 {
		millis++
	}
	if r.SamplesDelay < 0 || millis > math.MaxUint32 {
		return b, fmt.Errorf("%w: %v", errSamplesDelay, r.SamplesDelay)
	}
	b = appendHeader(b, typeRegistration)
	b = binary.NativeEndian.AppendUint32(b, uint32(millis))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(r.HostID)))
	return append(b, r.HostID...), nil
}

// appendCorrelation appends the message to b. The caller must split a count over maxCount, which
// the receiver would read as a negative number.
func appendCorrelation(b []byte, c correlation) []byte {
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
