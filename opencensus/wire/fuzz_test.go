package wire_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// piecesOf cuts a stream into pieces whose sizes are those of the bytes of cuts, again and again.
func piecesOf(stream, cuts []byte) [][]byte {
	if len(cuts) == 0 {
		return [][]byte{stream}
	}
	var pieces [][]byte
	for i := 0; len(stream) > 0; i++ {
		n := min(1+int(cuts[i%len(cuts)])*int(cuts[i%len(cuts)]), len(stream))
		pieces = append(pieces, stream[:n])
		stream = stream[n:]
	}
	return pieces
}

// Any stream, in any pieces: feedPieces checks that nothing disappears and no memory is kept. What
// is delivered decodes, and what is taken is bounded by what has arrived.
func FuzzSplitter(f *testing.F) {
	for _, c := range readCaptures(f) {
		f.Add(c.bytes[:min(len(c.bytes), 8000)], []byte{3, 1, 20}, uint16(4000))
	}
	f.Add(bytes.Repeat([]byte{0, 0, 0, 0, 44}, 100), []byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, stream, cuts []byte, memory uint16) {
		const maxTrace = 4000
		r := feedPieces(t, piecesOf(stream, cuts), maxTrace, int(memory))
		for _, m := range r.messages {
			_, err := payloadOf(m)
			assert.Check(t, err == nil || m.Type == wire.TraceExport, "%v %x: %v", m.Type, m.Payload, err)
			if m.Type == wire.TraceExport && (len(m.Payload) > maxTrace || bytes.IndexByte(m.Payload, 0) >= 0) {
				t.Errorf("trace export %x", m.Payload)
			}
			// The stream's StartTime may be more exact than ours.
			ours := appendMessage(nil, m)
			theirs := stream[m.Offset:][:len(ours)]
			assert.Check(t, string(theirs[:6]) == string(ours[:6]) && bytes.HasSuffix(theirs, m.Payload),
				"%+v is not what the stream has at %d", m.Header, m.Offset)
		}
		assert.Check(t, r.memory.most <= 4*len(stream), "took %d bytes for %d", r.memory.most, len(stream))
	})
}

// Intact messages are all delivered, whatever the pieces are. Texts have no NUL: what looks like a
// message inside of one could be taken for it while the rest has not arrived.
func FuzzIntactMessages(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09"), "text", []byte{5, 1})
	f.Add([]byte("\x13\x24\x35\xff\xfe\x00\x0a"), strings.Repeat("long", 200), []byte{})
	f.Fuzz(func(t *testing.T, choices []byte, text string, cuts []byte) {
		text = strings.ReplaceAll(text, "\x00", "")
		var stream []byte
		c := client.Client{PID: 1, Now: at}
		number := 0
		for _, choice := range choices {
			stream = appendSome(stream, &c, choice, text)
			number++
		}
		r := feedPieces(t, piecesOf(stream, cuts), wire.MaxTraceBytes, plenty)
		assert.Check(t, len(r.messages) == number && r.counts == wire.Counts{} && r.err == nil,
			"%d messages of %d, %+v (%v)", len(r.messages), number, r.counts, r.err)
	})
}

// appendSome appends a message that depends on a byte and contains a text.
func appendSome(stream []byte, c *client.Client, choice byte, text string) []byte {
	c.Padded = choice&1 > 0
	c.ThreadID = uint64(choice&6) << 40
	part := text[:len(text)*int(choice)/255]
	switch choice >> 3 % 9 {
	case 0:
		return c.RequestInit(stream, part[:min(len(part), 1000)], "4.2.35")
	case 1:
		return c.RequestShutdown(stream)
	case 2:
		return c.TraceExport(stream, "[{"+part+"}]")
	case 3:
		return c.TraceExport(stream, "[]")
	case 4:
		return c.CreateMeasure(stream, wire.Measure{Type: wire.Float, Name: part[:min(len(part), 1000)]})
	case 5:
		return c.SetReportingPeriod(stream, float64(choice))
	case 6:
		return c.RegisterViews(stream, wire.View{
			Name: part, TagKeys: []string{part, ""}, Aggregation: wire.Distribution, Boundaries: []float64{0, 1, 2.5},
		}, wire.View{Measure: part})
	case 7:
		return c.UnregisterViews(stream, part, "", part)
	}
	return c.Record(stream, &wire.Record{
		Measurements: []wire.Measurement{
			{Measure: []byte(part), Type: wire.Float, Float: 1}, {Type: wire.Int, Int: uint64(choice)},
		},
		Tags: slices.Repeat([]wire.KeyValue{{Key: []byte("k"), Value: []byte(part)}}, int(choice&3)),
	})
}

// fuzzPayload checks the decoder of a payload: what decodes is what a client would write for the
// result, and a Splitter delivers just what decodes.
func fuzzPayload(f *testing.F, kinds ...wire.Type) {
	for _, test := range payloads {
		if slices.Contains(kinds, test.kind) {
			f.Add(unhex(f, test.bytes))
		}
	}
	for _, c := range readCaptures(f) {
		for _, m := range c.messages {
			if slices.Contains(kinds, m.Type) && !m.truncated {
				f.Add(c.bytes[m.Offset+uint64(m.HeaderBytes):][:m.PayloadLength])
			}
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		value, err := payloadOf(wire.Message{Header: wire.Header{Type: kinds[0]}, Payload: p})
		if err == nil && !hasNegative(value) && !hasMore(value) && string(encode(value)) != string(p) {
			t.Errorf("%x decodes as %+v, which is %x", p, value, encode(value))
		}
		const least = 4 << 10 // the limit of an init
		assert.Check(t, bytes.Contains(p, make([]byte, 4)) || len(p) > least ||
			delivered(t, kinds[0], p) == (err == nil),
			"%x: %v, but delivered is not the same", p, err)
	})
}

// hasNegative reports whether a value contains an integer that is negative in PHP, which clients
// write otherwise.
func hasNegative(value any) bool {
	r, ok := value.(wire.Record)
	return ok && slices.ContainsFunc(r.Measurements, func(m wire.Measurement) bool { return m.Int > math.MaxInt64 })
}

// hasMore reports whether a value may be the beginning of what its payload has.
func hasMore(value any) bool {
	switch v := value.(type) {
	case wire.Record:
		return v.MoreMeasurements+v.MoreTags+v.MoreAttachments > 0
	case []wire.View:
		return len(v) == wire.MaxViews || slices.ContainsFunc(v, func(v wire.View) bool { return v.MoreTagKeys > 0 })
	case []string:
		return len(v) == wire.MaxViews
	}
	return false
}

func FuzzInit(f *testing.F)    { fuzzPayload(f, wire.RequestInit, wire.ProcessInit) }
func FuzzMeasure(f *testing.F) { fuzzPayload(f, wire.MeasureCreate) }
func FuzzPeriod(f *testing.F)  { fuzzPayload(f, wire.ReportingPeriod) }
func FuzzViews(f *testing.F)   { fuzzPayload(f, wire.ViewRegister) }
func FuzzNames(f *testing.F)   { fuzzPayload(f, wire.ViewUnregister) }
func FuzzRecord(f *testing.F)  { fuzzPayload(f, wire.StatsRecord) }
