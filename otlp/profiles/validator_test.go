package profiles

import (
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/profile"
)

// The validator finds what other tests rely on it to find.
func TestValidator(t *testing.T) {
	type (
		request = collector.ExportProfilesServiceRequest
		dict    = profiles.ProfilesDictionary
	)
	good := one(t, testOptions(&counter{}), sampleOf(shop, profile.Frame{File: library, Address: 1},
		profile.Frame{Address: 2}, profile.NewJVMFrame(profile.NewFunction("f", "F.java"), 3)))
	profileOf := func(r *request) *profiles.Profile {
		return r.ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
	}
	sample := func(r *request) *profiles.Sample { return profileOf(r).Samples[0] }
	for name, spoil := range map[string]func(r *request, d *dict){
		"no dictionary":      func(r *request, _ *dict) { r.Dictionary = nil },
		"no zero string":     func(_ *request, d *dict) { d.StringTable[0] = "x" },
		"no functions":       func(_ *request, d *dict) { d.FunctionTable = nil },
		"empty link":         func(_ *request, d *dict) { d.LinkTable[0].TraceId = nil },
		"duplicate string":   func(_ *request, d *dict) { d.StringTable[1] = "cpu" },
		"duplicate location": func(_ *request, d *dict) { d.LocationTable[2] = d.LocationTable[1] },
		"orphan":             func(_ *request, d *dict) { d.StringTable = append(d.StringTable, "x") },
		"orphaned mapping":   func(_ *request, d *dict) { d.LocationTable[1].MappingIndex = 0 },
		"no htlhash":         func(_ *request, d *dict) { d.MappingTable[1].AttributeIndices = nil },
		"address 0":          func(_ *request, d *dict) { d.LocationTable[1].Address = 0 },
		"no frame type":      func(_ *request, d *dict) { d.LocationTable[1].AttributeIndices = nil },
		"no such mapping":    func(_ *request, d *dict) { d.LocationTable[1].MappingIndex = 2 },
		"negative location":  func(_ *request, d *dict) { d.StackTable[1].LocationIndices[0] = -1 },
		"no such function":   func(_ *request, d *dict) { d.LocationTable[3].Lines[0].FunctionIndex = 2 },
		"no function":        func(_ *request, d *dict) { d.LocationTable[3].Lines[0].FunctionIndex = 0 },
		"no name":            func(_ *request, d *dict) { d.FunctionTable[1].NameStrindex = 0 },
		"no line":            func(_ *request, d *dict) { d.LocationTable[3].Lines = nil },
		"outside of mapping": func(_ *request, d *dict) {
			m := d.MappingTable[1]
			m.MemoryStart, m.MemoryLimit = 2, 9
		},
		"no such string": func(_ *request, d *dict) { d.AttributeTable[1].KeyStrindex = 99 },
		"no such stack":  func(r *request, _ *dict) { sample(r).StackIndex = 2 },
		"no such link":   func(r *request, _ *dict) { sample(r).LinkIndex = -2 },
		"attribute twice": func(r *request, _ *dict) {
			s := sample(r)
			s.AttributeIndices = append(s.AttributeIndices, s.AttributeIndices[0])
		},
		"short link":          func(_ *request, d *dict) { d.LinkTable[1].SpanId = []byte{1} },
		"transaction is span": func(_ *request, d *dict) { d.LinkTable[1].SpanId = []byte{3, 0, 0, 0, 0, 0, 0, 0} },
		"no times":            func(r *request, _ *dict) { sample(r).TimestampsUnixNano = nil },
		"late": func(r *request, _ *dict) {
			p := profileOf(r)
			sample(r).TimestampsUnixNano[0] = p.TimeUnixNano + p.DurationNano
		},
		"early": func(r *request, _ *dict) { sample(r).TimestampsUnixNano[0] = profileOf(r).TimeUnixNano - 1 },
		"value 0": func(r *request, _ *dict) {
			sample(r).Values = make([]int64, len(sample(r).TimestampsUnixNano))
		},
		"identity twice": func(r *request, _ *dict) { p := profileOf(r); p.Samples = append(p.Samples, p.Samples[0]) },
		"other type":     func(r *request, _ *dict) { profileOf(r).SampleType = profileOf(r).PeriodType },
		"short id":       func(r *request, _ *dict) { profileOf(r).ProfileId = []byte{1} },
		"no samples":     func(r *request, _ *dict) { profileOf(r).Samples = nil },
		"resource by reference": func(r *request, _ *dict) {
			index := &common.AnyValue_StringValueStrindex{StringValueStrindex: 1}
			r.ResourceProfiles[0].Resource.Attributes[0].Value = &common.AnyValue{Value: index}
		},
	} {
		bad := proto.Clone(good).(*request)
		spoil(bad, bad.Dictionary)
		assert.Check(t, validate(bad) != nil, "%s: not found", name)
	}
}
