package wire_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

var unhex = testenv.Unhex

// payloads are well-formed, and what they say.
var payloads = map[string]struct {
	kind  wire.Type
	bytes string
	value any
}{
	"init": {
		wire.RequestInit, "01 06 382e322e3335 06 342e322e3335",
		wire.Init{Version: 1, PHP: "8.2.35", Zend: "4.2.35"},
	},
	"init of another version": {wire.ProcessInit, "02 00 00", wire.Init{Version: 2}},
	"measure": {
		wire.MeasureCreate, "01 01 61 02 c3bc 02 4279",
		wire.Measure{Type: wire.Int, Name: "a", Description: "ü", Unit: "By"},
	},
	"measure, nothing": {wire.MeasureCreate, "02 00 00 00", wire.Measure{Type: wire.Float}},
	"measure, unknown type": {
		wire.MeasureCreate, "ff 00 01 00 00", wire.Measure{Type: wire.Unknown, Description: "\x00"},
	},
	"period":               {wire.ReportingPeriod, "40 04 00 00 00 00 00 00", 2.5},
	"period, infinite":     {wire.ReportingPeriod, "7f f0 00 00 00 00 00 00", math.Inf(1)},
	"period, not a number": {wire.ReportingPeriod, "7f f8 00 00 00 00 00 00", math.NaN()},
	"no views":             {wire.ViewRegister, "00", []wire.View{}},
	"views": {
		wire.ViewRegister,
		"03  01 76 01 64 02 01 61 01 62 01 6d 01  00 00 00 00 03 02 c008000000000000 7ff0000000000000  00 00 00 00 05",
		[]wire.View{
			{Name: "v", Description: "d", TagKeys: []string{"a", "b"}, Measure: "m", Aggregation: wire.Count},
			{Aggregation: wire.Distribution, Boundaries: []float64{-3, math.Inf(1)}},
			{Aggregation: 5},
		},
	},
	"names": {wire.ViewUnregister, "02 00 01 61", []string{"", "a"}},
	"record": {
		wire.StatsRecord,
		"03  01 69 01 b0c801  01 66 02 4029800000000000  00 ff  01 01 6b 01 76  02 00 01 ff 04 00000000 00",
		wire.Record{
			Measurements: []wire.Measurement{
				{Measure: []byte("i"), Type: wire.Int, Int: 25648},
				{Measure: []byte("f"), Type: wire.Float, Float: 12.75},
				{Type: wire.Unknown, Measure: []byte{}},
			},
			Tags: []wire.KeyValue{{Key: []byte("k"), Value: []byte("v")}},
			Attachments: []wire.KeyValue{
				{Key: []byte{}, Value: []byte{0xff}}, {Key: []byte{0, 0, 0, 0}, Value: []byte{}},
			},
		},
	},
	"empty record": {wire.StatsRecord, "00 00 00", wire.Record{}},
	"many measurements without a value": {
		wire.StatsRecord, "04 00ff 00ff 00ff 00ff 00 00",
		wire.Record{Measurements: slices.Repeat([]wire.Measurement{{Measure: []byte{}, Type: wire.Unknown}}, 4)},
	},
	"shutdown": {wire.RequestShutdown, "", nil},
}

func TestPayloads(t *testing.T) {
	for name, test := range payloads {
		t.Run(name, func(t *testing.T) {
			p := unhex(t, test.bytes)
			value, err := payloadOf(wire.Message{Header: wire.Header{Type: test.kind}, Payload: p})
			assert.Check(t, err == nil && same(value, test.value), "%+v (%v), expected %+v", value, err, test.value)
			encoded := encode(value)
			assert.Check(t, test.value == nil || string(encoded) == string(p), "encoded as %x", encoded)
			assert.Check(t, delivered(t, test.kind, p), "not delivered")
			for n := range p {
				if _, err := payloadOf(wire.Message{Header: wire.Header{Type: test.kind}, Payload: p[:n]}); err == nil {
					t.Errorf("the first %d bytes decode", n)
				}
				if delivered(t, test.kind, p[:n]) {
					t.Errorf("the first %d bytes were delivered", n)
				}
			}
			longer := append(p, 0x01)
			_, err = payloadOf(wire.Message{Header: wire.Header{Type: test.kind}, Payload: longer})
			assert.Check(t, err != nil || test.value == nil, "a byte behind the end decodes")
			assert.Check(t, !delivered(t, test.kind, longer), "a byte behind the end was delivered")
		})
	}
}

// encode is the reverse of payloadOf.
func encode(value any) []byte {
	switch value := value.(type) {
	case wire.Init:
		return client.AppendInit(nil, value)
	case wire.Measure:
		return client.AppendMeasure(nil, value)
	case float64:
		return client.AppendPeriod(nil, value)
	case []wire.View:
		return client.AppendViews(nil, value)
	case []string:
		return client.AppendNames(nil, value)
	case wire.Record:
		return client.AppendRecord(nil, &value)
	}
	return nil
}

