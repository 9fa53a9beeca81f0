package validate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// What is sound is kept, the very bytes of it, and nothing is said.
func TestSound(t *testing.T) {
	for signal := range numSignals {
		body, items, units := sound(t, signal)
		// A field of a later schema.
		body = append(body, 0xfa, 0x3f, 0x02, 'h', 'i')
		v := mustCheck(t, signal, body)
		assert.Check(t, v.Items == items && v.Units == units && v.Received() == items && v.Message == "" &&
			&v.Request[0] == &body[0] && len(v.Request) == len(body),
			"signal %d: %+v, want %d items, %d units", signal, v, items, units)
	}
}

// A value may lie in as many as that; what lies in more is removed from it, and nothing else is, wherever the
// value is.
func TestDepth(t *testing.T) {
	const limit = 100
	point := badPoint(func(p *metrics.NumberDataPoint) { p.Exemplars[0].FilteredAttributes[0].Value = nest(limit) })
	whole := []proto.Message{traceRequest(aSpan("a")), metricRequest(gauge(point)), profileRequest(aProfile())}
	all := func(r proto.Message, value *common.AnyValue) proto.Message {
		switch r := proto.Clone(r).(type) {
		case *collecttraces.ExportTraceServiceRequest:
			r.ResourceSpans[0].Resource.Attributes[0].Value = value
			r.ResourceSpans[0].ScopeSpans[0].Scope.Attributes[0].Value = value
			r.ResourceSpans[0].ScopeSpans[0].Spans[0].Attributes[1].Value = value
			return r
		case *collectmetrics.ExportMetricsServiceRequest:
			r.ResourceMetrics[0].Resource.Attributes[0].Value = value
			metric := r.ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
			metric.Metadata[0].Value = value
			metric.GetGauge().DataPoints[0].Exemplars[0].FilteredAttributes[0].Value = value
			return r
		case *collectprofiles.ExportProfilesServiceRequest:
			r.ResourceProfiles[0].Resource.Attributes[0].Value = value
			r.Dictionary.AttributeTable[1].Value, r.Dictionary.AttributeTable[2].Value = value, value
			return r
		}
		panic(r)
	}
	cut := nest(limit + 1)
	innermost := cut // that contains one
	for range (limit - 2) / 2 {
		innermost = innermost.GetArrayValue().Values[0].GetKvlistValue().Values[0].Value
	}
	innermost.GetArrayValue().Values[0].GetKvlistValue().Values[0].Value = nil
	for signal, r := range whole {
		v := mustCheck(t, Signal(signal), encode(t, all(r, nest(limit))))
		assert.Check(t, v.Items > 0 && v.Message == "", "%+v", v)
		v = mustCheck(t, Signal(signal), encode(t, all(r, nest(limit+1))))
		assert.Check(t, v.Message == "3 fields ignored: too_deep" && v.Repaired[TooDeep] == 3, v.Message)
		wantKept(t, Signal(signal), v, all(r, cut))
	}
}

func mustCheck(t testing.TB, signal Signal, body []byte) *Verdict {
	t.Helper()
	v, err := Check(signal, body)
	assert.NilError(t, err)
	return v
}

// counts is everything that a verdict counts and that is not 0.
func counts(v *Verdict) string {
	all := []string{fmt.Sprintf("items=%d", v.Received())}
	for why, n := range v.Rejected {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s=%d", RejectReason(why), n))
		}
	}
	for why, n := range v.Repaired {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s=%d", Repair(why), n))
		}
	}
	return strings.Join(all, ", ")
}

// badItem is a request with something wrong in it.
type badItem struct {
	name   string
	signal Signal
	sent   proto.Message
	passed proto.Message // nil: nothing
	items  int           // in it

	rejected int // as the response reports it
	message  string
	counts   string
}

// tooMany are more attributes than a list may have.
func tooMany() []*common.KeyValue {
	all := make([]*common.KeyValue, maxAttributes+1)
	for i := range all {
		all[i] = attribute(fmt.Sprint(i), "")
	}
	return all
}

func badSpan(spoil func(*trace.Span)) *trace.Span {
	s := aSpan("bad")
	spoil(s)
	return s
}

func badPoint(spoil func(*metrics.NumberDataPoint)) *metrics.NumberDataPoint {
	p := number(9)
	spoil(p)
	return p
}

func badProfile(spoil func(*profiles.Profile)) *profiles.Profile {
	p := aProfile()
	spoil(p)
	return p
}

