package validate

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gotest.tools/v3/assert"
)

// FuzzCheck: whatever comes, it is decodable to us when it is to the protobuf library, or only texts
// are not UTF-8; what is kept is decodable, has the items that it is said to have, and nothing in it
// that could be rejected again.
func FuzzCheck(f *testing.F) {
	for signal := range numSignals {
		body, _, _ := sound(f, signal)
		f.Add(byte(signal), []byte(body))
		f.Add(byte(signal), bytes.Repeat(body, 2)) // of two requests protobuf makes one
	}
	for _, cases := range [][]badItem{spanCases()[:9], metricCases(), profileCases(), envelopeCases()} {
		for _, c := range cases {
			f.Add(byte(c.signal), []byte(encode(f, c.sent)))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		checkAnything(t, Signal(which%byte(numSignals)), body)
	})
}

// checkAnything reports whether all of a request was kept, or a part.
func checkAnything(t *testing.T, signal Signal, body []byte) bool {
	t.Helper()
	original := bytes.Clone(body)
	v, err := Check(signal, body)
	assert.Assert(t, bytes.Equal(body, original), "the request was written to")
	var e *Error
	if errors.As(err, &e) && (e.Field == "" || e.Text == "" || !isPrintable(e.Error())) {
		t.Fatalf("%q: %x", err, body)
	} else if e != nil && e.Text == tooManyRemoved {
		return false
	}
	message := newMessage(signal)
	libraryErr := proto.Unmarshal(body, message)
	assert.Assert(t, (libraryErr == nil) == (err == nil && v.Repaired[BadText] == 0) || tooDeep(body, requests[signal]),
		"the library returns %v, Check %v: %x", libraryErr, err, body)
	if err != nil {
		return false
	}
	violations := v.RejectedUnits
	for _, n := range v.Repaired {
		violations += int(n)
	}
	assert.Assert(t, (violations > 0) == (v.Message != "") && isPrintable(v.Message) &&
		(v.RejectedUnits > 0) == (v.Received() > v.Items),
		"%+v: %x", v, body)
	if v.Items == 0 {
		return false
	}
	err = proto.Unmarshal(v.Request, message)
	assert.NilError(t, err, "what is kept: %v: %x", err, body)
	again := check(signal, v.Request)
	if again.RejectedUnits != 0 || len(again.removed) != 0 || again.Items != v.Items || again.Units != v.Units {
		t.Fatalf("what is kept is not as it should be: %+v: %x", again, body)
	}
	assert.Assert(t, len(v.Request) != len(body) || bytes.Equal(v.Request, body) || v.Repaired[BadText] > 0,
		"what is kept is something else: %x", body)
	wantSound(t, message)
	return true
}

func isLength(id []byte, n int) bool { return len(id) == 0 || len(id) == n }

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) && len(s) < 10_000
}

// tooDeep reports whether a request has values that are nested too deep to be checked.
func tooDeep(r request, m *messageType) bool {
	var look func(m *messageType, p part, depth int) bool
	look = func(m *messageType, p part, depth int) bool {
		if depth > maxDepth {
			return true
		}
		for f := range r.fields(p) {
			if e := describe(m, f.tag); e.kind.nested() && look(e.message, f.body, deeper(depth, e)) {
				return true
			}
		}
		return false
	}
	return look(m, r.all(), 0)
}

// wantSound checks, in decoded messages, that some of what must be removed is absent.
func wantSound(t *testing.T, m proto.Message) {
	t.Helper()
	switch m := m.(type) {
	case *collecttraces.ExportTraceServiceRequest:
		for _, r := range m.ResourceSpans {
			for _, s := range r.ScopeSpans {
				for _, span := range s.Spans {
					assert.Assert(t, len(span.TraceId) == 16 && len(span.SpanId) == 8 &&
						!bytes.Equal(span.SpanId, make([]byte, 8)) && span.EndTimeUnixNano >= span.StartTimeUnixNano,
						"span %v", span)
				}
			}
		}
		wantNoReferences(t, m.ProtoReflect())
	case *collectmetrics.ExportMetricsServiceRequest:
		for _, r := range m.ResourceMetrics {
			for _, s := range r.ScopeMetrics {
				for _, metric := range s.Metrics {
					for _, p := range metric.GetHistogram().GetDataPoints() {
						bad := len(p.BucketCounts) != len(p.ExplicitBounds)+1 &&
							len(p.BucketCounts)+len(p.ExplicitBounds) != 0
						if bad || !slices.IsSorted(p.ExplicitBounds) || p.TimeUnixNano < p.StartTimeUnixNano {
							t.Fatalf("point %v", p)
						}
					}
				}
			}
		}
		walk(m.ProtoReflect(), func(m protoreflect.Message) {
			e, ok := m.Interface().(*metrics.Exemplar)
			assert.Assert(t, !ok || isLength(e.TraceId, traceIDSize) && isLength(e.SpanId, spanIDSize),
				"exemplar %v", e)
		})
		wantNoReferences(t, m.ProtoReflect())
	case *collectprofiles.ExportProfilesServiceRequest:
		wantIndices(t, m.Dictionary, m.ProtoReflect())
	}
}

// wantNoReferences: only profiles refer to strings.
func wantNoReferences(t *testing.T, m protoreflect.Message) {
	t.Helper()
	walk(m, func(m protoreflect.Message) {
		switch m := m.Interface().(type) {
		case *common.KeyValue:
			assert.Assert(t, m.KeyStrindex == 0, m)
		case *common.AnyValue:
			_, ok := m.Value.(*common.AnyValue_StringValueStrindex)
			assert.Assert(t, !ok, m)
		}
	})
}

