package receiver

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/otlp"
	"correlator/otlp/validate"
)

// Valid requests are passed on byte by byte, compressed or not; the response is empty.
func TestPassOn(t *testing.T) {
	l := openLab(t, Config{})
	for signal := range otlp.NumSignals {
		body, items := sound(t, signal)
		// A field of a later schema.
		body = append(body, 0xfa, 0x3f, 0x02, 'h', 'i')
		for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			rejected, message := l.send(signal, body, options...)
			assert.Check(t, rejected == 0 && message == "", "%v: %d rejected: %s", signal, rejected, message)
			b := l.only(t)
			if b.Signal() != signal || b.Items() != items || !bytes.Equal(b.Request(), body) ||
				cap(b.Request()) > len(body)*9/8 {
				t.Errorf("%v: %d items of %v were passed on, %x, want %d, %x", signal, b.Items(), b.Signal(),
					b.Request(), items, body)
			}
		}
		l.wantCounts(signal, fmt.Sprintf("items=%d, requests OK=2", 2*items))
	}
}

// The valid part of a request is passed on, and the response reports how much was rejected, in the
// unit of the protocol (counters have items). Fields that are ignored are in the message only.
func TestPartialSuccess(t *testing.T) {
	badProfile := aProfile(1, 1, 1)
	badProfile.Samples[1].StackIndex = 2
	twice := aSpan("a")
	twice.Attributes = append([]*common.KeyValue{attribute("http.method", "PUT"), {Key: "k", KeyStrindex: 1}},
		twice.Attributes...)
	once := proto.Clone(twice).(interface{ GetAttributes() []*common.KeyValue }).GetAttributes()[1:]
	once[0].KeyStrindex = 0
	fixed := aSpan("a")
	fixed.Attributes = once
	for _, c := range []struct {
		signal       otlp.Signal
		sent, passed proto.Message // passed: nil if nothing is
		rejected     int64
		message      string
		counts       string
	}{
		{otlp.Traces, traceRequest(aSpan("a"), badSpan(), aSpan("b")), traceRequest(aSpan("a"), aSpan("b")), 1,
			"1 of 3 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[1].span_id: span_id is not 8 bytes, or zero",
			"items=3, rejected_items bad_id=1, requests OK=1"},
		{otlp.Profiles, profileRequest(aProfile(1, 1), badProfile), profileRequest(aProfile(1, 1)), 1,
			"1 of 2 profiles rejected, the first because of resource_profiles[0].scope_profiles[0].profiles[1].samples[1].stack_index: " +
				"index is outside of the table",
			"items=5, rejected_items bad_index=3, requests OK=1"},
		{otlp.Traces, traceRequest(badSpan()), nil, 1,
			"1 of 1 spans rejected, the first because of resource_spans[0].scope_spans[0].spans[0].span_id: span_id is not 8 bytes, or zero",
			"items=1, rejected_items bad_id=1, requests OK=1"},
		{otlp.Traces, traceRequest(twice), traceRequest(fixed), 0,
			"1 fields ignored: bad_field; 1 fields ignored: duplicate_key",
			"ignored_fields bad_field=1, ignored_fields duplicate_key=1, items=1, requests OK=1"},
	} {
		l := openLab(t, Config{})
		rejected, message := l.send(c.signal, encode(t, c.sent), grpc.UseCompressor(gzip.Name))
		assert.Check(t, rejected == c.rejected && message == c.message,
			"%d rejected: %s\nwant %d: %s", rejected, message, c.rejected, c.message)
		l.wantCounts(c.signal, c.counts)
		if c.passed == nil {
			n := len(l.taken())
			assert.Check(t, n <= 0, "%d batches were passed on", n)
		} else if b := l.only(t); !bytes.Equal(b.Request(), encode(t, c.passed)) {
			t.Errorf("passed on: %x", b.Request())
		}
	}
}

