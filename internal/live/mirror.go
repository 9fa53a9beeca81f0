package live

import (
	"bytes"

	"correlator/dots/broker"
	"correlator/dots/value"
)

// object is a pointer to a generated struct.
type object[T any, K comparable] interface {
	*T
	broker.Instance
	Key() K
}

// mirror knows what objects of a type are on a bus, so that only what has changed is published.
type mirror[T any, K comparable, P object[T, K]] struct {
	known   map[K]*entry[T]
	round   uint64 // grows with every diff
	pending []pendingChange[K]
	data    []byte // encoding of an object
	old     []byte // encoding of one property
}

// entry is an object that was published.
type entry[T any] struct {
	object *T
	data   []byte // its encoding
	round  uint64 // that it was last in
	unsure bool   // publishing failed: all properties are published again
}

// pendingChange is a change whose outcome is not known.
type pendingChange[K comparable] struct {
	key   K
	index int // among the changes
}

// diff appends the changes that make the objects on the bus those given. Of objects of the same key the
// first one counts. The next call must be settle.
func (m *mirror[T, K, P]) diff(changes []broker.Change, objects []T) []broker.Change {
	if m.known == nil {
		m.known = make(map[K]*entry[T])
	}
	m.round++
	for i := range objects {
		if c, ok := m.change(&objects[i]); ok {
			m.pending = append(m.pending, pendingChange[K]{P(&objects[i]).Key(), len(changes)})
			changes = append(changes, c)
		}
	}
	for key, e := range m.known {
		if e.round != m.round {
			m.pending = append(m.pending, pendingChange[K]{key, len(changes)})
			changes = append(changes, broker.Change{Object: P(e.object), Remove: true})
		}
	}
	return changes
}

// change returns what is to be published of an object, if anything.
func (m *mirror[T, K, P]) change(x *T) (c broker.Change, ok bool) {
	key := P(x).Key()
	e := m.known[key]
	if e == nil {
		e = &entry[T]{unsure: true}
		m.known[key] = e
	} else if e.round == m.round {
		return c, false
	}
	e.round = m.round
	m.data = P(x).AppendInstance(m.data[:0], P(x).Valid())
	props := P(x).Descriptor().All()
	if !e.unsure {
		if bytes.Equal(m.data, e.data) {
			return c, false
		}
		props = m.changed(P(e.object), P(x))
	}
	kept := *x // not the whole array of objects
	e.object, e.data = &kept, append(e.data[:0], m.data...)
	return broker.Change{Object: P(&kept), Properties: props}, true
}

// changed returns the properties in which two objects differ.
func (m *mirror[T, K, P]) changed(before, after P) (props value.PropertySet) {
	all := before.Valid() | after.Valid()
	for tag := uint32(1); tag < 32; tag++ {
		if !all.Has(tag) {
			continue
		}
		m.old = before.AppendInstance(m.old[:0], 1<<tag)
		m.data = after.AppendInstance(m.data[:0], 1<<tag)
		if !bytes.Equal(m.old, m.data) {
			props |= 1 << tag
		}
	}
	m.data = after.AppendInstance(m.data[:0], after.Valid())
	return props
}

// settle takes account of what has become of the changes of the last diff. What was refused is tried
// again.
func (m *mirror[T, K, P]) settle(changes []broker.Change) {
	for _, p := range m.pending {
		c, e := &changes[p.index], m.known[p.key]
		if e.unsure = c.Err != nil; !e.unsure && c.Remove {
			delete(m.known, p.key)
		}
	}
	m.pending = m.pending[:0]
}
