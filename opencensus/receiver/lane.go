package receiver

import (
	"sync"
	"time"
	"unsafe"

	"correlator/opencensus/spans"
	"correlator/opencensus/wire"
)

const (
	// blockBytes is the size of a block. Blocks make the transfer of small messages cheap: there is
	// one for a thousand records.
	blockBytes = 64 << 10
	// blockMessages limits the messages of a block, which may be empty.
	blockMessages = 1024
	// minBlockMessages is how many messages a new block has room for.
	minBlockMessages = 8
	// ownBlockBytes is the size from which on a message gets a block of its own, so that no more
	// than a quarter of a block is left unused.
	ownBlockBytes = blockBytes / 4
)

// What blocks take of the budget besides payloads.
const (
	headBytes   = int(unsafe.Sizeof(block{}))
	entryBytes  = int(unsafe.Sizeof(entry{}))
	senderBytes = int(unsafe.Sizeof(sender{}))
)

// The lanes.
const (
	statsLane = iota // what concerns measures and views: one worker, in each user's order of arrival
	traceLane        // trace exports: many workers
	numLanes
)

// sender is the process that sent messages. It is immutable, but for what lanes note.
type sender struct {
	share   *share
	php     string // version; empty: not known
	process spans.Process
	noted   [numLanes]uint64 // the last block that the memory of the sender is counted in; lane.mu
}

// bytes is the memory that messages keep a sender in. What else the process has is the connection's.
func (s *sender) bytes() int { return senderBytes + len(s.php) }

// entry is a message in a block.
type entry struct {
	from          *sender
	sentNanos     int64  // Unix time; 0: not usable
	receivedNanos int64  // as well
	offset, size  uint32 // of the payload in block.data
	kind          wire.Type
	padded        bool
}

// sent returns when the client began to send the message, by its clock; zero: not usable.
func (e *entry) sent() time.Time {
	if e.sentNanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, e.sentNanos).UTC()
}

func (e *entry) received() time.Time { return time.Unix(0, e.receivedNanos).UTC() }

// block holds messages that were received one after the other, of any connections of a user.
type block struct {
	next    *block
	number  uint64 // from 1 on, in a lane
	share   *share // of the user
	taken   int    // of the share, for the whole capacity and the senders
	data    []byte
	entries []entry
}

func (b *block) payload(e *entry) []byte { return b.data[e.offset : e.offset+e.size : e.offset+e.size] }

func (b *block) hasRoom(bytes int) bool {
	return len(b.data)+bytes <= cap(b.data) && len(b.entries) < blockMessages
}

// take takes memory for a block, and reports whether there was some.
func (b *block) take(bytes int) bool {
	if !b.share.Take(bytes) {
		return false
	}
	b.taken += bytes
	return true
}

// note takes memory for the sender of the next message, which the block keeps, and for more messages
// if there is no room. It reports whether there was memory.
func (b *block) note(lane int, from *sender) bool {
	if from.noted[lane] != b.number {
		if !b.take(from.bytes()) {
			return false
		}
		from.noted[lane] = b.number
	}
	if n := len(b.entries); n == cap(b.entries) {
		more := max(n, minBlockMessages)
		if !b.take(more * entryBytes) {
			return false
		}
		entries := make([]entry, n, n+more)
		copy(entries, b.entries)
		b.entries = entries
	}
	return true
}

func (b *block) append(e entry, payload []byte) {
	e.offset = uint32(len(b.data))
	b.data = append(b.data, payload...)
	b.entries = append(b.entries, e)
}

// line is what waits of a user in a lane: blocks in the order of their arrival.
type line struct {
	first, last *block // last is open
	next        *line  // whose turn is after this one's, if there are blocks
}

// lane is a queue of messages between the connections and workers. Its users have their turn one
// after the other, with a block each: so nobody waits for all that another has sent. Its memory is
// limited by the budget.
type lane struct {
	index int
	pool  sync.Pool // of *block

	mu          sync.Mutex
	changed     *sync.Cond
	first, last *line // of users with messages; it is the turn of the first
	waiting     int   // messages
	blocks      uint64
	closed      bool
}

