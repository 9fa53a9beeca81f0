package dynamic_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/internal/recordings"
	"correlator/dots/schema"
)

// TestRecordings decodes the instance of every frame that was recorded by the types that were
// described before, and encodes it again: by Canonicalize, by Object and by way of JSON.
func TestRecordings(t *testing.T) {
	for _, r := range recordings.All(t) {
		if r.WebSocket {
			continue
		}
		t.Run(r.Name, func(t *testing.T) { testRecording(t, r) })
	}
}

func testRecording(t *testing.T, r recordings.Recording) {
	reg := registry(t)
	if r.Name[:2] == "40" { // the type was described to this broker before
		reg = registry(t, "struct DemoThing { 1: [key] uint32 id; 2: string name; }")
	}
	for _, f := range r.Frames {
		var h frame.Header
		instance, _, err := frame.Next(r.Format, f.Data, frame.DefaultLimit, &h)
		if err != nil {
			assert.Check(t, r.Name[:2] == "34", "line %d: %v", f.Line, err)
			continue
		}
		if r.Name[:2] == "33" && bytes.Contains(instance, []byte("NoType")) {
			continue // describes a type that cannot be
		}
		s := reg.StructBytes(h.TypeName)
		if s == nil {
			assert.Check(t, r.Name[:2] == "24" || r.Name[:2] == "25",
				"line %d: type %s is not known", f.Line, h.TypeName)
			continue
		}
		checkInstance(t, s, instance, f.Line, hasBadEnum(r, s, instance))
		if strings.HasSuffix(s.Name, "DescriptorData") {
			addDescribed(t, reg, s, instance)
		}
	}
}

// hasBadEnum reports whether an instance has a number for an enum that is no tag: one was sent to
// provoke an error, the others are of a Rust client that sends the values of enumerators, which the
// C++ broker refuses, too.
func hasBadEnum(r recordings.Recording, s *schema.Struct, instance []byte) bool {
	switch r.Name[:2] {
	case "31":
		return s.Name == "DotsMember"
	case "36", "37":
		return s.Name == "DemoEnumBox" && bytes.HasSuffix(instance, []byte{0x02, 0x0a})
	}
	return false
}

func checkInstance(t *testing.T, s *schema.Struct, instance []byte, line int, wantErr bool) {
	t.Helper()
	var l dynamic.Layout
	n, err := dynamic.Scan(s, instance, &l)
	assert.Check(t, (err != nil) == wantErr, "line %d: scanning %s %x: error %v", line, s.Name, instance, err)
	if err != nil {
		return
	}
	assert.Check(t, n == len(instance) && l.Canonical,
		"line %d: %s %x: %d bytes, canonical %v", line, s.Name, instance, n, l.Canonical)
	if got := dynamic.AppendSelected(nil, s, instance, &l, l.Set); !bytes.Equal(got, instance) {
		t.Errorf("line %d: selected %x, want %x", line, got, instance)
	}
	o, _, err := dynamic.Decode(s, instance)
	assert.NilError(t, err, "line %d", line)
	if got := o.Append(nil, l.Set); !bytes.Equal(got, instance) || o.Valid() != l.Set {
		t.Errorf("line %d: object %x, want %x", line, got, instance)
	}
	json, err := dynamic.AppendJSON(nil, s, instance)
	assert.NilError(t, err, "line %d", line)
	got, set, err := dynamic.ParseJSON(nil, s, json)
	assert.Check(t, err == nil && bytes.Equal(got, instance) && set == l.Set,
		"line %d: by way of JSON %s: %x, want %x, error %v", line, json, got, instance, err)
}

// TestRecordedMessages parses every message that was recorded on a WebSocket, and writes it again.
func TestRecordedMessages(t *testing.T) {
	reg := registry(t)
	r := recordings.Load(t, "41")
	for _, f := range r.Frames {
		var h frame.Header
		instance, s, err := dynamic.ParseMessage(f.Data, &h, reg.StructBytes)
		assert.NilError(t, err, "line %d", f.Line)
		checkInstance(t, s, instance, f.Line, false)
		got, _, err := dynamic.AppendMessage(nil, &h, s, instance, math.MaxInt, dynamic.BareNumbers)
		assert.NilError(t, err, "line %d", f.Line)
		want := jsontext.Value(f.Data) // the broker's have spaces
		assert.NilError(t, want.Compact())
		assert.Check(t, string(got) == string(want), "line %d:\n got %s\nwant %s", f.Line, got, want)
		if strings.HasSuffix(s.Name, "DescriptorData") {
			addDescribed(t, reg, s, instance)
		}
	}
	assert.Check(t, len(r.Frames) == 22, "%d messages", len(r.Frames))
}
