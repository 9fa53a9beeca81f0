package wire_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

const captures = "../testdata/captures"

// expectedMessage is a message of manifest.json.
type expectedMessage struct {
	Offset        uint64
	HeaderBytes   int
	Type          wire.Type
	Seq, TID      uint64
	PID           uint32
	StartTimeHex  string
	PaddedFloat32 bool
	StartTime     float64
	PayloadLength uint64
	Payload       json.RawMessage
	TruncatedTo   *int

	payload               any // decoded: of wire's types, or the number of spans; nil: undecodable
	truncated, decodeable bool
}

type capture struct {
	name     string
	bytes    []byte
	messages []expectedMessage
}

func readCaptures(tb testing.TB) []capture {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(captures, "manifest.json"))
	assert.NilError(tb, err)
	var manifest map[string]struct {
		Bytes    int
		Messages []expectedMessage
	}
	assert.NilError(tb, json.Unmarshal(text, &manifest))
	files, err := filepath.Glob(filepath.Join(captures, "*.bin"))
	if err != nil || len(files) == 0 || len(files) != len(manifest) {
		tb.Fatalf("%d captures, %d in the manifest (%v)", len(files), len(manifest), err)
	}
	var all []capture
	for _, file := range files {
		content, err := os.ReadFile(file)
		assert.NilError(tb, err)
		c := capture{name: filepath.Base(file), bytes: content}
		entry := manifest[c.name]
		assert.Assert(tb, entry.Bytes == len(content), "%s has %d bytes, not %d", c.name, len(content), entry.Bytes)
		for _, m := range entry.Messages {
			m.truncated = m.TruncatedTo != nil
			m.decodeable = string(m.Payload) != `"undecodable"`
			if !m.truncated && m.decodeable {
				m.payload = expectedPayload(tb, m)
			}
			c.messages = append(c.messages, m)
		}
		all = append(all, c)
	}
	return all
}

// expectedPayload is what the manifest says of a payload, in wire's types.
func expectedPayload(tb testing.TB, m expectedMessage) any {
	tb.Helper()
	get := func(to any) {
		tb.Helper()
		assert.NilError(tb, json.Unmarshal(m.Payload, to), "%s", m.Payload)
	}
	switch m.Type {
	case wire.ProcessInit, wire.RequestInit:
		var v wire.Init
		get(&v)
		return v
	case wire.MeasureCreate:
		var v struct {
			MeasureType             wire.MeasureType
			Name, Description, Unit string
		}
		get(&v)
		return wire.Measure{Type: v.MeasureType, Name: v.Name, Description: v.Description, Unit: v.Unit}
	case wire.ReportingPeriod:
		return number(tb, m.Payload)
	case wire.ViewRegister:
		var list []struct {
			Name, Description, Measure string
			TagKeys                    []string
			Aggregation                wire.Aggregation
			Bounds                     []json.RawMessage
		}
		get(&list)
		var views []wire.View
		for _, v := range list {
			view := wire.View{
				Name: v.Name, Description: v.Description, TagKeys: v.TagKeys, Measure: v.Measure,
				Aggregation: v.Aggregation,
			}
			for _, bound := range v.Bounds {
				view.Boundaries = append(view.Boundaries, number(tb, bound))
			}
			views = append(views, view)
		}
		return views
	case wire.ViewUnregister:
		var names []string
		get(&names)
		return names
	case wire.StatsRecord:
		var v struct{ Measurements, Tags, Attachments [][]json.RawMessage }
		get(&v)
		r := wire.Record{Tags: pairs(tb, v.Tags), Attachments: pairs(tb, v.Attachments)}
		for _, entry := range v.Measurements {
			kind, err := strconv.Atoi(string(entry[1]))
			assert.NilError(tb, err)
			x := wire.Measurement{Measure: text(tb, entry[0]), Type: wire.MeasureType(kind)}
			if x.Type == wire.Int {
				x.Int, err = strconv.ParseUint(string(entry[2]), 10, 64)
				assert.NilError(tb, err)
			} else {
				x.Float = number(tb, entry[2])
			}
			r.Measurements = append(r.Measurements, x)
		}
		return r
	case wire.TraceExport:
		if m.PayloadLength == 0 {
			return 0
		}
		var v struct{ Spans int }
		get(&v)
		return v.Spans
	}
	return nil
}

func number(tb testing.TB, raw json.RawMessage) float64 {
	tb.Helper()
	s := string(raw)
	if s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := strconv.ParseFloat(s, 64)
	assert.NilError(tb, err)
	return v
}

// text is a string, or an object with the key hex where it is not UTF-8.
func text(tb testing.TB, raw json.RawMessage) []byte {
	tb.Helper()
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return []byte(s)
	}
	var v struct{ Hex string }
	assert.NilError(tb, json.Unmarshal(raw, &v))
	b, err := hex.DecodeString(v.Hex)
	assert.NilError(tb, err)
	return b
}

