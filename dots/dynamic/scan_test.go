package dynamic_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// allTypes is an instance of DemoAll as the C++ client sent it.
const allTypes = `b819 01 63616c6c 02 f5 03 24 04 39012b 05 3a0001116f 06 3b000000012a05f1ff
07 18c8 08 19ea60 09 1aee6b2800 0a 1bffffffffffffffff 0b fa3fc00000 0c fbbfb999999999999a
0d fb41d954fc40100000 0e fb40c81cc000000000 0f fbc004000000000000
10 5000112233445566778899aabbccddeeff 11 16 12 05 13 a102666e6573746564 14 82f5f4
15 82616162c3a4 16 83010205 17 82a101f5a0 1818 820118ff 181f fb4008000000000000`

func instanceOf(tb testing.TB, text string) []byte {
	tb.Helper()
	return unhex(tb, strings.ReplaceAll(text, "\n", ""))
}

func TestObjectOfAllTypes(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoAll")
	instance := instanceOf(t, allTypes)
	o, n, err := dynamic.Decode(s, instance)
	assert.Assert(t, err == nil && n == len(instance) && o.Valid() == 0x81fffffe,
		"%d of %d bytes, properties %#x, error %v", n, len(instance), o.Valid(), err)
	uid := value.UUID{
		0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
	}
	want := map[string]any{
		"id": "all", "b": true, "i8": int64(-5), "i16": int64(-300), "i32": int64(-70000),
		"i64": int64(-5000000000), "u8": uint64(200), "u16": uint64(60000), "u32": uint64(4000000000),
		"u64": uint64(1<<64 - 1), "f32": float32(1.5), "f64": -0.1, "tp": value.Timepoint(1700000000.25),
		"stp": value.SteadyTimepoint(12345.5), "dur": value.Duration(-2.5), "uid": uid,
		"ps": value.PropertySet(0x16), "color": uint32(5), "last": 3.0,
	}
	made := dynamic.New(s)
	for name, v := range want {
		got := o.ByName(name)
		assert.Check(t, got == v, "%s = %T %v, want %T %v", name, got, got, v, v)
		assert.Check(t, made.SetByName(name, v))
	}
	for _, name := range []string{"part", "vb", "vs", "vc", "vp", "vu8"} {
		assert.Check(t, made.SetByName(name, o.ByName(name)))
	}
	got := made.Append(nil, made.Valid())
	assert.Check(t, bytes.Equal(got, instance), "made object %x, want %x", got, instance)
	if err := made.Set(31, nil); err != nil || made.Get(31) != nil || made.Valid() != 0x01fffffe {
		t.Errorf("unset: %v, properties %#x, error %v", made.Get(31), made.Valid(), err)
	}
}

func TestObjectRefuses(t *testing.T) {
	reg := registry(t, demoTypes)
	o := dynamic.New(reg.Struct("DemoAll"))
	for name, v := range map[string]any{
		"id": "\xff", "b": 1, "i8": int64(128), "i16": int64(-32769), "u8": uint64(256), "u64": int64(1),
		"f32": 1.5, "f64": float32(1.5), "tp": 1.0, "uid": "00", "ps": uint64(1), "color": uint32(3),
		"part": dynamic.New(reg.Struct("DemoAll")), "vb": []any{uint64(1)}, "vs": "a", "nothing": 1,
	} {
		assert.Check(t, o.SetByName(name, v) != nil, "%s took %T %v", name, v, v)
	}
	assert.Check(t, o.Valid() == 0, "properties %#x", o.Valid())
}

