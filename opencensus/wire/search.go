package wire

import "bytes"

// The work of searches is bounded by what has arrived: a sender could otherwise nest messages so
// that many candidates share a long rest, and have all of it decoded for each of them. Searches
// that bytes of real clients cause stay far below: a message is looked at once or twice.
const (
	workPerByte = 8         // bytes looked at for each that arrives
	workPerFeed = 512       // the end of what was searched before is looked at again
	maxWork     = 16 * mega // that of bursts
)

// overlap is how far in front of the end of an earlier search the next one begins: a header that
// was incomplete then is complete now.
const overlap = 64

// startOfMessage is what every header begins with. Payloads may contain it, and may end with zeros.
// As a type is never 0, it is always the end of a run of zeros that begins a header, not its
// beginning.
var startOfMessage = []byte{0, 0, 0, 0}

// candidate returns the position where a header may begin: that of the last four zeros of the first
// run of at least four in b, from a position on; -1 if there is none. closed reports whether a byte
// follows the run.
func candidate(b []byte, from int) (at int, closed bool) {
	i := bytes.Index(b[from:], startOfMessage)
	if i < 0 {
		return -1, false
	}
	for i += from + len(startOfMessage); i < len(b) && b[i] == 0; i++ {
	}
	return i - len(startOfMessage), i < len(b)
}

// search returns the position of the first message in b between from and end that is complete and
// decodes, or a trace export whose beginning looks right; 0 if there is none. It is how the message
// that follows an unfinished one is found.
func (s *Splitter) search(b []byte, from, end int) int {
	for s.work > 0 {
		// A header at the last position begins in front of end and continues behind it.
		window := b[:min(end+len(startOfMessage), len(b), from+s.work)]
		at, closed := candidate(window, from)
		if at < 0 || !closed || at >= end {
			s.work -= max(0, len(window)-from)
			return 0
		}
		s.work -= at + len(startOfMessage) - from
		if s.isMessage(b[at:]) {
			return at
		}
		from = at + len(startOfMessage)
	}
	return 0
}

// isMessage reports whether b begins with a message that is complete and decodes, or with a trace
// export that looks right so far.
func (s *Splitter) isMessage(b []byte) bool {
	var h Header
	size, verdict := h.parse(b, false)
	if verdict != valid {
		return false
	}
	payload := b[size:]
	complete := uint64(len(payload)) >= h.Length
	if complete {
		payload = payload[:h.Length]
	}
	if s.work -= len(payload); s.work < 0 {
		return false
	}
	if complete {
		return check(&h, payload) == nil
	}
	return h.Type == TraceExport && beginsSpans(payload) && bytes.IndexByte(payload, 0) < 0
}

// beginsSpans reports whether a text is the beginning of what clients export: a list of spans,
// which may be empty, or an object of them.
func beginsSpans(p []byte) bool {
	return len(p) > 0 && p[0] == '{' || len(p) > 1 && p[0] == '[' && (p[1] == '{' || p[1] == ']')
}
