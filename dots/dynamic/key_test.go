package dynamic_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
)

func keyOf(tb testing.TB, s *schema.Struct, text string) []byte {
	tb.Helper()
	in := unhex(tb, text)
	var l dynamic.Layout
	_, err := dynamic.Scan(s, in, &l)
	assert.NilError(tb, err, text)
	return dynamic.AppendKey(nil, s, in, &l)
}

// TestAppendKeyOrder has values of one key property, each greater than the one before.
func TestAppendKeyOrder(t *testing.T) {
	for typeName, ascending := range map[string][]string{
		"bool":   {"f4", "f5"},
		"int8":   {"387f", "20", "00", "187f"},
		"int16":  {"397fff", "3863", "20", "00", "1863", "197fff"},
		"int64":  {"3b7fffffffffffffff", "3903e7", "20", "00", "1b7fffffffffffffff"},
		"uint8":  {"00", "17", "1818", "18ff"},
		"uint32": {"00", "18ff", "190100", "1a00010000", "1affffffff"},
		"uint64": {"00", "1affffffff", "1b8000000000000000", "1bffffffffffffffff"},
		"float32": {
			"faff800000", "fabf800000", "fa80000001", "fa00000000", "fa00000001", "fa3f800000",
			"fa3f800001", "fa7f800000", "fa7fc00000",
		},
		"float64": {
			"fbfff0000000000000", "fbbff0000000000000", "fb8000000000000001", "fb0000000000000000",
			"fb0000000000000001", "fb3ff0000000000000", "fb7ff0000000000000", "fbfff8000000000000",
		},
		"duration": {"fbc004000000000000", "f90000", "f93c00"},
		"string": {
			"60", "6100", "620000", "620001", "6101", "6161", "626100", "626101", "626161", "6162",
			"617f", "62c3a4",
		},
		"uuid": {
			"5000000000000000000000000000000001", "5000000000000000000000000000000100",
			"50ff000000000000000000000000000000",
		},
		"DemoColor":      {"01", "02", "05"},
		"DemoPart":       {"a0", "a1026161", "a101f4", "a201f4026161", "a101f5"},
		"vector<uint8>":  {"80", "8100", "820000", "820001", "8101"},
		"vector<string>": {"80", "8160", "826060", "816161", "82616160"},
	} {
		reg := registry(t, demoTypes, "struct KeyTest { 1: [key] "+typeName+" key; 2: string rest; }")
		s := reg.Struct("KeyTest")
		for i := 1; i < len(ascending); i++ {
			a, b := keyOf(t, s, "a1 01 "+ascending[i-1]), keyOf(t, s, "a1 01 "+ascending[i])
			if bytes.Compare(a, b) >= 0 {
				t.Errorf("%s: key %x of %s is not below %x of %s", typeName, a, ascending[i-1], b, ascending[i])
			}
		}
	}
}

func TestAppendKeyEqual(t *testing.T) {
	reg := registry(t, demoTypes, "struct KeyTest { 1: [key] float64 a; 2: [key] int8 b; 3: string rest; }")
	s := reg.Struct("KeyTest")
	want := keyOf(t, s, "a2 01 fb0000000000000000 02 20")
	for _, text := range []string{
		"a3 01 fb0000000000000000 02 20 03 6161",
		"a2 02 20 01 fb0000000000000000",
		"a2 01 fb8000000000000000 02 20", // -0
		"a2 01 f90000 02 18ff",
		"a3 01 fb3ff0000000000000 01 f90000 02 20",
	} {
		got := keyOf(t, s, text)
		assert.Check(t, bytes.Equal(got, want), "%s: key %x, want %x", text, got, want)
	}
}

func TestAppendKeyBytes(t *testing.T) {
	reg := registry(t, demoTypes)
	for _, test := range []struct{ typeName, in, want string }{
		{"DemoGadget", "a2 01 1864 02 6161", "00000064"},
		{"DemoSingle", "a1 01 6161", ""},
		{"DemoRest", "a3 01 626100 1818 20 04 a2 01 f5 02 60", "6100ff0000" + "7fff" + "0101" + "010000"},
	} {
		got := hex.EncodeToString(keyOf(t, reg.Struct(test.typeName), test.in))
		assert.Check(t, got == test.want, "%s %s: key %s, want %s", test.typeName, test.in, got, test.want)
	}
}
