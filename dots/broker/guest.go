package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"correlator/dots/frame"
	"correlator/dots/value"
	"correlator/internal/host/connlimit"
)

// format is how transmissions are queued for a guest. For a WebSocket they are frames of v2, until they
// are written.
type format frame.Format

const (
	formatV2   = format(frame.V2)
	formatV1   = format(frame.V1)
	numFormats = 2
)

// state is a state of a connection, as in DotsConnectionState.
type state uint8

const (
	connecting state = iota + 1
	earlySubscribe
	connected
	suspended
	closed
)

// transport is a connection of either kind.
type transport interface {
	// read hands what arrives to the guest until the connection ends, and says why.
	read(g *guest) error
	// tryWrite writes from the front of the list, and removes what it wrote. Unless it may wait, it
	// returns at once, with more = true if there is more than can be written.
	tryWrite(list *chunkList, wait bool) (chunks int, more bool, err error)
	// begin limits how long reading may take until the guest is accepted. The broker is locked.
	begin(d time.Duration)
	// accepted ends the bounds of the handshake. The goroutine that reads calls it.
	accepted(g *guest)
	// stopReading makes read return, what is queued can still be written.
	stopReading(g *guest)
	// linger says that nothing follows, and waits a while until the peer has read everything.
	linger()
	// abort makes read and tryWrite return. It may be called at any time, and does not wait.
	abort()
	// close releases the connection, after read has returned.
	close()
}

// guest is a connection.
type guest struct {
	b       *Broker
	id      uint32
	format  format
	address string
	ip      netip.Addr // invalid for a Unix socket
	transport
	handshake *connlimit.Conn // its place until it is accepted; nil if another server has accepted it

	// Of the goroutine that reads.
	writers    []*guest
	rest       []byte // beginning of a frame that is not complete
	challenge  uint64
	challenged bool // otherwise an answer proves nothing: it could be an old one

	// With the broker's lock.
	name      string
	state     state
	dead      bool // nothing is queued any more, and it is in no group
	left      bool // its groups know
	admitted  bool // it counts as a guest
	recorded  bool // it has a record
	goodbye   bool // what is queued is still to be written
	reason    Reason
	known     map[string]struct{} // types exchanged on this connection
	groups    map[string]membership
	filtered  []*subscription
	selecting *replay         // that is pending; of the goroutine that reads
	types     int             // that it has added
	subs      int             // groups and filtered subscriptions
	cost      int             // of its filters
	listed    value.Timepoint // when its types were published, 0 if never
	lastTopic *topic
	traffic   traffic
	reported  *report             // as last published, nil if it was not
	published map[*topic]struct{} // of which it has published objects
	publisher *topic              // the last one of them
	filling   bool                // its queue is locked by the goroutine that has the broker's lock

	queued atomic.Int64 // bytes in queues, those of replays excepted
	memory atomic.Int64 // what of the broker's memory is for this guest

	replayed atomic.Uint64 // bytes of replays
	waits    atomic.Uint64 // how often what is queued was left to a goroutine that waits

	queueMu   sync.Mutex
	writing   bool // somebody writes; inFlight and scratch are theirs
	broken    bool // nothing can be written any more
	stopped   bool // nothing is read any more
	queue     chunkList
	replays   []*replay // that follow the queue
	inFlight  chunkList
	replaying bool // inFlight is a part of a replay, which the limit of the queue is not for
	scratch   []byte
	changed   sync.Cond // of queueMu: writing ends, or fewer replays are queued
}

// failure is why a connection is to be closed.
type failure struct {
	reason Reason
	text   string // for the guest
}

// Error returns the text.
func (f *failure) Error() string { return f.text }

func fail(reason Reason, format string, args ...any) error {
	return &failure{reason, fmt.Sprintf(format, args...)}
}

// run serves a connection until its end.
func (b *Broker) run(g *guest) {
	defer func() {
		if g.close(); g.handshake != nil {
			g.handshake.Release()
		}
	}()
	if !b.accept(g) {
		return
	}
	err := g.read(g)
	reason, text := classify(g, err)
	b.leave(g, reason, text)
	if g.goodbye {
		g.drain()
	}
	g.discard()
	b.remove(g, err)
}

// classify returns the reason why a connection ended, and the text for the guest.
func classify(g *guest, err error) (Reason, string) {
	var f *failure
	var timeout net.Error
	switch {
	case errors.As(err, &f):
		return f.reason, f.text
	case errors.Is(err, io.EOF):
		return EndOfStream, ""
	case errors.As(err, &timeout) && timeout.Timeout():
		return HandshakeTimeout, ""
	case errors.Is(err, net.ErrClosed) && g.state == connecting:
		return TooManyHandshakes, "" // nobody else closes a connection that is read from
	}
	return StreamError, ""
}