func spanCases() (all []badItem) {
	for _, c := range []struct {
		name, reason, field, text string
		span                      *trace.Span
	}{
		{"short trace id", "bad_id", ".trace_id", "trace_id is not 16 bytes, or zero",
			badSpan(func(s *trace.Span) { s.TraceId = s.TraceId[:15] })},
		{"zero trace id", "bad_id", ".trace_id", "trace_id is not 16 bytes, or zero",
			badSpan(func(s *trace.Span) { s.TraceId = make([]byte, 16) })},
		{"no trace id", "bad_id", "", "trace_id is not 16 bytes, or zero",
			badSpan(func(s *trace.Span) { s.TraceId = nil })},
		{"long span id", "bad_id", ".span_id", "span_id is not 8 bytes, or zero",
			badSpan(func(s *trace.Span) { s.SpanId = traceID })},
		{"zero span id", "bad_id", ".span_id", "span_id is not 8 bytes, or zero",
			badSpan(func(s *trace.Span) { s.SpanId = make([]byte, 8) })},
		{"short parent", "bad_id", ".parent_span_id", "parent_span_id is not 8 bytes",
			badSpan(func(s *trace.Span) { s.ParentSpanId = []byte{1} })},
		{"short id of a link", "bad_id", ".links[1].span_id", "id has the wrong length",
			badSpan(func(s *trace.Span) { s.Links[1].SpanId = []byte{1} })},
		{"end before start", "bad_time", ".end_time_unix_nano", "ends before it starts",
			badSpan(func(s *trace.Span) { s.EndTimeUnixNano = 4 })},
		{"no end", "bad_time", "", "ends before it starts", badSpan(func(s *trace.Span) { s.EndTimeUnixNano = 0 })},
		{"many attributes", "bad_attributes", ".events[0].attributes[16384]", "too many attributes",
			badSpan(func(s *trace.Span) { s.Events[0].Attributes = tooMany() })},
	} {
		all = append(all, badItem{
			name: c.name, signal: Traces, items: 3, rejected: 1,
			sent: traceRequest(aSpan("a"), c.span, aSpan("b")), passed: traceRequest(aSpan("a"), aSpan("b")),
			message: "1 of 3 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[1]" + c.field +
				": " + c.text,
			counts: c.reason + "=1",
		})
	}
	return all
}

func metricCases() (all []badItem) {
	nan := math.NaN()
	for _, c := range []struct {
		name, reason string
		bad          *metrics.Metric // one point of two
		good         *metrics.Metric // what is left of it
	}{
		{"NaN in a sum", "bad_value", sum(number(1), number(nan)), sum(number(1))},
		{"no value", "bad_value", gauge(badPoint(func(p *metrics.NumberDataPoint) { p.Value = nil }), number(1)),
			gauge(number(1))},
		{"end before start", "bad_time", gauge(badPoint(func(p *metrics.NumberDataPoint) { p.TimeUnixNano = 0 }),
			number(1)), gauge(number(1))},
		{"short trace id of an exemplar", "bad_id",
			gauge(badPoint(func(p *metrics.NumberDataPoint) { p.Exemplars[0].TraceId = traceID[:15] }), number(1)),
			gauge(number(1))},
		{"long span id of an exemplar", "bad_id", histogram(buckets(nil),
			&metrics.HistogramDataPoint{Exemplars: []*metrics.Exemplar{{SpanId: traceID}}}), histogram(buckets(nil))},
		{"short span id of an exemplar", "bad_id",
			exponential(&metrics.ExponentialHistogramDataPoint{Exemplars: []*metrics.Exemplar{{},
				{SpanId: spanID[:1]}}},
				&metrics.ExponentialHistogramDataPoint{}), exponential(&metrics.ExponentialHistogramDataPoint{})},
		{"NaN as sum", "bad_value", histogram(buckets(nil), &metrics.HistogramDataPoint{Sum: &nan}),
			histogram(buckets(nil))},
		{"NaN as minimum", "bad_value", histogram(buckets(nil), &metrics.HistogramDataPoint{Min: &nan}),
			histogram(buckets(nil))},
		{"NaN as bound", "bad_value", histogram(buckets([]uint64{1, 2}, nan), buckets(nil)), histogram(buckets(nil))},
		{"bounds decrease", "bad_value", histogram(buckets([]uint64{1, 2, 3}, 2, 1), buckets(nil)),
			histogram(buckets(nil))},
		{"bounds repeat", "bad_value", histogram(buckets([]uint64{1, 2, 3}, 2, 2), buckets(nil)),
			histogram(buckets(nil))},
		{"one bucket too few", "bad_shape", histogram(buckets([]uint64{1, 2}, 1, 2), buckets(nil)),
			histogram(buckets(nil))},
		{"bounds without buckets", "bad_shape", histogram(buckets(nil, 1, 2), buckets(nil)), histogram(buckets(nil))},
		{"NaN as threshold", "bad_value", exponential(&metrics.ExponentialHistogramDataPoint{ZeroThreshold: nan},
			&metrics.ExponentialHistogramDataPoint{}), exponential(&metrics.ExponentialHistogramDataPoint{})},
		{"NaN as quantile", "bad_value", summary(quantile(nan), quantile(1)), summary(quantile(1))},
		{"quantile 1.1", "bad_value", summary(quantile(1.1), quantile(0)), summary(quantile(0))},
		{"NaN as sum of a summary", "bad_value", summary(&metrics.SummaryDataPoint{Sum: nan}, quantile(0)),
			summary(quantile(0))},
	} {
		all = append(all, badItem{
			name: "metrics, " + c.name, signal: Metrics, items: 3, rejected: 1,
			sent: metricRequest(gauge(number(nan)), c.bad), passed: metricRequest(gauge(number(nan)), c.good),
			message: "1 of 3 data points rejected, the first because of resource_metrics[0].scope_metrics[0].metrics[1].",
			counts:  c.reason + "=1",
		})
	}
	return all
}

