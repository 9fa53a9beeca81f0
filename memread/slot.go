package memread

import "encoding/binary"

// slotBytes is how much of a thread's slot is read. Agents may allocate more: later fields come
// after these.
const slotBytes = 37

// Layout of a thread's slot: packed, byte order of the machine (correlation protocol, part 2).
//
//	off  size  field
//	  0     2  layout-minor-version, at least 1
//	  2     1  valid: 0 while the thread updates the slot
//	  3     1  trace-present: 1 when a trace is active
//	  4     1  trace-flags, W3C
//	  5    16  trace-id, W3C
//	 21     8  span-id
//	 29     8  transaction-id
const (
	slotVersionOff      = 0
	slotValidOff        = 2
	slotTracePresentOff = 3
	slotTraceFlagsOff   = 4
	slotTraceIDOff      = 5
	slotSpanIDOff       = 21
	slotTransactionOff  = 29
)

// Slot is the trace context of one thread. Without Valid everything else is zero; without
// TracePresent everything but MinorVersion is.
type Slot struct {
	MinorVersion  uint16
	Valid         bool
	TracePresent  bool
	TraceFlags    uint8
	TraceID       [16]byte
	SpanID        [8]byte
	TransactionID [8]byte
}

// decodeSlot decodes a slot strictly by the protocol. valid is only compared with 0: a slot that is
// not valid has no other content, not even a version, because the agent may not have written it
// yet. Any value of trace-present but 1 means no trace. A valid slot of version 0 cannot be from an
// agent: ErrVersion.
func decodeSlot(b *[slotBytes]byte) (Slot, error) {
	if b[slotValidOff] == 0 {
		return Slot{}, nil
	}
	s := Slot{MinorVersion: binary.NativeEndian.Uint16(b[slotVersionOff:]), Valid: true}
	if s.MinorVersion == 0 {
		return Slot{}, ErrVersion
	}
	if b[slotTracePresentOff] != 1 {
		return s, nil
	}
	s.TracePresent = true
	s.TraceFlags = b[slotTraceFlagsOff]
	copy(s.TraceID[:], b[slotTraceIDOff:])
	copy(s.SpanID[:], b[slotSpanIDOff:])
	copy(s.TransactionID[:], b[slotTransactionOff:])
	return s, nil
}
