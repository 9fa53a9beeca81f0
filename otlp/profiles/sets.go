package profiles

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/profile"
)

// sets are the attributes that threads published of samples, in sets: what many samples share is
// looked up once. Set 0 is empty.
type sets struct {
	table[set]
	lists  []string // of each set: its indices in the attribute table, encoded
	marked int      // sets, at the mark
}

// set is a set as it was published, or by its encoded indices.
type set struct {
	published profile.Attributes
	ofWait    bool
	indices   string
}

func (s *sets) reset() {
	s.table.reset(1) // without entries, the field is of no use
	s.lists = append(s.lists[:0], "")
	s.mark()
}

func (s *sets) mark() {
	s.table.mark()
	s.marked = len(s.lists)
}

func (s *sets) rollBack() {
	s.table.rollBack()
	s.lists = s.lists[:s.marked]
}

// set returns the index of a set. Attributes without a key, and those with a key of ours, are left out; of waits, also
// those with a key of theirs.
func (d *dictionary) set(a profile.Attributes, ofWait bool) int32 {
	if a == (profile.Attributes{}) {
		return 0
	}
	key := set{published: a, ofWait: ofWait}
	if index, known := d.sets.find(key); known {
		return index
	}
	var keys []string // two can become the same
	var indices []int32
	for name, value := range a.All() {
		name = valid(name)
		if name == "" || slices.Contains(attributeKeys[:], name) || slices.Contains(keys, name) ||
			ofWait && slices.Contains(waitKeys, name) {
			continue
		}
		keys = append(keys, name)
		indices = append(indices, d.attribute(attribute{key: published, name: name, text: value}))
	}
	if len(indices) == 0 {
		return d.sets.alias(key, 0)
	}
	slices.Sort(indices) // names that were made UTF-8 can have another order
	return d.sets.alias(key, d.list(indices))
}

// list returns the index of a set of attributes.
func (d *dictionary) list(indices []int32) int32 {
	d.indices = d.indices[:0]
	for _, index := range indices {
		d.indices = protowire.AppendVarint(d.indices, uint64(index))
	}
	sent := set{indices: string(d.indices)}
	index, known := d.sets.find(sent)
	if !known {
		index = d.sets.alias(sent, int32(len(d.lists)))
		d.lists = append(d.lists, sent.indices)
	}
	return index
}
