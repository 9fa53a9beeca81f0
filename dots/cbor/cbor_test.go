package cbor_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

var unhex = testenv.Unhex

var testUUID = value.UUID{
	0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
}

// TestForms has what the C++ implementation writes for values of each type.
func TestForms(t *testing.T) {
	i := func(bits uint) func(*cbor.Reader) any {
		return func(r *cbor.Reader) any { return r.Int(bits) }
	}
	u := func(bits uint) func(*cbor.Reader) any {
		return func(r *cbor.Reader) any { return r.Uint(bits) }
	}
	float64s := func(r *cbor.Reader) any { return r.Float64() }
	for _, test := range []struct {
		data string
		want any
		got  []byte
		read func(*cbor.Reader) any
	}{
		{"f4", false, cbor.AppendBool(nil, false), func(r *cbor.Reader) any { return r.Bool() }},
		{"f5", true, cbor.AppendBool(nil, true), func(r *cbor.Reader) any { return r.Bool() }},
		{"00", int64(0), cbor.AppendInt(nil, 0), i(8)},
		{"24", int64(-5), cbor.AppendInt(nil, -5), i(8)},
		{"387f", int64(-128), cbor.AppendInt(nil, -128), i(8)},
		{"187f", int64(127), cbor.AppendInt(nil, 127), i(8)},
		{"39012b", int64(-300), cbor.AppendInt(nil, -300), i(16)},
		{"3a0001116f", int64(-70000), cbor.AppendInt(nil, -70000), i(32)},
		{"3b000000012a05f1ff", int64(-5000000000), cbor.AppendInt(nil, -5000000000), i(64)},
		{"3b7fffffffffffffff", int64(math.MinInt64), cbor.AppendInt(nil, math.MinInt64), i(64)},
		{"1b7fffffffffffffff", int64(math.MaxInt64), cbor.AppendInt(nil, math.MaxInt64), i(64)},
		{"17", uint64(23), cbor.AppendUint(nil, 23), u(8)},
		{"1818", uint64(24), cbor.AppendUint(nil, 24), u(8)},
		{"18c8", uint64(200), cbor.AppendUint(nil, 200), u(8)},
		{"18ff", uint64(255), cbor.AppendUint(nil, 255), u(8)},
		{"190100", uint64(256), cbor.AppendUint(nil, 256), u(16)},
		{"19ea60", uint64(60000), cbor.AppendUint(nil, 60000), u(16)},
		{"1a00010000", uint64(65536), cbor.AppendUint(nil, 65536), u(32)},
		{"1aee6b2800", uint64(4000000000), cbor.AppendUint(nil, 4000000000), u(32)},
		{"1b0000000100000000", uint64(1 << 32), cbor.AppendUint(nil, 1<<32), u(64)},
		{"1bffffffffffffffff", uint64(math.MaxUint64), cbor.AppendUint(nil, math.MaxUint64), u(64)},
		{"fa3fc00000", float32(1.5), cbor.AppendFloat32(nil, 1.5),
			func(r *cbor.Reader) any { return r.Float32() }},
		{"fbbfb999999999999a", -0.1, cbor.AppendFloat64(nil, -0.1), float64s},
		{"fb41d954fc40100000", 1700000000.25, cbor.AppendFloat64(nil, 1700000000.25), float64s},
		{"fb40c81cc000000000", 12345.5, cbor.AppendFloat64(nil, 12345.5), float64s},
		{"fbc004000000000000", -2.5, cbor.AppendFloat64(nil, -2.5), float64s},
		{"5000112233445566778899aabbccddeeff", testUUID, cbor.AppendUUID(nil, testUUID),
			func(r *cbor.Reader) any { return r.Bytes16() }},
		{"60", "", cbor.AppendString(nil, ""), func(r *cbor.Reader) any { return r.String() }},
		{"6161", "a", cbor.AppendText(nil, []byte("a")), func(r *cbor.Reader) any { return r.String() }},
		{"7818" + strings.Repeat("61", 24), strings.Repeat("a", 24),
			cbor.AppendString(nil, strings.Repeat("a", 24)), func(r *cbor.Reader) any { return r.String() }},
		{"42a0ff", "\xa0\xff", cbor.AppendBytes(nil, []byte{0xa0, 0xff}),
			func(r *cbor.Reader) any { return string(r.Bytes()) }},
		{"82 01 18ff", 2 + 1 + 255, cbor.AppendUint(cbor.AppendUint(cbor.AppendArray(nil, 2), 1), 255),
			func(r *cbor.Reader) any { return r.Array() + int(r.Uint(8)) + int(r.Uint(8)) }},
		{"a1 02 666e6573746564", "1 2nested",
			cbor.AppendString(cbor.AppendUint(cbor.AppendMap(nil, 1), 2), "nested"),
			func(r *cbor.Reader) any { return fmt.Sprint(r.Map(), r.Uint(8), r.String()) }},
	} {
		data := unhex(t, test.data)
		assert.Check(t, bytes.Equal(test.got, data), "%v: encoded %x, want %x", test.want, test.got, data)
		r := cbor.NewReader(append(data, 0))
		if got := test.read(&r); got != test.want || r.Err() != nil || r.Pos() != len(data) {
			t.Errorf("%s: %v, want %v, %d bytes, error %v", test.data, got, test.want, r.Pos(), r.Err())
		}
		r.Reset(data)
		if got := r.Value(); !bytes.Equal(got, data) || r.Len() != 0 {
			t.Errorf("%s: passed %x, error %v", test.data, got, r.Err())
		}
		for cut := range data {
			r.Reset(data[:cut])
			if test.read(&r); r.Err() == nil {
				t.Errorf("%s: cut to %d bytes: no error", test.data, cut)
			}
		}
	}
}

func TestLongCounts(t *testing.T) {
	for n, want := range map[int]string{24: "1818", 300: "19012c", 70000: "1a00011170"} {
		major := func(b byte) string {
			data := unhex(t, want)
			data[0] |= b
			return hex.EncodeToString(data)
		}
		got := hex.EncodeToString(cbor.AppendMap(nil, n))
		assert.Check(t, got == major(0xa0), "map of %d: %s", n, got)
		got = hex.EncodeToString(cbor.AppendArray(nil, n))
		assert.Check(t, got == major(0x80), "array of %d: %s", n, got)
		r := cbor.NewReader(append(cbor.AppendMap(nil, n), make([]byte, 2*n)...))
		if got := r.Map(); got != n || r.Err() != nil {
			t.Errorf("map of %d: %d, error %v", n, got, r.Err())
		}
	}
}

// TestLenient has forms that are not written, but must be understood.
func TestLenient(t *testing.T) {
	for _, test := range []struct {
		data string
		want float64
		read func(*cbor.Reader) float64
	}{
		{"18ff", -1, func(r *cbor.Reader) float64 { return float64(r.Int(8)) }},
		{"1880", -128, func(r *cbor.Reader) float64 { return float64(r.Int(8)) }},
		{"18ff", 255, func(r *cbor.Reader) float64 { return float64(r.Int(16)) }},
		{"19ffff", -1, func(r *cbor.Reader) float64 { return float64(r.Int(16)) }},
		{"1bffffffffffffffff", -1, func(r *cbor.Reader) float64 { return float64(r.Int(64)) }},
		{"1b0000000000000007", 7, func(r *cbor.Reader) float64 { return float64(r.Uint(8)) }},
		{"3800", -1, func(r *cbor.Reader) float64 { return float64(r.Int(8)) }},
		{"f93e00", 1.5, func(r *cbor.Reader) float64 { return float64(r.Float32()) }},
		{"f93e00", 1.5, (*cbor.Reader).Float64},
		{"f9be00", -1.5, (*cbor.Reader).Float64},
		{"f90001", 0x1p-24, (*cbor.Reader).Float64},
		{"f903ff", 1023 * 0x1p-24, (*cbor.Reader).Float64},
		{"f90400", 0x1p-14, (*cbor.Reader).Float64},
		{"f97bff", 65504, (*cbor.Reader).Float64},
		{"f97c00", math.Inf(1), (*cbor.Reader).Float64},
		{"f9fc00", math.Inf(-1), (*cbor.Reader).Float64},
		{"fa3fc00000", 1.5, (*cbor.Reader).Float64},
		{"b801", 1, func(r *cbor.Reader) float64 { return float64(r.Map()) }},
		{"9801", 1, func(r *cbor.Reader) float64 { return float64(r.Array()) }},
		{"7801 61", 1, func(r *cbor.Reader) float64 { return float64(len(r.String())) }},
	} {
		r := cbor.NewReader(append(unhex(t, test.data), 0, 0))
		if got := test.read(&r); got != test.want || r.Err() != nil {
			t.Errorf("%s: %v, want %v, error %v", test.data, got, test.want, r.Err())
		}
	}
	r := cbor.NewReader(unhex(t, "f97e00 f98000"))
	nan, zero := r.Float64(), r.Float64()
	assert.Check(t, nan != nan && zero == 0 && math.Signbit(zero), "not a number %v, -0 %v", nan, zero)
}

