package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A datagram is a header and records, native-endian and packed; see docs/feeding.md. Header:
//
//	offset size field     type
//	     0    4 magic     "CFD1"
//	     4    2 count     uint16, of records
//	     6    2 reserved  uint16, zero
//
// Record, at 8 + 64 times its index:
//
//	offset size field           type
//	     0    4 pid             uint32
//	     4    4 tid             uint32
//	     8    8 time            uint64, CLOCK_MONOTONIC in ns, 0 = now
//	    16   16 stack-trace-id
//	    32    2 count           uint16, of samples
//	    34    2 flags           uint16, bit 0: context included
//	    36    4 reserved        uint32, zero
//	    40   16 trace-id        ignored when no context is included
//	    56    8 transaction-id  ignored when no context is included
const (
	magic       = "CFD1"
	headerBytes = 8
	recordBytes = 64

	flagContext = 1 << 0
)

const (
	// maxRecords is how many records a datagram may hold: it then fits a receive buffer of 64 KiB,
	// and three of them the send buffer that Linux gives a socket by default.
	maxRecords = 1023

	maxDatagramBytes = headerBytes + maxRecords*recordBytes
)

// Errors about a datagram. A datagram with any of them is refused as a whole: its sender does not
// use this format.
var (
	errMagic    = errors.New("not a feed datagram")
	errLength   = errors.New("the length does not match the number of records")
	errCount    = errors.New("unusable number of records or samples")
	errFlags    = errors.New("unknown flags")
	errReserved = errors.New("reserved fields are not zero")
)

// Record is a stack that was sampled in a thread, Count times.
type Record struct {
	PID, TID     uint32 // as the agent's pid namespace has them
	TimeNs       uint64 // CLOCK_MONOTONIC when it was sampled; 0 means now
	StackTraceID [16]byte
	Count        uint16 // at least 1

	// HasContext reports whether the ids below are those of the thread's trace. Otherwise the agent
	// reads them from the thread when it receives the record, which should therefore be at once.
	HasContext    bool
	TraceID       [16]byte
	TransactionID [8]byte
}

// maxAge is the age of all older samples. They are far too old for any use, and no time that a
// sampler sends can overflow.
const maxAge = time.Hour

// SampledAt returns when the sample was taken, on the clock of now, which was nowNs on
// CLOCK_MONOTONIC. A time in the future becomes now.
func (r *Record) SampledAt(now time.Time, nowNs uint64) time.Time {
	if r.TimeNs == 0 || r.TimeNs >= nowNs {
		return now
	}
	return now.Add(-time.Duration(min(nowNs-r.TimeNs, uint64(maxAge))))
}

// AppendDatagram appends a datagram with 1 to maxRecords records to b. The error is errCount; then
// b is returned unchanged.
func AppendDatagram(b []byte, records []Record) ([]byte, error) {
	if len(records) == 0 || len(records) > maxRecords {
		return b, fmt.Errorf("%w: %d records", errCount, len(records))
	}
	start := len(b)
	b = append(b, magic...)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(records)))
	b = append(b, 0, 0)
	for i := range records {
		r := &records[i]
		if r.Count == 0 {
			return b[:start], fmt.Errorf("%w: no samples in record %d", errCount, i)
		}
		b = appendRecord(b, r)
	}
	return b, nil
}

func appendRecord(b []byte, r *Record) []byte {
	b = binary.NativeEndian.AppendUint32(b, r.PID)
	b = binary.NativeEndian.AppendUint32(b, r.TID)
	b = binary.NativeEndian.AppendUint64(b, r.TimeNs)
	b = append(b, r.StackTraceID[:]...)
	b = binary.NativeEndian.AppendUint16(b, r.Count)
	var flags uint16
	var traceID [16]byte
	var transactionID [8]byte
	if r.HasContext {
		flags, traceID, transactionID = flagContext, r.TraceID, r.TransactionID
	}
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0)
	b = append(b, traceID[:]...)
	return append(b, transactionID[:]...)
}

// decode appends the records of a datagram to records. On an error, one of the five above, records
// is returned unchanged. It allocates only if records has no room.
func decode(b []byte, records []Record) ([]Record, error) {
	if len(b) < headerBytes || string(b[:len(magic)]) != magic {
		return records, errMagic
	}
	count := int(binary.NativeEndian.Uint16(b[4:]))
	if len(b) != headerBytes+count*recordBytes {
		return records, fmt.Errorf("%w: %d bytes for %d", errLength, len(b), count)
	}
	if count == 0 || count > maxRecords {
		return records, fmt.Errorf("%w: %d records", errCount, count)
	}
	if binary.NativeEndian.Uint16(b[6:]) != 0 {
		return records, errReserved
	}
	decoded := records
	for at := headerBytes; at < len(b); at += recordBytes {
		r, err := decodeRecord((*[recordBytes]byte)(b[at:]))
		if err != nil {
			return records, err
		}
		decoded = append(decoded, r)
	}
	return decoded, nil
}

func decodeRecord(b *[recordBytes]byte) (r Record, err error) {
	r.PID = binary.NativeEndian.Uint32(b[0:])
	r.TID = binary.NativeEndian.Uint32(b[4:])
	r.TimeNs = binary.NativeEndian.Uint64(b[8:])
	copy(r.StackTraceID[:], b[16:])
	r.Count = binary.NativeEndian.Uint16(b[32:])
	if r.Count == 0 {
		return r, fmt.Errorf("%w: a record without samples", errCount)
	}
	flags := binary.NativeEndian.Uint16(b[34:])
	if flags&^flagContext != 0 {
		return r, fmt.Errorf("%w: %#x", errFlags, flags)
	}
	if binary.NativeEndian.Uint32(b[36:]) != 0 {
		return r, errReserved
	}
	if r.HasContext = flags&flagContext != 0; r.HasContext {
		copy(r.TraceID[:], b[40:])
		copy(r.TransactionID[:], b[56:])
	}
	return r, nil
}
