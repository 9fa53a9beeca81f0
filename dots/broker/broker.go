// Package broker is a DOTS broker: it routes objects between guests by their types, keeps the last
// state of every object of cached types, and replays it to guests that join later.
//
// Each connection has one goroutine, which waits until there is something to read, without a buffer
// of its own. What it reads into a pooled buffer, often many transmissions, it handles under the
// one lock of the broker: objects are checked, normalised, stored and appended to the queues of the
// members of their groups. After that, without the lock, it writes these queues to the sockets as
// far as the kernel takes the data at once. What is left goes to a goroutine that waits until the
// socket can be written. So no guest waits until another one reads, and every guest sees one order.
//
// A guest for which more is queued than it may is disconnected. The replay of a container is no
// part of that: it is a snapshot, encoded as fast as the guest takes it, and what is to be sent
// later is queued behind.
package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"correlator/dots/auth"
	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/host/connlimit"
	"correlator/internal/host/sockfile"
)

// ErrClosed is the error of a Broker that was shut down.
var ErrClosed = errors.New("broker is shut down")

// ownID is the client id of the broker itself; guests have those that follow.
const ownID = 1

// Broker is a broker. All methods may be called concurrently.
type Broker struct {
	options  Options
	rules    []rule // static ones, by priority
	started  time.Time
	registry *schema.Registry

	nonce     func() uint64 // of challenges
	internals map[string]struct{}

	handshakes *connlimit.Table // connections that are no guests yet
	count      counters
	memory     atomic.Int64 // bytes that guests use: queues, unfinished frames, replays, groups, filters
	stop       chan struct{}
	running    sync.WaitGroup

	// Held without mu, while something is made of what one guest has sent that may be much longer.
	canonicalizing, converting sync.Mutex

	mu        sync.Mutex
	closed    bool
	listeners map[io.Closer]struct{}
	guests    map[uint32]*guest
	accepted  int // of them
	lastID    uint32
	topics    map[string]*topic
	unlisted  map[*guest]struct{} // whose records do not list the groups that they are in
	refs      map[uint32]int      // by client id: in how many places cached objects name it
	status    statistics          // as last published
	types     []*schema.Type      // that guests are told about, by name
	created   map[uint32]int      // by client id: bytes of cached objects that it created

	// Cached objects of types with the flag cleanup, by the client id that updated them last.
	owned map[uint32]map[*object]*topic

	published publishedRules

	lastLearned *schema.Type // what the description is called that is handled

	receivedFrames, receivedBytes uint64
	sentFrames, sentBytes         uint64
	userTypes, objects            int
	cacheBytes                    int

	batch batch // of the goroutine that has the lock
}

// maxWork is how much is done in a batch at least before others get the lock, in transmissions queued
// or steps that take as long: about a millisecond.
const maxWork = 16384

// batch is what lives as long as the lock is held: the time, buffers, and guests to be written to.
type batch struct {
	now          value.Timepoint
	work         int
	layout       dynamic.Layout // of the instance that is handled
	oldLayout    dynamic.Layout // of a stored one
	mergedLayout dynamic.Layout // of what they make
	instance     []byte
	selected     []byte
	key          []byte
	merged       []byte
	previous     []byte
	own          []byte
	frames       [numFormats][]byte
	dirty        []*guest // whose queues are locked
	relieved     int64    // memory up to which no other guest need be disconnected
}

// maxBuffer is how large the buffers of a batch may be that are kept for the next one.
const maxBuffer = 1 << 20

// trim gives up large buffers.
func (b *batch) trim() {
	for _, buf := range [...]*[]byte{
		&b.instance, &b.selected, &b.key, &b.merged, &b.previous, &b.own, &b.frames[0], &b.frames[1],
	} {
		if cap(*buf) > maxBuffer {
			*buf = nil
		}
	}
}

// New returns a Broker without listeners.
func New(o Options) *Broker {
	if o.Name == "" {
		o.Name = "dotsd"
	}
	setDefault(&o.SocketMode, sockfile.DefaultMode)
	o.Limits.setDefaults()
	b := &Broker{
		options: o, rules: o.Auth.compile(), started: time.Now(), registry: system.NewRegistry(),
		stop: make(chan struct{}), listeners: map[io.Closer]struct{}{}, guests: map[uint32]*guest{},
		lastID: ownID, topics: map[string]*topic{}, unlisted: map[*guest]struct{}{}, refs: map[uint32]int{},
		nonce: auth.Nonce, internals: map[string]struct{}{}, owned: map[uint32]map[*object]*topic{},
		created: map[uint32]int{}, published: publishedRules{accept: true},
	}
	b.handshakes = connlimit.New(max(minHandshakes, min(o.Limits.Guests, maxHandshakes)))
	internal := 0
	for _, t := range b.registry.Types() {
		internal++
		b.internals[t.Name] = struct{}{}
		if t.Struct != nil {
			b.addTopic(t.Name).describe(t.Struct)
		}
	}
	b.registry.Limit(internal+o.Limits.Types, o.Limits.TypeBytes)
	b.running.Go(b.tick)
	return b
}

// lock takes the lock for a batch.
func (b *Broker) lock() {
	b.mu.Lock()
	b.batch.now, b.batch.work, b.batch.relieved = value.TimepointOf(time.Now()), 0, 0
}

// unlock releases the lock and writes what was queued.
func (b *Broker) unlock(writers []*guest) []*guest {
	writers = writers[:0]
	b.publishGroups(recordInterval)
	for _, g := range b.batch.dirty {
		g.filling = false
		if !g.writing && !g.broken && !g.queueEmpty() {
			g.writing = true
			writers = append(writers, g)
		}
		g.queueMu.Unlock()
	}
	clear(b.batch.dirty)
	b.batch.dirty = b.batch.dirty[:0]
	b.batch.trim()
	b.mu.Unlock()
	for i, g := range writers {
		g.write()
		writers[i] = nil
	}
	return writers[:0]
}

// tick does what is done regularly, until Shutdown.
func (b *Broker) tick() {
	ticker := time.NewTicker(time.Second) // how often the status may be published
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-b.stop:
			return
		case <-ticker.C:
		}
		b.lock()
		b.publishStatus()
		b.publishGroups(0)
		b.unlock(nil)
		if n%reportSeconds == 0 {
			b.publishReports()
		}
		if n%10 == 0 {
			b.sweep()
		}
	}
}

// Shutdown closes the listeners and says goodbye to the guests. It returns when all connections
// are closed; when the context ends they are closed at once, and its error is returned.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
	}
	for l := range b.listeners {
		_ = l.Close()
	}
	for _, g := range b.guests {
		b.sayGoodbye(g)
	}
	b.unlock(nil)
	done := make(chan struct{})
	go func() {
		b.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	for _, g := range b.guests {
		g.abort()
	}
	b.mu.Unlock()
	<-done
	return ctx.Err()
}

// isUnix reports whether a connection is a Unix socket.
func isUnix(a net.Addr) bool { return a != nil && a.Network() == "unix" }
