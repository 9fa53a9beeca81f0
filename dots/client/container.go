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
	mu      sync.RWMutex
	objects map[K]*entry[T]
	bytes   int
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
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.objects[key]
	if e == nil {
		return object, clone, false
	}
	return e.value, e.clone, true
}

// Len returns the number of objects.
func (s *Subscription[T, K]) Len() int {
	s.container.mu.RLock()
	defer s.container.mu.RUnlock()
	return len(s.container.objects)
}

// All iterates over copies of the objects that were in the container when the iteration began, in
// no particular order.
func (s *Subscription[T, K]) All() iter.Seq2[K, T] {
	return func(yield func(K, T) bool) {
		c := &s.container
		c.mu.RLock()
		keys := make([]K, 0, len(c.objects))
		objects := make([]T, 0, len(c.objects))
		for key, e := range c.objects {
			keys = append(keys, key)
			objects = append(objects, e.value)
		}
		c.mu.RUnlock()
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
		e = &entry[T]{exact: 2*size + 64}
	}
	t.mu.Lock()
	err := t.change(op, e, h, key, x, size)
	t.mu.Unlock()
	if err != nil || t.handler == nil {
		return err
	}
	ev.Operation, ev.Own, ev.Header = op, h.Sender == t.c.id.Load(), h
	ev.Transmitted, ev.Updated, ev.Clone = object[O](x), object[O](&e.value), e.clone
	t.handler(ev)
	return nil
}

// change changes the container. The caller holds mu.
func (t *table[O, T, K]) change(op Operation, e *entry[T], h *frame.Header, key K, x *T, size int) error {
	if op == Create {
		e.value = *x
		t.objects[key] = e
		t.bytes += t.each
	} else if err := t.merge(&e.value, x, h.Attributes); err != nil {
		return err
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
