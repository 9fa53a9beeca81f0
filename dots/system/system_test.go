package system

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

const (
	colorHex = "a2 01 69 44656d6f436f6c6f72 02 83 a3 01 00 02 63 726564 03 01 a3 01 0a 02 65 677265656e 03 02 a3 01 04 02 64 626c7565 03 05"
	partHex  = "a3 01 68 44656d6f50617274 02 82 a4 01 64 666c6167 02 01 03 f4 04 64 626f6f6c" +
		"a4 01 65 6c6162656c 02 02 03 f4 04 66 737472696e67 05 a6 01f5 02f4 03f4 04f4 05f4 06f5"
)

var unhex = testenv.Unhex

func TestDescriptions(t *testing.T) {
	for want, typ := range map[string]*schema.Type{
		colorHex: schema.OfEnum(demo.DemoColor(0).Descriptor()),
		partHex:  schema.OfStruct((*demo.DemoPart)(nil).Descriptor()),
	} {
		got, name, props := AppendDescription(nil, typ)
		assert.Check(t, bytes.Equal(got, unhex(t, want)), "%s is described as\n%x", typ.Name, got)
		wantName, wantProps := "StructDescriptorData", value.PropertySet(0x26)
		if typ.Kind == schema.EnumKind {
			wantName, wantProps = "EnumDescriptorData", 0x06
		}
		assert.Check(t, name == wantName && props == wantProps, "%s: %s with properties %#x", typ.Name, name, props)
	}
}

// The C++ client library described these types; its enumerators have the same values.
func TestRecordedDescriptions(t *testing.T) {
	recording, err := os.ReadFile("../testdata/recordings/08-all-types-publisher.hex")
	assert.NilError(t, err)
	for _, s := range []*schema.Struct{(*demo.DemoAll)(nil).Descriptor(), (*demo.DemoSingle)(nil).Descriptor(),
		(*demo.DemoPing)(nil).Descriptor(), (*demo.DemoPart)(nil).Descriptor()} {
		instance, _, _ := AppendDescription(nil, schema.OfStruct(s))
		assert.Check(t, bytes.Contains(recording, []byte(hex.EncodeToString(instance)+"\n")),
			"%s is described as %x", s.Name, instance)
	}
}

func TestLearn(t *testing.T) {
	known := NewRegistry()
	color, err := LearnEnum(known, unhex(t, colorHex))
	assert.NilError(t, err)
	part, err := LearnStruct(known, unhex(t, partHex))
	assert.NilError(t, err)
	// What was learned is what was compiled in.
	got, err := known.AddEnum(demo.DemoColor(0).Descriptor())
	assert.Check(t, got == color && err == nil, "%v, error %v", got, err)
	if got, err := known.AddStruct((*demo.DemoPart)(nil).Descriptor()); got != part || err != nil {
		t.Errorf("%v, error %v", got, err)
	}
	instance, _, _ := AppendDescription(nil, schema.OfStruct((*demo.DemoAll)(nil).Descriptor()))
	all, err := LearnStruct(known, instance)
	assert.NilError(t, err)
	assert.Check(t, all.ByTag(18).Type.Enum == color && all.ByTag(23).Type.Elem.Struct == part &&
		all.All() == 0x81fffffe && all.Keys() == 2,
		"learned %+v", all)
	flags, err := LearnStruct(known, unhex(t, "a2 01 61 41 02 81 a3 01 61 61 02 01 04 64 626f6f6c"))
	assert.Check(t, err == nil && flags.Flags == schema.Flags{}, "without flags: %+v, error %v", flags, err)
}

func TestHostileDescriptions(t *testing.T) {
	property := func(name string, tag uint32, typeName string) StructPropertyData {
		return StructPropertyData{Name: value.Some(name), Tag: value.Some(tag), Type: value.Some(typeName)}
	}
	describe := func(properties ...StructPropertyData) []byte {
		d := StructDescriptorData{Name: value.Some("A"), Properties: value.Some(properties)}
		return d.AppendInstance(nil, d.Valid())
	}
	var many []StructPropertyData
	for i := range 10_000 {
		many = append(many, property("p", uint32(i), "bool"))
	}
	emptyMaps := func(n int) []byte {
		return append(cbor.AppendArray(unhex(t, "a2 01 61 41 02"), n), bytes.Repeat([]byte{0xa0}, n)...)
	}
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, cbor.ErrShort},
		{"no name", []byte{0xa0}, ErrDescription},
		{"no properties", unhex(t, "a1 01 61 41"), schema.ErrInvalid},
		{"empty list", describe(), schema.ErrInvalid},
		{"itself", describe(property("a", 1, "A")), schema.ErrMissing},
		{"itself in a vector", describe(property("a", 1, "vector<A>")), schema.ErrMissing},
		{"unknown type", describe(property("a", 1, "NoType")), schema.ErrMissing},
		{"vectors of vectors", describe(property("a", 1, strings.Repeat("vector<", 1000))), schema.ErrInvalid},
		{"tag 0", describe(property("a", 0, "bool")), schema.ErrInvalid},
		{"tag 32", describe(property("a", 32, "bool")), schema.ErrInvalid},
		{"highest tag", describe(property("a", 1<<32-1, "bool")), schema.ErrInvalid},
		{"tag twice", describe(property("a", 1, "bool"), property("b", 1, "bool")), schema.ErrInvalid},
		{"huge name", describe(property(strings.Repeat("a", 200_000), 1, "bool")), schema.ErrInvalid},
		{"huge type", describe(property("a", 1, strings.Repeat("a", 200_000))), schema.ErrInvalid},
		{"no type", describe(StructPropertyData{Name: value.Some("a"), Tag: value.Some[uint32](1)}), ErrDescription},
		{"no tag", describe(StructPropertyData{Name: value.Some("a"), Type: value.Some("bool")}), ErrDescription},
		{"10,000 properties", describe(many...), schema.ErrInvalid},
		{"200,000 empty properties", emptyMaps(200_000), schema.ErrInvalid},
		{"a million of empty properties", emptyMaps(1_000_000), cbor.ErrRange},
		{"bytes behind", append(describe(property("a", 1, "bool")), 0), cbor.ErrRange},
		{"internal type", unhex(t, "a2 01 6a 446f7473436c69656e74 02 81 a3 01 61 61 02 01 04 64 626f6f6c"),
			schema.ErrConflict},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := LearnStruct(NewRegistry(), test.data)
			assert.Assert(t, errors.Is(err, test.want), "%v, error %v, not %v", s, err, test.want)
			assert.Check(t, len(err.Error()) <= 1000, "a message of %d bytes", len(err.Error()))
		})
	}
}

