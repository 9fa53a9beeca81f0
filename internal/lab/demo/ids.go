package demo

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// The ids that the demo process generates are functions of each other, see testdata/agent/ids.h.
type (
	// TraceID proves itself (Whole), and determines the other ids.
	TraceID [16]byte
	// SpanID is the id of a span of a trace.
	SpanID [8]byte
	// TransactionID is the id of the only transaction of a trace.
	TransactionID [8]byte
)

// FNV-1a, 64 bits.
const (
	fnvBasis = 0xcbf29ce484222325
	fnvPrime = 0x100000001b3
)

func fnv1a(hash uint64, data ...byte) uint64 {
	for _, b := range data {
		hash = (hash ^ uint64(b)) * fnvPrime
	}
	return hash
}

// Whole reports whether all bytes of a trace id belong together.
func (id TraceID) Whole() bool {
	hash := ^uint64(fnvBasis)
	for i := 7; i >= 0; i-- {
		hash = fnv1a(hash, id[i])
	}
	return binary.BigEndian.Uint64(id[8:]) == hash
}

// TransactionID returns the only transaction id that belongs to this trace.
func (id TraceID) TransactionID() (out TransactionID) {
	binary.BigEndian.PutUint64(out[:], fnv1a(fnvBasis, id[:]...))
	return out
}

// SpanID returns the id of the span in which this trace's transaction begins.
func (id TraceID) SpanID() SpanID { return id.Span(1) }

// Span returns the span id of this trace with that number, which is zero for number 0: no span.
func (id TraceID) Span(number int) (out SpanID) {
	if number != 0 {
		binary.BigEndian.PutUint64(out[:], fnv1a(fnvBasis+uint64(number), id[:]...))
	}
	return out
}

func (id TraceID) String() string       { return hex.EncodeToString(id[:]) }
func (id SpanID) String() string        { return hex.EncodeToString(id[:]) }
func (id TransactionID) String() string { return hex.EncodeToString(id[:]) }

// UnmarshalText decodes lower-case hex.
func (id *TraceID) UnmarshalText(text []byte) error { return unmarshalHex(id[:], text) }

// UnmarshalText decodes lower-case hex.
func (id *SpanID) UnmarshalText(text []byte) error { return unmarshalHex(id[:], text) }

// UnmarshalText decodes lower-case hex.
func (id *TransactionID) UnmarshalText(text []byte) error { return unmarshalHex(id[:], text) }

func unmarshalHex(out, text []byte) error {
	if len(text) != hex.EncodedLen(len(out)) {
		return fmt.Errorf("reading an id of %d bytes: %q", len(out), text)
	}
	_, err := hex.Decode(out, text)
	return err
}
