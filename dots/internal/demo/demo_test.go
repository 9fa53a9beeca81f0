package demo

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

// all is the object of recording 08, as the C++ client library encoded it.
const all = `
b819 01 63616c6c  02 f5  03 24  04 39012b  05 3a0001116f  06 3b000000012a05f1ff
07 18c8  08 19ea60  09 1aee6b2800  0a 1bffffffffffffffff  0b fa3fc00000
0c fbbfb999999999999a  0d fb41d954fc40100000  0e fb40c81cc000000000
0f fbc004000000000000  10 5000112233445566778899aabbccddeeff  11 16  12 05
13 a102666e6573746564  14 82f5f4  15 826161 62c3a4  16 83010205
17 82a101f5a0  1818 820118ff  181f fb4008000000000000`

var unhex = testenv.Unhex

func allObject() *DemoAll {
	return &DemoAll{
		ID:  value.Some("all"),
		B:   value.Some(true),
		I8:  value.Some[int8](-5),
		I16: value.Some[int16](-300),
		I32: value.Some[int32](-70000),
		I64: value.Some[int64](-5000000000),
		U8:  value.Some[uint8](200),
		U16: value.Some[uint16](60000),
		U32: value.Some[uint32](4000000000),
		U64: value.Some[uint64](math.MaxUint64),
		F32: value.Some[float32](1.5),
		F64: value.Some(-0.1),
		Tp:  value.Some[value.Timepoint](1700000000.25),
		Stp: value.Some[value.SteadyTimepoint](12345.5),
		Dur: value.Some[value.Duration](-2.5),
		UID: value.Some(value.UUID{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
			0xee, 0xff}),
		Ps:    value.Some[value.PropertySet](0x16),
		Color: value.Some(DemoColorBlue),
		Part:  value.Some(DemoPart{Label: value.Some("nested")}),
		Vb:    value.Some([]bool{true, false}),
		Vs:    value.Some([]string{"a", "ä"}),
		Vc:    value.Some([]DemoColor{DemoColorRed, DemoColorGreen, DemoColorBlue}),
		Vp:    value.Some([]DemoPart{{Flag: value.Some(true)}, {}}),
		Vu8:   value.Some([]uint8{1, 255}),
		Last:  value.Some(3.0),
	}
}

func TestEncodesRecordedObject(t *testing.T) {
	x := allObject()
	got := x.Valid()
	assert.Check(t, got == 0x81fffffe, "properties %#x", got)
	if got, want := x.AppendInstance(nil, x.Valid()), unhex(t, all); !bytes.Equal(got, want) {
		t.Errorf("encoded as\n%x, not\n%x", got, want)
	}
}

func TestDecodesRecordedObject(t *testing.T) {
	r := cbor.NewReader(unhex(t, all))
	x := DemoAll{ID: value.Some("what was there before")}
	x.DecodeInstance(&r)
	assert.Assert(t, r.Err() == nil && r.Len() <= 0, "%v, %d bytes left", r.Err(), r.Len())
	want := allObject()
	assert.Check(t, reflect.DeepEqual(&x, want), "decoded as\n%+v, not\n%+v", &x, want)
}

// Every start of an encoding that is cut off is an error.
func TestDecodesNoPart(t *testing.T) {
	whole := unhex(t, all)
	for n := range whole {
		r := cbor.NewReader(whole[:n])
		new(DemoAll).DecodeInstance(&r)
		if r.Err() == nil {
			t.Errorf("no error for the first %d bytes", n)
		}
	}
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name, data string
		want       DemoGadget
		err        error
	}{
		{name: "nothing is set", data: "a0"},
		{name: "any order", data: "a2 02 6161 01 05", want: DemoGadget{ID: value.Some[uint32](5), Name: value.Some("a")}},
		{name: "the last value counts", data: "a2 01 05 01 06", want: DemoGadget{ID: value.Some[uint32](6)}},
		{name: "unknown tags are skipped", data: "a3 07 82 01 a1 01 f5 181e 6161 01 05",
			want: DemoGadget{ID: value.Some[uint32](5)}},
		{name: "empty vector", data: "a1 05 80", want: DemoGadget{Numbers: value.Some([]int32{})}},
		{name: "tag of no enumerator", data: "a1 03 03", err: cbor.ErrRange},
		{name: "number of more bits", data: "a1 01 1b 0000000100000000", err: cbor.ErrRange},
		{name: "null", data: "a1 02 f6", err: cbor.ErrType},
		{name: "vector that ends early", data: "a1 05 9affffffff 01", err: cbor.ErrShort},
		{name: "error within a vector", data: "a1 05 84 01 6161 02 03", err: cbor.ErrType},
		{name: "no map", data: "81 01", err: cbor.ErrType},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := cbor.NewReader(unhex(t, test.data))
			var x DemoGadget
			x.DecodeInstance(&r)
			assert.Assert(t, errors.Is(r.Err(), test.err), "error %v, not %v", r.Err(), test.err)
			assert.Check(t, test.err != nil || reflect.DeepEqual(x, test.want),
				"decoded as %+v, not %+v", x, test.want)
		})
	}
}

