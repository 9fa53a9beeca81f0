package wire_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// Streams of messages that are truncated anywhere, and damaged, become the same messages and losses
// as by the reference, in whatever reads they arrive.
func TestSplitterAgainstReference(t *testing.T) {
	seen := map[wire.Reason]int{}
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 7))
		stream := damagedStream(random)
		least, most := 40, 2000
		switch seed % 4 {
		case 0:
			least, most = 1, 60
		case 1:
			least, most = 1, len(stream)
		}
		var pieces [][]byte
		var r reference
		for rest := stream; len(rest) > 0; {
			n := min(least+random.IntN(most), len(rest))
			pieces = append(pieces, rest[:n])
			r.feed(rest[:n])
			rest = rest[n:]
		}
		r.end()
		got := feedPieces(t, pieces, wire.MaxTraceBytes, plenty)
		if events := eventsOf(got); got.err != nil || !slices.Equal(events, r.events) {
			t.Fatalf("stream %d (%v):\n%v\nthe reference:\n%v", seed, got.err, events, r.events)
		}
		for _, e := range r.events {
			seen[e.reason]++
		}
	}
	for reason := range wire.NoHeader + 1 {
		skipped := reason == wire.Oversize || reason == wire.NoMemory // not among what the reference does
		assert.Check(t, seen[reason] >= 25 || skipped, "%q: %d times", reason, seen[reason])
	}
	t.Logf("%v", seen)
}

// eventsOf are the messages and losses of a stream, in its order.
func eventsOf(r result) []event {
	var events []event
	for _, m := range r.messages {
		events = append(events, event{int(m.Offset), len(appendMessage(nil, m)), 0})
	}
	for _, loss := range r.losses {
		events = append(events, event{int(loss.Offset), int(loss.Bytes), loss.Reason})
	}
	slices.SortFunc(events, func(a, b event) int { return a.offset - b.offset })
	return events
}

// damagedStream has few bytes of text and many zeros, for these begin a message.
func damagedStream(random *rand.Rand) []byte {
	c := client.Client{PID: 1 + random.Uint32N(1<<20), Now: at, Padded: random.IntN(4) == 0}
	var stream []byte
	for range 3 + random.IntN(30) {
		from := len(stream)
		stream = appendWithZeros(stream, &c, random)
		m := stream[from:]
		switch random.IntN(8) {
		case 0, 1:
			stream = stream[:from+random.IntN(len(m))]
		case 2:
			stream = stream[:len(stream)-min(1+random.IntN(12), len(m))] // most often of the zeros at its end
		case 3:
			m[random.IntN(len(m))] ^= 1 << random.IntN(8)
		}
	}
	return stream
}

func appendWithZeros(stream []byte, c *client.Client, random *rand.Rand) []byte {
	size := random.IntN(30)
	if random.IntN(6) == 0 {
		size = random.IntN(3000)
	}
	text := func() string {
		b := make([]byte, random.IntN(size+1))
		for range random.IntN(4) {
			if len(b) > 0 {
				b[random.IntN(len(b))] = byte(random.IntN(256))
			}
		}
		return string(b)
	}
	pair := func() wire.KeyValue { return wire.KeyValue{Key: []byte(text()), Value: []byte(text())} }
	switch random.IntN(10) {
	case 0:
		return c.RequestInit(stream, "8.2.35", "4.2.35")
	case 1:
		return c.RequestShutdown(stream)
	case 2:
		return c.TraceExport(stream, "[{"+string(bytes.Repeat([]byte{'x'}, size))+"}]")
	case 3:
		return c.CreateMeasure(stream, wire.Measure{Type: wire.Float, Name: text(), Unit: text()})
	case 4:
		return c.SetReportingPeriod(stream, float64(random.IntN(4)))
	case 5:
		return c.RegisterViews(stream, wire.View{
			Name: text(), TagKeys: []string{text(), ""}, Aggregation: wire.Distribution,
			Boundaries: []float64{0, 1, 2.5},
		}, wire.View{Measure: text()})
	case 6:
		return c.UnregisterViews(stream, text(), "", text())
	case 7:
		return c.Message(stream, wire.Type(100+random.IntN(100)), []byte(text()))
	}
	return c.Record(stream, &wire.Record{
		Measurements: []wire.Measurement{{Measure: []byte(text()), Type: wire.Float, Float: float64(random.IntN(3))}},
		Tags:         slices.Repeat([]wire.KeyValue{pair()}, random.IntN(3)),
		Attachments:  slices.Repeat([]wire.KeyValue{pair()}, random.IntN(3)),
	})
}
