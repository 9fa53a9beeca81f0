package dynamic_test

import (
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/schema"
	"correlator/dots/system"
)

// demoTypes are the types that the recordings describe, and one with the rest.
const demoTypes = `
enum DemoColor 1 2 5
DemoPart 1:bool:flag 2:string:label
DemoGadget 1!:uint32:id 2:string:name 3:DemoColor:color 4:DemoPart:part 5:vector<int32>:numbers 6:float64:level
DemoSingle 1:string:text
DemoAll 1!:string:id 2:bool:b 3:int8:i8 4:int16:i16 5:int32:i32 6:int64:i64 7:uint8:u8
 8:uint16:u16 9:uint32:u32 10:uint64:u64 11:float32:f32 12:float64:f64
 13:timepoint:tp 14:steady_timepoint:stp 15:duration:dur 16:uuid:uid 17:property_set:ps
 18:DemoColor:color 19:DemoPart:part 20:vector<bool>:vb 21:vector<string>:vs
 22:vector<DemoColor>:vc 23:vector<DemoPart>:vp 24:vector<uint8>:vu8 31:float64:last
DemoRest 2:any:content 1!:string:name 24!:int16:number 3:vector<any>:more 4!:DemoPart:part
`

// addTypes adds types that are described one a line: a name, and tag:type:name of each property,
// with ! for keys. A line that begins with a space continues the one before.
func addTypes(tb testing.TB, reg *schema.Registry, text string) {
	tb.Helper()
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n ", " ")
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] == "enum" {
			addEnum(tb, reg, words[1], words[2:])
			continue
		}
		var properties []schema.Property
		for _, word := range words[1:] {
			parts := strings.SplitN(word, ":", 3)
			tag, err := strconv.ParseUint(strings.TrimSuffix(parts[0], "!"), 10, 32)
			assert.NilError(tb, err)
			addProperty(tb, reg, &properties, uint32(tag), strings.HasSuffix(parts[0], "!"), parts[1], parts[2])
		}
		addStruct(tb, reg, words[0], properties)
	}
}

func addEnum(tb testing.TB, reg *schema.Registry, name string, tags []string) {
	tb.Helper()
	var elements []schema.Element
	for _, word := range tags {
		tag, err := strconv.ParseUint(word, 10, 32)
		assert.NilError(tb, err)
		elements = append(elements, schema.Element{Name: "e" + word, Tag: uint32(tag)})
	}
	e, err := schema.NewEnum(name, elements, "")
	if err == nil {
		_, err = reg.AddEnum(e)
	}
	assert.NilError(tb, err)
}

func addProperty(
	tb testing.TB, reg *schema.Registry, to *[]schema.Property,
	tag uint32, key bool, typeName, name string,
) {
	tb.Helper()
	t, err := reg.ResolveType(typeName)
	assert.NilError(tb, err)
	*to = append(*to, schema.Property{Name: name, Tag: tag, Key: key, Type: t})
}

func addStruct(tb testing.TB, reg *schema.Registry, name string, properties []schema.Property) {
	tb.Helper()
	s, err := schema.NewStruct(name, schema.Flags{}, properties, "")
	if err == nil {
		_, err = reg.AddStruct(s)
	}
	assert.NilError(tb, err)
}

// addDescribed adds the type that an instance describes.
func addDescribed(tb testing.TB, reg *schema.Registry, s *schema.Struct, instance []byte) {
	tb.Helper()
	var err error
	if s.Name == "EnumDescriptorData" {
		_, err = system.LearnEnum(reg, instance)
	} else {
		_, err = system.LearnStruct(reg, instance)
	}
	assert.Check(tb, err)
}

// registry returns a registry of the types of the protocol and those that texts describe.
func registry(tb testing.TB, texts ...string) *schema.Registry {
	tb.Helper()
	reg := system.NewRegistry()
	for _, text := range texts {
		addTypes(tb, reg, text)
	}
	return reg
}

func unhex(tb testing.TB, text string) []byte {
	tb.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	assert.NilError(tb, err)
	return data
}
