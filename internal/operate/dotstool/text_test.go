package dotstool

import (
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

var (
	mode = schema.MustEnum("Mode", schema.Element{Name: "off", Tag: 1}, schema.Element{Name: "heating", Tag: 4})

	place = schema.MustStruct("Place", schema.Flags{SubstructOnly: true},
		schema.Property{Name: "floor", Tag: 1, Type: schema.Builtin(schema.String)},
		schema.Property{Name: "area", Tag: 2, Type: schema.Builtin(schema.Float64)})

	room = schema.MustStruct("Room", schema.Flags{Cached: true},
		schema.Property{Name: "name", Tag: 2, Type: schema.Builtin(schema.String)},
		schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
		schema.Property{Name: "mode", Tag: 3, Type: schema.OfEnum(mode)},
		schema.Property{Name: "place", Tag: 4, Type: schema.OfStruct(place)})
)

func object(t *testing.T, s *schema.Struct, values map[string]any) *dynamic.Object {
	t.Helper()
	o := dynamic.New(s)
	for name, v := range values {
		assert.NilError(t, o.SetByName(name, v))
	}
	return o
}

func TestText(t *testing.T) {
	strings10k := make([]any, 10_000)
	for i := range strings10k {
		strings10k[i] = "text"
	}
	texts := schema.MustVector(schema.Builtin(schema.String))
	for _, test := range []struct {
		t    *schema.Type
		v    any
		want string
	}{
		{schema.Builtin(schema.String), nil, ""},
		{schema.Builtin(schema.Bool), true, "true"},
		{schema.Builtin(schema.Int64), int64(math.MinInt64), "-9223372036854775808"},
		{schema.Builtin(schema.Uint64), uint64(math.MaxUint64), "18446744073709551615"},
		{schema.Builtin(schema.Float32), float32(0.1), "0.1"},
		{schema.Builtin(schema.Float64), math.Inf(-1), "-Inf"},
		{schema.Builtin(schema.String), "a \"b\" \x1b", "a \"b\" \x1b"},
		{texts, []any{"a b", "\x1b[2J"}, `["a b" "\x1b[2J"]`},
		{texts, []any{}, "[]"},
		{schema.OfEnum(mode), uint32(4), "heating"},
		{schema.OfEnum(mode), uint32(5), "5"},
		{schema.Builtin(schema.Timepoint), value.Timepoint(1700000000.25), "2023-11-14T22:13:20.250Z"},
		{schema.Builtin(schema.Timepoint), value.Timepoint(math.Inf(1)), "+Infs"},
		{schema.Builtin(schema.Timepoint), value.Timepoint(-1), "-1s"},
		{schema.Builtin(schema.SteadyTimepoint), value.SteadyTimepoint(12345.5), "12345.5s"},
		{schema.Builtin(schema.Duration), value.Duration(-2.5), "-2.5s"},
		{schema.Builtin(schema.PropertySet), value.PropertySet(0x80000016), "{1 2 4 31}"},
		{schema.Builtin(schema.UUID), value.UUID{0x00, 0x11, 15: 0xff}, "00110000-0000-0000-0000-0000000000ff"},
		{schema.Builtin(schema.Any), value.Any{TypeName: "Room", Instance: []byte{0xa0}}, "Room (1 bytes)"},
		{schema.OfStruct(place), object(t, place, map[string]any{"area": 12.5, "floor": "g"}), `{floor:"g" area:12.5}`},
		{schema.OfStruct(place), dynamic.New(place), "{}"},
	} {
		if got := text(test.t, test.v); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.t.Name, test.v, got, test.want)
		}
	}
	for _, long := range []string{
		text(texts, strings10k), text(schema.Builtin(schema.String), strings.Repeat("x", 10_000)),
		text(texts, []any{strings.Repeat("\x00", 10_000)}),
	} {
		assert.Check(t, len(long) <= maxText+len("…") && strings.HasSuffix(long, "…"), "%d bytes: %q", len(long), long)
	}
}
