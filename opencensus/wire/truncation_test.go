package wire_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

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
				if n > 200 && n < len(cut.bytes)-100 {
					n += 36 // of a long one, some places
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

// Trace exports that were cut at any byte behind the header, and more of them than any client
// would, among real messages of all kinds, in pieces of any size: all others survive, and nothing
// is made up.
func TestTruncatedTraceExports(t *testing.T) {
	var all []message
	for _, c := range readCaptures(t) {
		all = append(all, realMessages(c)...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	intact, truncated := 0, 0
	for range 300 {
		var expected []message
		var stream []byte
		cuts := uint64(0)
		for range 100 {
			m := all[random.IntN(len(all))]
			if m.Type == wire.TraceExport && m.PayloadLength > 0 && random.IntN(4) == 0 {
				stream = append(stream, m.bytes[:m.HeaderBytes+random.IntN(int(m.PayloadLength))]...)
				cuts++
				continue
			}
			expected = append(expected, m)
			stream = append(stream, m.bytes...)
		}
		var pieces [][]byte
		for rest := stream; len(rest) > 0; {
			n := min(200+random.IntN(65336), len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		r := feedPieces(t, pieces, wire.MaxTraceBytes, plenty)
		if !survives(t, r, expected, none) {
			t.Fatalf("%d messages of %d, %+v", len(r.messages), len(expected), r.counts)
		}
		if n := r.counts.Truncated[wire.TraceExport.Index()]; n > cuts || n == 0 != (cuts == 0) {
			t.Fatalf("%d truncated, counted %d", cuts, n)
		}
		intact += len(expected)
		truncated += int(cuts)
	}
	t.Logf("%d intact messages around %d truncated", intact, truncated)
}

// Messages of all kinds that were cut at any byte behind the header, as no socket of Linux does,
// but not two in a row: with what follows at hand nothing is lost, and nothing is made up.
func TestTruncatedMessages(t *testing.T) {
	var all []message
	for _, c := range readCaptures(t) {
		all = append(all, realMessages(c)...)
	}
	random := rand.New(rand.NewPCG(3, 4))
	intact, cuts := 0, 0
	for range 300 {
		expected := map[uint64]message{} // by offset
		var stream []byte
		afterCut := false
		for range 100 {
			m := all[random.IntN(len(all))]
			if m.PayloadLength > 0 && random.IntN(10) == 0 && !afterCut {
				stream = append(stream, m.bytes[:m.HeaderBytes+random.IntN(int(m.PayloadLength))]...)
				cuts++
				afterCut = true
				continue
			}
			afterCut = false
			expected[uint64(len(stream))] = m
			stream = append(stream, m.bytes...)
		}
		for _, m := range feed(t, stream, len(stream), wire.MaxTraceBytes).messages {
			if string(expected[m.Offset].bytes) != string(appendMessage(nil, m)) {
				t.Fatalf("%v at %d: %x", m.Type, m.Offset, m.Payload)
			}
			delete(expected, m.Offset)
			intact++
		}
		if len(expected) > 0 {
			t.Fatalf("%d messages lost", len(expected))
		}
	}
	t.Logf("%d intact messages around %d truncated", intact, cuts)
}

// The capture of a stalled reader: a trace export is truncated, the next three messages are
// missing.
func TestTruncatedCapture(t *testing.T) {
	for _, c := range readCaptures(t) {
		if c.name != "session-userland-truncated.bin" {
			continue
		}
		r := feed(t, c.bytes, 4096, wire.MaxTraceBytes)
		var gaps uint64
		for i, m := range r.messages[1:] {
			gaps += m.Sequence - r.messages[i].Sequence - 1
		}
		// The truncated message has used up its number.
		truncated := r.counts.Truncated[wire.TraceExport.Index()]
		if len(r.messages) != 7 || truncated != 1 || gaps-truncated != 3 {
			t.Errorf("%d messages, %d truncated, gaps of %d", len(r.messages), truncated, gaps)
		}
		if len(r.losses) != 1 || r.losses[0].Offset != 63 || r.losses[0].Bytes != 21+219243 {
			t.Errorf("%+v", r.losses)
		}
		return
	}
	t.Error("no such capture")
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
		if !survives(t, r, expected, none) || r.counts != counts {
			t.Errorf("pieces of %d: %d messages of %d, %+v", size, len(r.messages), len(expected), r.counts)
		}
	}
}

// A process and its child on one connection: the records of both are in order.
func TestForkedSession(t *testing.T) {
	for _, c := range readCaptures(t) {
		if c.name != "session-userland-fork.bin" {
			continue
		}
		last := map[uint32]uint64{}
		records := 0
		for _, m := range feed(t, c.bytes, 7, wire.MaxTraceBytes).messages {
			if before := last[m.PID]; before > 0 && m.Sequence != before+1 {
				t.Errorf("process %d: %d after %d", m.PID, m.Sequence, before)
			}
			last[m.PID] = m.Sequence
			if m.Type == wire.StatsRecord {
				records++
			}
		}
		if len(last) != 2 || records != 6 {
			t.Errorf("%v, %d records", last, records)
		}
		return
	}
	t.Error("no such capture")
}
