package demo

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/value"
)

func TestOddTypes(t *testing.T) {
	part := OddPart{D: value.Some[value.Duration](1.5)}
	content := value.Any{TypeName: "DemoThing", Instance: []byte{0xa1, 1, 5}}
	tests := []struct {
		name string
		x    interface {
			AppendInstance(dst []byte, props value.PropertySet) []byte
			DecodeInstance(r *cbor.Reader)
			Valid() value.PropertySet
		}
		want string
	}{
		{"names", &OddNames{KeyProperty: value.Some[uint32](1), X: value.Some("x"), Type: value.Some[int8](-1)},
			"a3 01 01 03 6178 04 20"},
		{
			"tags with one and two bytes",
			&OddNames{Tag23: value.Some([]float32{1.5}), Tag24: value.Some([]value.UUID{{1}})},
			"a2 17 81 fa3fc00000 1818 81 50 01000000000000000000000000000000",
		},
		{
			"order of declaration", &OddKeys{Color: value.Some(OddEnumIsIn), Part: value.Some(part), Text: value.Some("a"),
				Event: value.Some(OddEnumEarlySubscribe)},
			"a4 05 1846 03 a1 01 fb3ff8000000000000 02 6161 08 03",
		},
		{
			"any type", &OddKeys{Content: value.Some(content),
				Contents: value.Some([]value.Any{content, {TypeName: "A", Instance: []byte{0xa0}}})},
			"a2 01 82 69 44656d6f5468696e67 43 a10105 06 82 82 69 44656d6f5468696e67 43 a10105 82 61 41 41 a0",
		},
		{"vector of sets", &OddKeys{Sets: value.Some([]value.PropertySet{0x80000000})}, "a1 07 81 1a80000000"},
	}
	type decoder interface{ DecodeInstance(r *cbor.Reader) }
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := unhex(t, test.want)
			got := test.x.AppendInstance(nil, test.x.Valid())
			assert.Check(t, bytes.Equal(got, data), "encoded as\n%x, not\n%x", got, data)
			decoded := reflect.New(reflect.TypeOf(test.x).Elem()).Interface().(decoder)
			r := cbor.NewReader(data)
			decoded.DecodeInstance(&r)
			assert.Check(t, r.Err() == nil && r.Len() <= 0 && reflect.DeepEqual(decoded, test.x),
				"decoded as %+v, error %v", decoded, r.Err())
		})
	}
}

func TestKeyOfSeveral(t *testing.T) {
	x := OddKeys{Color: value.Some(OddEnumIsIn), ID: value.Some(value.UUID{7}), Text: value.Some("a"),
		Part: value.Some(OddPart{D: value.Some[value.Duration](1)})}
	want := OddKeysKey{Color: OddEnumIsIn, ID: value.UUID{7}, Text: "a",
		Part: OddPart{D: value.Some[value.Duration](1)}}
	got := x.Key()
	assert.Check(t, got == want, "key %+v, not %+v", got, want)
	assert.Check(t, (&DemoSingle{Text: value.Some("a")}).Key() == DemoSingleKey{}, "an object without key has one")
}

func TestDescriptorOfCode(t *testing.T) {
	s := (*OddKeys)(nil).Descriptor()
	if s.Name != "OddKeys" || s.Keys() != OddKeysColor|OddKeysID|OddKeysPart|OddKeysText || !s.Flags.Cached ||
		s.ByTag(6).Type.Name != "vector<any>" || s.ByTag(3).Type.Struct != (*OddPart)(nil).Descriptor() {
		t.Errorf("described as %+v", s)
	}
	f := (*OddNames)(nil).Descriptor().Flags
	assert.Check(t, !f.Cached && f.Persistent && f.Local && !f.Internal && !f.Cleanup, "flags %+v", f)
	e := OddEnum(3).Descriptor().ByTag(70)
	assert.Check(t, e != nil && e.Name == "isIn" && e.Value == 69, "enumerator %+v", e)
}

// A peer that claims many elements gets memory for those only that it sends.
func TestClaimedElements(t *testing.T) {
	for _, data := range []string{"a1 06 9b 7fffffffffffffff", "a1 07 9affffffff", "a1 01 9affffffff"} {
		r := cbor.NewReader(unhex(t, data))
		new(OddKeys).DecodeInstance(&r)
		assert.Check(t, errors.Is(r.Err(), cbor.ErrShort), "%s: error %v", data, r.Err())
	}
	// An error in the first of a million elements ends the decoding: the others are no objects.
	data := append(unhex(t, "a1 06 9a000f4240"), make([]byte, 1e6)...)
	r := cbor.NewReader(data)
	var x OddKeys
	x.DecodeInstance(&r)
	if r.Err() == nil || x.Contents.IsSet() {
		t.Errorf("decoded as %d elements", len(x.Contents.Value()))
	}
}

// A struct of 40 bytes takes a byte where nothing is set: memory is bounded before it is allocated.
func TestMemoryOfElements(t *testing.T) {
	data := append(unhex(t, "a1 17 9a01000000"), bytes.Repeat([]byte{0xa0}, 1<<24)...)
	r := cbor.NewReader(data)
	var x DemoAll
	x.DecodeInstance(&r)
	assert.Check(t, errors.Is(r.Err(), cbor.ErrRange) && len(x.Vp.Value()) <= 0,
		"%d elements, error %v", len(x.Vp.Value()), r.Err())
}
