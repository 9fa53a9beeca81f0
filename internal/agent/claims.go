package agent

import (
	"sync"

	"correlator/internal/target"
)

// claims says which process has published what. One that was forked, and has not executed another
// program, has a copy of all that its parent published: it is no agent of its own, and what it would be
// told, the parent would take for its own. The original is the one that started first.
type claims struct {
	mu      sync.Mutex
	holders map[target.Original]*process
}

// claim answers whether the process is the original. One that was taken for it before has to look.
func (c *claims) claim(original target.Original, p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := c.holders[original]
	if holder != nil && holder != p {
		if holder.isOlder(p) {
			return false
		}
		holder.stir()
	}
	if c.holders == nil {
		c.holders = make(map[target.Original]*process)
	}
	c.holders[original] = p
	return true
}

func (c *claims) release(original target.Original, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders[original] == p {
		delete(c.holders, original)
	}
}

// isOlder says whether the process started before another.
func (p *process) isOlder(other *process) bool {
	if p.id.StartTime != other.id.StartTime {
		return p.id.StartTime < other.id.StartTime
	}
	return p.id.PID < other.id.PID
}

func (c *claims) holds(original target.Original, p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holders[original] == p
}

// isOriginal makes sure, after a look that has found something changed or not, that what is published is
// not a copy. A copy stays one, also when the original has ended: the socket may be another's by then.
func (p *process) isOriginal(changed bool) bool {
	if !changed && p.agent.claims.holds(p.claimed, p) {
		return true
	}
	original, err := p.target.Original()
	if err != nil {
		return true // which cannot be told; what comes next fails for the same reason
	}
	if original != p.claimed {
		p.unclaim()
	}
	if original == p.copied || !p.agent.claims.claim(original, p) {
		p.copied = original
		return false
	}
	p.claimed = original
	return true
}

// unclaim says that the process does not publish any more what it did.
func (p *process) unclaim() {
	p.agent.claims.release(p.claimed, p)
	p.claimed = target.Original{}
}