// indexName is the table that an index field belongs to.
func indexName(field string) string {
	return map[string]string{
		"stack_index": "stack_table", "link_index": "link_table", "mapping_index": "mapping_table",
		"function_index":    "function_table",
		"attribute_indices": "attribute_table", "location_indices": "location_table", "key_strindex": "string_table",
		"unit_strindex": "string_table", "type_strindex": "string_table", "name_strindex": "string_table",
		"system_name_strindex": "string_table", "filename_strindex": "string_table",
		"string_value_strindex": "string_table",
	}[field]
}

// wantIndices: every index is one of its table.
func wantIndices(t *testing.T, d *profiles.ProfilesDictionary, m protoreflect.Message) {
	t.Helper()
	tables := map[string]int{
		"mapping_table": len(d.GetMappingTable()), "location_table": len(d.GetLocationTable()),
		"function_table": len(d.GetFunctionTable()),
		"link_table":     len(d.GetLinkTable()), "string_table": len(d.GetStringTable()),
		"attribute_table": len(d.GetAttributeTable()),
		"stack_table":     len(d.GetStackTable()),
	}
	walk(m, func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			table := indexName(string(f.Name()))
			if table == "" {
				return true
			}
			var all []int64
			if f.IsList() {
				for i := range v.List().Len() {
					all = append(all, v.List().Get(i).Int())
				}
			} else {
				all = append(all, v.Int())
			}
			for _, i := range all {
				if i < 0 || i >= int64(tables[table]) {
					t.Fatalf("%s has %d, of %d", f.FullName(), i, tables[table])
				}
			}
			return true
		})
		if s, ok := m.Interface().(*profiles.Sample); ok {
			values, times := len(s.Values), len(s.TimestampsUnixNano)
			assert.Assert(t, values+times != 0 && (values == times || values == 0 || times == 0), "sample %v", s)
		}
	})
}

// walk visits a message and all in it.
func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	visit(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() != protoreflect.MessageKind {
			return true
		}
		if !f.IsList() {
			walk(v.Message(), visit)
			return true
		}
		for i := range v.List().Len() {
			walk(v.List().Get(i).Message(), visit)
		}
		return true
	})
}

// node is a field of an encoded request, with those in it.
type node struct {
	tag   tag
	value uint64
	body  []byte
	in    []*node
	deep  bool // body is in
}

func parse(r request, m *messageType, p part) (all []*node) {
	for f := range r.fields(p) {
		n := &node{tag: f.tag, value: f.value, body: r.bytes(f.body)}
		if e := describe(m, f.tag); e.kind.nested() {
			n.deep, n.in = true, parse(r, e.message, f.body)
		}
		all = append(all, n)
	}
	return all
}

func render(all []*node) (b []byte) {
	for _, n := range all {
		b = protowire.AppendVarint(b, uint64(n.tag))
		switch n.tag.wire() {
		case wireVarint:
			b = protowire.AppendVarint(b, n.value)
		case wireFixed64:
			b = protowire.AppendFixed64(b, n.value)
		case wireFixed32:
			b = protowire.AppendFixed32(b, uint32(n.value))
		default:
			body := n.body
			if n.deep {
				body = render(n.in)
			}
			b = protowire.AppendBytes(b, body)
		}
	}
	return b
}

// mutate changes one field somewhere in a message.
func mutate(all []*node, random *rand.Rand) []*node {
	if len(all) == 0 {
		return all
	}
	i := random.IntN(len(all))
	n := all[i]
	if n.deep && random.IntN(6) > 0 {
		n.in = mutate(n.in, random)
		return all
	}
	some := []uint64{0, 1, 2, 3, 5, 1 << 31, 1<<32 + 1, math.MaxUint64, math.Float64bits(math.NaN()),
		math.Float64bits(0.5)}
	switch random.IntN(7) {
	case 0:
		return slices.Delete(all, i, i+1)
	case 1: // again, at another place
		return slices.Insert(all, random.IntN(len(all)+1), n)
	case 2:
		j := random.IntN(len(all))
		all[i], all[j] = all[j], all[i]
	case 3: // of another field
		n.tag = tag(1+random.IntN(16))<<3 | n.tag.wire()
	case 4: // of another type
		*n = node{tag: n.tag&^7 | tag(random.IntN(2)), value: some[random.IntN(len(some))]}
	case 5:
		n.value = some[random.IntN(len(some))]
		n.body, n.deep = []byte{1, 2, 0, 1}[:random.IntN(5)], false
	case 6: // a field that only profiles have, and an unknown one
		all = append(all, &node{tag: 8<<3 | wireVarint, value: 3}, &node{tag: 99<<3 | wireBytes, body: []byte("new")},
			&node{tag: 3<<3 | wireVarint, value: 2})
	}
	return all
}

// What holds for whatever comes holds for requests that are almost right.
func TestAlmostRight(t *testing.T) {
	learn()
	random := rand.New(rand.NewPCG(1, 2))
	var bodies [numSignals]request
	for signal := range bodies {
		bodies[signal], _, _ = sound(t, Signal(signal))
	}
	kept := 0
	const rounds = 2000
	for range rounds {
		signal := Signal(random.IntN(int(numSignals)))
		body := bodies[signal]
		tree := parse(body, requests[signal], body.all())
		for range 1 + random.IntN(5) {
			tree = mutate(tree, random)
		}
		if checkAnything(t, signal, render(tree)) {
			kept++
		}
	}
	assert.Check(t, kept >= rounds/10 && kept <= rounds*9/10, "%d of %d were kept: that finds little", kept, rounds)
}
