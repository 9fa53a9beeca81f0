package wire_test

import (
	"bytes"
	"encoding/binary"
	"math"

	"correlator/opencensus/wire"
)

// reference cuts a stream into messages as a Splitter does, in the simplest way: it keeps all that
// is not consumed in one piece and looks at it anew with each read.
type reference struct {
	b        []byte
	offset   int
	searched int // how much of b was searched behind the message at its beginning
	hunting  bool
	hunted   int
	events   []event
}

// event is a message, or a loss.
type event struct {
	offset, bytes int
	reason        wire.Reason // 0: delivered
}

// referenceHeader returns the size of the header at the beginning of b: 0 if it needs more bytes, -1
// if there is none.
func referenceHeader(b []byte, unknown bool) (h wire.Header, size int) {
	for i := range min(len(b), 5) {
		if b[i] == 0 != (i < 4) {
			return h, -1
		}
	}
	if len(b) < 5 {
		return h, 0
	}
	if h.Type = wire.Type(b[4]); h.Type.Index() == 0 && !unknown {
		return h, -1
	}
	at, short := 5, false
	number := func() uint64 {
		if at < 0 || short {
			return 0
		}
		v, n := binary.Uvarint(b[at:])
		short = n == 0
		if n < 0 || n > 1 && b[at+n-1] == 0 {
			at = -1
			return 0
		}
		at += n
		return v
	}
	sequence, pid, _ := number(), number(), number()
	switch {
	case at < 0:
		return h, -1
	case short:
		return h, 0
	case sequence == 0 || pid == 0 || pid > math.MaxUint32:
		return h, -1
	}
	if len(b) < at+8 {
		return h, 0
	}
	start := math.Float64frombits(binary.BigEndian.Uint64(b[at:]))
	if h.Padded = b[at] == 0 && b[at+1] == 0 && b[at+6] == 0 && b[at+7] == 0; h.Padded {
		start = float64(math.Float32frombits(binary.BigEndian.Uint32(b[at+2:])))
	}
	if math.IsNaN(start) || start < 1e9 || start >= 1<<32 {
		return h, -1
	}
	at += 8
	if h.Length = number(); at < 0 || h.Length > referenceLimit(h.Type) {
		return h, -1
	}
	if short {
		return h, 0
	}
	if h.Type == wire.ReportingPeriod && h.Length != 8 && (h.Length != 4 || !h.Padded) {
		return h, -1
	}
	return h, at
}

func referenceLimit(t wire.Type) uint64 {
	switch t {
	case wire.TraceExport:
		return 64 << 20
	case wire.MeasureCreate:
		return 64 << 10
	case wire.ProcessInit, wire.RequestInit:
		return 4 << 10
	case wire.ProcessShutdown, wire.RequestShutdown:
		return 0
	case wire.ReportingPeriod:
		return 8
	}
	return 1 << 20
}

func decodes(h wire.Header, p []byte) bool {
	if h.Type == wire.TraceExport {
		text := bytes.TrimLeft(p, " \t\r\n")
		return len(p) == 0 || bytes.IndexByte(p, 0) < 0 && len(text) > 0 && (text[0] == '[' || text[0] == '{')
	}
	_, err := payloadOf(wire.Message{Header: h, Payload: p})
	return err == nil
}

// referenceCandidate returns the position of the first start of a message in b from a position on,
// whether or not a byte follows it that is not 0; -1 if there is none.
func referenceCandidate(b []byte, from int) int {
	for i := from; i+4 <= len(b); i++ {
		if string(b[i:i+4]) == "\x00\x00\x00\x00" && (i+4 == len(b) || b[i+4] != 0) {
			return i
		}
	}
	return -1
}

