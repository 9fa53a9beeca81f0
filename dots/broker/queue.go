package broker

import (
	"encoding/binary"
	"sync"
)

// Sizes of parts of a queue: the first one is small, so that a message to many guests takes little
// memory, and the others large enough that few system calls write much.
const (
	firstChunk = 2 << 10
	chunkSize  = 64 << 10
)

// chunk is a part of a queue.
type chunk struct {
	next       *chunk
	start, end int // of what is still to be written
	data       []byte
}

var (
	firstChunks = sync.Pool{New: func() any { return &chunk{data: make([]byte, firstChunk)} }}
	chunks      = sync.Pool{New: func() any { return &chunk{data: make([]byte, chunkSize)} }}
)

// newChunk returns an empty chunk, a small one if that is enough for the beginning of a queue.
func newChunk(small bool) *chunk {
	pool := &chunks
	if small {
		pool = &firstChunks
	}
	c := pool.Get().(*chunk)
	c.next, c.start, c.end = nil, 0, 0
	return c
}

// release makes a chunk available, and returns its size.
func (c *chunk) release() int {
	c.next = nil
	if len(c.data) == chunkSize {
		chunks.Put(c)
	} else {
		firstChunks.Put(c)
	}
	return len(c.data)
}

// chunkList is a queue of bytes in chunks.
type chunkList struct {
	first, last *chunk
	size        int // bytes
}

// append appends bytes and returns how much memory it added.
func (l *chunkList) append(data []byte) (added int) {
	l.size += len(data)
	for {
		if l.last != nil {
			n := copy(l.last.data[l.last.end:], data)
			l.last.end += n
			if data = data[n:]; len(data) == 0 {
				return added
			}
		}
		c := newChunk(l.last == nil && len(data) <= firstChunk)
		added += len(c.data)
		if l.last == nil {
			l.first = c
		} else {
			l.last.next = c
		}
		l.last = c
	}
}

// consume removes bytes from the front and returns how much memory it released.
func (l *chunkList) consume(n int) (released int) {
	l.size -= n
	for l.first != nil {
		c := l.first
		if have := c.end - c.start; n < have {
			c.start += n
			return released
		} else {
			n -= have
		}
		l.first = c.next
		if l.first == nil {
			l.last = nil
		}
		released += c.release()
	}
	return released
}

// read copies the first bytes without removing them; there must be as many.
func (l *chunkList) read(dst []byte) {
	for c := l.first; len(dst) > 0; c = c.next {
		dst = dst[copy(dst, c.data[c.start:c.end]):]
	}
}

// frame copies the first frame of a queue of frames of v2.
func (l *chunkList) frame(dst []byte) []byte {
	var head [5]byte
	l.read(head[:])
	n := int(binary.BigEndian.Uint32(head[1:])) + len(head)
	if cap(dst) < n {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	l.read(dst)
	return dst
}

// enqueue queues a transmission, in the format of the guest. The broker is locked.
func (b *Broker) enqueue(g *guest, data []byte) {
	if g.dead {
		return
	}
	if len(data) == 0 {
		b.count.unencodable.Add(1)
		return
	}
	b.fill(g)
	b.sentFrames++
	b.sentBytes += uint64(len(data))
	g.traffic.sentFrames++
	g.traffic.sentBytes += uint64(len(data))
	list := &g.queue
	if n := len(g.replays); n > 0 {
		list = &g.replays[n-1].behind
	}
	added := list.append(data)
	// What is queued now does not count: a guest that takes everything at once may get a frame that
	// is as long as the limit.
	queued := g.queued.Add(int64(len(data)))
	g.traffic.peak = max(g.traffic.peak, uint64(max(queued, 0)))
	if queued-int64(len(data)) > int64(b.options.Limits.Queue) {
		b.drop(g, SlowConsumer)
	}
	if added > 0 {
		b.use(g, added)
	}
}

// fill locks the queue of a guest until the broker is unlocked.
func (b *Broker) fill(g *guest) {
	if !g.filling {
		g.queueMu.Lock()
		g.filling = true
		b.batch.dirty = append(b.batch.dirty, g)
	}
}

// account counts memory that is used for a guest.
func (g *guest) account(bytes int) {
	g.memory.Add(int64(bytes))
	g.b.memory.Add(int64(bytes))
}

// use counts memory that a guest uses, and disconnects the one that uses most if there is too much.
// The broker is locked.
func (b *Broker) use(g *guest, bytes int) {
	g.account(bytes)
	total := b.memory.Load() + int64(b.cacheBytes)
	if total <= max(int64(b.options.Limits.Memory), b.batch.relieved) {
		return
	}
	var ending int64 // what is released soon, since its guest was disconnected
	for _, other := range b.guests {
		switch {
		case other.dead:
			ending += other.memory.Load()
		case g.dead || other.memory.Load() > g.memory.Load():
			g = other
		}
	}
	if total-ending > int64(b.options.Limits.Memory) {
		b.drop(g, MemoryFull)
	}
	// All guests are looked at again when some more is used, not for each message of a batch.
	b.batch.relieved = total + int64(b.options.Limits.Memory)/256
}

// queueEmpty reports whether there is nothing to be written. The queue is locked.
func (g *guest) queueEmpty() bool {
	return g.queue.size == 0 && g.inFlight.size == 0 && len(g.replays) == 0
}
