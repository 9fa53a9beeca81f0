package validate

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// Fields that belong to profiles are as if they were not there; of attributes with one key the last
// stays.
func TestRepaired(t *testing.T) {
	span, plain := aSpan("a"), aSpan("a")
	span.Attributes = []*common.KeyValue{
		attribute("k", "1"), {Key: "r", Value: referenceValue(5)}, attribute("other", ""),
		{Key: "k", KeyStrindex: 7, Value: nest(3)}, attribute("k", "3"),
		{Key: "list", Value: listOf(attribute("x", "1"), attribute("y", ""), attribute("x", "2"))},
	}
	plain.Attributes = []*common.KeyValue{
		{Key: "r", Value: &common.AnyValue{}}, attribute("other", ""), attribute("k", "3"),
		{Key: "list", Value: listOf(attribute("y", ""), attribute("x", "2"))},
	}
	traces, wantTraces := traceRequest(span, aSpan("b")), traceRequest(plain, aSpan("b"))
	traces.ResourceSpans[0].Resource.Attributes = append(traces.ResourceSpans[0].Resource.Attributes,
		attribute("host.id", "i"))
	wantTraces.ResourceSpans[0].Resource.Attributes[1] = attribute("host.id", "i")

	profile, wantProfile := profileRequest(aProfile()), profileRequest(aProfile())
	r := profile.ResourceProfiles[0].Resource
	r.Attributes = append(r.Attributes, &common.KeyValue{KeyStrindex: 3, Value: stringValue("again")})
	want := wantProfile.ResourceProfiles[0].Resource
	want.Attributes = append(want.Attributes[:2:2], want.Attributes[3], r.Attributes[4])

	// What is rejected has nothing that could be put right.
	spoiled := aSpan("bad")
	spoiled.Attributes, spoiled.SpanId = span.Attributes, nil
	deep := aSpan("deep")
	deep.SpanId = nil
	deep.Attributes = append(deep.Attributes, attribute("list", ""), &common.KeyValue{KeyStrindex: 1},
		&common.KeyValue{Key: "d", Value: nest(maxDepth + 1)})
	lost := traceRequest(aSpan("a"), deep)
	again := traceRequest(&trace.Span{})
	again.ResourceSpans[0].Resource.Attributes = append(again.ResourceSpans[0].Resource.Attributes,
		attribute("host.id", "i"))
	lost.ResourceSpans = append(lost.ResourceSpans, again.ResourceSpans...)
	// What is taken out ends where the next begins.
	ends := &trace.Span{TraceId: traceID, SpanId: spanID, Attributes: []*common.KeyValue{{Key: "k", KeyStrindex: 1}}}
	wantEnds := proto.Clone(ends).(*trace.Span)
	wantEnds.Attributes[0].KeyStrindex = 0

	metric := gauge(number(1))
	metric.Metadata = append(metric.Metadata, attribute("m", "3"))
	wantMetric := gauge(number(1))
	wantMetric.Metadata = []*common.KeyValue{attribute("n", "2"), attribute("m", "3")}

	for _, c := range []struct {
		signal       Signal
		sent, passed proto.Message
		message      string
		counts       string
	}{
		{Traces, traces, wantTraces, "2 fields ignored: bad_field; 4 fields ignored: duplicate_key",
			"items=2, bad_field=2, duplicate_key=4"},
		{Profiles, profile, wantProfile, "1 fields ignored: duplicate_key",
			"items=2, duplicate_key=1"},
		{Traces, traceRequest(aSpan("a"), spoiled), traceRequest(aSpan("a")),
			"1 of 2 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[1]: span_id is not 8 bytes, or zero",
			"items=2, bad_id=1"},
		{Traces, lost, traceRequest(aSpan("a")),
			"2 of 3 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[1]: span_id is not 8 bytes, or zero",
			"items=3, bad_id=2"},
		{Traces, traceRequest(ends, &trace.Span{}), traceRequest(wantEnds),
			"1 of 2 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[1]: trace_id is not 16 bytes, or zero; " +
				"1 fields ignored: bad_field",
			"items=2, bad_id=1, bad_field=1"},
		{Metrics, metricRequest(metric), metricRequest(wantMetric), "1 fields ignored: duplicate_key",
			"items=1, duplicate_key=1"},
	} {
		v := mustCheck(t, c.signal, encode(t, c.sent))
		assert.Check(t, v.Message == c.message && (v.RejectedUnits != 0) == strings.Contains(v.Message, " rejected"),
			"signal %d: %d rejected: %s\nwant %s", c.signal, v.RejectedUnits, v.Message, c.message)
		wantKept(t, c.signal, v, c.passed)
		got := counts(v)
		assert.Check(t, got == c.counts, "got %s, want %s", got, c.counts)
	}
}

// What is not UTF-8 has question marks in its place, wherever it is: in an attribute, also of the
// resource or within another value, in a name, in the dictionary of profiles. Nothing else is lost,
// and keys that are the same then are one.
func TestBadTexts(t *testing.T) {
	span, want := aSpan("n~"), aSpan("n?")
	span.Attributes = []*common.KeyValue{attribute("k~", "1"), attribute("k~", "é~~\ufffd"),
		{Key: "list", Value: listOf(attribute("x", "~"))}}
	want.Attributes = []*common.KeyValue{attribute("k?", "é??\ufffd"), {Key: "list", Value: listOf(attribute("x",
		"?"))}}
	sent, passed := traceRequest(span, aSpan("b")), traceRequest(want, aSpan("b"))
	sent.ResourceSpans[0].Resource.Attributes[0] = attribute("service.name", "caf~")
	passed.ResourceSpans[0].Resource.Attributes[0] = attribute("service.name", "caf?")
	profile, wantProfile := profileRequest(aProfile()), profileRequest(aProfile())
	last := len(profile.Dictionary.StringTable) - 1
	profile.Dictionary.StringTable[last], wantProfile.Dictionary.StringTable[last] = "~s", "?s"
	badly := func(m proto.Message) request { // protobuf does not encode what is not UTF-8
		return bytes.ReplaceAll(encode(t, m), []byte("~"), []byte("\xff"))
	}
	for _, c := range []struct {
		signal  Signal
		sent    request
		passed  proto.Message
		message string
		counts  string
	}{
		{Traces, badly(sent), passed, "1 fields ignored: duplicate_key; 6 fields changed: bad_utf8",
			"items=2, duplicate_key=1, bad_utf8=6"},
		{Profiles, badly(profile), wantProfile, "1 fields changed: bad_utf8", "items=2, bad_utf8=1"},
	} {
		v := mustCheck(t, c.signal, c.sent)
		assert.Check(t, v.Message == c.message, v.Message)
		wantKept(t, c.signal, v, c.passed)
		got := counts(v)
		assert.Check(t, got == c.counts, "got %s, want %s", got, c.counts)
	}
	for text, want := range map[string]string{
		"\xed\xa0\x80": "???", "a\xc3": "a?", "\xe9a": "?a", "\x80\xf0\x9f\x98\x80\xff": "?😀?", "\xf5\x80": "??",
	} {
		got := string(request(text).repaired([]part{{0, uint32(len(text))}}))
		assert.Check(t, got == want, "%q is %q", text, got)
	}
}

func listOf(list ...*common.KeyValue) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: &common.KeyValueList{Values: list}}}
}