// TestCanonicalize has instances that are accepted though a strict encoder writes others.
func TestCanonicalize(t *testing.T) {
	reg := registry(t, demoTypes)
	for _, test := range []struct{ name, typeName, in, want string }{
		{"order", "DemoGadget", "a2 06 fb3ff8000000000000 01 01", "a2 01 01 06 fb3ff8000000000000"},
		{"order of declaration", "DemoRest", "a2 01 6161 02 82 6154 41a0", "a2 02 82 6154 41a0 01 6161"},
		{"repeated", "DemoGadget", "a3 01 01 02 6161 01 02", "a2 01 02 02 6161"},
		{"unknown", "DemoGadget", "a2 01 01 07 83 01 a1 6161 f5 f9 0000", "a1 01 01"},
		{"unknown, long tag", "DemoGadget", "a2 01 01 1b ffffffffffffffff 41 00", "a1 01 01"},
		{"long count", "DemoGadget", "b801 01 01", "a1 01 01"},
		{"long tag", "DemoGadget", "a1 1801 01", "a1 01 01"},
		{"long number", "DemoGadget", "a1 01 1b 0000000000000007", "a1 01 07"},
		{"long text", "DemoGadget", "a1 02 7801 61", "a1 02 6161"},
		{"long array", "DemoGadget", "a1 05 9801 01", "a1 05 8101"},
		{"nested", "DemoGadget", "a1 04 a2 02 6161 01 f5", "a1 04 a2 01 f5 02 6161"},
		{"nested unknown", "DemoGadget", "a1 04 a1 03 00", "a1 04 a0"},
		{"in a vector", "DemoAll", "a1 17 81 a2 02 6161 01 f5", "a1 17 81 a2 01 f5 02 6161"},
		{"int8 as unsigned", "DemoAll", "a1 03 18ff", "a1 03 20"},
		{"int64 as unsigned", "DemoAll", "a1 06 1bffffffffffffffff", "a1 06 20"},
		{"float64 of 32 bits", "DemoAll", "a1 0c fa3fc00000", "a1 0c fb3ff8000000000000"},
		{"timepoint of 16 bits", "DemoAll", "a1 0d f93e00", "a1 0d fb3ff8000000000000"},
		{"float32 of 16 bits", "DemoAll", "a1 0b f93e00", "a1 0b fa3fc00000"},
		{"uuid", "DemoAll", "a1 10 581000112233445566778899aabbccddeeff",
			"a1 10 5000112233445566778899aabbccddeeff"},
		{"any", "DemoRest", "a1 02 9802 7801 54 5801 a0", "a1 02 82 6154 41a0"},
		{"all", "DemoAll", strings.ReplaceAll(allTypes, "\n", ""), strings.ReplaceAll(allTypes, "\n", "")},
	} {
		s := reg.Struct(test.typeName)
		in, want := unhex(t, test.in), unhex(t, test.want)
		var l dynamic.Layout
		if n, err := dynamic.Scan(s, in, &l); err != nil || n != len(in) || l.Canonical != bytes.Equal(in, want) {
			t.Errorf("%s: %d of %d bytes, canonical %v, error %v", test.name, n, len(in), l.Canonical, err)
		}
		got, err := dynamic.Canonicalize([]byte{0xff}, s, in)
		if err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%s: %x, want %x, error %v", test.name, got[1:], want, err)
		}
	}
}

func TestScanRefuses(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoAll")
	deep := strings.Repeat("81", cbor.MaxDepth+2) + "00"
	for _, test := range []struct {
		in   string
		want error
	}{
		{"", cbor.ErrShort},
		{"a1", cbor.ErrShort},
		{"a101", cbor.ErrShort},
		{"ba ffffffff", cbor.ErrShort},
		{"bb ffffffffffffffff", cbor.ErrShort},
		{"80", cbor.ErrType},
		{"bf 01 6161 ff", cbor.ErrType},
		{"a1 20 00", cbor.ErrType}, // negative tag
		{"a1 01 00", cbor.ErrType},
		{"a1 01 f6", cbor.ErrType}, // null
		{"a1 01 7f 6161 ff", cbor.ErrType},
		{"a1 01 c0 6161", cbor.ErrType}, // CBOR tag
		{"a1 01 62 61", cbor.ErrShort},
		{"a1 01 7b ffffffffffffffff 61", cbor.ErrShort},
		{"a1 01 62 c328", dynamic.ErrUTF8},
		{"a1 02 00", cbor.ErrType},
		{"a1 03 190001ff", nil}, // a longer form of a number that fits
		{"a1 03 190100", cbor.ErrRange},
		{"a1 03 3880", cbor.ErrRange},
		{"a1 06 3b8000000000000000", cbor.ErrRange},
		{"a1 07 190100", cbor.ErrRange},
		{"a1 07 20", cbor.ErrType},
		{"a1 09 1b0000000100000000", cbor.ErrRange},
		{"a1 0b fb3ff8000000000000", cbor.ErrType}, // float64 for float32
		{"a1 0b 01", cbor.ErrType},
		{"a1 0c 01", cbor.ErrType},
		{"a1 0c fb3ff80000", cbor.ErrShort},
		{"a1 10 4f 00112233445566778899aabbccddee", cbor.ErrRange},
		{"a1 10 50 001122", cbor.ErrShort},
		{"a1 12 03", dynamic.ErrEnum},
		{"a1 12 1b 0000000100000001", cbor.ErrRange},
		{"a1 13 80", cbor.ErrType},
		{"a1 13 a1 01 00", cbor.ErrType},
		{"a1 14 9a ffffffff f5", cbor.ErrShort},
		{"a1 14 82 f5", cbor.ErrShort},
		{"a1 16 82 01 04", dynamic.ErrEnum},
		{"a1 18 19 00", nil}, // unknown tag 25
		{"a1 18 19 f6", cbor.ErrType},
		{"a1 18 19 9b 8000000000000000", cbor.ErrShort},
		{"a1 18 19 bb 8000000000000000 00 00", cbor.ErrShort},
		{"a1 18 19 1c", cbor.ErrType},
		{"a1 18 19 " + deep, cbor.ErrDepth},
	} {
		var l dynamic.Layout
		n, err := dynamic.Scan(s, unhex(t, test.in), &l)
		assert.Check(t, errors.Is(err, test.want) && (err == nil || n == 0),
			"%s: %d, error %v, want %v", test.in, n, err, test.want)
	}
}