// delivered reports whether a Splitter delivers a message with this payload.
func delivered(tb testing.TB, t wire.Type, payload []byte) bool {
	tb.Helper()
	c := client.Client{PID: 1}
	r := feed(tb, c.Message(nil, t, payload), 1<<20, wire.MaxTraceBytes)
	return len(r.messages) == 1 && r.messages[0].Type == t && string(r.messages[0].Payload) == string(payload)
}

// A period of 4 bytes is that of a header with 4 bytes, as the protocol's document has it.
func TestShortPeriod(t *testing.T) {
	p := unhex(t, "40 20 00 00")
	v, err := wire.DecodePeriod(p, true)
	assert.Check(t, err == nil && v == 2.5, "%v %v", v, err)
	v, err = wire.DecodePeriod(p, false)
	assert.Check(t, err != nil, v)
	c := client.Client{PID: 1, Padded: true}
	r := feed(t, c.Message(nil, wire.ReportingPeriod, p), 7, wire.MaxTraceBytes)
	assert.Check(t, len(r.messages) == 1, "%+v", r.counts)
}

// Numbers that no payload has room for are errors. Nothing is allocated for what they announce: there is
// not as much.
func TestHostileNumbers(t *testing.T) {
	numbers := []string{
		"80 80 80 80 08",                   // 2^31
		"80 80 80 80 10",                   // 2^32
		"80 80 80 80 80 80 80 80 40",       // 2^62
		"ff ff ff ff ff ff ff ff ff 01",    // 2^64-1
		"ff ff ff ff ff ff ff ff ff 02",    // beyond 64 bits
		"80 80 80 80 80 80 80 80 80 80 01", // 11 bytes
		"80 00",                            // not minimal
		"81 80 00",
		"7f",
	}
	places := map[wire.Type][]string{
		wire.RequestInit:   {"01 N", "01 00 N"},
		wire.MeasureCreate: {"01 N", "01 00 N", "01 00 00 N"},
		wire.ViewRegister: {
			"N", "01 N", "01 00 N", "01 00 00 N", "01 00 00 00 N", "01 00 00 00 00 03 N", "01 00 00 01 N",
		},
		wire.ViewUnregister: {"N", "01 N"},
		wire.StatsRecord:    {"N", "01 N", "00 N", "00 01 N", "00 01 00 N", "00 00 N", "00 00 01 N", "00 00 01 00 N"},
	}
	for kind, list := range places {
		for _, place := range list {
			for _, number := range numbers {
				p := unhex(t, strings.ReplaceAll(place, "N", number)+"00 00 00 00 01")
				value, err := payloadOf(wire.Message{Header: wire.Header{Type: kind}, Payload: p})
				assert.Check(t, err != nil, "%v %x: %+v", kind, p, value)
				assert.Check(t, !delivered(t, kind, p), "%v with %s for %s was delivered", kind, number, place)
			}
		}
	}
}

// A Record is used again without what it had, and does not keep the room of an unusual payload.
func TestRecordReused(t *testing.T) {
	var r wire.Record
	full := client.AppendRecord(nil, &record)
	if err := r.Decode(full); err != nil || len(r.Tags) != 1 {
		t.Fatal(r, err)
	}
	allocations := testing.AllocsPerRun(100, func() {
		if err := r.Decode(full); err != nil {
			t.Fatal(err)
		}
	})
	assert.Check(t, allocations <= 0, "%v allocations", allocations)
	if err := r.Decode([]byte{0, 0, 0}); err != nil || len(r.Measurements)+len(r.Tags)+len(r.Attachments) > 0 {
		t.Error(r, err)
	}
}

