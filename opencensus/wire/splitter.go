package wire

import (
	"bytes"
	"errors"
)

// ErrNotProtocol is that a stream does not consist of messages: close the connection.
var ErrNotProtocol = errors.New("no message found in the stream")

// How many bytes are skipped in search of a header before a stream is given up: at its beginning,
// and behind a header that was found.
const (
	maxSkippedFirst = 64 * kilo
	maxSkipped      = 16 * mega
)

// behindBytes is how much of what follows a message is looked at.
const behindBytes = 5

// Memory is the budget for what Splitters keep of unfinished messages. It is called during Feed and
// End only.
type Memory interface {
	Take(bytes int) bool // false: there is not so much left
	Give(bytes int)
}

// Splitter cuts a stream into messages. It is not safe for concurrent use.
//
// It expects a header at the end of every message. Where none is, it searches the next one. The
// userland client leaves messages unfinished, and the rest never comes: what is read as the rest is
// the next message. So a payload is delivered if it decodes and what has arrived behind it may
// begin a header; otherwise a complete message is searched inside it. Trace exports are JSON, in
// which no NUL can be: the first one shows that the export ended before it.
type Splitter struct {
	counts   *Counts
	onLoss   func(Loss)
	maxTrace uint64

	buffer   buffer // what has arrived and waits for more
	expected uint64 // how long its contents become, if its header says; else 0
	searched int    // how much of it was searched for another message
	work     int    // what searches may look at
	offset   uint64 // of its beginning, in the stream

	synced  bool // a valid header was found in the stream
	hunting bool // no header is where one was expected: it is searched
	hunted  uint64
	skipped Loss   // the message that is being skipped
	skip    uint64 // bytes of it that have not arrived
	ended   bool
}

// NewSplitter returns a Splitter that takes what it keeps from memory, skips trace exports with
// larger payloads than maxTraceBytes, and adds to counts.
func NewSplitter(memory Memory, maxTraceBytes int, counts *Counts) *Splitter {
	return &Splitter{
		buffer: buffer{memory: memory}, maxTrace: uint64(min(maxTraceBytes, MaxTraceBytes)), counts: counts,
		work: maxWork,
	}
}

// OnLoss has f called for everything that is not delivered, in the order of the stream.
func (s *Splitter) OnLoss(f func(Loss)) { s.onLoss = f }

// Feed takes the next bytes of the stream, and calls deliver for each message that is complete. Its
// payload is valid during the call only. After an error, which is ErrNotProtocol, nothing is kept
// and nothing is delivered any more.
func (s *Splitter) Feed(p []byte, deliver func(Message)) error {
	s.work = min(s.work+workPerByte*len(p)+workPerFeed, maxWork)
	for len(p) > 0 {
		if s.ended {
			return ErrNotProtocol
		}
		n, err := s.take(p, deliver)
		if err != nil {
			s.finish()
			return err
		}
		p = p[n:]
	}
	return nil
}

// take consumes some bytes of p, and keeps what is unfinished.
func (s *Splitter) take(p []byte, deliver func(Message)) (int, error) {
	if s.buffer.len() == 0 {
		n, err := s.run(p, deliver)
		if err != nil || n == len(p) {
			return n, err
		}
		if rest := p[n:]; s.buffer.fits(len(rest), s.expected) {
			s.buffer.append(rest)
		} else {
			s.refuse(rest)
		}
		return len(p), nil
	}
	if s.hunting {
		return s.huntOn(p)
	}
	if n := s.complete(p, deliver); n > 0 {
		return n, nil
	}
	n := len(p)
	if !s.buffer.fits(n, s.expected) {
		if n = min(n, smallBytes-s.buffer.len()); n <= 0 {
			s.refuse(s.buffer.bytes())
			s.buffer.consume(s.buffer.len())
			return 0, nil
		}
		s.buffer.fits(n, 0)
	}
	s.buffer.append(p[:n])
	consumed, err := s.run(s.buffer.bytes(), deliver)
	s.buffer.consume(consumed)
	return n, err
}

// complete delivers the message whose beginning is in the buffer and whose rest is at that of p, if
// nothing is wrong with it, and returns the size of the rest; otherwise 0. It saves copying all of
// p.
func (s *Splitter) complete(p []byte, deliver func(Message)) int {
	var m Message
	had := s.buffer.len()
	n := min(max(0, maxHeaderBytes-had), len(p))
	s.buffer.fits(n, 0)
	s.buffer.append(p[:n])
	size, verdict := m.parse(s.buffer.bytes(), false)
	s.buffer.cut(n)
	if verdict != valid || m.Length > s.limit(m.Type) {
		return 0
	}
	s.expected = uint64(size) + m.Length + behindBytes
	missing := s.expected - behindBytes - uint64(had)
	if missing > uint64(len(p)) {
		return 0
	}
	n = min(int(missing)+behindBytes, len(p))
	if !s.buffer.fits(n, s.expected) {
		return 0
	}
	s.buffer.append(p[:n])
	if !s.intact(&m, s.buffer.bytes(), size) {
		s.buffer.cut(n)
		return 0
	}
	s.advance(had + int(missing))
	deliver(m)
	s.buffer.consume(had + n)
	return int(missing)
}

// intact sets the payload of the message at the beginning of b, whose header has that size, and its
// offset. It reports whether the payload decodes, and a header may follow as far as bytes have
// arrived.
func (s *Splitter) intact(m *Message, b []byte, size int) bool {
	total := size + int(m.Length)
	m.Payload, m.Offset = b[size:total:total], s.offset
	behind := b[total:min(total+behindBytes, len(b))]
	for i, x := range behind {
		if x == 0 != (i < len(startOfMessage)) {
			return false
		}
	}
	return check(&m.Header, m.Payload) == nil
}

