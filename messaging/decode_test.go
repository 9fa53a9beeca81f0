package messaging

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// errMessage reports bytes that are not a message of the protocol.
var errMessage = errors.New("malformed message")

// Message is a Registration or a correlation.
type Message interface{ message() }

func (Registration) message() {}
func (correlation) message()  {}

// decode decodes a datagram, as a receiver does. A higher minor version may append fields, which are
// ignored; a message of our own version has exactly the fields above. The error is errMessage.
func decode(b []byte) (Message, error) {
	if len(b) < headerBytes {
		return nil, fmt.Errorf("%w: %d bytes are no header", errMessage, len(b))
	}
	messageType := binary.NativeEndian.Uint16(b)
	minor := binary.NativeEndian.Uint16(b[2:])
	if minor < minorVersion {
		return nil, fmt.Errorf("%w: minor version %d", errMessage, minor)
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
		return nil, fmt.Errorf("%w: type %d", errMessage, messageType)
	}
	if err != nil {
		return nil, err
	}
	if minor == minorVersion && len(b) != size {
		return nil, fmt.Errorf("%w: %d bytes after its end", errMessage, len(b)-size)
	}
	return message, nil
}

func decodeRegistration(b []byte) (Message, int, error) {
	if len(b) < registrationBytes {
		return nil, 0, fmt.Errorf("%w: a registration of %d bytes", errMessage, len(b))
	}
	length := binary.NativeEndian.Uint32(b[8:])
	if uint64(length) > uint64(len(b)-registrationBytes) {
		return nil, 0, fmt.Errorf("%w: a host-id of %d bytes in %d", errMessage, length, len(b))
	}
	size := registrationBytes + int(length)
	hostID := b[registrationBytes:size]
	if !utf8.Valid(hostID) {
		return nil, 0, fmt.Errorf("%w: host-id %q is not UTF-8", errMessage, hostID)
	}
	millis := binary.NativeEndian.Uint32(b[4:])
	return Registration{SamplesDelay: time.Duration(millis) * time.Millisecond, HostID: string(hostID)}, size, nil
}

func decodeCorrelation(b []byte) (Message, int, error) {
	if len(b) < correlationBytes {
		return nil, 0, fmt.Errorf("%w: a correlation of %d bytes", errMessage, len(b))
	}
	var c correlation
	copy(c.TraceID[:], b[4:])
	copy(c.TransactionID[:], b[20:])
	copy(c.StackTraceID[:], b[28:])
	c.Count = binary.NativeEndian.Uint16(b[44:])
	if c.Count == 0 || c.Count > maxCount {
		return nil, 0, fmt.Errorf("%w: a count of %d, which an agent reads as no positive number", errMessage, c.Count)
	}
	return c, correlationBytes, nil
}
