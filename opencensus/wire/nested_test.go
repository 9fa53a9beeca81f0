package wire_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// nested returns messages inside each other: each decodes, is followed by nothing that is a header,
// and shares a long rest with all others.
func nested(t *testing.T, size int) []byte {
	t.Helper()
	const levels = 8000
	rest := bytes.Repeat([]byte{1, 'a'}, (size-levels*30)/2)
	items := len(rest) / 2
	var reversed [][]byte
	length := uint64(len(rest))
	for level := range levels {
		count := binary.AppendUvarint(nil, uint64(items+level))
		length += uint64(len(count))
		h := wire.Header{Type: wire.ViewUnregister, Sequence: 1, PID: 1, Sent: at(), Length: length}
		head := append(client.AppendHeader(nil, h), count...)
		item := append(binary.AppendUvarint(nil, uint64(len(head))), head...)
		reversed = append(reversed, item)
		length += uint64(len(item) - len(count))
	}
	var stream []byte
	for i := range reversed {
		stream = append(stream, reversed[len(reversed)-1-i]...)
	}
	return append(append(stream[1:], rest...), 1)
}

// A sender can have every byte looked at for many messages, but not without a bound: searches look
// at 8 bytes for each that arrives and 512 for each read, beside 16 MiB that may come at once. This
// stream has all of it used up.
func TestNestedMessages(t *testing.T) {
	stream := bytes.Repeat(nested(t, 1<<20-1000), 2)
	for _, size := range []int{100, 64 << 10} {
		var counts wire.Counts
		s := wire.NewSplitter(&budget{limit: plenty}, wire.MaxTraceBytes, &counts)
		const burst, message = 16 << 20, 1 << 20 // the bound is exceeded by that of one message
		searched, allowed := 0, burst+message
		for piece := range slices.Chunk(stream, size) {
			n, err := s.FeedCounting(piece, func(wire.Message) {})
			assert.NilError(t, err, "pieces of %d", size)
			allowed += 8*len(piece) + 512
			if searched += n; searched > allowed {
				t.Fatalf("pieces of %d: searches looked at %d bytes of %d", size, searched, len(stream))
			}
		}
		assert.Check(t, searched >= burst, "pieces of %d: searches looked at %d bytes only", size, searched)
		s.End(func(wire.Message) {})
	}
}
