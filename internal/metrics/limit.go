package metrics

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// connLimiter limits the number of open connections. A further one replaces the connection that has
// been without a request for the longest time, so that clients that keep connections open lock
// nobody out.
type connLimiter struct {
	limit int

	mu   sync.Mutex
	open map[net.Conn]bool
	idle []net.Conn // those of open without a request, the oldest first
}

func newConnLimiter(limit int) *connLimiter {
	return &connLimiter{limit: limit, open: make(map[net.Conn]bool)}
}

// track is the ConnState of an http.Server, which calls it before it serves a new connection.
func (c *connLimiter) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = slices.DeleteFunc(c.idle, func(w net.Conn) bool { return w == conn })
	switch state {
	case http.StateNew:
		if len(c.open) >= c.limit && !c.closeOldest() {
			conn.Close() // all others have a request
			return
		}
		c.open[conn] = true
		c.idle = append(c.idle, conn)
	case http.StateIdle:
		if c.open[conn] { // not closed in the meantime
			c.idle = append(c.idle, conn)
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// closeOldest closes the connection that has been idle the longest. It returns false if none is
// idle.
func (c *connLimiter) closeOldest() bool {
	if len(c.idle) == 0 {
		return false
	}
	oldest := c.idle[0]
	c.idle = c.idle[1:]
	delete(c.open, oldest)
	oldest.Close()
	return true
}
