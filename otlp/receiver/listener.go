package receiver

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Waits after an error of accept: of a lack of descriptors or memory, which others may end at any time.
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

// listener is a net.Listener with a limited number of connections. Accept fails only after Close.
type listener struct {
	net.Listener
	closing chan struct{}
	once    sync.Once // closes it

	mu      sync.Mutex
	conns   map[*conn]struct{}
	counted connCounts // but for open
}

// connCounts is what there is to say of connections.
type connCounts struct {
	open    int
	refused uint64 // because of the limit
	failed  uint64 // errors of accept and of reading certificates
	err     string // the last of them
	errAt   time.Time
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, closing: make(chan struct{}), conns: make(map[*conn]struct{})}
}

// Accept closes connections that are too many at once: their clients come again, and hear of it now instead of
// at the end of a timeout.
func (l *listener) Accept() (net.Conn, error) {
	delay := minAcceptDelay
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			delay = minAcceptDelay
			if c := l.add(raw); c != nil {
				return c, nil
			}
			raw.Close()
			continue
		}
		if l.isClosing() {
			return nil, net.ErrClosed
		}
		l.report(err)
		select {
		case <-time.After(delay):
			delay = min(2*delay, maxAcceptDelay)
		case <-l.closing:
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// add is nil if there is no place for another connection.
func (l *listener) add(raw net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosing() {
		return nil
	}
	if len(l.conns) >= maxConnections {
		l.counted.refused++
		return nil
	}
	c := &conn{Conn: raw, listener: l}
	l.conns[c] = struct{}{}
	return c
}

// report keeps an error because of which somebody could not connect.
func (l *listener) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counted.failed++
	l.counted.err, l.counted.errAt = err.Error(), time.Now()
}

func (l *listener) counts() connCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counted
	c.open = len(l.conns)
	return c
}

// Close ends Accept. Connections stay, but those that were never heard of: they are no clients yet, and to wait
// for them would be to wait until their time for that is over.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closing) })
	err := l.Listener.Close()
	l.hangUp(func(c *conn) bool { return !c.heard.Load() })
	return err
}

// hangUp closes some connections.
func (l *listener) hangUp(which func(*conn) bool) {
	var all []*conn
	l.mu.Lock()
	for c := range l.conns {
		if which(c) {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	listener *listener
	heard    atomic.Bool // something came
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