// A connection whose end this broker decides is given some time, which Shutdown waits for: to take
// what is queued, usually one short message, and then to read it and close.
const (
	drainTime  = time.Second
	lingerTime = 500 * time.Millisecond
)

// drain writes what is still queued, and closes the connection for writing. Two goroutines may do
// so.
func (g *guest) drain() {
	timer := time.AfterFunc(drainTime, g.abort)
	defer timer.Stop()
	g.queueMu.Lock()
	g.waitForWriter()
	if !g.broken && !g.queueEmpty() {
		g.writing = true
		g.queueMu.Unlock()
		g.writeOut(true)
	} else {
		g.queueMu.Unlock()
	}
	g.linger()
}

// waitForWriter waits until nobody writes. The queue is locked.
func (g *guest) waitForWriter() {
	for g.writing {
		g.changed.Wait()
	}
}

// pause waits while too many replays are queued for a guest: it must read before it asks for more.
// It returns false if it will not read any more.
func (g *guest) pause() bool {
	g.queueMu.Lock()
	defer g.queueMu.Unlock()
	for len(g.replays) >= maxReplays {
		if g.broken || g.stopped {
			return false
		}
		g.changed.Wait()
	}
	return true
}

// discard releases what is queued for a guest that is dead and to which nobody writes any more.
func (g *guest) discard() {
	g.abort()
	g.queueMu.Lock()
	defer g.queueMu.Unlock()
	g.waitForWriter()
	lost := g.queued.Load()
	if g.replaying {
		lost += int64(g.inFlight.size)
	}
	g.b.count.discarded.Add(uint64(lost))
	g.inFlight.consume(g.inFlight.size)
	g.queue.consume(g.queue.size)
	for _, r := range g.replays {
		r.behind.consume(r.behind.size)
		r.container.unpin(r)
	}
	g.replays, g.rest = nil, nil
	g.queued.Store(0)
	g.account(-int(g.memory.Load()))
}

// data handles the frames in what was read. What is left of it begins an incomplete frame.
func (g *guest) data(data []byte) (rest []byte, err error) {
	b := g.b
	b.lock()
	pos := 0
	var h frame.Header
	for pos < len(data) && err == nil {
		if g.dead {
			err = fail(g.reason, "")
			break
		}
		var instance []byte
		var n int
		instance, n, err = frame.Next(frame.Format(g.format), data[pos:], g.frameLimit(), &h)
		if err != nil {
			err = fail(BadFrame, "%v", err)
			break
		}
		if n == 0 {
			break
		}
		b.receivedFrames++
		b.receivedBytes += uint64(n)
		g.traffic.receivedFrames++
		g.traffic.receivedBytes += uint64(n)
		err = b.handle(g, &h, instance)
		pos += n
		if pos == len(data) || err != nil {
			break
		}
		switch {
		case g.filling && len(g.replays) >= maxReplays: // they are added only while the queue is locked
			g.writers = b.unlock(g.writers)
			if !g.pause() {
				err = fail(StreamError, "")
			}
			b.lock()
		case b.batch.work > maxWork:
			b.relock(g)
		}
	}
	if err != nil {
		b.count.undecoded.Add(uint64(len(data) - pos))
	}
	g.writers = b.unlock(g.writers)
	return data[pos:], err
}

// handshakeFrame bounds frames before a guest is accepted: anybody can send them.
const handshakeFrame = 64 << 10

// frameLimit returns how long a frame may be. The broker is locked.
func (g *guest) frameLimit() int {
	if g.state == connecting {
		return min(handshakeFrame, g.b.options.Limits.Frame)
	}
	return g.b.options.Limits.Frame
}

// keep copies the beginning of a frame that is not complete.
func (g *guest) keep(rest []byte) error {
	if len(rest) == 0 {
		g.account(-cap(g.rest))
		g.rest = nil
		return nil
	}
	if len(g.rest) > 0 && &rest[0] == &g.rest[0] {
		g.rest = rest
		return nil
	}
	before := cap(g.rest)
	g.rest = append(g.rest[:0], rest...)
	return g.grow(cap(g.rest) - before)
}

// grow counts memory for an incomplete frame. An error says that the guest was disconnected.
func (g *guest) grow(bytes int) error {
	if bytes == 0 {
		return nil
	}
	b := g.b
	b.lock()
	defer func() { g.writers = b.unlock(g.writers) }()
	if b.use(g, bytes); g.dead {
		return fail(g.reason, "")
	}
	return nil
}

// frameSize returns how long the frame is that data begins with, as far as it is known.
func (g *guest) frameSize(data []byte) int {
	if g.format == formatV2 && len(data) >= 5 {
		return min(5+int(binary.BigEndian.Uint32(data[1:])), g.b.options.Limits.Frame+5)
	}
	return 0
}
