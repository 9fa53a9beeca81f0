package dynamic_test

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/language"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/internal/lab/testenv"
)

// demoTypes are the types that the recordings describe, and one with the rest.
var demoTypes = func() string {
	text, err := os.ReadFile("../internal/demo/demo.dots")
	if err != nil {
		panic(err)
	}
	return string(text) + `
		struct DemoRest {
			2: any content;
			1: [key] string name;
			24: [key] int16 number;
			3: vector<any> more;
			4: [key] DemoPart part;
		}`
}()

// registry returns a registry of the types of the protocol and those that texts describe.
func registry(tb testing.TB, texts ...string) *schema.Registry {
	tb.Helper()
	reg := system.NewRegistry()
	for _, text := range texts {
		files, err := language.Parse(reg.ResolveType, language.Source{Name: "test", Text: []byte(text)})
		assert.NilError(tb, err)
		for _, t := range files[0].Types {
			if t.Struct != nil {
				_, err = reg.AddStruct(t.Struct)
			} else {
				_, err = reg.AddEnum(t.Enum)
			}
			assert.NilError(tb, err)
		}
	}
	return reg
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

var unhex = testenv.Unhex
