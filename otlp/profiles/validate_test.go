package profiles

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// decode reads a request as a receiver does, and holds it against the rules.
func decode(t testing.TB, body []byte) *collector.ExportProfilesServiceRequest {
	t.Helper()
	request := new(collector.ExportProfilesServiceRequest)
	assert.NilError(t, proto.Unmarshal(body, request))
	// So all is in fields of the schema, and nothing is longer than it has to be.
	n := proto.Size(request)
	assert.Assert(t, n == len(body) && cap(body) == len(body), "%d bytes of %d, %d would do", len(body), cap(body), n)
	assert.NilError(t, validate(request))
	return request
}

// validator holds a request against the rules of profiles.proto, the SHOULDs included, and notes
// what is referred to.
type validator struct {
	d        *profiles.ProfilesDictionary
	problems []error

	mappings, locations, functions, links, strings, attributes, stacks map[int32]bool
}

func validate(request *collector.ExportProfilesServiceRequest) error {
	v := &validator{
		d:        request.Dictionary,
		mappings: map[int32]bool{}, locations: map[int32]bool{}, functions: map[int32]bool{}, links: map[int32]bool{},
		strings: map[int32]bool{}, attributes: map[int32]bool{}, stacks: map[int32]bool{},
	}
	if request.Dictionary == nil {
		return errors.New("no dictionary")
	}
	v.zeros()
	v.duplicates()
	if len(v.problems) > 0 { // what follows relies on them
		return errors.Join(v.problems...)
	}
	v.check(len(request.ResourceProfiles) > 0, "no profiles")
	for _, r := range request.ResourceProfiles {
		v.resource(r)
	}
	v.orphans()
	return errors.Join(v.problems...)
}

func (v *validator) check(ok bool, format string, args ...any) {
	if !ok {
		v.problems = append(v.problems, fmt.Errorf(format, args...))
	}
}

// zeros: the first entry of each table is there and zero.
func (v *validator) zeros() {
	d := v.d
	zero := func(table string, n int, first func() proto.Message, want proto.Message) {
		if n == 0 {
			v.check(false, "%s is empty", table)
			return
		}
		v.check(proto.Equal(first(), want), "%s[0] is %v", table, first())
	}
	zero("mapping_table", len(d.MappingTable), func() proto.Message { return d.MappingTable[0] }, &profiles.Mapping{})
	zero("location_table", len(d.LocationTable), func() proto.Message { return d.LocationTable[0] },
		&profiles.Location{})
	zero("function_table", len(d.FunctionTable), func() proto.Message { return d.FunctionTable[0] },
		&profiles.Function{})
	zero("link_table", len(d.LinkTable), func() proto.Message { return d.LinkTable[0] }, &profiles.Link{})
	zero("attribute_table", len(d.AttributeTable), func() proto.Message { return d.AttributeTable[0] },
		&profiles.KeyValueAndUnit{})
	zero("stack_table", len(d.StackTable), func() proto.Message { return d.StackTable[0] }, &profiles.Stack{})
	v.check(len(d.StringTable) > 0 && d.StringTable[0] == "", "string_table[0] is not empty, or not there")
}

// duplicates: entries that refer to others are the same when these are, as long as these differ.
func (v *validator) duplicates() {
	d := v.d
	distinct(v, "mapping_table", d.MappingTable)
	distinct(v, "location_table", d.LocationTable)
	distinct(v, "function_table", d.FunctionTable)
	distinct(v, "link_table", d.LinkTable)
	distinct(v, "attribute_table", d.AttributeTable)
	distinct(v, "stack_table", d.StackTable)
	seen := make(map[string]bool)
	for i, s := range d.StringTable {
		v.check(!seen[s], "string_table[%d] %q was there before", i, s)
		seen[s] = true
	}
}

func distinct[M proto.Message](v *validator, table string, entries []M) {
	seen := make(map[string]int)
	for i, entry := range entries {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(entry)
		v.check(err == nil, "%s[%d]: %v", table, i, err)
		before, twice := seen[string(b)]
		v.check(!twice, "%s[%d] is the same as %d: %v", table, i, before, entry)
		seen[string(b)] = i
	}
}

