package dynamic_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/internal/recordings"
	"correlator/dots/schema"
)

// fuzzTypes returns types that between them have everything that a type may have.
func fuzzTypes(tb testing.TB) []*schema.Struct {
	tb.Helper()
	reg := registry(tb, demoTypes, nestedTypes())
	var all []*schema.Struct
	for _, name := range []string{
		"DemoAll", "DemoRest", "DemoGadget", "DotsMember", "DotsAuthentication", "Nested9", "Nested15",
	} {
		all = append(all, reg.Struct(name))
	}
	return all
}

func FuzzScan(f *testing.F) {
	types := fuzzTypes(f)
	f.Add(uint8(0), unhex(f, strings.ReplaceAll(allTypes, "\n", "")))
	f.Add(uint8(1), unhex(f, "a3 01 626100 1818 20 04 a2 01 f5 02 60"))
	f.Add(uint8(2), unhex(f, "a3 06 f93e00 01 1864 19 ffff 9f ff"))
	f.Add(uint8(6), unhex(f, strings.Repeat("a10181", 15)+"a2 01f5 02 818100"))
	for _, r := range recordings.All(f) {
		for _, frm := range r.Frames {
			var h frame.Header
			if in, _, err := frame.Next(r.Format, frm.Data, frame.DefaultLimit, &h); err == nil && !r.WebSocket {
				f.Add(uint8(3), in)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, in []byte) {
		s := types[int(which)%len(types)]
		var l dynamic.Layout
		n, err := dynamic.Scan(s, in, &l)
		o, decoded, decodeErr := dynamic.Decode(s, in)
		assert.Assert(t, (err == nil) == (decodeErr == nil) && n == decoded,
			"scanned %d, %v; decoded %d, %v", n, err, decoded, decodeErr)
		if err != nil {
			return
		}
		in = in[:n]
		canonical, err := dynamic.Canonicalize(nil, s, in)
		assert.Assert(t, err == nil && l.Canonical == bytes.Equal(canonical, in),
			"canonical form %x of %x, canonical %v, error %v", canonical, in, l.Canonical, err)
		if got := o.Append(nil, o.Valid()); !bytes.Equal(got, canonical) || o.Valid() != l.Set {
			t.Fatalf("object %x, canonical form %x", got, canonical)
		}
		var again dynamic.Layout
		if _, err := dynamic.Scan(s, canonical, &again); err != nil || !again.Canonical || again.Set != l.Set {
			t.Fatalf("canonical form %x: %+v, error %v", canonical, again, err)
		}
		key := dynamic.AppendKey(nil, s, in, &l)
		got := dynamic.AppendKey(nil, s, canonical, &again)
		assert.Assert(t, bytes.Equal(got, key), "key %x of %x, but %x of %x", key, in, got, canonical)
	})
}

func FuzzJSON(f *testing.F) {
	types := fuzzTypes(f)
	f.Add(uint8(0), []byte(allTypesJSON))
	f.Add(uint8(1), []byte(`{"content":["T","oP8="],"more":[["","" ]]}`))
	for _, frm := range recordings.Load(f, "41").Frames {
		f.Add(uint8(3), frm.Data)
	}
	reg := registry(f, demoTypes)
	f.Fuzz(func(t *testing.T, which uint8, in []byte) {
		var h frame.Header
		if instance, s, err := dynamic.ParseMessage(in, &h, reg.StructBytes); err == nil {
			message, _, err := dynamic.AppendMessage(nil, &h, s, instance, math.MaxInt, dynamic.BareNumbers)
			assert.NilError(t, err)
			again, _, err := dynamic.ParseMessage(message, &h, reg.StructBytes)
			assert.Assert(t, err == nil && bytes.Equal(again, instance),
				"message %s: %x, want %x, error %v", message, again, instance, err)
		}
		s := types[int(which)%len(types)]
		instance, set, err := dynamic.ParseJSON(nil, s, in)
		if err != nil {
			return
		}
		json, err := dynamic.AppendJSON(nil, s, instance)
		assert.NilError(t, err)
		again, againSet, err := dynamic.ParseJSON(nil, s, json)
		assert.Assert(t, err == nil && againSet == set && bytes.Equal(again, instance),
			"%s: %x, %#x, want %x, %#x, error %v", json, again, againSet, instance, set, err)
	})
}
