package naming

import (
	"time"

	"correlator/profile"
)

// This file is about how long names are kept.

// forget forgets processes that were not sampled for long, and code that the kernel may have replaced.
func (n *Namer) forget(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for resource, p := range n.processes {
		if now.Sub(p.used) < idleTime || p.asking || len(p.held) > 0 {
			continue
		}
		n.drop(p)
		delete(n.processes, resource)
		if p.owner.processes--; p.owner.processes == 0 {
			delete(n.owners, resource.Owner)
		}
	}
	if now.Sub(n.forgotten) > kernelAge {
		n.forgotten = now
		n.dropFile(n.kernel, codeID)
	}
}

// drop forgets the names of a process.
func (n *Namer) drop(p *process) {
	for id := range p.names {
		n.dropFile(p, id)
	}
}

// dropFile forgets the names in one file of a process.
func (n *Namer) dropFile(p *process, id profile.FileID) {
	names := p.names[id]
	if names == nil {
		return
	}
	for i := range *names {
		n.grow(p, -(*names)[i].bytes())
	}
	delete(p.names, id)
	clear(p.complete)
	if p == n.kernel {
		for _, p := range n.processes {
			clear(p.complete)
		}
	}
}

func (n *Namer) grow(p *process, bytes int) {
	p.bytes += bytes
	p.owner.bytes += bytes
	n.bytes += bytes
	n.counters.Bytes.Add(int64(bytes))
}

// bound drops the names of processes that have most, of owners who have most, while there are too many.
func (n *Namer) bound() {
	for n.bytes > maxBytes {
		most := n.kernel
		for _, p := range n.processes {
			if o := most.owner; p.owner.bytes > o.bytes || p.owner == o && p.bytes > most.bytes {
				most = p
			}
		}
		n.drop(most)
		n.counters.Evicted.Add(1)
	}
}