// Of payloads with many items the first ones are decoded, and the others are counted and checked.
// What that allocates is bounded, and a Record keeps no more.
func TestManyItems(t *testing.T) {
	const most = 1 << 20 // of a payload
	fill := func(item string, after ...byte) ([]byte, int) {
		n := (most - 20) / len(item)
		return append(append(binary.AppendUvarint(nil, uint64(n)), strings.Repeat(item, n)...), after...), n
	}
	var r wire.Record
	count := func(kept, more int) func() (int, int) { return func() (int, int) { return kept, more } }
	for name, test := range map[string]struct {
		item  string
		after []byte
		front string
		// decode returns how many are kept, and how many more there are.
		decode    func(p []byte) (kept func() (int, int), err error)
		kept      int
		allocated uint64
	}{
		"measurements": {"\x00\xff", []byte{0, 0}, "", func(p []byte) (func() (int, int), error) {
			err := r.Decode(p)
			return count(len(r.Measurements), r.MoreMeasurements), err
		}, wire.MaxMeasurements, 64 << 10},
		"tags": {"\x00\x00", []byte{0}, "\x00", func(p []byte) (func() (int, int), error) {
			err := r.Decode(p)
			return count(len(r.Tags), r.MoreTags), err
		}, wire.MaxKeyValues, 64 << 10},
		"attachments": {"\x00\x00", nil, "\x00\x00", func(p []byte) (func() (int, int), error) {
			err := r.Decode(p)
			return count(len(r.Attachments), r.MoreAttachments), err
		}, wire.MaxKeyValues, 64 << 10},
		"views": {"\x00\x00\x00\x00\x01", nil, "", func(p []byte) (func() (int, int), error) {
			views, more, err := wire.DecodeViews(p)
			return count(len(views), more), err
		}, wire.MaxViews, 2 << 20},
		"tag keys": {"\x01k", []byte{0, 1}, "\x01\x00\x00", func(p []byte) (func() (int, int), error) {
			views, _, err := wire.DecodeViews(p)
			if err != nil {
				return nil, err
			}
			return count(len(views[0].TagKeys), views[0].MoreTagKeys), nil
		}, wire.MaxTagKeys, 64 << 10},
		"views with boundaries": {
			"\x00\x00\x00\x00\x03\x01\x3f\xf0\x00\x00\x00\x00\x00\x00", nil, "",
			func(p []byte) (func() (int, int), error) {
				views, more, err := wire.DecodeViews(p)
				return count(len(views), more), err
			}, wire.MaxViews, 2 << 20,
		},
		"names": {"\x00", nil, "", func(p []byte) (func() (int, int), error) {
			names, more, err := wire.DecodeNames(p)
			return count(len(names), more), err
		}, wire.MaxViews, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			r = wire.Record{}
			p, n := fill(test.item, test.after...)
			p = append([]byte(test.front), p...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			result, err := test.decode(p)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if kept, more := result(); kept != test.kept || kept+more != n {
				t.Errorf("%d and %d more, of %d", kept, more, n)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > test.allocated {
				t.Errorf("%d bytes were allocated", allocated)
			}
			if room := cap(r.Measurements) + cap(r.Tags) + cap(r.Attachments); room > 2*wire.MaxMeasurements {
				t.Errorf("room for %d items is kept", room)
			}
			for what, bad := range map[string][]byte{"short": p[:len(p)-1], "longer": append(p, 1)} {
				if _, err := test.decode(bad); err == nil {
					t.Errorf("%s: decodes", what)
				}
			}
			if err := r.Decode([]byte{0, 0, 0}); err != nil || r.MoreMeasurements+r.MoreTags+r.MoreAttachments > 0 {
				t.Errorf("%+v (%v)", r, err)
			}
		})
	}
}

// Payloads are checked by the reader of each connection, which accounts for no more than their bytes.
func TestCheckAllocatesNothing(t *testing.T) {
	text := "\x40" + strings.Repeat("t", 64) // a copy of a shorter one need not be allocated
	for kind, payload := range map[wire.Type]string{
		wire.StatsRecord:     "\x01" + text + "\x01\x05\x01" + text + text + "\x01" + text + text,
		wire.TraceExport:     `[{"a":1}]`,
		wire.ProcessInit:     "\x01" + text + text,
		wire.RequestInit:     "\x01" + text + text,
		wire.MeasureCreate:   "\x01" + text + text + text,
		wire.ReportingPeriod: "\x00\x00\x00\x00\x00\x00\x00\x00",
		wire.ViewRegister: "\x01" + text + text + "\x02" + text + text + text +
			"\x03\x01\x00\x00\x00\x00\x00\x00\x00\x00",
		wire.ViewUnregister: "\x02" + text + text,
	} {
		p := []byte(payload)
		allocations := testing.AllocsPerRun(100, func() { assert.NilError(t, wire.Check(kind, p)) })
		assert.Check(t, allocations == 0, "%v: %v allocations", kind, allocations)
	}
}

// Which types measures may have, and which digits are an id.
func TestMeasureTypesAndIDs(t *testing.T) {
	for kind := range 256 {
		known := kind == int(wire.Int) || kind == int(wire.Float) || kind == int(wire.Unknown)
		err := wire.Check(wire.MeasureCreate, []byte{byte(kind), 0, 0, 0})
		assert.Check(t, (err == nil) == known, "type %d: %v", kind, err)
	}
	for digits, want := range map[string][2]byte{
		"": {}, "0": {}, "0000": {}, "1": {0, 1}, "aBc": {0x0a, 0xbc}, "ffff": {0xff, 0xff},
		"0ffff": {}, "g": {}, "1g": {},
	} {
		var got [2]byte
		ok := wire.ReadID(got[:], []byte(digits))
		assert.Check(t, ok == (want != [2]byte{}) && (!ok || got == want), "%q: %x, %v", digits, got, ok)
	}
}

// All that is counted of one stream is added to that of others.
func TestAddCounts(t *testing.T) {
	one := wire.Counts{Unknown: 1, Skipped: 2}
	for i := range uint64(wire.Types) {
		one.Malformed[i], one.Truncated[i], one.Oversize[i], one.NoMemory[i] = 10+i, 20+i, 30+i, 40+i
	}
	var sum wire.Counts
	sum.Add(&one)
	assert.Check(t, sum == one, "%+v, want %+v", sum, one)
}
