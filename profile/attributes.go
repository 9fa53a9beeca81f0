package profile

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"
)

// ContextKind is by which standard a thread publishes what it works on.
type ContextKind uint8

const (
	// ElasticContext is a slot of Elastic's library. What is sampled in one is sent to the process,
	// too.
	ElasticContext ContextKind = iota
	// OTelContext is a record of OpenTelemetry's otel_thread_ctx_v1 (OTEP 4947).
	OTelContext
)

// String returns the kind's name in tables, JSON and labels.
func (k ContextKind) String() string { return [...]string{"elastic", "opentelemetry"}[k] }

// Attribute is a key and its value. Both may be any bytes.
type Attribute struct{ Key, Value string }

// Attributes are what a thread publishes of its work beside the ids, for example the route of a
// request: at most one value for each key. They are comparable; the zero value has none.
type Attributes struct {
	encoded string // of each, by key: lengths of key and value (2 bytes each), key, value
}

// maxAttributeBytes is the most that a key or a value may have. Longer ones are cut.
const maxAttributeBytes = 1<<16 - 1

// NewAttributes returns attributes; of several with the same key the last counts. The slice is
// changed.
func NewAttributes(list []Attribute) Attributes {
	for i, a := range list { // first, since keys can become the same
		list[i] = Attribute{a.Key[:min(len(a.Key), maxAttributeBytes)], a.Value[:min(len(a.Value), maxAttributeBytes)]}
	}
	slices.SortStableFunc(list, func(a, b Attribute) int { return strings.Compare(a.Key, b.Key) })
	var encoded []byte
	for i, a := range list {
		if i+1 < len(list) && list[i+1].Key == a.Key {
			continue
		}
		encoded = binary.NativeEndian.AppendUint16(encoded, uint16(len(a.Key)))
		encoded = binary.NativeEndian.AppendUint16(encoded, uint16(len(a.Value)))
		encoded = append(append(encoded, a.Key...), a.Value...)
	}
	return Attributes{string(encoded)}
}

// All returns the attributes, by key.
func (a Attributes) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for rest := a.encoded; len(rest) > 0; {
			key := int(binary.NativeEndian.Uint16([]byte(rest[:2])))
			value := int(binary.NativeEndian.Uint16([]byte(rest[2:4])))
			rest = rest[4:]
			if !yield(rest[:key], rest[key:key+value]) {
				return
			}
			rest = rest[key+value:]
		}
	}
}

// Bytes returns how much memory they take beside the Attributes themselves.
func (a Attributes) Bytes() int { return len(a.encoded) }

// Compare orders attributes: 0 if they are the same.
func (a Attributes) Compare(b Attributes) int { return strings.Compare(a.encoded, b.encoded) }