func TestHostileEnums(t *testing.T) {
	for text, want := range map[string]error{
		"a0":                            ErrDescription,
		"a1 01 61 41":                   schema.ErrInvalid,
		"a2 01 61 41 02 81 a1 02 61 61": ErrDescription,
		"a2 01 61 41 02 82 a2 02 61 61 03 01 a2 02 61 62 03 01": schema.ErrInvalid,
		"a2 01 61 41 02 9affffffff":                             cbor.ErrShort,
	} {
		e, err := LearnEnum(NewRegistry(), unhex(t, text))
		assert.Check(t, e == nil && errors.Is(err, want), "%s: %v, error %v, not %v", text, e, err, want)
	}
}

// A chain of structs, each containing the one before it, ends at the depth that decoders allow.
func TestNestedDescriptions(t *testing.T) {
	known := NewRegistry()
	nested := "bool"
	for depth := 1; depth <= schema.MaxDepth+1; depth++ {
		d := StructDescriptorData{Name: value.Some(fmt.Sprint("S", depth))}
		d.Properties.Set([]StructPropertyData{{Name: value.Some("a"), Tag: value.Some[uint32](1),
			Type: value.Some(nested)}})
		_, err := LearnStruct(known, d.AppendInstance(nil, d.Valid()))
		ok := depth <= schema.MaxDepth
		assert.Assert(t, ok == (err == nil), "depth %d: error %v", depth, err)
		nested = "vector<" + d.Name.Value() + ">"
	}
}

func TestOrderOfDeclaration(t *testing.T) {
	x := DotsMsgConnectResponse{Accepted: value.Some(true), Preload: value.Some(true), ClientID: value.Some[uint32](2)}
	got := x.AppendInstance(nil, x.Valid())
	assert.Check(t, bytes.Equal(got, unhex(t, "a3 05 02 02 f5 03 f5")), "encoded as %x", got)
}

func TestFilter(t *testing.T) {
	data := unhex(t, "a4 01 69 44656d6f5468696e67 02 01 04 07 05 a2 01 a1 01 81 a2 01 01 02 a3 01 01 02 03 03 a1 03 1864 02 02")
	r := cbor.NewReader(data)
	var x DotsMember
	x.DecodeInstance(&r)
	leaf := x.Filter.Value().Predicate.Value().Nodes.Value()[0].Leaf.Value()
	if r.Err() != nil || x.Event.Value() != DotsMemberEventJoin || leaf.Op.Value() != DotsCompareOpLt ||
		leaf.Value.Value().UintValue.Value() != 100 {
		t.Errorf("decoded as %+v, error %v", x, r.Err())
	}
	got := x.AppendInstance(nil, x.Valid())
	assert.Check(t, bytes.Equal(got, data), "encoded as %x", got)
}

func TestRegistryOfProtocol(t *testing.T) {
	known := NewRegistry()
	for name, cached := range map[string]bool{"DotsClient": true, "DotsMsgHello": false, "StructDescriptorData": false,
		"DotsStatistics": true, "DotsContinuousRecorderStatus": true, "DotsClientStatistics": true,
		"DotsFilter": false} {
		s := known.Struct(name)
		assert.Check(t, s != nil && s.Flags.Cached == cached && s.Flags.Internal, "%s: %+v", name, s)
	}
	for _, typ := range known.Types() {
		assert.Check(t, typ.Struct == nil || typ.Struct.Flags.Internal, "%s is not internal", typ.Name)
	}
	assert.Check(t, known.Enum("DotsConnectionState") != nil && known.Enum("DotsStructScope") != nil,
		"an enum is missing")
}

// What a peer describes is learned completely, or refused: never with a panic.
func FuzzLearn(f *testing.F) {
	f.Add(unhex(f, partHex), unhex(f, colorHex))
	instance, _, _ := AppendDescription(nil, schema.OfStruct((*demo.DemoGadget)(nil).Descriptor()))
	f.Add(instance, unhex(f, colorHex))
	f.Fuzz(func(t *testing.T, structs, enums []byte) {
		known := NewRegistry()
		known.Limit(100, 1<<20)
		if e, err := LearnEnum(known, enums); err == nil {
			again, err := EnumOf(DescribeEnum(e))
			assert.Check(t, err == nil && reflect.DeepEqual(again, e), "%+v becomes %+v, error %v", e, again, err)
		}
		_, err := LearnStruct(known, unhex(t, partHex))
		assert.Assert(t, err == nil || errors.Is(err, schema.ErrConflict), err)
		s, err := LearnStruct(known, structs)
		if err != nil {
			return
		}
		again, err := StructOf(known, DescribeStruct(s))
		assert.Check(t, err == nil && again.Name == s.Name && again.Flags == s.Flags && again.All() == s.All() &&
			again.Keys() == s.Keys(),
			"%+v becomes %+v, error %v", s, again, err)
	})
}