func profileCases() (all []badItem) {
	for _, c := range []struct {
		name, reason, field string
		profile             *profiles.Profile
	}{
		{"stack outside", "bad_index", ".samples[1].stack_index",
			badProfile(func(p *profiles.Profile) { p.Samples[1].StackIndex = 2 })},
		{"negative stack", "bad_index", ".samples[1].stack_index",
			badProfile(func(p *profiles.Profile) { p.Samples[1].StackIndex = -1 })},
		{"link outside", "bad_index", ".samples[0].link_index",
			badProfile(func(p *profiles.Profile) { p.Samples[0].LinkIndex = math.MaxInt32 })},
		{"attribute outside", "bad_index", ".samples[0].attribute_indices[0]",
			badProfile(func(p *profiles.Profile) { p.Samples[0].AttributeIndices[1] = 3 })},
		{"profile attribute outside", "bad_index", ".attribute_indices[0]",
			badProfile(func(p *profiles.Profile) { p.AttributeIndices[0] = -3 })},
		{"type outside", "bad_index", ".sample_type.type_strindex",
			badProfile(func(p *profiles.Profile) { p.SampleType.TypeStrindex = 5 })},
		{"period unit outside", "bad_index", ".period_type.unit_strindex",
			badProfile(func(p *profiles.Profile) { p.PeriodType.UnitStrindex = 5 })},
		{"fewer timestamps", "bad_shape", ".samples[0]",
			badProfile(func(p *profiles.Profile) { p.Samples[0].TimestampsUnixNano = []uint64{5} })},
		{"fewer values", "bad_shape", ".samples[0]",
			badProfile(func(p *profiles.Profile) { p.Samples[0].Values = []int64{1} })},
		{"neither", "bad_shape", ".samples[1]", badProfile(func(p *profiles.Profile) { p.Samples[1].Values = nil })},
		{"short id", "bad_id", "", badProfile(func(p *profiles.Profile) { p.ProfileId = spanID })},
		{"zero id", "bad_id", "", badProfile(func(p *profiles.Profile) { p.ProfileId = make([]byte, 16) })},
		{"payload without format", "bad_shape", "",
			badProfile(func(p *profiles.Profile) { p.OriginalPayloadFormat = "" })},
		{"format without payload", "bad_shape", "", badProfile(func(p *profiles.Profile) { p.OriginalPayload = nil })},
	} {
		all = append(all, badItem{
			name: "profiles, " + c.name, signal: Profiles, items: 6, rejected: 1,
			sent: profileRequest(aProfile(), c.profile, aProfile()), passed: profileRequest(aProfile(), aProfile()),
			message: "1 of 3 profiles rejected, the first because of resource_profiles[0].scope_profiles[0].profiles[1]" + c.field + ":",
			counts:  c.reason + "=2",
		})
	}
	for _, c := range []struct {
		name, reason, field string
		spoil               func(*profiles.ProfilesDictionary)
	}{
		{"no strings", "bad_index", "", func(d *profiles.ProfilesDictionary) { d.StringTable = nil }},
		{"no links", "bad_index", "", func(d *profiles.ProfilesDictionary) { d.LinkTable = nil }},
		{"no zero string", "bad_index", ".string_table[0]",
			func(d *profiles.ProfilesDictionary) { d.StringTable[0] = "x" }},
		{"no zero mapping", "bad_index", ".mapping_table[0]",
			func(d *profiles.ProfilesDictionary) { d.MappingTable = d.MappingTable[1:] }},
		{"no zero link", "bad_index", ".link_table[0]",
			func(d *profiles.ProfilesDictionary) { d.LinkTable = d.LinkTable[1:] }},
		{"no zero stack", "bad_index", ".stack_table[0]",
			func(d *profiles.ProfilesDictionary) { d.StackTable = d.StackTable[1:] }},
		{"mapping outside", "bad_index", ".location_table[1].mapping_index",
			func(d *profiles.ProfilesDictionary) { d.LocationTable[1].MappingIndex = 2 }},
		{"function outside", "bad_index", ".location_table[1].lines[0].function_index",
			func(d *profiles.ProfilesDictionary) { d.LocationTable[1].Lines[0].FunctionIndex = -2 }},
		{"location outside", "bad_index", ".stack_table[1].location_indices[0]",
			func(d *profiles.ProfilesDictionary) { d.StackTable[1].LocationIndices[1] = 9 }},
		{"name outside", "bad_index", ".function_table[1].name_strindex",
			func(d *profiles.ProfilesDictionary) { d.FunctionTable[1].NameStrindex = 9 }},
		{"key outside", "bad_index", ".attribute_table[1].key_strindex",
			func(d *profiles.ProfilesDictionary) { d.AttributeTable[1].KeyStrindex = 9 }},
		{"value outside", "bad_index", ".attribute_table[2].value.string_value_strindex",
			func(d *profiles.ProfilesDictionary) { d.AttributeTable[2].Value = referenceValue(9) }},
		{"short link", "bad_id", ".link_table[1]",
			func(d *profiles.ProfilesDictionary) { d.LinkTable[1].SpanId = traceID }},
		{"another zero link", "bad_id", ".link_table[1]",
			func(d *profiles.ProfilesDictionary) { d.LinkTable[1].TraceId = make([]byte, 16) }},
	} {
		r := profileRequest(aProfile(), aProfile())
		c.spoil(r.Dictionary)
		all = append(all, badItem{
			name: "dictionary, " + c.name, signal: Profiles, sent: r, items: 4, rejected: 2,
			message: "2 of 2 profiles rejected, the first because of dictionary" + c.field, counts: c.reason + "=4",
		})
	}
	return all
}

