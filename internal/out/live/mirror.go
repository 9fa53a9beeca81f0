package live

import (
	"hash/maphash"
	"math/bits"

	"correlator/dots/broker"
	"correlator/dots/cbor"
	"correlator/dots/value"
)

// object is a pointer to a generated struct.
type object[T any, K comparable] interface {
	*T
	broker.Instance
	Key() K
	DecodeInstance(r *cbor.Reader)
}

// mirror knows what objects of a type are on a bus, so that only what has changed is published. Of each it
// keeps the key and hashes: the objects are in the bus's cache already.
type mirror[T any, K comparable, P object[T, K]] struct {
	known   map[K]*entry
	round   uint64 // grows with every diff
	seed    maphash.Seed
	pending []pendingChange[K]
	// versions are those of the objects of the next diff, if that is known; else hashes tell.
	versions []uint64
	data     []byte // encoding of an object or a property
}

// entry is an object that was published.
type entry struct {
	key     []byte // encoding of the key's properties
	version uint64
	hashes  []uint64 // of those of its properties, by ascending tag
	round   uint64   // that it was last in
	unsure  bool     // publishing failed, or was not tried yet: all properties are published

	// What was refused is tried again in the next round, and then in ever fewer ones.
	tries uint
	again uint64 // the round
}

// maxPause is after how many rounds at most what was refused is tried again.
const maxPause = 64

// pendingChange is a change whose outcome is not known.
type pendingChange[K comparable] struct {
	key   K
	index int // among the changes
}

// diff appends the changes that make the objects on the bus those given. Of objects of the same key the
// first one counts. The next call must be settle.
func (m *mirror[T, K, P]) diff(changes []broker.Change, objects []T) []broker.Change {
	if m.known == nil {
		m.known, m.seed = make(map[K]*entry), maphash.MakeSeed()
	}
	m.round++
	for i := range objects {
		x := P(&objects[i])
		key := x.Key()
		if props, changed := m.change(key, x, m.version(i, x)); changed {
			m.pending = append(m.pending, pendingChange[K]{key, len(changes)})
			changes = append(changes, broker.Change{Object: x, Properties: props})
		}
	}
	for key, e := range m.known {
		if e.round != m.round {
			x := P(new(T))
			r := cbor.NewReader(e.key)
			x.DecodeInstance(&r)
			m.pending = append(m.pending, pendingChange[K]{key, len(changes)})
			changes = append(changes, broker.Change{Object: x, Remove: true})
		}
	}
	return changes
}

// version returns what is another number when the object is another one.
func (m *mirror[T, K, P]) version(i int, x P) uint64 {
	if m.versions != nil {
		return m.versions[i]
	}
	return m.hash(x, x.Valid())
}

// change returns what is to be published of an object, if anything.
func (m *mirror[T, K, P]) change(key K, x P, version uint64) (props value.PropertySet, changed bool) {
	s := x.Descriptor()
	e := m.known[key]
	if e == nil {
		e = &entry{key: x.AppendInstance(nil, s.Keys()), hashes: make([]uint64, s.All().Len()), unsure: true}
		m.known[key] = e
	} else if e.round == m.round {
		return 0, false
	}
	e.round = m.round
	if e.unsure && m.round < e.again || !e.unsure && version == e.version {
		return 0, false
	}
	e.version = version
	for i, all := 0, s.All(); all != 0; i, all = i+1, all&(all-1) {
		property := value.PropertySet(1) << bits.TrailingZeros32(uint32(all))
		hash := m.hash(x, property)
		if hash != e.hashes[i] {
			props |= property
		}
		e.hashes[i] = hash
	}
	if e.unsure {
		props = s.All()
	}
	return props, true
}

// hash returns that of the encoding of some properties.
func (m *mirror[T, K, P]) hash(x P, props value.PropertySet) uint64 {
	m.data = x.AppendInstance(m.data[:0], props)
	return maphash.Bytes(m.seed, m.data)
}

// settle takes account of what has become of the changes of the last diff. What was refused is tried
// again.
func (m *mirror[T, K, P]) settle(changes []broker.Change) {
	for _, p := range m.pending {
		c, e := &changes[p.index], m.known[p.key]
		switch e.unsure = c.Err != nil; {
		case e.unsure:
			e.again = m.round + min(uint64(1)<<min(e.tries, 16), maxPause)
			e.tries++
		case c.Remove:
			delete(m.known, p.key)
		default:
			e.tries = 0
		}
	}
	m.pending = m.pending[:0]
}
