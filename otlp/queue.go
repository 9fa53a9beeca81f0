package otlp

// entry is a batch in one destination's queue, or in flight to it.
type entry struct {
	batch *Batch
	seq   uint64 // order of arrival

	// acknowledged marks received data whose sender was told that we have it. Our own data never
	// evicts it.
	acknowledged bool

	attempt  attempt // the one in flight
	attempts int
	// doubtful: an attempt ended without an answer, so the receiver may have the batch. resent: the
	// batch was counted as a possible duplicate.
	doubtful, resent bool

	prev, next *entry
}

// queue holds the batches that wait for one destination, in order of arrival. It is not safe for
// concurrent use.
type queue struct {
	front, back *entry
	length      int
}

// insert puts an entry in its place by seq: new ones at the back, those that return from a failed
// attempt at or near the front.
func (q *queue) insert(e *entry) {
	next := (*entry)(nil)
	if q.back != nil && q.back.seq > e.seq {
		for next = q.front; next.seq < e.seq; next = next.next {
		}
	}
	e.next = next
	if next != nil {
		e.prev, next.prev = next.prev, e
	} else {
		e.prev, q.back = q.back, e
	}
	if e.prev != nil {
		e.prev.next = e
	} else {
		q.front = e
	}
	q.length++
}

func (q *queue) remove(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.front = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.back = e.prev
	}
	e.prev, e.next = nil, nil
	q.length--
}

// oldest returns the oldest entry that is, or is not, acknowledged; nil if there is none.
func (q *queue) oldest(acknowledged bool) *entry {
	e := q.front
	for e != nil && e.acknowledged != acknowledged {
		e = e.next
	}
	return e
}
