package otlp

// harm is what it does to a destination to lose a batch that makes room for another.
type harm uint8

const (
	harmNone   harm = iota // it has lapsed
	harmFair               // it holds more than its share of the budget
	harmUnfair             // it does not
)

// harm is what it does to a destination to lose something now.
func (p *destinationState) harm() harm {
	switch {
	case p.lapsed:
		return harmNone
	case p.bytes > p.scheduler.budget/int64(len(p.scheduler.destinations)):
		return harmFair
	default:
		return harmUnfair
	}
}

// makeRoom drops batches until that many bytes fit into the budget: for received data those that only
// destinations which have lapsed hold, for our own any. It is false if there is nothing left to drop.
func (c *scheduler) makeRoom(size int64, own bool) bool {
	worst := harmNone
	if own {
		worst = harmUnfair
	}
	for c.used+size > c.budget {
		b := c.expendable(worst)
		if b == nil {
			return false
		}
		for len(b.holders) > 0 { // as long as one of them has it, nothing is gained
			e := b.holders[0]
			e.state.discard(e, QueueFull)
		}
	}
	return true
}

// expendable is the batch that is dropped next, which does at most that harm: that of all its destinations to
// which it does most. Of those that do least it is the oldest of the destination that holds most, because one that
// is slow should lose its own, not that of others.
func (c *scheduler) expendable(worst harm) *Batch {
	for harm := harmNone; harm <= worst; harm++ {
		such := func(e *entry) bool { return e.batch.pins == 0 && e.batch.harm() <= harm }
		var (
			found *Batch
			most  int64
		)
		for _, p := range c.destinations {
			if p.bytes <= most || p.harm() > harm {
				continue
			}
			if e := p.queue.first(such); e != nil {
				found, most = e.batch, p.bytes
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// harm is what it does to the destinations that hold a batch to lose it: the worst counts.
func (b *Batch) harm() (worst harm) {
	for _, e := range b.holders {
		worst = max(worst, e.state.harm())
	}
	return worst
}