func envelopeCases() []badItem {
	twoResources := func() *collecttraces.ExportTraceServiceRequest {
		r := traceRequest(aSpan("a"), aSpan("b"))
		return &collecttraces.ExportTraceServiceRequest{ResourceSpans: append(r.ResourceSpans,
			traceRequest(aSpan("c")).ResourceSpans...)}
	}
	badResource := twoResources()
	badResource.ResourceSpans[0].Resource.Attributes = tooMany()
	badScope := twoResources()
	badScope.ResourceSpans[0].ScopeSpans = append(badScope.ResourceSpans[0].ScopeSpans, &trace.ScopeSpans{
		Scope: &common.InstrumentationScope{Attributes: tooMany()},
		Spans: []*trace.Span{aSpan("d")},
	})
	empty := twoResources()
	empty.ResourceSpans[0].ScopeSpans[0].Spans[0].SpanId = nil
	empty.ResourceSpans[0].ScopeSpans[0].Spans[1].TraceId = nil
	outside := profileRequest(aProfile())
	outside.ResourceProfiles[0].Resource.Attributes[3].KeyStrindex = 5
	metadata := metricRequest(someMetrics()...)
	metadata.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].Metadata = tooMany()
	return []badItem{
		{"bad resource", Traces, badResource, traceRequest(aSpan("c")), 3, 2,
			"2 of 3 spans rejected, the first because of resource_spans[0].resource.attributes[16384]: too many",
			"bad_attributes=2"},
		{"bad scope", Traces, badScope, twoResources(), 4, 1,
			"1 of 4 spans rejected, the first because of resource_spans[0].scope_spans[1].scope.attributes[16384]: too many",
			"bad_attributes=1"},
		{"nothing left of a resource", Traces, empty, traceRequest(aSpan("c")), 3, 2,
			"2 of 3 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[0]: span_id",
			"bad_id=2"},
		{"nothing left", Traces, traceRequest(&trace.Span{}), nil, 1, 1,
			"1 of 1 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[0]: trace_id",
			"bad_id=1"},
		{"bad resource of profiles", Profiles, outside, nil, 2, 1,
			"1 of 1 profiles rejected, the first because of resource_profiles[0].resource.attributes[3].key_strindex",
			"bad_index=2"},
		{"bad metadata", Metrics, metadata, metricRequest(someMetrics()[1:]...), 7, 2,
			"2 of 7 data points rejected, the first because of resource_metrics[0].scope_metrics[0].metrics[0]." +
				"metadata[16384]: too many",
			"bad_attributes=2"},
	}
}

