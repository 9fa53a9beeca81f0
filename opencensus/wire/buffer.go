package wire

// smallBytes is what a Splitter keeps without taking memory: every header, and most records.
const smallBytes = 256

// buffer is the part of a stream that has arrived and is not consumed. It grows with what arrives.
type buffer struct {
	memory Memory
	small  [smallBytes]byte
	large  []byte // nil: small is in use
	start  int    // of what is not consumed
	end    int
}

func (b *buffer) len() int { return b.end - b.start }

func (b *buffer) room() []byte {
	if b.large != nil {
		return b.large
	}
	return b.small[:]
}

// bytes returns what is not consumed. It is valid until the next change.
func (b *buffer) bytes() []byte { return b.room()[b.start:b.end] }

// fits makes room for so many more bytes, and reports whether there is memory for them. expected is
// how long the contents will be, as the sender says; it only keeps the room from becoming larger.
func (b *buffer) fits(more int, expected uint64) bool {
	need := b.len() + more
	room := b.room()
	if b.end+more <= len(room) {
		return true
	}
	// Moving the contents costs no more than consuming what was in front of them has.
	if need <= len(room) && b.start >= b.len() {
		b.end = copy(room, b.bytes())
		b.start = 0
		return true
	}
	if need <= smallBytes {
		b.shrink()
		return true
	}
	size := max(need, 2*len(b.large))
	if expected >= uint64(need) {
		size = int(min(uint64(size), expected))
	}
	if !b.memory.Take(size) {
		return false
	}
	old := b.large
	larger := make([]byte, size)
	b.end = copy(larger, b.bytes())
	b.start, b.large = 0, larger
	b.memory.Give(len(old))
	return true
}

// append appends p, for which there has to be room.
func (b *buffer) append(p []byte) { b.end += copy(b.room()[b.end:], p) }

// cut removes the last n bytes.
func (b *buffer) cut(n int) { b.end -= n }

// consume removes the first n bytes. Memory is given back as soon as the small room suffices.
func (b *buffer) consume(n int) {
	b.start += n
	if b.len() == 0 {
		b.start, b.end = 0, 0
	}
	if b.large != nil && b.len() <= smallBytes {
		b.shrink()
	}
}

// shrink moves the contents to the beginning of the small room.
func (b *buffer) shrink() {
	b.end = copy(b.small[:], b.bytes())
	b.start = 0
	if b.large != nil {
		b.memory.Give(len(b.large))
		b.large = nil
	}
}
