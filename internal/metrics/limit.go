package metrics

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// connections are those that are open: at most so many. For one more, that one is closed which has waited
// for its next request the longest, so whoever keeps connections open keeps nobody out.
type connections struct {
	most int

	mu      sync.Mutex
	open    map[net.Conn]bool
	waiting []net.Conn // those of open without a request, the oldest first
}

func limit(most int) *connections {
	return &connections{most: most, open: make(map[net.Conn]bool)}
}

// track is the ConnState of an http.Server, which calls it before it serves a new connection.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w net.Conn) bool { return w == conn })
	switch state {
	case http.StateNew:
		if len(c.open) >= c.most && !c.closeOldest() {
			conn.Close() // all the others are being answered
			return
		}
		c.open[conn] = true
		c.waiting = append(c.waiting, conn)
	case http.StateIdle:
		if c.open[conn] { // was not closed meanwhile
			c.waiting = append(c.waiting, conn)
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// closeOldest answers false when none waits.
func (c *connections) closeOldest() bool {
	if len(c.waiting) == 0 {
		return false
	}
	oldest := c.waiting[0]
	c.waiting = c.waiting[1:]
	delete(c.open, oldest)
	oldest.Close()
	return true
}
