package backend

import (
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlpprofiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"gotest.tools/v3/assert"
)

func request(locations ...*otlpprofiles.Location) *collector.ExportProfilesServiceRequest {
	text := func(s string) *common.AnyValue {
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
	}
	stack := &otlpprofiles.Stack{}
	for i := range locations {
		stack.LocationIndices = append(stack.LocationIndices, int32(i+1))
	}
	value := func(kind, unit int32) *otlpprofiles.ValueType {
		return &otlpprofiles.ValueType{TypeStrindex: kind, UnitStrindex: unit}
	}
	return &collector.ExportProfilesServiceRequest{
		Dictionary: &otlpprofiles.ProfilesDictionary{
			StringTable: []string{"", "samples", "count", "cpu", "nanoseconds", "profile.frame.type",
				"process.executable.build_id.htlhash", "shop.Checkout.pay", "Checkout.java", "java.lang.Thread.run",
				"Thread.java", "[stack truncated]"},
			AttributeTable: []*otlpprofiles.KeyValueAndUnit{{}, {KeyStrindex: 5, Value: text("jvm")},
				{KeyStrindex: 6, Value: text("000102030405060708090a0b0c0d0e0f")}},
			MappingTable: []*otlpprofiles.Mapping{{}, {AttributeIndices: []int32{2}}},
			FunctionTable: []*otlpprofiles.Function{{}, {NameStrindex: 7, FilenameStrindex: 8},
				{NameStrindex: 9, FilenameStrindex: 10}, {NameStrindex: 11}},
			LocationTable: append([]*otlpprofiles.Location{{}}, locations...),
			LinkTable:     []*otlpprofiles.Link{{}},
			StackTable:    []*otlpprofiles.Stack{{}, stack},
		},
		ResourceProfiles: []*otlpprofiles.ResourceProfiles{{ScopeProfiles: []*otlpprofiles.ScopeProfiles{{
			Profiles: []*otlpprofiles.Profile{{
				SampleType: value(1, 2), PeriodType: value(3, 4), TimeUnixNano: 1, DurationNano: 1,
				Samples: []*otlpprofiles.Sample{{StackIndex: 1, Values: []int64{1}, TimestampsUnixNano: []uint64{1}}},
			}},
		}}}},
	}
}

// The ids were computed apart from this code.
func TestStackID(t *testing.T) {
	line := func(function int32, line int64) []*otlpprofiles.Line {
		return []*otlpprofiles.Line{{FunctionIndex: function, Line: line}}
	}
	pay := &otlpprofiles.Location{Lines: line(1, 42), Address: 42, AttributeIndices: []int32{1}}
	run := &otlpprofiles.Location{Lines: line(2, 1), Address: 1, AttributeIndices: []int32{1}}
	cut := &otlpprofiles.Location{Lines: line(3, 0), Address: 1, AttributeIndices: []int32{1}}
	native := &otlpprofiles.Location{MappingIndex: 1, Lines: line(2, 7), Address: 4096}
	for want, locations := range map[string][]*otlpprofiles.Location{
		"-ItGe1bGL09tE9R4oTo8Cw": {pay}, "5U33S6WzyQnCtFnwk7gEtA": {run}, "3O5aEyDbWbg6sw8bPhE6Hg": {pay, run},
		"5Pz2euADjAg5CmyWp3Lsgg": {pay, cut}, "kh0iF1-J_9HtoXA3aFx9-g": {native},
	} {
		p := newProfiles()
		assert.NilError(t, p.add(request(locations...)))
		assert.Check(t, len(p.Stacks) == 1 && p.Stacks[want] != nil, "%v, want %s", p.Stacks, want)
	}
	p := newProfiles()
	assert.NilError(t, p.add(request(pay)))
	wantFrame := Frame{Type: "jvm", FileID: "43e6b7c9f4384c8443e6b7c9f4384c84", Address: 42,
		Function: "shop.Checkout.pay", SourceFile: "Checkout.java", Line: 42}
	got := p.Stacks["-ItGe1bGL09tE9R4oTo8Cw"]
	assert.Check(t, len(got) == 1 && got[0] == wantFrame, "%+v, want %+v", got, wantFrame)
	for name, wrong := range map[string]*otlpprofiles.Location{
		"no such function": {Lines: line(4, 1), Address: 1}, "outside of its mapping": {MappingIndex: 1, Address: 1},
	} {
		r := request(wrong)
		r.Dictionary.MappingTable[1].MemoryStart, r.Dictionary.MappingTable[1].MemoryLimit = 4096, 8192
		p := newProfiles()
		assert.Check(t, p.add(r) != nil, "%s: no error", name)
	}
}
