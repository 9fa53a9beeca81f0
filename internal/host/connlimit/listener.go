package connlimit

import (
	"errors"
	"net"
	"sync"
	"time"

	"correlator/internal/host/share"
)

// backoff delays after an error of accept, such as a lack of descriptors or memory, which may pass at any time.
var backoff = share.Backoff{Min: 5 * time.Millisecond, Max: time.Second}

// Listener accepts connections into a table. It is safe for concurrent use.
type Listener struct {
	net.Listener
	Failed  func(error)    // is called with each error of accept, if not nil
	Refused func(net.Addr) // is called with the peer of each connection without room, if not nil

	table   *Table
	closing chan struct{}
	once    sync.Once // closes it

	mu       sync.Mutex
	failures Failures
}

// Failures are errors because of which clients could not connect.
type Failures struct {
	Count uint64
	Last  string
	At    time.Time // of the last one
}

// NewListener returns a Listener that accepts what another one does. The caller must close it.
func NewListener(l net.Listener, t *Table) *Listener {
	return &Listener{Listener: l, table: t, closing: make(chan struct{})}
}

// Serve calls f with each connection until Close, and then returns [net.ErrClosed].
func (l *Listener) Serve(f func(*Conn)) error {
	for {
		c, err := l.AcceptConn()
		if err != nil {
			return err
		}
		f(c)
	}
}

// Accept implements [net.Listener] by AcceptConn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn waits for a connection for which the table has room or makes it. One that is refused is
// closed at once, so that its client need not wait for a timeout. After an error it tries again, at
// first soon: it fails only after Close, with [net.ErrClosed].
func (l *Listener) AcceptConn() (*Conn, error) {
	delay := time.Duration(0)
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			delay = 0
			peer := raw.RemoteAddr()
			if c := l.table.Add(raw); c != nil {
				return c, nil
			}
			if l.Refused != nil {
				l.Refused(peer)
			}
			continue
		}
		if l.isClosing() || errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		l.Report(err)
		if l.Failed != nil {
			l.Failed(err)
		}
		delay = backoff.Next(delay)
		select {
		case <-time.After(delay):
		case <-l.closing:
			return nil, net.ErrClosed
		}
	}
}

func (l *Listener) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// Report counts an error because of which a client could not connect. Accept reports its own.
func (l *Listener) Report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = Failures{l.failures.Count + 1, err.Error(), time.Now()}
}

// Failures returns what was reported.
func (l *Listener) Failures() Failures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures
}

// Close ends Accept. Connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closing) })
	return l.Listener.Close()
}