// orphans: everything but the zero entries is referred to.
func (v *validator) orphans() {
	d := v.d
	for table, t := range map[string]struct {
		n    int
		used map[int32]bool
	}{
		"mapping_table": {len(d.MappingTable), v.mappings}, "location_table": {len(d.LocationTable), v.locations},
		"function_table": {len(d.FunctionTable), v.functions}, "link_table": {len(d.LinkTable), v.links},
		"string_table": {len(d.StringTable), v.strings}, "attribute_table": {len(d.AttributeTable), v.attributes},
		"stack_table": {len(d.StackTable), v.stacks},
	} {
		for i := int32(1); i < int32(t.n); i++ {
			v.check(t.used[i], "nobody refers to %s[%d]", table, i)
		}
	}
}

// refer notes a reference, and says whether there is such an entry.
func (v *validator) refer(what string, used map[int32]bool, index int32, n int) bool {
	ok := index >= 0 && int(index) < n
	v.check(ok, "%s %d of %d", what, index, n)
	if ok {
		used[index] = true
	}
	return ok
}

func (v *validator) text(what string, index int32) string {
	if !v.refer(what, v.strings, index, len(v.d.StringTable)) {
		return ""
	}
	return v.d.StringTable[index]
}

// attributesOf are the attributes of something, by key.
func (v *validator) attributesOf(what string, indices []int32) map[string]*common.AnyValue {
	found := make(map[string]*common.AnyValue)
	for _, i := range indices {
		v.check(i != 0, "%s has the attribute 0", what)
		if !v.refer("attribute", v.attributes, i, len(v.d.AttributeTable)) {
			continue
		}
		a := v.d.AttributeTable[i]
		key := v.text("key", a.KeyStrindex)
		v.text("unit", a.UnitStrindex)
		v.check(key != "" && a.Value.GetValue() != nil, "%s has the attribute %v", what, a)
		_, reference := a.Value.GetValue().(*common.AnyValue_StringValueStrindex)
		v.check(!reference, "attribute %s refers to the string table", key)
		v.check(found[key] == nil, "%s has the attribute %s twice", what, key)
		found[key] = a.Value
	}
	return found
}

func (v *validator) resource(r *profiles.ResourceProfiles) {
	v.check(r.SchemaUrl == schemaURL, "schema URL %q of the resource", r.SchemaUrl)
	keys := make(map[string]bool)
	for _, a := range r.Resource.GetAttributes() {
		v.check(a.Key != "" && a.KeyStrindex == 0 && a.Value.GetValue() != nil, "resource attribute %v", a)
		_, reference := a.Value.GetValue().(*common.AnyValue_StringValueStrindex)
		v.check(!reference, "resource attribute %s refers to the string table", a.Key)
		v.check(!keys[a.Key], "resource attribute %s twice", a.Key)
		keys[a.Key] = true
	}
	v.check(len(r.ScopeProfiles) == 1, "%d scopes", len(r.ScopeProfiles))
	for _, s := range r.ScopeProfiles {
		v.check(s.Scope.GetName() != "" && s.SchemaUrl == schemaURL, "scope %v, schema URL %q", s.Scope, s.SchemaUrl)
		v.check(len(s.Profiles) == 1, "%d profiles", len(s.Profiles)) // there is one sample type
		for _, p := range s.Profiles {
			v.profile(p)
		}
	}
}

func (v *validator) profile(p *profiles.Profile) {
	types := []string{
		v.text("type", p.SampleType.GetTypeStrindex()), v.text("unit", p.SampleType.GetUnitStrindex()),
		v.text("type", p.PeriodType.GetTypeStrindex()), v.text("unit", p.PeriodType.GetUnitStrindex()),
	}
	offCPU := slices.Equal(types, []string{"off_cpu", "nanoseconds", "context_switch", "count"})
	v.check(offCPU || slices.Equal(types, []string{"samples", "count", "cpu", "nanoseconds"}), "types %q", types)
	v.check(p.Period >= 0 && p.DurationNano > 0, "period %d, duration %d", p.Period, p.DurationNano)
	v.check(len(p.ProfileId) == 0 || len(p.ProfileId) == 16 && !zeros(p.ProfileId), "profile id %x", p.ProfileId)
	v.check(len(p.OriginalPayload) == 0 && p.OriginalPayloadFormat == "", "a payload")
	v.attributesOf("profile", p.AttributeIndices)
	v.check(len(p.Samples) > 0, "a profile without samples")
	identities := make(map[string]bool)
	for _, s := range p.Samples {
		v.sample(p, s)
		v.check(!offCPU || len(s.Values) == 1 && len(s.TimestampsUnixNano) == 1, "a wait with %v", s)
		set := slices.Sorted(slices.Values(s.AttributeIndices))
		identity := fmt.Sprint(s.StackIndex, set, s.LinkIndex)
		v.check(!identities[identity], "samples with the same identity %s", identity)
		identities[identity] = true
	}
}

