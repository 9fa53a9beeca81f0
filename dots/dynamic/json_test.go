package dynamic_test

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
)

const allTypesJSON = `{"id":"all","b":true,"i8":-5,"i16":-300,"i32":-70000,"i64":-5000000000,` +
	`"u8":200,"u16":60000,"u32":4000000000,"u64":18446744073709551615,"f32":1.5,"f64":-0.1,` +
	`"tp":1700000000.25,"stp":12345.5,"dur":-2.5,"uid":"00112233-4455-6677-8899-aabbccddeeff","ps":22,` +
	`"color":5,"part":{"label":"nested"},"vb":[true,false],"vs":["a","ä"],"vc":[1,2,5],` +
	`"vp":[{"flag":true},{}],"vu8":[1,255],"last":3}`

func TestAppendJSON(t *testing.T) {
	reg := registry(t, demoTypes)
	for _, test := range []struct{ name, typeName, in, want string }{
		{"all types", "DemoAll", strings.ReplaceAll(allTypes, "\n", ""), allTypesJSON},
		{"no property", "DemoAll", "a0", `{}`},
		{"other order", "DemoGadget", "a2 02 6161 01 01", `{"id":1,"name":"a"}`},
		{"no number", "DemoAll", "a2 0b fa7fc00000 0c fbfff0000000000000", `{"f32":"NaN","f64":"-Infinity"}`},
		{"large and small", "DemoAll", "a2 0c fb444b1ae4d6e2ef50 0d fb3e7ad7f29abcaf48",
			`{"f64":1e+21,"tp":1e-07}`},
		{"shortest of 32 bits", "DemoAll", "a1 0b fa40490e56", `{"f32":3.1415}`},
		{"escapes", "DemoSingle", "a1 01 67 225c0a01c3a43c", `{"text":"\"\\\n\u0001ä<"}`},
		{"any", "DemoRest", "a1 02 82 6154 42a0ff", `{"content":["T","oP8="]}`},
	} {
		got, err := dynamic.AppendJSON([]byte("x"), reg.Struct(test.typeName), unhex(t, test.in))
		if err != nil || string(got[1:]) != test.want {
			t.Errorf("%s:\n got %s\nwant %s\nerror %v", test.name, got[1:], test.want, err)
		}
	}
	got, err := dynamic.AppendJSON(nil, reg.Struct("DemoGadget"), unhex(t, "a1 03 03"))
	assert.Check(t, err != nil, "enum without such a tag: %s", got)
	got, err = dynamic.AppendJSON(nil, reg.Struct("DemoGadget"), unhex(t, "a0 00"))
	assert.Check(t, err != nil, "data after the instance: %s", got)
}

func TestParseJSON(t *testing.T) {
	reg := registry(t, demoTypes)
	for _, test := range []struct{ name, typeName, in, want string }{
		{"all types", "DemoAll", allTypesJSON, strings.ReplaceAll(allTypes, "\n", "")},
		{"spaces", "DemoGadget", " { \"id\" : 1 }\n", "a1 01 01"},
		{"other order", "DemoGadget", `{"part":{"label":"a","flag":true},"id":1}`, "a2 01 01 04 a2 01 f5 02 6161"},
		{"null is unset", "DemoGadget", `{"id":1,"name":null,"part":null,"numbers":null}`, "a1 01 01"},
		{"unknown", "DemoGadget", `{"x":[{"id":2}],"id":1}`, "a1 01 01"},
		{"no number", "DemoAll", `{"f64":1.5}`, "a1 0c fb3ff8000000000000"},
		{"exponent", "DemoAll", `{"f64":1e-7}`, "a1 0c fb3e7ad7f29abcaf48"},
		{"escapes", "DemoSingle", `{"te\u0078t":"\u00e4\n"}`, "a1 01 63 c3a40a"},
		{"upper case", "DemoAll", `{"uid":"00112233-4455-6677-8899-AABBCCDDEEFF"}`,
			"a1 10 5000112233445566778899aabbccddeeff"},
		{"any", "DemoRest", `{"content":["T","oP8="]}`, "a1 02 82 6154 42a0ff"},
	} {
		got, _, err := dynamic.ParseJSON(nil, reg.Struct(test.typeName), []byte(test.in))
		if want := unhex(t, test.want); err != nil || string(got) != string(want) {
			t.Errorf("%s: %x, want %x, error %v", test.name, got, want, err)
		}
	}
}