// Bad items are rejected with a reason and the place of the first; the others are passed on.
func TestRejected(t *testing.T) {
	var all []badItem
	for _, cases := range [][]badItem{spanCases(), metricCases(), profileCases(), envelopeCases()} {
		all = append(all, cases...)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			v := mustCheck(t, c.signal, encode(t, c.sent))
			assert.Check(t, v.RejectedUnits == c.rejected && strings.HasPrefix(v.Message, c.message),
				"%d rejected: %s\nwant %d: %s", v.RejectedUnits, v.Message, c.rejected, c.message)
			got, want := counts(v), fmt.Sprintf("items=%d, %s", c.items, c.counts)
			assert.Check(t, got == want, "got %s, want %s", got, want)
			if c.passed == nil {
				assert.Check(t, v.Items == 0 && v.Units == 0, "%+v", v)
				return
			}
			wantKept(t, c.signal, v, c.passed)
		})
	}
}

// wantKept compares what was kept with what should be, which is encoded as well as can be.
func wantKept(t testing.TB, signal Signal, v *Verdict, want proto.Message) {
	t.Helper()
	got := newMessage(signal)
	assert.NilError(t, proto.Unmarshal(v.Request, got))
	assert.Check(t, proto.Equal(got, want), "kept:\n%v\nwant:\n%v", got, want)
	if n := proto.Size(want); len(v.Request) != n || cap(v.Request) > n+16 {
		t.Errorf("%d bytes of %d were kept, want %d", len(v.Request), cap(v.Request), n)
	}
	if w := mustCheck(t, signal, encode(t, want)); w.Items != v.Items || w.Units != v.Units {
		t.Errorf("%d items in %d units, want %d in %d", v.Items, v.Units, w.Items, w.Units)
	}
}

// Data in unknown fields of what is not passed on is counted, and its sender is told; what is passed on has them.
func TestUnknownFields(t *testing.T) {
	field := func(number protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
	}
	span := encode(t, aSpan("a"))
	old := field(1, field(1000, field(2, span))) // as SDKs of 2021 sent spans
	for _, c := range []struct {
		name, counts, message string
		request               []byte
	}{
		{"in a resource", "items=1, unknown_field=1",
			"1 of 1 spans rejected, the first because of resource_spans[0]: unknown field", old},
		{"in a scope", "items=2, unknown_field=2", "because of resource_spans[0].scope_spans[0]: unknown field",
			field(1, field(2, slices.Concat(field(9, span), field(9, span))))},
		{"in the request", "items=1, unknown_field=1", "unknown field", field(7, span)},
		{"a group", "items=1, unknown_field=1", "resource_spans[0]: unknown field",
			field(1, slices.Concat([]byte{0xc3, 0x3e}, field(2, span), []byte{0xc4, 0x3e}))},
		{"empty", "items=0", "", field(1, field(1000, nil))},
		{"a number", "items=0", "", field(1, []byte{0x50, 1})},
		{"nothing", "items=0", "", nil},
		{"beside a span", "items=1", "", field(1, slices.Concat(field(1000, span), field(2, field(2, span))))},
		{"beside another resource", "items=2, unknown_field=1", "1 of 2 spans",
			slices.Concat(old, field(1, field(2, field(2, span))))},
	} {
		v, err := Check(Traces, c.request)
		assert.NilError(t, err)
		assert.Check(t, counts(v) == c.counts && strings.Contains(v.Message, c.message) &&
			(v.Message == "") == (c.message == ""), "%s: %s, %q", c.name, counts(v), v.Message)
	}
}