func (r *reference) search(from, end int) int {
	for at := referenceCandidate(r.b, from); at >= 0 && at < end; at = referenceCandidate(r.b, at+1) {
		b := r.b[at:]
		h, size := referenceHeader(b, false)
		if size <= 0 {
			continue
		}
		p := b[size:]
		if uint64(len(p)) >= h.Length {
			if decodes(h, p[:h.Length]) {
				return at
			}
			continue
		}
		begins := bytes.HasPrefix(p, []byte("[{")) || bytes.HasPrefix(p, []byte("[]")) ||
			bytes.HasPrefix(p, []byte("{"))
		if h.Type == wire.TraceExport && begins && bytes.IndexByte(p, 0) < 0 {
			return at
		}
	}
	return 0
}

func (r *reference) feed(p []byte) {
	r.b = append(r.b, p...)
	for len(r.b) > 0 && r.step() {
	}
}

// drop consumes n bytes: with a reason or as a message, or in search of a header.
func (r *reference) drop(n int, reason wire.Reason) {
	if reason == wire.NoHeader {
		r.hunted += n
	} else {
		r.events = append(r.events, event{r.offset, n, reason})
	}
	r.b, r.offset = r.b[n:], r.offset+n
	if n > 0 {
		r.searched = 0
	}
}

func (r *reference) endHunt() {
	if r.hunted > 0 {
		r.events = append(r.events, event{r.offset - r.hunted, r.hunted, wire.NoHeader})
	}
	r.hunting, r.hunted = false, 0
}

// step reports whether it has come further.
func (r *reference) step() bool {
	if r.hunting {
		return r.hunt()
	}
	h, size := referenceHeader(r.b, true)
	switch {
	case size == 0:
		return false
	case size < 0:
		r.hunting = true
		r.drop(1, wire.NoHeader)
		return true
	}
	total := size + int(h.Length)
	if h.Type.Index() == 0 {
		if len(r.b) >= total {
			r.drop(total, wire.UnknownType)
			return true
		}
		return false
	}
	payload := r.b[size:min(total, len(r.b))]
	complete := len(r.b) >= total
	valid := complete && decodes(h, payload)
	from, end := max(1, r.searched-64), len(r.b)
	if complete {
		behind := r.b[total:min(total+5, len(r.b))]
		if valid && (bytes.HasPrefix(make([]byte, 4), behind) || len(behind) == 5 &&
			bytes.HasPrefix(behind, make([]byte, 4)) && behind[4] != 0) {
			r.drop(total, 0)
			return true
		}
		from, end = 1, total
	}
	nul := bytes.IndexByte(payload, 0)
	at := r.search(from, end)
	switch {
	case at > 0:
		r.drop(at, wire.Truncated)
	case valid:
		r.drop(total, 0)
	case h.Type == wire.TraceExport && nul >= 0:
		r.drop(size+nul, wire.Truncated)
		r.hunting = true
	case complete:
		r.drop(total, wire.Malformed)
	default:
		r.searched = len(r.b)
		return false
	}
	return true
}

func (r *reference) hunt() bool {
	for at := referenceCandidate(r.b, 0); at >= 0; at = referenceCandidate(r.b, at+1) {
		switch _, size := referenceHeader(r.b[at:], false); {
		case size == 0:
			r.drop(at, wire.NoHeader)
			return false
		case size > 0:
			r.drop(at, wire.NoHeader)
			r.endHunt()
			return true
		}
	}
	kept := len(r.b) - len(bytes.TrimRight(r.b, "\x00"))
	r.drop(len(r.b)-min(kept, 3), wire.NoHeader)
	return false
}

func (r *reference) end() {
	for len(r.b) > 0 {
		if r.step() {
			continue
		}
		if h, size := referenceHeader(r.b, true); r.hunting {
			r.drop(min(1, len(r.b)), wire.NoHeader)
		} else if size > 0 && h.Type.Index() == 0 {
			r.drop(len(r.b), wire.UnknownType)
		} else if at := r.search(1, len(r.b)); at > 0 {
			r.drop(at, wire.Truncated)
		} else {
			r.drop(len(r.b), wire.Truncated)
		}
	}
	r.endHunt()
}