func (v *validator) sample(p *profiles.Profile, s *profiles.Sample) {
	v.check(s.StackIndex != 0, "a sample without a stack")
	if v.refer("stack", v.stacks, s.StackIndex, len(v.d.StackTable)) {
		v.stack(v.d.StackTable[s.StackIndex])
	}
	a := v.attributesOf("sample", s.AttributeIndices)
	id, ok := a["transaction.id"]
	if v.refer("link", v.links, s.LinkIndex, len(v.d.LinkTable)) && s.LinkIndex != 0 {
		l := v.d.LinkTable[s.LinkIndex]
		v.check(len(l.TraceId) == 16 && len(l.SpanId) == 8 && !zeros(l.TraceId) && !zeros(l.SpanId), "link %v", l)
		v.check(!ok || len(id.GetStringValue()) == 16 && id.GetStringValue() != fmt.Sprintf("%x", l.SpanId),
			"transaction %v of a sample with link %v", id, l)
	}
	v.check(!ok || s.LinkIndex != 0, "transaction %v of a sample without link", id)
	v.check(len(s.Values) == 0 && len(s.TimestampsUnixNano) > 0 || len(s.Values) == 1 && len(s.TimestampsUnixNano) == 1,
		"%d values and %d timestamps", len(s.Values), len(s.TimestampsUnixNano))
	v.check(slices.IsSorted(s.TimestampsUnixNano), "timestamps %v", s.TimestampsUnixNano)
	for _, at := range s.TimestampsUnixNano {
		v.check(at >= p.TimeUnixNano && at-p.TimeUnixNano < p.DurationNano, "%d is not in %d + %d", at, p.TimeUnixNano,
			p.DurationNano)
	}
	for _, value := range s.Values {
		v.check(value > 0, "value %d", value)
	}
}

func (v *validator) stack(s *profiles.Stack) {
	v.check(len(s.LocationIndices) > 0, "a stack without locations")
	for _, i := range s.LocationIndices {
		v.check(i != 0, "a stack with the location 0")
		if v.refer("location", v.locations, i, len(v.d.LocationTable)) {
			v.location(v.d.LocationTable[i])
		}
	}
}

func (v *validator) location(l *profiles.Location) {
	v.check(l.Address != 0, "address 0")
	kind := v.attributesOf("location", l.AttributeIndices)["profile.frame.type"].GetStringValue()
	runtimes := []string{"jvm", "cpython", "v8js"}
	v.check(slices.Contains(append(runtimes, "native", "kernel", "abort-marker"), kind), "frame type %q", kind)
	v.check(len(l.Lines) <= 1, "lines %v", l.Lines)
	if slices.Contains(runtimes, kind) || kind == "abort-marker" {
		v.check(len(l.Lines) == 1 && l.MappingIndex == 0, "frame of type %s: %v", kind, l)
	}
	for _, line := range l.Lines {
		v.check(line.FunctionIndex != 0 && line.Line >= 0 && line.Column == 0, "line %v", line)
		if v.refer("function", v.functions, line.FunctionIndex, len(v.d.FunctionTable)) {
			f := v.d.FunctionTable[line.FunctionIndex]
			v.check(v.text("name", f.NameStrindex) != "", "function without a name %v", f)
			v.text("filename", f.FilenameStrindex)
			v.text("system name", f.SystemNameStrindex)
			v.check(f.SystemNameStrindex != f.NameStrindex && f.StartLine == 0, "function %v", f)
		}
	}
	if !v.refer("mapping", v.mappings, l.MappingIndex, len(v.d.MappingTable)) || l.MappingIndex == 0 {
		return
	}
	m := v.d.MappingTable[l.MappingIndex]
	v.text("filename", m.FilenameStrindex)
	v.check(m.MemoryLimit >= m.MemoryStart, "mapping %v", m)
	v.check(m.MemoryLimit == 0 || m.MemoryStart <= l.Address && l.Address < m.MemoryLimit, "address %#x in mapping %v",
		l.Address, m)
	id := v.attributesOf("mapping", m.AttributeIndices)["process.executable.build_id.htlhash"].GetStringValue()
	v.check(len(id) == 32, "htlhash %q", id)
}

func zeros(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }
