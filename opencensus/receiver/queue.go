package receiver

import (
	"sync"
	"time"
	"unsafe"

	"correlator/internal/host/share"
	"correlator/opencensus/spans"
	"correlator/opencensus/wire"
)

const (
	// batchBytes is the size of a batch. Batches make the transfer of small messages cheap: there is
	// one for a thousand records.
	batchBytes = 64 << 10
	// batchMessages limits the messages of a batch, which may be empty.
	batchMessages = 1024
	// minBatchMessages is how many messages a new batch has room for.
	minBatchMessages = 8
	// ownBatchBytes is the size from which on a message gets a batch of its own, so that no more
	// than a quarter of a batch is left unused.
	ownBatchBytes = batchBytes / 4
)

// What batches take of the budget besides payloads.
const (
	headBytes   = int(unsafe.Sizeof(batch{}))
	entryBytes  = int(unsafe.Sizeof(entry{}))
	senderBytes = int(unsafe.Sizeof(sender{}))
)

// The queues.
const (
	statsQueue = iota // what concerns measures and views: one worker, in each user's order of arrival
	traceQueue        // trace exports: many workers
	numQueues
)

// sender is the process that sent messages. It is immutable, but for what queues note.
type sender struct {
	account account
	php     string // version; empty: not known
	process spans.Process
	noted   [numQueues]uint64 // the last batch that the memory of the sender is counted in; fairQueue.mu
}

// bytes is the memory that messages keep a sender in. What else the process has is the connection's.
func (s *sender) bytes() int { return senderBytes + len(s.php) }

// entry is a message in a batch.
type entry struct {
	from          *sender
	sentNanos     int64  // Unix time; 0: not usable
	receivedNanos int64  // as well
	offset, size  uint32 // of the payload in batch.data
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

// batch holds messages that were received one after the other, of any connections of a user.
type batch struct {
	number  uint64 // from 1 on, in a queue
	account account
	taken   int // of the account, for the whole capacity and the senders
	data    []byte
	entries []entry
}

func (b *batch) payload(e *entry) []byte { return b.data[e.offset : e.offset+e.size : e.offset+e.size] }

func (b *batch) hasRoom(bytes int) bool {
	return len(b.data)+bytes <= cap(b.data) && len(b.entries) < batchMessages
}

// take takes memory for a batch, and reports whether there was some.
func (b *batch) take(bytes int) bool {
	if !b.account.Take(bytes) {
		return false
	}
	b.taken += bytes
	return true
}

// note takes memory for the sender of the next message, which the batch keeps, and for more messages
// if there is no room. It reports whether there was memory.
func (b *batch) note(queue int, from *sender) bool {
	if from.noted[queue] != b.number {
		if !b.take(from.bytes()) {
			return false
		}
		from.noted[queue] = b.number
	}
	if n := len(b.entries); n == cap(b.entries) {
		more := max(n, minBatchMessages)
		if !b.take(more * entryBytes) {
			return false
		}
		entries := make([]entry, n, n+more)
		copy(entries, b.entries)
		b.entries = entries
	}
	return true
}

func (b *batch) append(e entry, payload []byte) {
	e.offset = uint32(len(b.data))
	b.data = append(b.data, payload...)
	b.entries = append(b.entries, e)
}

// fairQueue is a queue of messages between the connections and workers. Its users have their turn one
// after the other, with a batch each: so nobody waits for all that another has sent. Its memory is
// limited by the budget.
type fairQueue struct {
	index int
	pool  sync.Pool // of *batch

	mu      sync.Mutex
	changed *sync.Cond
	turns   share.Turns[uint32, *batch]
	last    map[uint32]*batch // of each user that has one in turns: it takes more messages
	waiting int               // messages
	batches uint64
	closed  bool
}

func newFairQueue(index int) *fairQueue {
	q := &fairQueue{
		index: index, pool: sync.Pool{New: func() any { return &batch{data: make([]byte, 0, batchBytes)} }},
		last: make(map[uint32]*batch),
	}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// add copies a message behind those of its user, for which wake must be called after the last of
// several, and reports whether there was memory. It does not wait.
func (q *fairQueue) add(from *sender, m *wire.Message, received time.Time) bool {
	e := entry{
		from: from, receivedNanos: received.UnixNano(), size: uint32(len(m.Payload)), kind: m.Type, padded: m.Padded,
	}
	if !m.Padded {
		e.sentNanos = m.Sent.UnixNano()
	}
	if len(m.Payload) >= ownBatchBytes {
		return q.addLarge(&e, m.Payload)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.last[from.account.uid]
	if b == nil || !b.hasRoom(len(m.Payload)) {
		if b = q.open(from); b == nil {
			return false
		}
		b.append(e, m.Payload)
		q.push(b)
		return true
	}
	if !b.note(q.index, from) {
		return false
	}
	b.append(e, m.Payload)
	q.waiting++
	return true
}

// addLarge adds a message in a batch of its own, which is filled before the queue is locked.
func (q *fairQueue) addLarge(e *entry, payload []byte) bool {
	b := &batch{account: e.from.account}
	if !b.take(headBytes + entryBytes + e.from.bytes() + len(payload)) {
		return false
	}
	data := make([]byte, len(payload))
	copy(data, payload)
	b.data, b.entries = data, []entry{*e}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batches++
	b.number = q.batches
	q.push(b)
	return true
}

// open returns a batch for messages of a user, and nil if there is no memory for it.
func (q *fairQueue) open(from *sender) *batch {
	b := q.pool.Get().(*batch)
	b.account = from.account
	q.batches++
	b.number = q.batches
	if !b.take(headBytes+cap(b.data)+cap(b.entries)*entryBytes) || !b.note(q.index, from) {
		q.recycle(b)
		return nil
	}
	return b
}

// push appends a batch with a message to those of its user.
func (q *fairQueue) push(b *batch) {
	q.waiting++
	q.turns.Push(b.account.uid, b)
	q.last[b.account.uid] = b
}

// wake has a worker take what was added.
func (q *fairQueue) wake() { q.changed.Signal() }

// take waits for messages and returns a batch of the user whose turn it is, which must be given back;
// nil once the queue is closed and empty.
func (q *fairQueue) take() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.turns.Len() == 0 && !q.closed {
		q.changed.Wait()
	}
	uid, b, ok := q.turns.Pop()
	if !ok {
		return nil
	}
	if q.last[uid] == b {
		delete(q.last, uid)
	}
	return b
}

// giveBack ends the use of a batch and of its memory.
func (q *fairQueue) giveBack(b *batch) {
	q.mu.Lock()
	q.waiting -= len(b.entries)
	q.mu.Unlock()
	q.recycle(b)
}

// recycle gives the memory of a batch back, and keeps it for others if it is of the usual size.
func (q *fairQueue) recycle(b *batch) {
	b.account.Give(b.taken)
	if cap(b.data) == batchBytes {
		clear(b.entries)
		*b = batch{data: b.data[:0], entries: b.entries[:0]}
		q.pool.Put(b)
	}
}

// close has workers end when the queue is empty. Nothing may be added any more.
func (q *fairQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// length returns how many messages wait or are in work.
func (q *fairQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