// run consumes what of b needs no more bytes, and returns how much that is.
func (s *Splitter) run(b []byte, deliver func(Message)) (int, error) {
	n := 0
	for n < len(b) {
		consumed, wait := 0, false
		switch rest := b[n:]; {
		case s.skip > 0:
			consumed = s.skipOn(rest)
		case s.hunting:
			var err error
			if consumed, wait, err = s.hunt(rest); err != nil {
				return n + consumed, err
			}
		default:
			consumed, wait = s.next(rest, deliver)
		}
		n += consumed
		if wait {
			break
		}
	}
	return n, nil
}

// advance moves on by n bytes.
func (s *Splitter) advance(n int) {
	if n > 0 {
		s.offset += uint64(n)
		s.expected, s.searched = 0, 0
	}
}

// next handles the message at the beginning of b, and returns how many bytes that consumes, and
// whether it waits for more.
func (s *Splitter) next(b []byte, deliver func(Message)) (n int, wait bool) {
	var m Message
	size, verdict := m.parse(b, true)
	switch verdict {
	case partial:
		return 0, true
	case invalid:
		s.counts.Malformed[0]++
		s.hunting, s.hunted = true, 0
		s.advanceHunting(1)
		return 1, false
	}
	s.synced = true
	if m.Type.Index() == 0 {
		return s.beginSkip(UnknownType, m.Header, size), false
	}
	if m.Length > s.limit(m.Type) {
		return s.beginSkip(Oversize, m.Header, size), false
	}
	total := size + int(m.Length)
	if len(b) < total {
		return s.unfinished(&m, b, size)
	}
	if s.intact(&m, b, size) {
		s.advance(total)
		deliver(m)
		return total, false
	}
	return s.suspect(&m, b, total, deliver), false
}

func (s *Splitter) limit(t Type) uint64 {
	if t == TraceExport {
		return s.maxTrace
	}
	return properties[t].limit
}

// unfinished handles the message at the beginning of b of which not all has arrived.
func (s *Splitter) unfinished(m *Message, b []byte, size int) (n int, wait bool) {
	if at := s.search(b, max(1, s.searched-overlap), len(b)); at > 0 {
		return s.lose(Loss{Reason: Truncated, Header: m.Header}, at), false
	}
	if m.Type == TraceExport {
		from := min(max(size, s.searched), len(b))
		if nul := bytes.IndexByte(b[from:], 0); nul >= 0 {
			return s.endAtNUL(m, from+nul), false
		}
	}
	s.expected = uint64(size) + m.Length + behindBytes
	s.searched = len(b)
	return 0, true
}

// suspect handles the message of that size at the beginning of b that is complete, but not intact.
func (s *Splitter) suspect(m *Message, b []byte, size int, deliver func(Message)) int {
	if at := s.search(b, 1, size); at > 0 {
		return s.lose(Loss{Reason: Truncated, Header: m.Header}, at)
	}
	err := check(&m.Header, m.Payload)
	if err == nil {
		s.advance(size)
		deliver(*m)
		return size
	}
	if nul := bytes.IndexByte(m.Payload, 0); m.Type == TraceExport && nul >= 0 {
		return s.endAtNUL(m, size-len(m.Payload)+nul)
	}
	return s.lose(Loss{Reason: Malformed, Header: m.Header, Err: err}, size)
}

// endAtNUL drops a trace export that was truncated before the byte at that position, and searches
// the next header from there on.
func (s *Splitter) endAtNUL(m *Message, at int) int {
	s.hunting, s.hunted = true, 0
	return s.lose(Loss{Reason: Truncated, Header: m.Header}, at)
}

// lose counts a loss of the next n bytes.
func (s *Splitter) lose(loss Loss, n int) int {
	loss.Offset, loss.Bytes = s.offset, uint64(n)
	s.advance(n)
	s.report(loss)
	return n
}

func (s *Splitter) report(loss Loss) {
	switch i := loss.Header.Type.Index(); loss.Reason {
	case Malformed:
		s.counts.Malformed[i]++
	case Truncated:
		s.counts.Truncated[i]++
	case Oversize:
		s.counts.Oversize[i]++
	case NoMemory:
		s.counts.NoMemory[i]++
	case UnknownType:
		s.counts.Unknown++
	}
	if s.onLoss != nil {
		s.onLoss(loss)
	}
}

// End is the end of the stream: what is unfinished is lost, what follows it is delivered. Nothing
// is kept. It has to be called whatever ended the stream.
func (s *Splitter) End(deliver func(Message)) {
	for b := s.buffer.bytes(); len(b) > 0; {
		n, err := s.run(b, deliver)
		if b = b[n:]; err != nil {
			break
		}
		if len(b) == 0 {
			break
		}
		if s.hunting { // it waits for the rest of a header
			s.advanceHunting(1)
			b = b[1:]
			continue
		}
		var h Header
		if _, verdict := h.parse(b, true); verdict != valid {
			h = Header{}
			if len(b) > len(startOfMessage) {
				h.Type = Type(b[len(startOfMessage)])
			}
		}
		n = s.search(b, 1, len(b))
		if n == 0 {
			n = len(b)
		}
		b = b[s.lose(Loss{Reason: Truncated, Header: h}, n):]
	}
	s.finish()
}

// finish reports what is being skipped, and gives the memory back.
func (s *Splitter) finish() {
	if s.ended {
		return
	}
	s.ended = true
	if s.skip > 0 {
		s.endSkip()
	}
	if s.hunting {
		s.endHunt()
	}
	s.buffer.consume(s.buffer.len())
}
