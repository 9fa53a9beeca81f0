package throughput

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	traceservice "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"correlator/profile"
)

// shape is how large a batch of spans is.
type shape struct{ Spans, Attributes int }

var (
	large = shape{500, 10} // 155 kB
	small = shape{100, 4}  // 17 kB
)

// stampTime is the start of the first span until it is stamped, in 2009. Spans last for 31 years,
// so that the first is valid with any stamp.
const (
	stampTime    = 0x1122334455667788
	spanDuration = 1e18
)

// message is a request with spans as an HTTP server has them.
func (s shape) message() *traceservice.ExportTraceServiceRequest {
	text := func(key, value string) *common.KeyValue {
		return &common.KeyValue{Key: key,
			Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
	}
	keys := make([]string, s.Attributes) // constants, where somebody writes them
	for i := range keys {
		keys[i] = fmt.Sprintf("http.field.%d", i)
	}
	spans := make([]*trace.Span, s.Spans)
	for i := range spans {
		begin := uint64(stampTime) + uint64(i)*1000
		span := &trace.Span{
			TraceId: fmt.Appendf(nil, "trace-%010d", i/20), SpanId: fmt.Appendf(nil, "s%07d", i),
			ParentSpanId: fmt.Appendf(nil, "s%07d", i/20*20), Name: fmt.Sprintf("GET /cart/%d", i%50),
			Kind: trace.Span_SPAN_KIND_SERVER, StartTimeUnixNano: begin, EndTimeUnixNano: begin + spanDuration,
		}
		for j, key := range keys {
			span.Attributes = append(span.Attributes, text(key, fmt.Sprintf("v%d", i*j%1000)))
		}
		spans[i] = span
	}
	return &traceservice.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{text("service.name", "cart"),
			text("host.name", "node-1")}},
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "http"}, Spans: spans}},
	}}}
}

// encoded is the bytes of a request, and where its stamp is.
type encoded struct {
	body  []byte
	stamp int
}

func (s shape) encode() (encoded, error) {
	body, err := proto.Marshal(s.message())
	if err != nil {
		return encoded{}, err
	}
	at := bytes.Index(body, binary.LittleEndian.AppendUint64(nil, stampTime))
	if at < 0 {
		return encoded{}, errors.New("no first span in the encoded request")
	}
	return encoded{body, at}, nil
}

// copyAt returns a copy of the bytes in memory of its own, as every batch has, stamped with the
// time.
func (e encoded) copyAt(now time.Time) []byte {
	body := bytes.Clone(e.body)
	binary.LittleEndian.PutUint64(body[e.stamp:], uint64(now.UnixNano()))
	return body
}

// samples are those of two busy processes: 100 stacks of 50 frames in eight files, half of them
// shared, 20 threads, 50 spans.
func samples(n int) []profile.Sample {
	files := make([]*profile.File, 8)
	for i := range files {
		files[i] = &profile.File{
			ID: profile.FileID{byte(i + 1)}, Kind: profile.NativeFrame,
			BuildID: fmt.Sprintf("%040d", i), Path: fmt.Sprintf("/usr/lib/x86_64-linux-gnu/lib%d.so", i),
		}
	}
	files[0] = nil // code of a JIT
	var processes []*profile.Resource
	for i, name := range []string{"shop", "cart"} {
		processes = append(processes, &profile.Resource{
			Service: profile.Service{Name: name}, PID: 1000 + i,
			ExecutableName: "java", ExecutablePath: "/usr/bin/java",
		})
	}
	stacks := make([][]profile.Frame, 100)
	for i := range stacks {
		for j := range 50 {
			f := profile.Frame{File: files[j/8%8], Address: uint64(1_000_000 + 4099*j)}
			if j < 25 {
				f.Address += uint64(64 * i)
			}
			stacks[i] = append(stacks[i], f)
		}
	}
	all := make([]profile.Sample, n)
	for i := range all {
		stack := stacks[i*37%len(stacks)]
		span := byte(1 + i*50/n)
		all[i] = profile.Sample{
			Resource: processes[i%2], Stack: &profile.Stack{ID: profile.TraceID(stack), Frames: stack}, Count: 1,
			TraceID: [16]byte{1, span}, SpanID: [8]byte{2, span}, TransactionID: [8]byte{3, span},
			TID: 100 + i%20, Thread: fmt.Sprintf("worker-%d", i%20),
		}
	}
	return all
}
