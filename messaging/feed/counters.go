package feed

import (
	"errors"
	"strconv"
	"sync/atomic"
)

// Reason says why a datagram was refused.
type Reason uint8

const (
	ReasonMagic Reason = iota
	ReasonLength
	ReasonCount
	ReasonFlags
	ReasonReserved
	NumReasons // how many there are
)

var reasons = [NumReasons]struct {
	name string
	err  error
}{
	ReasonMagic:    {"magic", ErrMagic},
	ReasonLength:   {"length", ErrLength},
	ReasonCount:    {"count", ErrCount},
	ReasonFlags:    {"flags", ErrFlags},
	ReasonReserved: {"reserved", ErrReserved},
}

// String is the reason's label in logs and metrics.
func (r Reason) String() string {
	if r >= NumReasons {
		return "reason " + strconv.Itoa(int(r))
	}
	return reasons[r].name
}

// reasonOf names an error of Decode.
func reasonOf(err error) Reason {
	for r := range NumReasons {
		if errors.Is(err, reasons[r].err) {
			return r
		}
	}
	return ReasonMagic // Decode has no other errors
}

// Counters is what came in at a feed socket. All fields only grow and may be read at any time.
// Every datagram was either handled or refused.
type Counters struct {
	Datagrams atomic.Uint64 // handled
	Records   atomic.Uint64 // in the datagrams handled
	Refused   [NumReasons]atomic.Uint64
}
