// Package dynamic handles instances of types that are known only at run time.
//
// Scan checks an encoded instance against its type and says where its properties are, which is all
// that a broker needs to merge, select and forward it. An Object holds the values themselves, for
// programs that show or make them, and AppendJSON and ParseJSON translate from and to dots-json,
// which WebSocket peers speak.
//
// An instance is canonical if a strict encoder would write the same bytes: its properties once, in
// the order of declaration, none that the type lacks, everything in the shortest form. Peers may
// send others; what is kept and forwarded is made canonical, because some receivers handle nothing
// else.
package dynamic

import (
	"errors"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// Errors of instances, beside those of package cbor.
var (
	ErrEnum   = errors.New("number is no tag of the enum")
	ErrUTF8   = errors.New("string is not UTF-8")
	ErrExcess = errors.New("data after the instance")
)

// Layout says where the properties of an instance are.
type Layout struct {
	Set       value.PropertySet // properties the instance has, without those the type lacks
	Canonical bool              // a strict encoder would write the same bytes
	Start     [32]uint32        // by tag, of a property in Set: where its value begins
	End       [32]uint32        // and where it ends
}

// Value returns the encoding of a property's value. The property must be in l.Set.
func (l *Layout) Value(instance []byte, tag uint32) []byte {
	return instance[l.Start[tag]:l.End[tag]:l.End[tag]]
}

// AppendSelected appends an instance that has those properties of another one that are in a set.
// It is canonical if the other one is.
func AppendSelected(
	dst []byte, s *schema.Struct, instance []byte, l *Layout, props value.PropertySet,
) []byte {
	props &= l.Set
	dst = cbor.AppendMap(dst, props.Len())
	for i := range s.Properties {
		if tag := s.Properties[i].Tag; props.Has(tag) {
			dst = cbor.AppendUint(dst, uint64(tag))
			dst = append(dst, instance[l.Start[tag]:l.End[tag]]...)
		}
	}
	return dst
}

// Append appends a property and its encoded value to an instance that begins with dst, and notes where
// it is.
func (l *Layout) Append(dst []byte, tag uint32, encoded []byte) []byte {
	dst = cbor.AppendUint(dst, uint64(tag))
	l.Set |= 1 << tag
	l.Start[tag] = uint32(len(dst))
	dst = append(dst, encoded...)
	l.End[tag] = uint32(len(dst))
	return dst
}

// AppendMerged appends an instance that has the properties in a set as one instance has them, and
// the others as another one does: an update of the other one. A property in the set that from lacks
// is unset; keys are taken from the other one. It is canonical if both are. Where its properties are
// in what is returned is stored in l.
func AppendMerged(
	dst []byte, s *schema.Struct, old []byte, oldLayout *Layout,
	from []byte, fromLayout *Layout, props value.PropertySet, l *Layout,
) []byte {
	props &^= s.Keys()
	kept, changed := oldLayout.Set&^props, fromLayout.Set&props
	l.Set, l.Canonical = 0, oldLayout.Canonical && fromLayout.Canonical
	dst = cbor.AppendMap(dst, (kept | changed).Len())
	for i := range s.Properties {
		switch tag := s.Properties[i].Tag; {
		case changed.Has(tag):
			dst = l.Append(dst, tag, fromLayout.Value(from, tag))
		case kept.Has(tag):
			dst = l.Append(dst, tag, oldLayout.Value(old, tag))
		}
	}
	return dst
}
