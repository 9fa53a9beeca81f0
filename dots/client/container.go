package client

import (
	"fmt"
	"iter"
	"sync"
	"unsafe"

	"correlator/dots/frame"
	"correlator/dots/value"
)

// container holds the objects of a type. Only the reading goroutine changes it.
type container[T any, K comparable] struct {
	mu      sync.Mutex
	objects map[K]*entry[T]
	bytes   int

	// Of the reading goroutine. Entries are allocated in blocks, which live as long as one of their
	// entries; therefore those of removed objects are used again.
	block    []entry[T]
	free     []*entry[T]
	presized bool
}

// entry is an object in a container.
type entry[T any] struct {
	value T
	clone Clone
	size  int // encoded; updates are added, so that it may be more
	exact int // size above which it is determined anew
}

// Get returns a copy of the object with a key. Its slices belong to the container.
func (s *Subscription[T, K]) Get(key K) (object T, ok bool) {
	object, _, ok = s.GetClone(key)
	return object, ok
}

// GetClone is Get, and tells where the object came from.
func (s *Subscription[T, K]) GetClone(key K) (object T, clone Clone, ok bool) {
	c := &s.container
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.objects[key]
	if e == nil {
		return object, clone, false
	}
	return e.value, e.clone, true
}

// Len returns the number of objects.
func (s *Subscription[T, K]) Len() int {
	s.container.mu.Lock()
	defer s.container.mu.Unlock()
	return len(s.container.objects)
}

// All iterates over copies of the objects that were in the container when the iteration began, in
// no particular order.
func (s *Subscription[T, K]) All() iter.Seq2[K, T] {
	return func(yield func(K, T) bool) {
		c := &s.container
		c.mu.Lock()
		keys := make([]K, 0, len(c.objects))
		objects := make([]T, 0, len(c.objects))
		for key, e := range c.objects {
			keys = append(keys, key)
			objects = append(objects, e.value)
		}
		c.mu.Unlock()
		for i := range keys {
			if !yield(keys[i], objects[i]) {
				return
			}
		}
	}
}

// table is how a transmission is applied to a container.
type table[O, T any, K comparable] struct {
	*container[T, K]
	c       *Client
	name    string
	each    int // bytes that an object takes beside what is encoded
	event   Event[O]
	handler func(*Event[O])
	// merge replaces the properties in a set, by what the other object has or lacks.
	merge func(into, from *T, props value.PropertySet) error
	// size returns the encoded size.
	size func(*T) int
}

// entryBytes is what a map and the allocator add to an object.
const entryBytes = 32

// blockEntries is how many entries are allocated together at most, unless a replay is announced.
const blockEntries = 32

// presizeBytes is what a Client allocates for objects that a broker announces, and may never send:
// enough for 100,000 small ones.
const presizeBytes = 16 << 20

// presize allocates what the objects of a replay need, so that the map is not made anew while they
// arrive, and the garbage collector runs once instead of with each doubling. It does so once for a
// container, as far as budget goes, from which it takes the bytes. The caller holds mu.
func (c *container[T, K]) presize(announced uint32, budget *int) {
	if c.presized || len(c.objects) > 0 {
		return
	}
	c.presized = true
	var slot struct {
		key   K
		entry *entry[T]
	}
	each := int(unsafe.Sizeof(entry[T]{}) + 2*unsafe.Sizeof(slot)) // a map is between 7/16 and 7/8 full
	n := int(min(int64(announced)+1, int64(*budget/each)))
	if n <= blockEntries {
		return
	}
	*budget -= n * each
	c.objects = make(map[K]*entry[T], n)
	c.block = make([]entry[T], n)
}

// newEntry returns an entry that is zero.
func (c *container[T, K]) newEntry() *entry[T] {
	if n := len(c.free); n > 0 {
		e := c.free[n-1]
		c.free = c.free[:n-1]
		return e
	}
	if len(c.block) == 0 {
		c.block = make([]entry[T], max(1, min(len(c.objects)/4, blockEntries)))
	}
	e := &c.block[0]
	c.block = c.block[1:]
	return e
}

// freeEntry takes back the entry of an object that was removed.
func (c *container[T, K]) freeEntry(e *entry[T]) {
	*e = entry[T]{}
	c.free = append(c.free, e)
}

// object converts a pointer to an object to the type that has its methods, which is the same.
func object[O, T any](x *T) O { return any(x).(O) }

// apply applies a transmission, and calls the handler.
func (t *table[O, T, K]) apply(h *frame.Header, key K, x *T, size int) error {
	ev := &t.event
	e, known := t.objects[key]
	op := Update
	switch {
	case h.RemoveObj && !known:
		return nil // not an event
	case h.RemoveObj:
		op = Remove
	case !known:
		op = Create
		t.each = int(unsafe.Sizeof(*e)+unsafe.Sizeof(key)) + entryBytes
		if err := t.checkRoom(1, size+t.each); err != nil {
			return err
		}
	}
	t.mu.Lock()
	if op == Create {
		e = t.create(h, key, x, size)
	}
	err := t.change(op, e, h, key, x, size)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	if t.handler != nil {
		ev.Operation, ev.Own, ev.Header = op, h.Sender == t.c.id.Load(), h
		ev.Transmitted, ev.Updated, ev.Clone = object[O](x), object[O](&e.value), e.clone
		t.handler(ev)
	}
	if op == Remove {
		t.freeEntry(e)
	}
	return nil
}

// create adds an object. The caller holds mu.
func (t *table[O, T, K]) create(h *frame.Header, key K, x *T, size int) *entry[T] {
	if h.Set&frame.FromCache != 0 {
		t.presize(h.FromCache, &t.c.in.presize)
	}
	e := t.newEntry()
	e.value, e.exact = *x, 2*size+64
	t.objects[key] = e
	t.bytes += t.each
	return e
}

// change changes the container. The caller holds mu.
func (t *table[O, T, K]) change(op Operation, e *entry[T], h *frame.Header, key K, x *T, size int) error {
	if op != Create {
		if err := t.merge(&e.value, x, h.Attributes); err != nil {
			return err
		}
	}
	e.clone.update(op, h, t.c.in.now)
	if op == Remove {
		delete(t.objects, key)
		t.bytes -= e.size + t.each
		return nil
	}
	before := e.size
	if e.size += size; e.size > e.exact {
		e.size = t.size(&e.value)
		e.exact = 2*e.size + 64
	}
	t.bytes += e.size - before
	return t.checkRoom(0, 0)
}

// checkRoom returns an error if the container would exceed its bounds with more objects and bytes.
func (t *table[O, T, K]) checkRoom(objects, bytes int) error {
	o := &t.c.options
	if len(t.objects)+objects > o.Objects || t.bytes+bytes > o.ObjectBytes {
		return fmt.Errorf("%w: %s: %d objects, %d bytes", ErrTooLarge, t.name, len(t.objects), t.bytes)
	}
	return nil
}

// uncached calls the handler for an object that is not kept.
func (t *table[O, T, K]) uncached(h *frame.Header, x *T) {
	if t.handler == nil {
		return
	}
	ev := &t.event
	ev.Operation = Create
	if h.RemoveObj {
		ev.Operation = Remove
	}
	o := object[O](x)
	ev.Own, ev.Header, ev.Transmitted, ev.Updated = h.Sender == t.c.id.Load(), h, o, o
	ev.Clone.update(Create, h, t.c.in.now)
	t.handler(ev)
}