func TestReaderRefuses(t *testing.T) {
	read := map[string]func(*cbor.Reader){
		"bool": func(r *cbor.Reader) { r.Bool() }, "int8": func(r *cbor.Reader) { r.Int(8) },
		"int64": func(r *cbor.Reader) { r.Int(64) }, "uint8": func(r *cbor.Reader) { r.Uint(8) },
		"uint32": func(r *cbor.Reader) { r.Uint(32) }, "uint64": func(r *cbor.Reader) { r.Uint(64) },
		"float32": func(r *cbor.Reader) { r.Float32() }, "float64": func(r *cbor.Reader) { r.Float64() },
		"uuid": func(r *cbor.Reader) { r.Bytes16() }, "string": func(r *cbor.Reader) { _ = r.String() },
		"bytes": func(r *cbor.Reader) { r.Bytes() }, "map": func(r *cbor.Reader) { r.Map() },
		"array": func(r *cbor.Reader) { r.Array() }, "any value": (*cbor.Reader).Skip,
	}
	for _, test := range []struct {
		what, data string
		want       error
	}{
		{"bool", "00", cbor.ErrType}, {"bool", "f6", cbor.ErrType}, {"bool", "f3", cbor.ErrType},
		{"int8", "190100", cbor.ErrRange}, {"int8", "3880", cbor.ErrRange}, {"int8", "f4", cbor.ErrType},
		{"int64", "3b8000000000000000", cbor.ErrRange}, {"int64", "fb3ff8000000000000", cbor.ErrType},
		{"uint8", "190100", cbor.ErrRange}, {"uint8", "20", cbor.ErrType}, {"uint8", "1c", cbor.ErrType},
		{"uint32", "1b0000000100000000", cbor.ErrRange}, {"uint64", "c000", cbor.ErrType},
		{"float32", "fb3ff8000000000000", cbor.ErrType}, {"float32", "01", cbor.ErrType},
		{"float64", "01", cbor.ErrType}, {"float64", "fb3ff80000", cbor.ErrShort},
		{"uuid", "4f00112233445566778899aabbccddee", cbor.ErrRange}, {"uuid", "50 00", cbor.ErrShort},
		{"uuid", "7000112233445566778899aabbccddeeff", cbor.ErrType},
		{"string", "4161", cbor.ErrType}, {"string", "6261", cbor.ErrShort}, {"string", "7f6161ff", cbor.ErrType},
		{"string", "7bffffffffffffffff61", cbor.ErrShort}, {"bytes", "6161", cbor.ErrType},
		{"bytes", "5bffffffffffffffff61", cbor.ErrShort}, {"bytes", "5f4161ff", cbor.ErrType},
		{"map", "80", cbor.ErrType}, {"map", "a1 01", cbor.ErrShort}, {"map", "bf ff", cbor.ErrType},
		{"map", "bb8000000000000001 01 01", cbor.ErrShort}, {"map", "a2 01 01 01", cbor.ErrShort},
		{"array", "a0", cbor.ErrType}, {"array", "82 01", cbor.ErrShort}, {"array", "9f ff", cbor.ErrType},
		{"any value", "", cbor.ErrShort}, {"any value", "f6", cbor.ErrType}, {"any value", "f7", cbor.ErrType},
		{"any value", "f818", cbor.ErrType}, {"any value", "c100", cbor.ErrType}, {"any value", "ff", cbor.ErrType},
		{"any value", "a1 01", cbor.ErrShort}, {"any value", "82 81 00", cbor.ErrShort},
		{"any value", "9bffffffffffffffff 00", cbor.ErrShort}, {"any value", "bbffffffffffffffff 00", cbor.ErrShort},
		{"any value", strings.Repeat("81", cbor.MaxDepth+1) + "00", cbor.ErrDepth},
		{"any value", strings.Repeat("81", 1<<20), cbor.ErrDepth},
	} {
		r := cbor.NewReader(unhex(t, test.data))
		read[test.what](&r)
		assert.Check(t, errors.Is(r.Err(), test.want) && r.Len() == 0,
			"%s %.40s: error %v, want %v", test.what, test.data, r.Err(), test.want)
		first := r.Err()
		for _, f := range read { // all return at once, and the first error stays
			f(&r)
		}
		assert.Check(t, r.Err() == first, "%s: error %v became %v", test.data, first, r.Err())
	}
	n, err := cbor.Skip(unhex(t, strings.Repeat("81", cbor.MaxDepth)+"00"))
	assert.Check(t, n == cbor.MaxDepth+1 && err == nil, "the deepest value: %d, %v", n, err)
}

func FuzzReader(f *testing.F) {
	f.Add(unhex(f, "a3 01 6161 02 82 fb3ff8000000000000 20 03 50 00112233445566778899aabbccddeeff"))
	f.Add(unhex(f, "b801 1801 9801 f93e00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := cbor.Skip(data)
		assert.Assert(t, n >= 0 && n <= len(data) && (err == nil) == (n > 0),
			"%d of %d bytes, error %v", n, len(data), err)
		for which := range 13 {
			r := cbor.NewReader(data)
			for r.Err() == nil && r.Len() > 0 {
				before := r.Pos()
				readAny(&r, which)
				if r.Err() == nil && r.Pos() <= before {
					t.Fatalf("at byte %d after %d", r.Pos(), before)
				}
			}
		}
	})
}

func readAny(r *cbor.Reader, which int) {
	switch which {
	case 0:
		r.Bool()
	case 1:
		r.Float32()
	case 2:
		r.Float64()
	case 3:
		r.Text()
	case 4:
		r.Bytes()
	case 5:
		r.Bytes16()
	case 6:
		r.Map()
	case 7:
		r.Array()
	case 8:
		r.Value()
	case 9, 10:
		r.Int(8 << (which - 9))
	default:
		r.Uint(8 << (which - 11))
	}
}
