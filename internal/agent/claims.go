package agent

import (
	"sync"

	"correlator/internal/target"
)

// claims says which process something belongs to that several show. One that was forked, and has not
// executed another program, has a copy of all that its parent published: it is no agent of its own, and
// what it would be told, the parent would take for its own. So both what is published and the socket
// that it leads to are one process's: the one's that started first.
type claims[K comparable] struct {
	mu      sync.Mutex
	holders map[K]*process
}

// claim answers whether the process gets it. One that had it before has to look.
func (c *claims[K]) claim(key K, p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := c.holders[key]
	if holder != nil && holder != p {
		if holder.isOlder(p) {
			return false
		}
		holder.stir()
	}
	if c.holders == nil {
		c.holders = make(map[K]*process)
	}
	c.holders[key] = p
	return true
}

func (c *claims[K]) holds(key K, p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holders[key] == p
}

func (c *claims[K]) release(key K, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders[key] == p {
		delete(c.holders, key)
	}
}

// isOlder says whether the process started before another.
func (p *process) isOlder(other *process) bool {
	if p.id.StartTime != other.id.StartTime {
		return p.id.StartTime < other.id.StartTime
	}
	return p.id.PID < other.id.PID
}

// isOriginal makes sure, after a look that has found something changed or not, that what is published is
// not a copy. A copy stays one, also when the original has ended: the socket may be another's by then.
func (p *process) isOriginal(changed bool) bool {
	if !changed && p.agent.originals.holds(p.claimed, p) {
		return true
	}
	original, err := p.target.Original()
	if err != nil {
		return true // which cannot be told; what comes next fails for the same reason
	}
	if original != p.claimed {
		p.unclaim()
	}
	if original == p.copied || !p.agent.originals.claim(original, p) {
		p.copied = original
		return false
	}
	p.claimed = original
	return true
}

// unclaim says that the process does not publish any more what it did.
func (p *process) unclaim() {
	p.agent.originals.release(p.claimed, p)
	p.claimed = target.Original{}
}