// Floats that JSON does not have are texts, which are read as what they were.
func TestTextFloats(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoAll")
	for text, want := range map[string]string{"NaN": "7ff8000000000001", "Infinity": "7ff0000000000000",
		"-Infinity": "fff0000000000000"} {
		in := `{"f64":"` + text + `"}`
		got, _, err := dynamic.ParseJSON(nil, s, []byte(in))
		assert.Check(t, err == nil && string(got) == string(unhex(t, "a1 0c fb"+want)), "%s: %x, %v", in, got, err)
		back, err := dynamic.AppendJSON(nil, s, got)
		assert.Check(t, err == nil && string(back) == in, "%s, %v", back, err)
	}
	for _, in := range []string{`{"f64":"nan"}`, `{"f64":""}`, `{"u8":"NaN"}`, `{"b":"Infinity"}`} {
		_, _, err := dynamic.ParseJSON(nil, s, []byte(in))
		assert.Check(t, err != nil, in)
	}
}

func TestParseJSONRefuses(t *testing.T) {
	s := registry(t, demoTypes).Struct("DemoAll")
	for _, in := range []string{
		``, `[]`, `{`, `{"id":"a"`, `{"id":"a"}x`, `{} {}`, `null`, `{"id":1}`, `{"b":1}`, `{"b":"true"}`,
		`{"i8":128}`, `{"i8":-129}`, `{"i8":1.5}`, `{"i8":"1"}`, `{"u8":-1}`, `{"u8":256}`,
		`{"u64":18446744073709551616}`, `{"f32":"1"}`, `{"f32":1e39}`, `{"f64":1e309}`, `{"f64":true}`,
		`{"tp":"2020-01-01"}`, `{"ps":4294967296}`, `{"color":3}`, `{"color":"red"}`, `{"part":[]}`,
		`{"part":{"flag":1}}`, `{"vb":true}`, `{"vb":[1]}`, `{"vb":[true}`, `{"vb":[null]}`, `{"vc":[4]}`,
		`{"uid":""}`, `{"uid":"00112233445566778899aabbccddeeff0000"}`,
		`{"uid":"0011223g-4455-6677-8899-aabbccddeeff"}`, `{"id":"a","id":"b"}`, "{\"id\":\"\xff\"}",
		`{"x":` + strings.Repeat("[", 20000) + `}`,
	} {
		got, _, err := dynamic.ParseJSON(nil, s, []byte(in))
		assert.Check(t, err != nil && len(got) == 0, "%.60s: %x, error %v", in, got, err)
	}
}

func TestParseMessageRefuses(t *testing.T) {
	reg := registry(t, demoTypes)
	for _, in := range []string{
		``, `{}`, `[]`, `[{}]`, `[{},{}]`, `[{"typeName":"DemoGadget"}]`, `[{"typeName":1},{}]`,
		`[{"typeName":"DemoGadget"},{},{}]`, `[{"typeName":"DemoGadget"},{}] 1`,
		`[{"typeName":"DemoGadget","attributes":-1},{}]`, `[{"typeName":"DemoGadget"},{"id":"a"}]`,
	} {
		var h frame.Header
		got, _, err := dynamic.ParseMessage([]byte(in), &h, reg.StructBytes)
		assert.Check(t, err != nil, "%s: %x", in, got)
	}
	var h frame.Header
	_, _, err := dynamic.ParseMessage([]byte(`[{"typeName":"Nothing"},{}]`), &h, reg.StructBytes)
	assert.Check(t, errors.Is(err, dynamic.ErrUnknownType), "unknown type: %v", err)
}

