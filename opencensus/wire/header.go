package wire

import (
	"encoding/binary"
	"math"
	"time"
)

// maxHeaderBytes is the size of the largest header.
const maxHeaderBytes = 4 + 1 + 10 + 10 + 10 + 8 + 10

// The range of StartTime: from the year 2001 to 2106. No Float64 in it can be taken for the padded
// form, for it begins with 41.
const (
	minStartTime = 1e9
	endStartTime = 1 << 32
)

// verdict is what is known of a header.
type verdict uint8

const (
	invalid verdict = iota
	partial         // it may become valid when more bytes arrive
	valid
)

// parse parses the header at the beginning of b, and returns its size. Every field is checked: what
// is valid by chance is rare in any data. unknown allows types that are not known.
func (h *Header) parse(b []byte, unknown bool) (int, verdict) {
	if len(b) < 5 {
		for _, x := range b[:min(len(b), 4)] {
			if x != 0 {
				return 0, invalid
			}
		}
		return 0, partial
	}
	h.Type = Type(b[4])
	known := h.Type.Index() > 0
	if binary.BigEndian.Uint32(b) != 0 || h.Type == 0 || !known && !unknown {
		return 0, invalid
	}
	n := 5
	var ids [3]uint64
	for i := range ids {
		if n < len(b) && b[n] < 0x80 {
			ids[i] = uint64(b[n])
			n++
			continue
		}
		v, size := uvarint(b[n:])
		if size <= 0 {
			return 0, verdictOf(size)
		}
		ids[i] = v
		n += size
	}
	if ids[0] == 0 || ids[1] == 0 || ids[1] > math.MaxUint32 {
		return 0, invalid
	}
	h.Sequence, h.PID, h.ThreadID = ids[0], uint32(ids[1]), ids[2]
	if len(b) < n+8 {
		return 0, partial
	}
	if !h.setStartTime(binary.BigEndian.Uint64(b[n:])) {
		return 0, invalid
	}
	n += 8
	length, size := uvarint(b[n:])
	if size <= 0 {
		return 0, verdictOf(size)
	}
	limit := uint64(maxUnknownBytes)
	if known {
		limit = properties[h.Type].limit
	}
	if length > limit || h.Type == ReportingPeriod && !h.isPeriod(length) {
		return 0, invalid
	}
	h.Length = length
	return n + size, valid
}

// isPeriod reports whether a ReportingPeriod may have this length. All known clients write a
// Float64 even behind a padded StartTime, but the protocol's document has a binary32 there.
func (h *Header) isPeriod(length uint64) bool {
	return length == sizeFloat64 || length == sizeFloat32 && h.Padded
}

// verdictOf is that of a header that ends with a UVarInt of this size.
func verdictOf(size int) verdict {
	if size == 0 {
		return partial
	}
	return invalid
}

// setStartTime reports whether field is a time in the range.
func (h *Header) setStartTime(field uint64) bool {
	const zeros = 0xffff<<48 | 0xffff
	h.Padded = field&zeros == 0
	seconds := math.Float64frombits(field)
	if h.Padded {
		seconds = float64(math.Float32frombits(uint32(field >> 16)))
	}
	if !(seconds >= minStartTime && seconds < endStartTime) { // which no NaN is
		return false
	}
	h.Sent = time.UnixMicro(int64(seconds*1e6 + 0.5)).UTC()
	return true
}