// nestedTypes returns a chain of types that nest as deeply as types may.
func nestedTypes() string {
	text := "struct Nested0 { 1: bool leaf; }"
	for i := 1; i < schema.MaxDepth; i++ {
		text += fmt.Sprintf("struct Nested%d { 1: vector<Nested%d> inner; }", i, i-1)
	}
	return text
}

// TestDepth has unknown values of all depths within the deepest known one: Scan, which looks at an
// instance from its beginning, and Canonicalize, which looks at it from outside, agree.
func TestDepth(t *testing.T) {
	s := registry(t, nestedTypes()).Struct(fmt.Sprintf("Nested%d", schema.MaxDepth-1))
	prefix := strings.Repeat("a10181", schema.MaxDepth-1)
	accepted := 0
	for depth := range 2 * cbor.MaxDepth {
		in := unhex(t, prefix+"a2 01f5 02"+strings.Repeat("81", depth)+"00")
		var l dynamic.Layout
		_, err := dynamic.Scan(s, in, &l)
		canonical, canonicalErr := dynamic.Canonicalize(nil, s, in)
		if err == nil {
			accepted++
			if want := unhex(t, prefix+"a1 01f5"); canonicalErr != nil || !bytes.Equal(canonical, want) {
				t.Errorf("depth %d: canonical form %x, error %v", depth, canonical, canonicalErr)
			}
		} else if !errors.Is(err, cbor.ErrDepth) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	assert.Check(t, accepted != 0 && accepted <= cbor.MaxDepth, "%d depths are accepted", accepted)
}

func TestScanLayout(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoGadget")
	in := unhex(t, "a3 01 1864 02 6161 06 fb3ff8000000000000 ffff")
	var l dynamic.Layout
	n, err := dynamic.Scan(s, in, &l)
	assert.Assert(t, err == nil && n == len(in)-2 && l.Set == 1<<1|1<<2|1<<6 && l.Canonical, "%d, %+v, %v", n, l, err)
	for tag, want := range map[uint32]string{1: "1864", 2: "6161", 6: "fb3ff8000000000000"} {
		got := hex.EncodeToString(l.Value(in, tag))
		assert.Check(t, got == want, "property %d: %s, want %s", tag, got, want)
	}
	got := dynamic.AppendSelected(nil, s, in, &l, 1<<1|1<<3|1<<6)
	assert.Check(t, hex.EncodeToString(got) == "a201186406fb3ff8000000000000", "selected %x", got)
	_, err = dynamic.Canonicalize(nil, s, in)
	assert.Check(t, errors.Is(err, dynamic.ErrExcess), "canonical form of too much: %v", err)
}

func TestAppendMerged(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoGadget")
	old := unhex(t, "a4 01 01 02 6161 04 a2 01 f5 02 6161 06 fb3ff8000000000000")
	for _, test := range []struct {
		name, from string
		props      value.PropertySet
		want       string
	}{
		{"changed", "a2 01 01 06 fb4004000000000000", 0x42,
			"a4 01 01 02 6161 04 a2 01 f5 02 6161 06 fb4004000000000000"},
		{"unset", "a1 01 01", 0x46, "a2 01 01 04 a2 01 f5 02 6161"},
		{"added, replaced as a whole", "a3 01 01 03 05 04 a1 01 f4", 0x1a,
			"a5 01 01 02 6161 03 05 04 a1 01 f4 06 fb3ff8000000000000"},
		{"not selected", "a2 01 01 02 6162", 0x02,
			"a4 01 01 02 6161 04 a2 01 f5 02 6161 06 fb3ff8000000000000"},
	} {
		from := unhex(t, test.from)
		var oldLayout, fromLayout dynamic.Layout
		_, err := dynamic.Scan(s, old, &oldLayout)
		assert.NilError(t, err)
		_, err = dynamic.Scan(s, from, &fromLayout)
		assert.NilError(t, err)
		var gotLayout, wantLayout dynamic.Layout
		got := dynamic.AppendMerged(nil, s, old, &oldLayout, from, &fromLayout, test.props, &gotLayout)
		assert.Check(t, bytes.Equal(got, unhex(t, test.want)), "%s: %x, want %s", test.name, got, test.want)
		if _, err := dynamic.Scan(s, got, &wantLayout); err != nil || gotLayout != wantLayout {
			t.Errorf("%s: layout %+v, want %+v (%v)", test.name, gotLayout, wantLayout, err)
		}
	}
}

// TestScanAllocates checks that the broker's hot path takes no memory.
func TestScanAllocates(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoAll")
	in, key := instanceOf(t, allTypes), make([]byte, 0, 64)
	var l dynamic.Layout
	var err error
	if n := testing.AllocsPerRun(100, func() {
		_, err = dynamic.Scan(s, in, &l)
		key = dynamic.AppendKey(key[:0], s, in, &l)
	}); n != 0 || err != nil {
		t.Errorf("%v allocations, error %v", n, err)
	}
}