func newLane(index int) *lane {
	l := &lane{
		index: index, pool: sync.Pool{New: func() any { return &block{data: make([]byte, 0, blockBytes)} }},
	}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// add copies a message to the end of its user's line, for which wake must be called after the last of
// several, and reports whether there was memory. It does not wait.
func (l *lane) add(from *sender, m *wire.Message, received time.Time) bool {
	e := entry{
		from: from, receivedNanos: received.UnixNano(), size: uint32(len(m.Payload)), kind: m.Type, padded: m.Padded,
	}
	if !m.Padded {
		e.sentNanos = m.Sent.UnixNano()
	}
	if len(m.Payload) >= ownBlockBytes {
		return l.addLarge(&e, m.Payload)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := from.share.lines[l.index].last
	if b == nil || !b.hasRoom(len(m.Payload)) {
		if b = l.open(from); b == nil {
			return false
		}
		b.append(e, m.Payload)
		l.link(b)
		return true
	}
	if !b.note(l.index, from) {
		return false
	}
	b.append(e, m.Payload)
	l.waiting++
	return true
}

// addLarge adds a message in a block of its own, which is filled before the lane is locked.
func (l *lane) addLarge(e *entry, payload []byte) bool {
	b := &block{share: e.from.share}
	if !b.take(headBytes + entryBytes + e.from.bytes() + len(payload)) {
		return false
	}
	data := make([]byte, len(payload))
	copy(data, payload)
	b.data, b.entries = data, []entry{*e}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocks++
	b.number = l.blocks
	l.link(b)
	return true
}

// open returns a block for messages of a user, and nil if there is no memory for it.
func (l *lane) open(from *sender) *block {
	b := l.pool.Get().(*block)
	b.share = from.share
	l.blocks++
	b.number = l.blocks
	if !b.take(headBytes+cap(b.data)+cap(b.entries)*entryBytes) || !b.note(l.index, from) {
		l.recycle(b)
		return nil
	}
	return b
}

// link appends a block with a message to the line of its user.
func (l *lane) link(b *block) {
	l.waiting++
	line := &b.share.lines[l.index]
	if line.last == nil {
		line.first, line.last = b, b
		l.await(line)
	} else {
		line.last.next, line.last = b, b
	}
}

// await has a line wait for its turn.
func (l *lane) await(line *line) {
	if l.last == nil {
		l.first = line
	} else {
		l.last.next = line
	}
	l.last = line
}

// wake has a worker take what was added.
func (l *lane) wake() { l.changed.Signal() }

// take waits for messages and returns a block of the user whose turn it is, which must be given back;
// nil once the lane is closed and empty.
func (l *lane) take() *block {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.first == nil && !l.closed {
		l.changed.Wait()
	}
	line := l.first
	if line == nil {
		return nil
	}
	if l.first = line.next; l.first == nil {
		l.last = nil
	}
	line.next = nil
	b := line.first
	if line.first = b.next; line.first == nil {
		line.last = nil
	} else {
		l.await(line)
	}
	b.next = nil
	return b
}

// giveBack ends the use of a block and of its memory.
func (l *lane) giveBack(b *block) {
	l.mu.Lock()
	l.waiting -= len(b.entries)
	l.mu.Unlock()
	l.recycle(b)
}

// recycle gives the memory of a block back, and keeps it for others if it is of the usual size.
func (l *lane) recycle(b *block) {
	b.share.Give(b.taken)
	if cap(b.data) == blockBytes {
		clear(b.entries)
		*b = block{data: b.data[:0], entries: b.entries[:0]}
		l.pool.Put(b)
	}
}

// close has workers end when the lane is empty. Nothing may be added any more.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
}

// length returns how many messages wait or are in work.
func (l *lane) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}
