package spans

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields that are told apart.
const (
	scopeSpansField = 2 // of ResourceSpans, besides 1 for the resource
	spanField       = 2 // of ScopeSpans, besides 1 for the scope
)

// Parts yields each ResourceSpans that Append has appended, with its field's header, and the number
// of its spans: an export may be larger than a request.
func Parts(encoded []byte) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		for _, value := range fields(encoded) {
			spans := 0
			for number, value := range fields(value) {
				if number != scopeSpansField {
					continue
				}
				for number := range fields(value) {
					if number == spanField {
						spans++
					}
				}
			}
			size := protowire.SizeTag(1) + protowire.SizeBytes(len(value))
			if !yield(encoded[:size], spans) {
				return
			}
			encoded = encoded[size:]
		}
	}
}

// fields yields the fields of a message that Append has encoded, which all have a length.
func fields(message []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(message) > 0 {
			number, _, n := protowire.ConsumeTag(message)
			value, m := protowire.ConsumeBytes(message[n:])
			if n < 0 || m < 0 || !yield(number, value) {
				return
			}
			message = message[n+m:]
		}
	}
}
