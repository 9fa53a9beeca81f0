package spans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/otlp/validate"
)

var sent = time.Unix(1795196498, 73360000)

func testOptions() Options {
	return Options{ServiceName: "shop", HostID: "0af7", HostName: "web-1",
		MaxStackTraceBytes: DefaultMaxStackTraceBytes}
}

const captures = "../testdata/captures/"

// message is what the manifest says of a message of a capture.
type message struct {
	Offset, HeaderBytes, Type, PayloadLength, PID int
	StartTime                                     float64
	PaddedFloat32                                 bool
	TruncatedTo                                   int
	Payload                                       json.RawMessage // of trace exports: {"spans": n} or "empty"
}

// captured is a trace export of a capture.
type captured struct {
	*Export
	spans int
}

// traceExports returns the complete trace exports of the captures whose names match a pattern, by
// name.
func traceExports(t testing.TB, pattern string) map[string][]captured {
	t.Helper()
	text, err := os.ReadFile(captures + "manifest.json")
	assert.NilError(t, err)
	var manifest map[string]struct{ Messages []message }
	assert.NilError(t, json.Unmarshal(text, &manifest))
	found := make(map[string][]captured)
	for name, entry := range manifest {
		if match, _ := filepath.Match(pattern, name); !match {
			continue
		}
		data, err := os.ReadFile(captures + name)
		assert.NilError(t, err)
		for _, m := range entry.Messages {
			if m.Type != 20 || m.TruncatedTo != 0 {
				continue
			}
			x := captured{Export: &Export{Payload: data[m.Offset+m.HeaderBytes:][:m.PayloadLength],
				Received: time.Unix(1795200000, 0), PHPVersion: "8.2.35", Process: Process{PID: m.PID}}}
			if !m.PaddedFloat32 {
				x.Sent = time.UnixMicro(int64(math.Round(m.StartTime * 1e6)))
			}
			var payload struct{ Spans int }
			json.Unmarshal(m.Payload, &payload)
			x.spans = payload.Spans
			found[name] = append(found[name], x)
		}
	}
	assert.Assert(t, len(found) != 0, "no capture %s", pattern)
	return found
}

// encode encodes an export, and returns the decoded request, which is valid as a whole.
func encode(t testing.TB, o Options, x *Export) (*tracepb.TracesData, Result) {
	t.Helper()
	out, r, err := NewEncoder(o).Append([]byte("before"), x)
	if err != nil {
		t.Fatalf("%v: %.200q", err, x.Payload)
	}
	assert.Assert(t, bytes.HasPrefix(out, []byte("before")), "does not append: %.20q", out)
	return decode(t, out[len("before"):], r), r
}

// decode decodes a request, and checks that it is valid, and what the result says of it.
func decode(t testing.TB, request []byte, r Result) *tracepb.TracesData {
	t.Helper()
	verdict, err := validate.Check(validate.Traces, request)
	assert.NilError(t, err)
	assert.Assert(t, verdict.Items == r.Spans && verdict.Message == "",
		"%d spans valid of %d: %s", verdict.Items, r.Spans, verdict.Message)
	data := new(tracepb.TracesData) // has the same fields as the request
	assert.NilError(t, proto.Unmarshal(request, data))
	assert.Assert(t, len(data.ResourceSpans) <= 1 && (len(data.ResourceSpans) == 0) == (r.Spans == 0),
		"%d resources for %d spans", len(data.ResourceSpans), r.Spans)
	assert.Assert(t, data.ProtoReflect().GetUnknown() == nil, "unknown fields")
	var attributes, events, links int
	for _, s := range spansOf(data) {
		attributes += int(s.DroppedAttributesCount)
		events += int(s.DroppedEventsCount)
		links += int(s.DroppedLinksCount)
		for _, ev := range s.Events {
			attributes += int(ev.DroppedAttributesCount)
		}
		for _, link := range s.Links {
			attributes += int(link.DroppedAttributesCount)
		}
	}
	assert.Assert(t, attributes == r.DroppedAttributes && events == r.DroppedEvents && links == r.DroppedLinks,
		"dropped %d attributes, %d events, %d links; the result says %+v", attributes, events, links, r)
	return data
}

func spansOf(data *tracepb.TracesData) (spans []*tracepb.Span) {
	for _, r := range data.ResourceSpans {
		for _, s := range r.ScopeSpans {
			spans = append(spans, s.Spans...)
		}
	}
	return spans
}

// oneSpan encodes an export with one span, which has the given members beside its ids.
func oneSpan(t testing.TB, o Options, members string) (*tracepb.Span, Result) {
	t.Helper()
	data, r := encode(t, o, export(`[{"traceId":"1","spanId":"2"`+members+`}]`))
	assert.Assert(t, len(spansOf(data)) == 1, "%+v", r)
	return spansOf(data)[0], r
}

func export(payload string) *Export {
	return &Export{Payload: []byte(payload), Sent: sent, Received: sent.Add(time.Second)}
}

// show renders a span as text; parts that are as usual are left out.
func show(s *tracepb.Span) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%x %x", s.TraceId, s.SpanId)
	if s.ParentSpanId != nil {
		fmt.Fprintf(&b, " of %x", s.ParentSpanId)
	}
	fmt.Fprintf(&b, " flags %#x %s %q %s to %s", s.Flags, strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"), s.Name,
		clock(s.StartTimeUnixNano), clock(s.EndTimeUnixNano))
	b.WriteString(showAll(s.Attributes, "\n  "))
	for _, ev := range s.Events {
		fmt.Fprintf(&b, "\n  event %s %q%s", clock(ev.TimeUnixNano), ev.Name, showAll(ev.Attributes, " "))
	}
	for _, link := range s.Links {
		fmt.Fprintf(&b, "\n  link %x %x%s", link.TraceId, link.SpanId, showAll(link.Attributes, " "))
	}
	for _, lost := range []struct {
		n    uint32
		what string
	}{{s.DroppedAttributesCount, "attributes"}, {s.DroppedEventsCount, "events"}, {s.DroppedLinksCount, "links"}} {
		if lost.n > 0 {
			fmt.Fprintf(&b, "\n  %d %s dropped", lost.n, lost.what)
		}
	}
	if s.Status != nil {
		fmt.Fprintf(&b, "\n  %s %q", s.Status.Code, s.Status.Message)
	}
	return b.String()
}

func clock(nanos uint64) string {
	return time.Unix(0, int64(nanos)).UTC().Format("2006-01-02T15:04:05.999999999Z")
}

func showAll(list []*commonpb.KeyValue, before string) string {
	var b strings.Builder
	for _, a := range list {
		b.WriteString(before + a.Key + "=" + showValue(a.Value))
	}
	return b.String()
}

func showValue(v *commonpb.AnyValue) string {
	switch v := v.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return strconv.Quote(v.StringValue)
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprintf("double %v", v.DoubleValue)
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *commonpb.AnyValue_ArrayValue:
		var parts []string
		for _, element := range v.ArrayValue.Values {
			parts = append(parts, showValue(element))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *commonpb.AnyValue_KvlistValue:
		return "{" + strings.TrimPrefix(showAll(v.KvlistValue.Values, " "), " ") + "}"
	}
	return "null"
}
