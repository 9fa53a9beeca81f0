package agent

import (
	"sync"

	"correlator/messaging"
)

// claims says for which process each socket is served: one only. A process that was forked, and has not
// executed another program, has a copy of all that its parent published; what it would be told, the
// parent would take for its own.
type claims struct {
	mu      sync.Mutex
	holders map[messaging.Identity]*process
}

// claim answers whether the socket is the process's. The oldest one that wants it gets it; one that
// held it before has to look.
func (c *claims) claim(socket messaging.Identity, p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := c.holders[socket]
	if holder != nil && holder != p {
		if holder.isOlder(p) {
			return false
		}
		holder.stir()
	}
	if c.holders == nil {
		c.holders = make(map[messaging.Identity]*process)
	}
	c.holders[socket] = p
	return true
}

func (c *claims) holds(socket messaging.Identity, p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holders[socket] == p
}

func (c *claims) release(socket messaging.Identity, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders[socket] == p {
		delete(c.holders, socket)
	}
}

// isOlder says whether the process started before another.
func (p *process) isOlder(other *process) bool {
	if p.id.StartTime != other.id.StartTime {
		return p.id.StartTime < other.id.StartTime
	}
	return p.id.PID < other.id.PID
}
