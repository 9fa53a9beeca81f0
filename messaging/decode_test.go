package messaging

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// Message is a Registration or a correlation.
type Message interface{ message() }

func (Registration) message() {}
func (correlation) message()  {}

// decode decodes a datagram that a receiver of these tests has got: only what we encode is a
// message.
func decode(b []byte) (m Message, err error) {
	var again []byte
	switch {
	case len(b) == correlationBytes && binary.NativeEndian.Uint16(b) == typeCorrelation:
		var c correlation
		copy(c.TraceID[:], b[4:])
		copy(c.TransactionID[:], b[20:])
		copy(c.StackTraceID[:], b[28:])
		c.Count = binary.NativeEndian.Uint16(b[44:])
		m, again = c, appendCorrelation(nil, c)
	case len(b) >= registrationBytes && binary.NativeEndian.Uint16(b) == typeRegistration:
		r := Registration{
			SamplesDelay: time.Duration(binary.NativeEndian.Uint32(b[4:])) * time.Millisecond,
			HostID:       string(b[registrationBytes:]),
		}
		m = r
		again, err = appendRegistration(nil, r)
	}
	if err != nil || !bytes.Equal(again, b) {
		return nil, fmt.Errorf("not a message: %x (%v)", b, err)
	}
	return m, nil
}
