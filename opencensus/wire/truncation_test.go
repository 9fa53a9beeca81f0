package wire_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// message is one of a capture.
type message struct {
	expectedMessage
	bytes []byte
}

// realMessages are those of a capture that decode.
func realMessages(c capture) []message {
	var list []message
	for _, m := range c.messages {
		if !m.truncated && m.decodeable {
			end := m.Offset + uint64(m.HeaderBytes) + m.PayloadLength
			list = append(list, message{m, c.bytes[m.Offset:end]})
		}
	}
	return list
}

// survives reports whether a stream delivers all of these messages, in their order. Others are
// allowed where extra accepts them.
func survives(t *testing.T, r result, expected []message, extra func(wire.Message) bool) bool {
	t.Helper()
	for _, m := range r.messages {
		if len(expected) > 0 && string(appendMessage(nil, m)) == string(expected[0].bytes) {
			expected = expected[1:]
		} else if !extra(m) {
			return false
		}
	}
	return len(expected) == 0 && r.err == nil
}

func none(wire.Message) bool { return false }

// Whichever message of a capture is cut at whichever byte, all others survive if they have arrived.
// The one that was cut may do so too if it lacks nothing but zeros: the next one begins with these.
func TestOneMessageCut(t *testing.T) {
	for _, c := range readCaptures(t) {
		messages := realMessages(c)
		if len(messages) < 2 || len(c.bytes) > 20_000 {
			continue
		}
		for i, cut := range messages {
			for n := 0; n < len(cut.bytes); n++ {
				if n > 100 && n < len(cut.bytes)-50 {
					n += 96 // of a long one, some places
				}
				n = min(n, len(cut.bytes)-1)
				var stream []byte
				for k, m := range messages {
					if k == i {
						m.bytes = m.bytes[:n]
					}
					stream = append(stream, m.bytes...)
				}
				onlyZeros := len(bytes.Trim(cut.bytes[n:], "\x00")) == 0
				extra := func(m wire.Message) bool {
					return onlyZeros && string(appendMessage(nil, m)) == string(cut.bytes)
				}
				r := feed(t, stream, len(stream), wire.MaxTraceBytes)
				if others := slices.Delete(slices.Clone(messages), i, i+1); !survives(t, r, others, extra) {
					t.Errorf("%s: message %d cut after %d of %d bytes: delivered %s, %+v", c.name, i, n, len(cut.bytes),
						sequences(r.messages), r.counts)
				}
			}
		}
	}
}

// mixture is a stream of real messages, of which some were cut behind their header.
type mixture struct {
	stream []byte
	intact []message // those that were not cut
	cuts   uint64
}

// mix returns a mixture of those of all captures for which mayCut says whether one in so many is cut.
func mix(random *rand.Rand, all []message, mayCut func(m message, afterCut bool) (oneIn int)) (x mixture) {
	afterCut := false
	for range 100 {
		m := all[random.IntN(len(all))]
		if n := mayCut(m, afterCut); n > 0 && m.PayloadLength > 0 && random.IntN(n) == 0 {
			x.stream = append(x.stream, m.bytes[:m.HeaderBytes+random.IntN(int(m.PayloadLength))]...)
			x.cuts++
			afterCut = true
			continue
		}
		afterCut = false
		x.intact = append(x.intact, m)
		x.stream = append(x.stream, m.bytes...)
	}
	return x
}

// Among real messages of all kinds, some were cut at any byte behind the header: trace exports, more of
// them than any client would, in pieces of any size; and all kinds, as no socket of Linux does, but not
// two in a row, with what follows at hand. All others survive, and nothing is made up.
func TestTruncatedMessages(t *testing.T) {
	var all []message
	for _, c := range readCaptures(t) {
		all = append(all, realMessages(c)...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		x := mix(random, all, func(m message, _ bool) int {
			if m.Type != wire.TraceExport {
				return 0
			}
			return 4
		})
		var pieces [][]byte
		for rest := x.stream; len(rest) > 0; {
			n := min(200+random.IntN(65336), len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		r := feedPieces(t, pieces, wire.MaxTraceBytes, plenty)
		assert.Assert(t, survives(t, r, x.intact, none),
			"%d messages of %d, %+v", len(r.messages), len(x.intact), r.counts)
		n := r.counts.Truncated[wire.TraceExport.Index()]
		assert.Assert(t, n <= x.cuts && n == 0 == (x.cuts == 0), "%d truncated, counted %d", x.cuts, n)
		x = mix(random, all, func(_ message, afterCut bool) int {
			if afterCut {
				return 0
			}
			return 10
		})
		if r := feed(t, x.stream, len(x.stream), wire.MaxTraceBytes); !survives(t, r, x.intact, none) {
			t.Fatalf("%d messages of %d, %+v", len(r.messages), len(x.intact), r.counts)
		}
	}
}

// Sessions of a 32-bit platform, whose headers contain zeros between and beside their fields, with
// truncations between them.
func TestPaddedSessions(t *testing.T) {
	var session []message
	for _, c := range readCaptures(t) {
		if c.name == "session-extension-32bit.bin" {
			session = realMessages(c)
		}
	}
	var expected []message
	var stream []byte
	for i := range 5 {
		for _, m := range session {
			if m.Type == wire.TraceExport && i%2 == 1 {
				stream = append(stream, m.bytes[:1000]...)
				continue
			}
			expected = append(expected, m)
			stream = append(stream, m.bytes...)
		}
	}
	for _, size := range append([]int{200, 1000}, sizes...) {
		r := feed(t, stream, size, wire.MaxTraceBytes)
		var counts wire.Counts
		counts.Truncated[wire.TraceExport.Index()] = 2
		assert.Check(t, survives(t, r, expected, none) && r.counts == counts,
			"pieces of %d: %d messages of %d, %+v", size, len(r.messages), len(expected), r.counts)
	}
}