// A text that is not UTF-8 costs none of the spans beside it, nor its own.
func TestBadText(t *testing.T) {
	sent := bytes.Replace(encode(t, traceRequest(aSpan("a"), aSpan("NAME"))), []byte("NAME"), []byte("N\xffME"), 1)
	l := openLab(t, Config{})
	rejected, message := l.send(otlp.Traces, sent)
	assert.Check(t, rejected == 0 && message == "1 fields changed: bad_utf8", "%d, %s", rejected, message)
	l.wantCounts(otlp.Traces, "ignored_fields bad_utf8=1, items=2, requests OK=1")
	b := l.only(t)
	assert.Check(t, bytes.Equal(b.Request(), encode(t, traceRequest(aSpan("a"), aSpan("N?ME")))), "%q", b.Request())
}

// A batch of profiles knows their number, which is what a backend's partial success counts.
func TestBatch(t *testing.T) {
	v, now := &validate.Verdict{Request: []byte("request"), Items: 5, Units: 2}, time.Now()
	got, want := newBatch(otlp.Profiles, v, now), otlp.NewProfilesBatch(v.Request, 5, 2, now)
	assert.Check(t, reflect.DeepEqual(got, want), "%+v, want %+v", got, want)
}

// A request that its client has cancelled meanwhile is not passed on: the client will send it
// again.
func TestGivenUp(t *testing.T) {
	l := openLab(t, Config{})
	body, _ := sound(t, otlp.Traces)
	_, err := l.pass(testenv.Ended(), otlp.Traces, nil, body, false)
	wantError(t, err, codes.Canceled, false)
	l.wantCounts(otlp.Traces, "requests CANCELLED=1")
	n := len(l.taken())
	assert.Check(t, n <= 0, "%d batches were passed on", n)
}

// However deeply nested the first error is, the response fits into what clients accept: 8 KiB of
// headers, messages of 1 KiB.
func TestLongAnswers(t *testing.T) {
	text := func(text string) *common.AnyValue {
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: text}}
	}
	nest := func(depth int, v *common.AnyValue) *common.AnyValue {
		for range depth {
			list := &common.KeyValueList{Values: []*common.KeyValue{{Key: "k", Value: v}}}
			v = &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: list}}
		}
		return v
	}
	span := aSpan("a")
	span.Attributes[0].Value = nest(90, text("GET"))
	invalid := bytes.Replace(encode(t, traceRequest(span)), []byte("\x03GET"), []byte("\x04GET"), 1)
	l := openLab(t, Config{})
	conn := dial(t, "unix:"+l.Addr().String(), grpc.WithMaxHeaderListSize(8<<10))
	_, err := export(conn, otlp.Traces, invalid)
	s := wantError(t, err, codes.InvalidArgument, false)
	field := violation(s)
	assert.Check(t, strings.HasPrefix(field,
		"resource_spans[0].scope_spans[0].spans[0].attributes[0].value.kvlist_value.values[0].value.") &&
		len(field) == maxMessage && len(s.Message()) == maxMessage,
		"%d bytes: %s", len(field), s)
	many := nest(1, text(""))
	list := many.GetKvlistValue()
	list.Values = slices.Repeat(list.Values, 1<<14+1)
	span.Attributes[0].Value = nest(90, many)
	rejected, message := l.send(otlp.Traces, encode(t, traceRequest(span)))
	assert.Check(t, rejected == 1 && len(message) == maxMessage, "%d rejected: %s", rejected, message)
}

// Clients on a Unix socket send all kinds of authorities: those of grpc-java, of grpc-python, and
// of older versions of C-core, among others.
func TestAuthority(t *testing.T) {
	l := openLab(t, Config{})
	body, _ := sound(t, otlp.Metrics)
	for _, authority := range []string{"", "localhost", "localhost:80",
		strings.ReplaceAll(l.Addr().String(), "/", "%2F"), "unix", "[::1]:4317"} {
		conn := dial(t, "unix:"+l.Addr().String(), grpc.WithAuthority(authority))
		_, err := export(conn, otlp.Metrics, body)
		assert.Check(t, err, "%q", authority)
		l.only(t)
	}
}