// Floats that JSON does not have are taken as peers in C++ write them, and as those take them; only
// where floats are.
func TestNumbersOfPeers(t *testing.T) {
	reg := registry(t, demoTypes)
	message := func(instance string) []byte { return []byte(`[{"typeName":"DemoAll"},` + instance + `]`) }
	const infinite = "7ff0000000000000"
	for in, want := range map[string]string{
		`{"f64":inf}`: "a1 0c fb" + infinite, `{"f64":-inf}`: "a1 0c fbfff0000000000000",
		`{"f64":Infinity,"f32":-infinity}`: "a2 0b faff800000 0c fb" + infinite, `{"dur":inf}`: "a1 0f fb" + infinite,
		`{"f64":1.797693134862316e+308}`: "a1 0c fb" + infinite, `{"f32":3.402824e+38}`: "a1 0b fa7f800000",
		`{"id":"inf","f64":inf}`:   "a2 01 63696e66 0c fb" + infinite,
		`{"id":"\"inf","f64":inf}`: "a2 01 6422696e66 0c fb" + infinite,
	} {
		var h frame.Header
		got, _, err := dynamic.ParseMessage(message(in), &h, reg.StructBytes)
		assert.Check(t, err == nil && string(got) == string(unhex(t, want)), "%s: %x, not %s, %v", in, got, want, err)
		_, _, err = dynamic.ParseJSON(nil, reg.Struct("DemoAll"), []byte(in))
		assert.Check(t, err != nil, "%s, of a user", in)
	}
	for _, in := range []string{`{"f64":nan}`, `{"f64":-nan}`, `{"f64":NaN}`, `{"f64":nan(0x1)}`} {
		var h frame.Header
		got, s, err := dynamic.ParseMessage(message(in), &h, reg.StructBytes)
		assert.NilError(t, err, in)
		back, unset, err := dynamic.AppendMessage(nil, &h, s, got, 1000, dynamic.BareNumbers)
		assert.Check(t, err == nil && unset == 0 && string(back) == string(message(`{"f64":nan}`)), "%s: %s, %v", in,
			back, err)
		back, unset, err = dynamic.AppendMessage(nil, &h, s, got, 1000, dynamic.NoNumbers)
		assert.Check(t, err == nil && unset == 1 && string(back) == string(message(`{"f64":null}`)), "%s: %s, %v", in,
			back, err)
	}
	for _, in := range []string{`{"id":inf}`, `{"u8":inf}`, `{"b":nan}`, `{"f64":info}`, `{"f64":xinf}`, `{"f64":+-inf}`,
		`{"f64":inf`, `{"f64":"inf"}`, `{"u8":1e999}`} {
		var h frame.Header
		got, _, err := dynamic.ParseMessage(message(in), &h, reg.StructBytes)
		assert.Check(t, err != nil, "%s: %x", in, got)
	}
	var h frame.Header
	text, _, err := dynamic.ParseMessage(message(`{"id":"\u0000inf"}`), &h, reg.StructBytes)
	assert.Check(t, err == nil && string(text) == string(unhex(t, "a1 01 64 00696e66")), "a text: %x, %v", text, err)
	got, s, err := dynamic.ParseMessage(message(`{"f32":inf,"f64":-inf}`), &h, reg.StructBytes)
	assert.NilError(t, err)
	for _, numbers := range []dynamic.Numbers{dynamic.BareNumbers, dynamic.NoNumbers} {
		back, unset, err := dynamic.AppendMessage(nil, &h, s, got, 1000, numbers)
		assert.Check(t, err == nil && unset == 0 && string(back) == string(message(`{"f32":1e999,"f64":-1e999}`)), "%s, %v",
			back, err)
	}
}

// TestAppendJSONWithin checks that not much more is made than there is room for.
func TestAppendJSONWithin(t *testing.T) {
	reg := registry(t, demoTypes)
	s := reg.Struct("DemoAll")
	for name, in := range map[string][]byte{
		"structs":    append(unhex(t, "a1 17 99 1000"), strings.Repeat("\xa1\x01\xf5", 0x1000)...),
		"characters": append(unhex(t, "a1 01 79 1000"), strings.Repeat("\x01", 0x1000)...),
		"text":       append(unhex(t, "a1 01 79 1000"), strings.Repeat("a", 0x1000)...),
	} {
		all, err := dynamic.AppendJSON(nil, s, in)
		assert.NilError(t, err, name)
		if got, err := dynamic.AppendJSONWithin(nil, s, in, len(all)); err != nil || len(got) != len(all) {
			t.Errorf("%s: %d bytes, error %v", name, len(got), err)
		}
		const limit = 0xf00
		got, err := dynamic.AppendJSONWithin(nil, s, in, limit)
		assert.Check(t, errors.Is(err, dynamic.ErrLimit) && len(got) == 0,
			"%s: %d bytes, error %v", name, len(got), err)
	}
}