// Lists may come packed, one by one, or both; numbers may take more bytes than they need; a wrong
// wire type makes an unknown field.
func TestEncodings(t *testing.T) {
	d := encode(t, profileRequest())
	sample := func(s ...byte) request {
		profile := append([]byte{0x12, byte(len(s))}, s...)                                      // samples
		scope := append([]byte{0x12, byte(len(profile))}, profile...)                            // profiles
		resource := append([]byte{0x12, byte(len(scope))}, scope...)                             // scope_profiles
		return append(bytes.Clone(d), append([]byte{0x0a, byte(len(resource))}, resource...)...) // resource_profiles
	}
	time := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	single := append([]byte{0x29}, time...)                      // timestamps_unix_nano
	packed := append(append([]byte{0x2a, 16}, time...), time...) // two of them
	minusOne := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	for name, c := range map[string]struct {
		body request
		ok   bool
	}{
		"values 1+2, times 1+2": {sample(append(append([]byte{0x20, 1, 0x22, 2, 1, 1}, single...), packed...)...),
			true},
		"values 1+2, times 2":         {sample(append([]byte{0x20, 1, 0x22, 2, 1, 1}, packed...)...), false},
		"long values":                 {sample(append(append([]byte{0x22, 11, 1}, minusOne...), packed...)...), true},
		"stack 1 in three bytes":      {sample(0x08, 0x81, 0x80, 0x00, 0x20, 1), true},
		"stack 2 in three bytes":      {sample(0x08, 0x82, 0x80, 0x00, 0x20, 1), false},
		"stack 2, then 1":             {sample(0x08, 2, 0x08, 1, 0x20, 1), false},
		"stack 1 + 1<<32":             {sample(0x08, 0x81, 0x80, 0x80, 0x80, 0x10, 0x20, 1), true},
		"stack -1":                    {sample(append(append([]byte{0x08}, minusOne...), 0x20, 1)...), false},
		"attribute by itself":         {sample(0x10, 2, 0x20, 1), true},
		"attribute by itself outside": {sample(0x10, 3, 0x20, 1), false},
		"stack as bytes":              {sample(0x0a, 1, 9, 0x20, 1), true},
		"values as 64 bits":           {sample(append([]byte{0x21}, time...)...), false},
		"tag in two bytes":            {sample(0xa0, 0x00, 1), true},
	} {
		v, err := Check(Profiles, c.body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if (v.Items == 1) != c.ok || (v.RejectedUnits == 0) != c.ok {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// What belongs to a table may come in several dictionaries, which protobuf makes one.
func TestDictionaryInParts(t *testing.T) {
	whole := profileRequest(aProfile())
	rest := &profiles.ProfilesDictionary{StackTable: whole.Dictionary.StackTable[1:],
		StringTable: whole.Dictionary.StringTable[3:]}
	last := profileRequest()
	last.Dictionary, last.ResourceProfiles = rest, nil
	whole.Dictionary.StackTable = whole.Dictionary.StackTable[:1]
	whole.Dictionary.StringTable = whole.Dictionary.StringTable[:3]
	body := append(encode(t, whole), encode(t, last)...)
	v := mustCheck(t, Profiles, body)
	assert.Check(t, v.RejectedUnits == 0 && v.Items == 2 && v.Units == 1, "%+v", v)
	v = mustCheck(t, Profiles, encode(t, whole))
	assert.Check(t, v.RejectedUnits == 1, "without the second part: %+v", v)
}

// Lengths around what is taken out shrink from two bytes to one, in several messages at once.
func TestWithoutShrinks(t *testing.T) {
	for n := range 400 {
		span, plain := aSpan("a"), aSpan("a")
		span.Attributes = []*common.KeyValue{attribute("k", string(make([]byte, n))), attribute("k", "")}
		plain.Attributes = span.Attributes[1:]
		body := encode(t, traceRequest(span))
		got, want := mustCheck(t, Traces, body).Request, encode(t, traceRequest(plain))
		assert.Assert(t, bytes.Equal(got, want), "%d: %x, want %x", n, got, want)
	}
}

// A hostile request costs little beside its bytes, however many messages are in it.
func TestBounded(t *testing.T) {
	const size = 1 << 20
	var span []byte // with attributes that are only a bad field
	for range 40 {
		span = append(span, 0x4a, 2, 0x18, 1)
	}
	fill := func(b []byte, tags ...byte) []byte { return inside(bytes.Repeat(b, size/len(b)), tags...) }
	for name, c := range map[string]struct {
		signal Signal
		body   []byte
		err    string
	}{
		"empty resources": {Traces, fill([]byte{0x0a, 0}), ""},
		"empty scopes":    {Metrics, fill([]byte{0x12, 0}, 0x0a), ""},
		"empty spans":     {Traces, fill([]byte{0x12, 0}, 0x0a, 0x12), ""},
		"empty points":    {Metrics, fill([]byte{0x0a, 0}, 0x0a, 0x12, 0x12, 0x2a), ""},
		"empty samples":   {Profiles, fill([]byte{0x12, 0}, 0x0a, 0x12, 0x12), ""},
		"empty keys":      {Traces, fill([]byte{0x4a, 0}, 0x0a, 0x12, 0x12), ""},
		"empty strings":   {Profiles, fill([]byte{0x2a, 0}, 0x12), ""},
		"empty values":    {Traces, fill([]byte{0x0a, 0}, 0x0a, 0x0a, 0x0a, 0x12, 0x2a), ""},
		"bad fields":      {Traces, fill(inside(append(span, soundIDs...), 0x12), 0x0a, 0x12), tooManyRemoved},
		"scopes in turns": {Metrics, fill([]byte{0x12, 2, 0x12, 0, 0x12, 0}, 0x0a), tooManyRemoved},
		"spans in turns": {Traces, fill(append(inside(append(make([]byte, 0, 99),
			append([]byte("\x2a\x58"+strings.Repeat("n", 88)), soundIDs...)...), 0x12), 0x12, 0),
			0x0a, 0x12), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			v, err := Check(c.signal, c.body)
			runtime.ReadMemStats(&after)
			var e *Error
			if errors.As(err, &e); (err != nil) != (c.err != "") || e != nil && e.Text != c.err {
				t.Errorf("%v, %+v", err, v)
			}
			// As messages it would be fifty times as much and more.
			if n := after.TotalAlloc - before.TotalAlloc; n > size*3/2+3<<20 {
				t.Errorf("%d bytes were allocated for a request of %d", n, len(c.body))
			}
		})
	}
}

// soundIDs is what a Span must have.
var soundIDs = fmt.Appendf(nil, "\x0a\x10%s\x12\x08%s", traceID, spanID)

// inside puts a message into others, as the fields of those tags; the last is the innermost.
func inside(b []byte, tags ...byte) []byte {
	for i := range tags {
		f := field{tag: tag(tags[len(tags)-1-i])}
		w := writer{in: b}
		f.body = w.in.all()
		w.nested(f)
		b = w.out
	}
	return b
}

// Values may be nested as deep as fits into a request: they are not decoded, and removed.
func TestDeep(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	const depth = 500_000
	var reversed []byte // an AnyValue in an ArrayValue, and so on, from the end to the beginning
	for i := range 2 * depth {
		length := protowire.AppendVarint(nil, uint64(len(reversed)))
		slices.Reverse(length)
		reversed = append(append(reversed, length...), []byte{0x0a, 0x2a}[i%2])
	}
	slices.Reverse(reversed)
	value := inside(reversed, 0x4a, 0x12) // the value of an attribute
	body := inside(append(value, soundIDs...), 0x0a, 0x12, 0x12)
	body = append(body, encode(t, traceRequest(aSpan("a")))...)
	v := mustCheck(t, Traces, body)
	assert.Check(t, v.Items == 2 && len(v.Request) < 5_000, "%d bytes are left of %d", len(v.Request), len(body))
	got, want := counts(v), "items=2, too_deep=1"
	assert.Check(t, got == want, "got %s, want %s", got, want)
}

// A list that ends within a number makes a request undecodable, in each kind of list.
func TestBrokenList(t *testing.T) {
	for name, c := range map[string]struct {
		signal Signal
		body   request
		field  string
	}{
		"varints": {Profiles, inside([]byte{0x22, 2, 1, 0x80}, 0x0a, 0x12, 0x12, 0x12),
			"resource_profiles[0].scope_profiles[0].profiles[0].samples[0].values[0]"},
		"indices": {Profiles, inside([]byte{0x0a, 1, 0xff}, 0x12, 0x3a),
			"dictionary.stack_table[0].location_indices[0]"},
		"fixed64s": {Metrics, inside(append([]byte{0x32, 9}, make([]byte, 9)...), 0x0a, 0x12, 0x12, 0x4a, 0x0a),
			"resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0].bucket_counts[0]"},
	} {
		var e *Error
		_, err := Check(c.signal, c.body)
		assert.Check(t, errors.As(err, &e) && e.Field == c.field, "%s: %v", name, err)
	}
}
