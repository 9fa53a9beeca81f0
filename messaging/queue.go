package messaging

const (
	// maxQueued bounds the keys that wait for one receiver. With a kernel queue of the default
	// length a receiver takes 550 messages a second, 165 within the default delay; so this is
	// enough for a delay of 7 s, or a kernel queue of 270. More would be late before they were
	// sent. At this size a queue takes 1 MB.
	maxQueued = 4096

	// maxParts is the resolution of the ages of aggregated samples: an eighth of the delay.
	maxParts = 8
)

// part is a share of a key's samples, of about the same age.
type part struct {
	sampledNs int64 // when the oldest was taken
	count     uint64
}

// item is the queued samples of one key by age, oldest first. A part has the age of its oldest
// sample, so no sample is considered younger than it is.
type item struct {
	key   Key
	place int32 // in queue.heap
	n     int32 // number of parts, at least 1 while in the queue
	parts [maxParts]part
}

// add adds samples to a part that began at most windowNs before, or else as a new part. Samples
// that are added in the order of their age find a free part, unless the oldest is more than
// maxParts windows old. Otherwise they join an older one.
func (it *item) add(sampledNs int64, count uint64, windowNs int64) {
	at := it.n // the parts before are older
	for at > 0 && it.parts[at-1].sampledNs > sampledNs {
		at--
	}
	if at > 0 && (sampledNs-it.parts[at-1].sampledNs <= windowNs || it.n == maxParts) {
		it.parts[at-1].count += count
		return
	}
	if it.n == maxParts { // older than all others: the first part gets its age
		it.parts[0].sampledNs = sampledNs
		it.parts[0].count += count
		return
	}
	copy(it.parts[at+1:it.n+1], it.parts[at:it.n])
	it.parts[at] = part{sampledNs: sampledNs, count: count}
	it.n++
}

// take moves up to limit samples to dst, oldest first.
func (it *item) take(dst *item, limit uint64) {
	dst.key, dst.n = it.key, 0
	for it.n > 0 && limit > 0 {
		moved := it.parts[0]
		moved.count = min(moved.count, limit)
		limit -= moved.count
		dst.parts[dst.n] = moved
		dst.n++
		if it.parts[0].count -= moved.count; it.parts[0].count == 0 {
			it.dropFirst()
		}
	}
}

func (it *item) dropFirst() {
	it.n--
	copy(it.parts[:it.n], it.parts[1:it.n+1])
}

func (it *item) count() uint64 {
	var sum uint64
	for _, p := range it.parts[:it.n] {
		sum += p.count
	}
	return sum
}

// queue holds the samples that wait for one receiver, aggregated by key. Its head is the key with
// the oldest sample. It is not safe for concurrent use.
type queue struct {
	items []item        // in no order
	free  []int32       // unused items
	heap  []int32       // used items: a binary heap, oldest sample first
	byKey map[Key]int32 // used items
	taken item          // being sent: not in the heap, and n = 0 when there is none
	total uint64        // samples in the heap and in taken
}

func newQueue() *queue { return &queue{byKey: make(map[Key]int32)} }

// waiting reports whether there is a head.
func (q *queue) waiting() bool { return len(q.heap) > 0 }

// oldestNs returns when the oldest sample of the head was taken.
func (q *queue) oldestNs() int64 { return q.items[q.heap[0]].parts[0].sampledNs }

// add returns false when the key is new and the queue is full.
func (q *queue) add(key Key, count uint64, sampledNs, windowNs int64) bool {
	index, known := q.byKey[key]
	if !known {
		if len(q.heap) >= maxQueued {
			return false
		}
		index = q.place(key)
	}
	it := &q.items[index]
	it.add(sampledNs, count, windowNs)
	q.total += count
	q.up(it.place)
	return true
}

// place adds an item for key at the end of the heap.
func (q *queue) place(key Key) int32 {
	var index int32
	if last := len(q.free) - 1; last >= 0 {
		index, q.free = q.free[last], q.free[:last]
	} else {
		index = int32(len(q.items))
		q.items = append(q.items, item{})
	}
	it := &q.items[index]
	it.key, it.place, it.n = key, int32(len(q.heap)), 0
	q.heap = append(q.heap, index)
	q.byKey[key] = index
	return index
}

// take moves up to limit samples of the head to taken. One of finishTaken and requeue must follow.
func (q *queue) take(limit uint64) {
	q.items[q.heap[0]].take(&q.taken, limit)
	q.fixHead()
}

// finishTaken removes what was taken and returns how many samples it was.
func (q *queue) finishTaken() uint64 {
	count := q.taken.count()
	q.taken.n = 0
	q.total -= count
	return count
}

// requeue puts what was taken back into the heap, added to what came meanwhile.
func (q *queue) requeue(windowNs int64) {
	index, known := q.byKey[q.taken.key]
	if !known {
		index = q.place(q.taken.key) // may exceed maxQueued by this one
	}
	it := &q.items[index]
	for _, p := range q.taken.parts[:q.taken.n] {
		it.add(p.sampledNs, p.count, windowNs)
	}
	q.taken.n = 0
	q.up(it.place)
}

// expire drops the parts whose oldest sample was taken at or before limitNs, and returns how many
// samples they held.
func (q *queue) expire(limitNs int64) uint64 {
	var dropped uint64
	for q.waiting() && q.oldestNs() <= limitNs {
		it := &q.items[q.heap[0]]
		dropped += it.parts[0].count
		it.dropFirst()
		q.fixHead()
	}
	q.total -= dropped
	return dropped
}

// fixHead restores the heap after the head has lost its oldest part, or removes the head when that
// was its last.
func (q *queue) fixHead() {
	index := q.heap[0]
	if q.items[index].n == 0 {
		last := len(q.heap) - 1
		delete(q.byKey, q.items[index].key)
		q.free = append(q.free, index)
		q.heap[0] = q.heap[last]
		q.items[q.heap[0]].place = 0
		q.heap = q.heap[:last]
	}
	q.down(0)
}

func (q *queue) less(a, b int32) bool {
	return q.items[q.heap[a]].parts[0].sampledNs < q.items[q.heap[b]].parts[0].sampledNs
}

func (q *queue) swap(a, b int32) {
	q.heap[a], q.heap[b] = q.heap[b], q.heap[a]
	q.items[q.heap[a]].place = a
	q.items[q.heap[b]].place = b
}

func (q *queue) up(place int32) {
	for place > 0 {
		parent := (place - 1) / 2
		if !q.less(place, parent) {
			return
		}
		q.swap(place, parent)
		place = parent
	}
}

func (q *queue) down(place int32) {
	for {
		first := place
		for child := 2*place + 1; child <= 2*place+2 && int(child) < len(q.heap); child++ {
			if q.less(child, first) {
				first = child
			}
		}
		if first == place {
			return
		}
		q.swap(place, first)
		place = first
	}
}
