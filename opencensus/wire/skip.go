package wire

import "bytes"

// beginSkip skips the message whose header has that size.
func (s *Splitter) beginSkip(reason Reason, h Header, size int) int {
	s.skipped = Loss{Reason: reason, Offset: s.offset, Header: h}
	s.skip = uint64(size) + h.Length
	return s.skipBytes(size)
}

// refuse skips the message whose beginning is b, for which there is no memory.
func (s *Splitter) refuse(b []byte) {
	var h Header
	size, _ := h.parse(b, false)
	s.skipped = Loss{Reason: NoMemory, Offset: s.offset, Header: h}
	s.skip = uint64(size) + h.Length
	s.skipBytes(len(b))
}

// skipOn skips what of the message is at the beginning of b. A trace export that has a NUL was
// truncated before it.
func (s *Splitter) skipOn(b []byte) int {
	b = b[:min(uint64(len(b)), s.skip)]
	if s.skipped.Header.Type == TraceExport {
		if nul := bytes.IndexByte(b, 0); nul >= 0 {
			s.skipBytes(nul)
			s.endSkip()
			s.hunting, s.hunted = true, 0
			return nul
		}
	}
	return s.skipBytes(len(b))
}

func (s *Splitter) skipBytes(n int) int {
	s.advance(n)
	s.skipped.Bytes += uint64(n)
	if s.skip -= uint64(n); s.skip == 0 {
		s.endSkip()
	}
	return n
}

func (s *Splitter) endSkip() {
	s.skip = 0
	s.report(s.skipped)
}

func (s *Splitter) maxHunted() uint64 {
	if s.synced {
		return maxSkipped
	}
	return maxSkippedFirst
}

// huntOn goes on with a search of which a few bytes are in the buffer: at most a header. It looks
// at no more of p than continues them, and leaves to others what follows: a message is judged by
// what is behind it, which is all of p.
func (s *Splitter) huntOn(p []byte) (int, error) {
	had := s.buffer.len()
	n := min(len(p), smallBytes-had)
	s.buffer.fits(n, 0)
	s.buffer.append(p[:n])
	consumed, wait, err := s.hunt(s.buffer.bytes())
	switch {
	case consumed >= had:
		n = consumed - had
		s.buffer.consume(s.buffer.len())
	case wait:
		s.buffer.consume(consumed)
	default: // the header begins in the buffer
		s.buffer.cut(n)
		s.buffer.consume(consumed)
		n = 0
	}
	return n, err
}

// hunt searches the next header, and returns how many bytes in front of it are skipped. What is
// left may be the beginning of one, if it waits. It is an error if too many are skipped.
func (s *Splitter) hunt(b []byte) (n int, wait bool, err error) {
	n, wait = searchHeader(b)
	if s.advanceHunting(n); s.hunted > s.maxHunted() {
		return n, wait, ErrNotProtocol
	}
	if !wait {
		s.hunting = false
		s.endHunt()
	}
	return n, wait, nil
}

// searchHeader returns the position of the first header in b; or that from which on more bytes are
// needed, if it waits.
func searchHeader(b []byte) (n int, wait bool) {
	for from := 0; ; {
		at, closed := candidate(b, from)
		if at < 0 {
			rest := len(b)
			for rest > max(from, len(b)-len(startOfMessage)+1) && b[rest-1] == 0 {
				rest--
			}
			return rest, true
		}
		if !closed {
			return at, true
		}
		var h Header
		switch _, verdict := h.parse(b[at:], false); verdict {
		case partial:
			return at, true
		case valid:
			return at, false
		}
		from = at + len(startOfMessage)
	}
}

func (s *Splitter) advanceHunting(n int) {
	s.advance(n)
	s.hunted += uint64(n)
	s.counts.Skipped += uint64(n)
}

// endHunt reports what was skipped in search of a header.
func (s *Splitter) endHunt() {
	if s.hunted > 0 {
		s.report(Loss{Reason: NoHeader, Offset: s.offset - s.hunted, Bytes: s.hunted})
	}
}
