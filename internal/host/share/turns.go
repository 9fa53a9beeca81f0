package share

import "slices"

// Turns is a queue in which keys take turns: the next element is the first one of the key that was
// served longest ago, or has waited longest since it had none. So a key waits for one element of each
// other key at most, however many those have. The elements of a key keep their order. How many there
// may be is up to the caller, for instance with a [Budget].
//
// A Turns is not safe for concurrent use: the caller holds a lock. Push and Pop take constant time,
// but for moving the key's other elements up; PopFunc looks at what it skips, and Remove at the keys
// and the elements of one. The zero value is an empty queue.
type Turns[K comparable, T any] struct {
	keys        map[K]*turn[K, T]
	first, last *turn[K, T] // in the order of their turns
	length      int
	spare       *turn[K, T] // that of the last key without elements: saves allocations
}

// turn is a key that has elements.
type turn[K comparable, T any] struct {
	key      K
	elements []T
	next     *turn[K, T]
}

// Push adds an element behind those of its key. A key that had none gets its turn after all others.
func (q *Turns[K, T]) Push(key K, element T) {
	t := q.keys[key]
	if t == nil {
		if t, q.spare = q.spare, nil; t == nil {
			t = new(turn[K, T])
		}
		t.key = key
		if q.keys == nil {
			q.keys = make(map[K]*turn[K, T])
		}
		q.keys[key] = t
		q.append(t)
	}
	t.elements = append(t.elements, element)
	q.length++
}

// Pop removes and returns the next element, whose key has its next turn after all others. It returns
// false if there is none.
func (q *Turns[K, T]) Pop() (key K, element T, ok bool) { return q.PopFunc(nil, nil) }

// PopFunc is like Pop, but skips keys and elements for which a function returns false; a function that
// is nil returns true for all. What is skipped keeps its turn, and its place in it.
func (q *Turns[K, T]) PopFunc(may func(K) bool, is func(T) bool) (key K, element T, ok bool) {
	var before *turn[K, T]
	for t := q.first; t != nil; before, t = t, t.next {
		if may != nil && !may(t.key) {
			continue
		}
		at := 0
		if is != nil {
			at = slices.IndexFunc(t.elements, is)
		}
		if at < 0 {
			continue
		}
		key, element = t.key, t.elements[at]
		q.unlink(before, t)
		if q.delete(t, at); len(t.elements) > 0 {
			q.append(t)
		}
		return key, element, true
	}
	return key, element, false
}

// Remove removes the first element of a key for which is returns true, and reports whether there was
// one. The turn of the key stays the same.
func (q *Turns[K, T]) Remove(key K, is func(T) bool) bool {
	t := q.keys[key]
	if t == nil {
		return false
	}
	at := slices.IndexFunc(t.elements, is)
	if at < 0 {
		return false
	}
	if len(t.elements) == 1 {
		var before *turn[K, T]
		for other := q.first; other != t; other = other.next {
			before = other
		}
		q.unlink(before, t)
	}
	q.delete(t, at)
	return true
}

// Len returns the number of elements.
func (q *Turns[K, T]) Len() int { return q.length }

// Keys returns the number of keys that have elements.
func (q *Turns[K, T]) Keys() int { return len(q.keys) }

// Waiting returns the number of elements of a key.
func (q *Turns[K, T]) Waiting(key K) int {
	if t := q.keys[key]; t != nil {
		return len(t.elements)
	}
	return 0
}

func (q *Turns[K, T]) append(t *turn[K, T]) {
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
}

// unlink removes t, which is behind before, from the order of turns.
func (q *Turns[K, T]) unlink(before, t *turn[K, T]) {
	if before == nil {
		q.first = t.next
	} else {
		before.next = t.next
	}
	if q.last == t {
		q.last = before
	}
	t.next = nil
}

// delete removes an element, and its key with the last one.
func (q *Turns[K, T]) delete(t *turn[K, T], at int) {
	t.elements = slices.Delete(t.elements, at, at+1)
	if q.length--; len(t.elements) == 0 {
		delete(q.keys, t.key)
		q.spare = t
	}
}
