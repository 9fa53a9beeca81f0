package otlp

// entry is a batch in one destination's queue, or in flight to it.
type entry struct {
	batch *Batch
	state *destinationState
	seq   uint64 // the order in which batches came

	// acknowledged: received data that was acknowledged upstream. It never makes room for other data.
	acknowledged bool

	attempt  attempt // of the attempt that is in flight
	attempts int
	// doubtful: an attempt ended without an answer, the receiver may have the batch. Resent says that the
	// batch was counted for it.
	doubtful, resent bool

	prev, next *entry
}

// queue is the batches that wait for one destination, in the order in which they came. It is not safe for
// concurrent use.
type queue struct {
	front, back *entry
	length      int
}

// insert puts an entry in its place by seq: new ones at the back, those that return from an attempt at, or
// near, the front.
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

// first is the oldest entry that is such, or nil.
func (q *queue) first(such func(*entry) bool) *entry {
	e := q.front
	for e != nil && !such(e) {
		e = e.next
	}
	return e
}
