package validate

import (
	"bytes"
	"cmp"
	"slices"
)

// maxAttributes limits the attributes of one list. SDKs allow 128 by default; this bounds the
// memory for finding duplicates.
const maxAttributes = 1 << 14

// clean checks a message and all messages in it: indices into the dictionary, and the number of attributes. It
// removes fields that belong to profiles from other signals, duplicate attributes, and values that are nested too
// deep.
func (c *checker) clean(m *messageType, p part, depth int) problem {
	list := 0
	for f := range c.fields(p) {
		e := describe(m, f.tag)
		switch e.kind {
		case attributes:
			if list++; list > maxAttributes {
				return found(BadAttributes, f.whole.from, "too many attributes")
			}
			fallthrough
		case message, messages:
			inner := deeper(depth, e)
			if inner > maxDepth {
				c.repair(f.whole, TooDeep)
				break
			}
			if bad := c.clean(e.message, f.body, inner); bad.found() {
				return bad
			}
		case index, indices:
			if c.signal != Profiles {
				c.repair(f.whole, BadField)
				break
			}
			for v := range c.varints(f) {
				if i := int32(v); i < 0 || int(i) >= c.tables[e.table] {
					return found(BadIndex, f.whole.from, "index is outside of the table")
				}
			}
		}
	}
	if list > 1 {
		c.unique(m, p)
	}
	return problem{}
}

// key is the key of an attribute.
type key struct {
	text  []byte
	index int32 // profiles: instead of the text
	whole part
}

// compare orders keys, equal ones by their position.
func (k key) compare(other key) int {
	return cmp.Or(bytes.Compare(k.text, other.text), cmp.Compare(k.index, other.index),
		cmp.Compare(k.whole.from, other.whole.from))
}

// Tags of a KeyValue.
const (
	tagKey         = 1<<3 | wireBytes
	tagKeyStrindex = 3<<3 | wireVarint
)

// unique removes attributes of a message whose keys occur again.
func (c *checker) unique(m *messageType, p part) {
	c.keys = c.keys[:0]
	for f := range c.fields(p) {
		if describe(m, f.tag).kind != attributes {
			continue
		}
		k := key{whole: f.whole}
		for g := range c.fields(f.body) {
			switch g.tag {
			case tagKey:
				k.text = c.bytes(g.body)
			case tagKeyStrindex:
				if c.signal == Profiles {
					k.index = int32(g.value)
				}
			}
		}
		c.keys = append(c.keys, k)
	}
	slices.SortFunc(c.keys, key.compare)
	for i, k := range c.keys[1:] {
		before := c.keys[i]
		if bytes.Equal(k.text, before.text) && k.index == before.index {
			c.repair(before.whole, DuplicateKey)
		}
	}
}
