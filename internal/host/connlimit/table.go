// Package connlimit bounds the open connections of a server, and shares them among its peers: the
// users of a Unix socket, the addresses of a port. Whoever opens many connections, whatever it does
// with them, closes its own ones by that, and nobody else's.
package connlimit

import (
	"net"
	"slices"
	"sync"
	"time"
)

// Grace is the time for which a connection with a request is not closed for another one that its
// peer has no less right to. A request of an honest peer is over by then.
const Grace = time.Second

// Table holds the open connections of a server. It is safe for concurrent use.
type Table struct {
	limit int

	mu     sync.Mutex
	conns  []*Conn // in the order of Conn.since
	peers  map[Peer]*holder
	counts Counts // except Open
}

// Counts counts connections.
type Counts struct {
	Open     int
	Added    uint64 // open, closed or refused
	MadeRoom uint64 // closed so that another could be opened
	Refused  uint64 // closed at once, because none could be closed for them
}

// holder is a peer with connections.
type holder struct{ conns int }

// New returns a table of at most limit connections.
func New(limit int) *Table { return &Table{limit: limit, peers: make(map[Peer]*holder)} }

// Conn is a connection that counts until it is closed. It is idle until Begin.
type Conn struct {
	net.Conn
	table  *Table
	peer   Peer
	holder *holder

	requests int       // guarded by Table.mu, as all that follows
	since    time.Time // when it became idle, or busy
	closed   bool
	done     chan struct{} // closed with closed
}

// Add adds an idle connection. If there are too many, it closes one: of the peer that has the most,
// the one that has been idle the longest, or else, the one that has been busy the longest. If none
// may be closed for it, it closes raw and returns nil. It waits for nobody: the descriptor of one
// that is in use is closed after Add.
func (t *Table) Add(raw net.Conn) *Conn {
	c := &Conn{Conn: raw, table: t, peer: PeerOf(raw), since: time.Now(), done: make(chan struct{})}
	t.mu.Lock()
	t.counts.Added++
	c.holder = t.peers[c.peer]
	if c.holder == nil {
		c.holder = new(holder)
	}
	var victim *Conn
	if len(t.conns) >= t.limit {
		if victim = t.victim(c); victim == nil {
			t.counts.Refused++
			t.mu.Unlock()
			raw.Close()
			return nil
		}
		t.counts.MadeRoom++
		t.remove(victim)
	}
	c.holder.conns++
	t.peers[c.peer] = c.holder
	t.conns = append(t.conns, c)
	t.mu.Unlock()
	if victim != nil {
		go victim.Conn.Close() // waits until nobody uses the descriptor, such as a function of RawConn.Read
	}
	return c
}

// victim returns the connection to close for a new one, or nil. A peer loses one only to itself, or
// to a peer that has fewer. One with a request is closed only if it has had that for longer than
// Grace, or if its peer keeps more connections than the new one's even so.
func (t *Table) victim(c *Conn) *Conn {
	var best *Conn
	has := c.holder.conns
	for _, v := range t.conns {
		n := v.holder.conns
		if v.holder != c.holder && n <= has {
			continue
		}
		if v.requests > 0 && n <= has+1 && c.since.Sub(v.since) < Grace {
			continue
		}
		if best == nil || n > best.holder.conns ||
			n == best.holder.conns && v.requests == 0 && best.requests > 0 {
			best = v
		}
	}
	return best
}

// remove removes a connection that is not closed.
func (t *Table) remove(c *Conn) {
	c.closed = true
	close(c.done)
	t.conns = slices.DeleteFunc(t.conns, func(other *Conn) bool { return other == c })
	if c.holder.conns--; c.holder.conns == 0 {
		delete(t.peers, c.peer)
	}
}

// Counts returns the present counts.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	counts.Open = len(t.conns)
	return counts
}

// CloseAll closes all connections.
func (t *Table) CloseAll() {
	for _, c := range t.All() {
		c.Close()
	}
}

// All returns the open connections.
func (t *Table) All() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.conns)
}

// Peer returns who is at the other end.
func (c *Conn) Peer() Peer { return c.peer }

// Done is closed when the connection is, or was released.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Begin makes a connection busy until End has been called as many times as Begin.
func (c *Conn) Begin() { c.add(1) }

// End is the counterpart of Begin.
func (c *Conn) End() { c.add(-1) }

func (c *Conn) add(requests int) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	wasBusy := c.requests > 0
	c.requests += requests
	if c.closed || wasBusy == (c.requests > 0) {
		return
	}
	c.since = time.Now()
	t.conns = append(slices.DeleteFunc(t.conns, func(other *Conn) bool { return other == c }), c)
}

// Release takes the connection out of the table and leaves it open, as another limit is for it from
// now on. It returns false if it was closed before, or released.
func (c *Conn) Release() bool {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.closed {
		return false
	}
	t.remove(c)
	return true
}

// Close closes the connection. It may be called more than once.
func (c *Conn) Close() error {
	t := c.table
	t.mu.Lock()
	if !c.closed {
		t.remove(c)
	}
	t.mu.Unlock()
	return c.Conn.Close()
}