func pairs(tb testing.TB, list [][]json.RawMessage) []wire.KeyValue {
	tb.Helper()
	var result []wire.KeyValue
	for _, entry := range list {
		result = append(result, wire.KeyValue{Key: text(tb, entry[0]), Value: text(tb, entry[1])})
	}
	return result
}

// payloadOf is the payload of a message, as expectedPayload has it.
func payloadOf(m wire.Message) (any, error) {
	switch m.Type {
	case wire.ProcessInit, wire.RequestInit:
		return wire.DecodeInit(m.Payload)
	case wire.MeasureCreate:
		return wire.DecodeMeasure(m.Payload)
	case wire.ReportingPeriod:
		return wire.DecodePeriod(m.Payload, m.Padded)
	case wire.ViewRegister:
		views, _, err := wire.DecodeViews(m.Payload)
		return views, err
	case wire.ViewUnregister:
		names, _, err := wire.DecodeNames(m.Payload)
		return names, err
	case wire.StatsRecord:
		var r wire.Record
		err := r.Decode(m.Payload)
		return r, err
	case wire.TraceExport:
		if len(m.Payload) == 0 {
			return 0, nil
		}
		var spans []json.RawMessage
		err := json.Unmarshal(m.Payload, &spans)
		return len(spans), err
	}
	return nil, nil
}

// same compares values; NaN is NaN, and an empty slice is no slice.
func same(a, b any) bool {
	return reflect.DeepEqual(normal(reflect.ValueOf(&a).Elem()), normal(reflect.ValueOf(&b).Elem()))
}

func normal(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Interface:
		return normal(v.Elem())
	case reflect.Float64:
		if math.IsNaN(v.Float()) {
			return "NaN"
		}
		return math.Float64bits(v.Float())
	case reflect.Slice:
		list := []any{}
		for i := range v.Len() {
			list = append(list, normal(v.Index(i)))
		}
		return list
	case reflect.Struct:
		fields := []any{}
		for i := range v.NumField() {
			fields = append(fields, normal(v.Field(i)))
		}
		return fields
	case reflect.Invalid:
		return nil
	}
	return v.Interface()
}

// Every capture gives the messages of the manifest, however it is cut into pieces.
func TestCaptures(t *testing.T) {
	for _, c := range readCaptures(t) {
		for _, size := range []int{1, 7, 100, 4096, len(c.bytes)} {
			t.Run(c.name+"/"+strconv.Itoa(size), func(t *testing.T) {
				result := feed(t, c.bytes, size, wire.MaxTraceBytes)
				assert.NilError(t, result.err)
				var truncated, malformed uint64
				rest := result.messages
				for _, expected := range c.messages {
					if expected.truncated {
						truncated++
						continue
					}
					if !expected.decodeable {
						malformed++
						continue
					}
					assert.Assert(t, len(rest) != 0, "no message at %d", expected.Offset)
					compare(t, rest[0], expected, c.bytes)
					rest = rest[1:]
				}
				if len(rest) > 0 {
					t.Errorf("%d messages more, the first: %+v", len(rest), rest[0].Header)
				}
				wanted := wire.Counts{}
				wanted.Truncated[wire.TraceExport.Index()] = truncated
				wanted.Malformed[wire.StatsRecord.Index()] = malformed
				assert.Check(t, result.counts == wanted, "counted %+v", result.counts)
			})
		}
	}
}

func compare(t *testing.T, m wire.Message, expected expectedMessage, stream []byte) {
	t.Helper()
	assert.Assert(t, m.Offset == expected.Offset && m.Type == expected.Type && m.Sequence == expected.Seq &&
		m.PID == expected.PID && m.ThreadID == expected.TID && m.Padded == expected.PaddedFloat32 &&
		m.Length == expected.PayloadLength && len(m.Payload) == int(m.Length),
		"%+v at %d; expected %+v", m.Header, m.Offset, expected)
	payload := stream[m.Offset+uint64(expected.HeaderBytes):][:m.Length]
	assert.Check(t, string(m.Payload) == string(payload),
		"payload of the message at %d: %x, not %x", m.Offset, m.Payload, payload)
	micros := int64(math.Round(expected.StartTime * 1e6))
	assert.Check(t, m.Sent.UnixMicro() == micros, "sent at %v, not %d µs", m.Sent, micros)
	start, err := hex.DecodeString(expected.StartTimeHex)
	assert.Check(t, err == nil && m.Padded == (binary.BigEndian.Uint16(start) == 0),
		"%q: padded %v (%v)", expected.StartTimeHex, m.Padded, err)
	got, err := payloadOf(m)
	assert.Check(t, err == nil && same(got, expected.payload),
		"payload of the message at %d: %+v (%v), expected %+v", m.Offset, got, err, expected.payload)
}
