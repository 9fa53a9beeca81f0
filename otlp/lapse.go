package otlp

import "time"

// lapse finds the destinations that have been closed, and have taken nothing, for longer than a batch may wait
// there. What such a one holds would expire rather than arrive, while received data that it has no room for is
// refused for all others too. So it has lapsed: until it takes something,
//
//   - nothing is acknowledged for it: whatever it holds makes room, the oldest first, and before others lose something;
//   - received data is not refused for its sake, unless nobody else would get it.
//
// Without a maximum age a batch may arrive at any time, and a destination never lapses.
func (c *scheduler) lapse(now time.Time) {
	for _, p := range c.destinations {
		closed := !p.failing.IsZero() && p.state() != StateOpen
		if p.lapsed || !closed || p.conf.MaxAge == 0 || now.Sub(p.failing) <= p.conf.MaxAge {
			continue
		}
		p.lapsed = true
		for e := p.queue.front; e != nil; e = e.next {
			if e.acknowledged {
				e.acknowledged = false
				p.unpin(e.batch)
			}
		}
	}
}
