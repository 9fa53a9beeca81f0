package wire_test

import (
	"bytes"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// budget is a Memory with a limit.
type budget struct {
	limit, taken, most int
}

func (b *budget) Take(bytes int) bool {
	if b.taken+bytes > b.limit {
		return false
	}
	b.taken += bytes
	b.most = max(b.most, b.taken)
	return true
}

func (b *budget) Give(bytes int) { b.taken -= bytes }

const plenty = 1 << 30

// result is what became of a stream.
type result struct {
	messages []wire.Message // with payloads of their own
	losses   []wire.Loss
	counts   wire.Counts
	memory   *budget
	err      error
}

// feed feeds a stream in pieces of a size, to its end.
func feed(tb testing.TB, stream []byte, size, maxTrace int) result {
	tb.Helper()
	return feedPieces(tb, slices.Collect(slices.Chunk(stream, max(size, 1))), maxTrace, plenty)
}

// feedPieces feeds a stream to its end and checks what holds for every stream: nothing of it
// disappears, and no memory is kept.
func feedPieces(tb testing.TB, pieces [][]byte, maxTrace, memory int) result {
	tb.Helper()
	r := result{memory: &budget{limit: memory}}
	s := wire.NewSplitter(r.memory, maxTrace, &r.counts)
	var next, fed uint64
	size := func(m wire.Message) uint64 { return uint64(len(appendMessage(nil, m))) }
	deliver := func(m wire.Message) {
		assert.Assert(tb, m.Offset == next, "a message at %d; the last ended at %d", m.Offset, next)
		next += size(m)
		m.Payload = bytes.Clone(m.Payload)
		r.messages = append(r.messages, m)
	}
	s.OnLoss(func(loss wire.Loss) {
		assert.Assert(tb, loss.Offset == next && loss.Bytes != 0,
			"a loss: %+v; the last message ended at %d", loss, next)
		next += loss.Bytes
		r.losses = append(r.losses, loss)
	})
	for _, piece := range pieces {
		piece = slices.Clone(piece) // so that what is kept of it is not what comes next
		if r.err = s.Feed(piece, deliver); r.err != nil {
			break
		}
		fed += uint64(len(piece))
		for i := range piece {
			piece[i] = 0xee
		}
	}
	s.End(deliver)
	assert.Assert(tb, r.memory.taken == 0, "%d bytes were not given back", r.memory.taken)
	if r.err == nil && next != fed {
		tb.Fatalf("%d bytes were delivered or lost, of %d", next, fed)
	}
	checkSums(tb, r)
	return r
}

// checkSums checks that the counts are those of the losses.
func checkSums(tb testing.TB, r result) {
	tb.Helper()
	var sum wire.Counts
	for _, loss := range r.losses {
		switch i := loss.Header.Type.Index(); loss.Reason {
		case wire.Malformed:
			sum.Malformed[i]++
		case wire.Truncated:
			sum.Truncated[i]++
		case wire.Oversize:
			sum.Oversize[i]++
		case wire.NoMemory:
			sum.NoMemory[i]++
		case wire.UnknownType:
			sum.Unknown++
		case wire.NoHeader:
			sum.Skipped += loss.Bytes
		}
	}
	sum.Malformed[0] = r.counts.Malformed[0] // reported as what was skipped
	assert.Assert(tb, sum == r.counts, "losses %+v, counts %+v", sum, r.counts)
}

// appendMessage appends a message as it was received.
func appendMessage(dst []byte, m wire.Message) []byte {
	return append(client.AppendHeader(dst, m.Header), m.Payload...)
}