func TestAppendOnlyWhatIsSelected(t *testing.T) {
	x := DemoGadget{ID: value.Some[uint32](1), Name: value.Some("a"), Level: value.Some(2.0)}
	tests := []struct {
		props value.PropertySet
		want  string
	}{
		{0, "a0"},
		{DemoGadgetID | DemoGadgetColor, "a1 01 01"},
		{DemoGadgetName | DemoGadgetID, "a2 01 01 02 6161"},
		{^value.PropertySet(0), "a3 01 01 02 6161 06 fb4000000000000000"},
	}
	for _, test := range tests {
		got, want := x.AppendInstance([]byte{0xff}, test.props), unhex(t, "ff"+test.want)
		assert.Check(t, bytes.Equal(got, want), "%#x: %x, not %x", test.props, got, want)
	}
}

func TestMergeIsFlat(t *testing.T) {
	x := DemoGadget{ID: value.Some[uint32](1), Name: value.Some("a"), Color: value.Some(DemoColorRed),
		Part: value.Some(DemoPart{Flag: value.Some(true), Label: value.Some("p1")}), Level: value.Some(2.0)}
	from := DemoGadget{ID: value.Some[uint32](9), Color: value.Some(DemoColorBlue),
		Part: value.Some(DemoPart{Flag: value.Some(false)}), Level: value.Some(3.0)}
	x.Merge(&from, DemoGadgetID|DemoGadgetName|DemoGadgetColor|DemoGadgetPart)
	want := DemoGadget{ID: value.Some[uint32](1), Color: value.Some(DemoColorBlue),
		Part: value.Some(DemoPart{Flag: value.Some(false)}), Level: value.Some(2.0)}
	assert.Check(t, reflect.DeepEqual(x, want), "merged to %+v, not %+v", x, want)
	if got, want := x.Key(), (DemoGadgetKey{ID: 1}); got != want {
		t.Errorf("key %v, not %v", got, want)
	}
}

func TestEnum(t *testing.T) {
	if DemoColorGreen != 2 || DemoColorGreen.Value() != 10 || DemoColorRed.Value() != 0 || DemoColorBlue.Value() != 4 {
		t.Errorf("green is %d with value %d, red %d, blue %d", uint32(DemoColorGreen), DemoColorGreen.Value(),
			DemoColorRed.Value(), DemoColorBlue.Value())
	}
	got := DemoColorGreen.String() + DemoColor(7).String()
	assert.Check(t, got == "greenDemoColor(7)", "named %s", got)
}

// What is decoded is encoded to what decodes to the same.
func FuzzDecode(f *testing.F) {
	f.Add(unhex(f, all))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := cbor.NewReader(data)
		var x DemoAll
		x.DecodeInstance(&r)
		if r.Err() != nil {
			return
		}
		encoded := x.AppendInstance(nil, x.Valid())
		r = cbor.NewReader(encoded)
		var y DemoAll
		y.DecodeInstance(&r)
		assert.Assert(t, r.Err() == nil && r.Len() <= 0, "%v, %d bytes left", r.Err(), r.Len())
		again := y.AppendInstance(nil, y.Valid())
		assert.Check(t, bytes.Equal(encoded, again), "%x, then %x", encoded, again)
	})
}
