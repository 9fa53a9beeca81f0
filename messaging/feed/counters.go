package feed

import (
	"errors"
	"strconv"
	"sync/atomic"
)

// RefusalReason is why a datagram was refused.
type RefusalReason uint8

const (
	RefusedMagic RefusalReason = iota
	RefusedLength
	RefusedCount
	RefusedFlags
	RefusedReserved
	NumRefusalReasons // the number of reasons
)

var refusalReasons = [NumRefusalReasons]struct {
	name string
	err  error
}{
	RefusedMagic:    {"magic", errMagic},
	RefusedLength:   {"length", errLength},
	RefusedCount:    {"count", errCount},
	RefusedFlags:    {"flags", errFlags},
	RefusedReserved: {"reserved", errReserved},
}

// String returns the reason's label in logs and metrics.
func (r RefusalReason) String() string {
	if r >= NumRefusalReasons {
		return "reason " + strconv.Itoa(int(r))
	}
	return refusalReasons[r].name
}

// refusalReason returns the reason for an error of decode.
func refusalReason(err error) RefusalReason {
	for r := range NumRefusalReasons {
		if errors.Is(err, refusalReasons[r].err) {
			return r
		}
	}
	return RefusedMagic // decode has no other errors
}

// Counters count what was received on a feed socket. All fields only grow and may be read at any
// time. Every datagram was either handled or refused.
type Counters struct {
	Datagrams atomic.Uint64 // handled
	Records   atomic.Uint64 // in the datagrams handled
	Refused   [NumRefusalReasons]atomic.Uint64
}
