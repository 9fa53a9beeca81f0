package metrics

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// requestBytes limits a request, unless a single point is larger. All metrics of an agent take
	// 40 KB.
	requestBytes = 1 << 20

	// MaxRequestBytes is what deployed receivers accept by default.
	MaxRequestBytes = 4 << 20
)

// schemaURL is the version of OpenTelemetry's conventions that names the resource's attributes.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// Options has what is the same in all requests.
type Options struct {
	// Start is when the process began to count.
	Start time.Time
	// The resource is the correlator itself. Empty attributes are left out.
	Version    string
	HostID     string
	InstanceID string // distinguishes agents of one host id, and runs of one agent

	// MaxBytes limits a request with a single point that does not fit into 1 MiB, and all requests
	// if it is less. 0: MaxRequestBytes.
	MaxBytes int
}

// encodedRequest is an ExportMetricsServiceRequest.
type encodedRequest struct {
	Body   []byte // owned by the caller of Encode
	Points int    // items
}

// Result is the outcome of Encode.
type Result struct {
	Requests []encodedRequest
	Skipped  int // metrics whose value is not a number, or whose kind is unknown
	TooLarge int // metrics that fit into no request
}

// Encoder encodes metrics as requests. It is safe for concurrent use.
type Encoder struct {
	start    atomic.Uint64 // ns since 1970
	target   int
	max      int
	resource *resource.Resource
	scope    *common.InstrumentationScope
	empty    int // size of a request without metrics, at most
}

// NewEncoder returns an encoder for this run of the agent.
func NewEncoder(o Options) *Encoder {
	if o.MaxBytes == 0 {
		o.MaxBytes = MaxRequestBytes
	}
	e := &Encoder{
		target: min(requestBytes, o.MaxBytes), max: o.MaxBytes,
		resource: &resource.Resource{},
		scope:    &common.InstrumentationScope{Name: "correlator", Version: valid(o.Version)},
	}
	for _, a := range [][2]string{
		{"service.name", "correlator"}, {"service.version", o.Version},
		{"service.instance.id", o.InstanceID}, {"host.id", o.HostID},
	} {
		if a[1] != "" {
			e.resource.Attributes = append(e.resource.Attributes, attribute(a[0], a[1]))
		}
	}
	e.start.Store(nanoseconds(o.Start))
	e.empty = headerBytes + proto.Size(e.request(nil))
	return e
}

// request returns a request with metrics.
func (e *Encoder) request(all []*metrics.Metric) *collector.ExportMetricsServiceRequest {
	return &collector.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource: e.resource, SchemaUrl: schemaURL,
		ScopeMetrics: []*metrics.ScopeMetrics{{Scope: e.scope, Metrics: all}},
	}}}
}

// Encode returns requests with the families that were gathered at that time. A family that does not
// fit into one is continued in the next. An error is one of the encoding, and means that a text of
// ours is not UTF-8.
func (e *Encoder) Encode(families []*dto.MetricFamily, now time.Time) (Result, error) {
	b := &builder{encoder: e, now: nanoseconds(now)}
	b.start = e.startBefore(b.now)
	for _, f := range families {
		if err := b.addFamily(f); err != nil {
			return Result{}, err
		}
	}
	if err := b.flush(); err != nil {
		return Result{}, err
	}
	return b.result, nil
}

// startBefore returns when the process began to count. If the clock was set to before that, the start
// is now, from here on: as for counters whose start is not known, in the data model of metrics of
// OpenTelemetry's specification.
func (e *Encoder) startBefore(now uint64) uint64 {
	for {
		start := e.start.Load()
		if start <= now || e.start.CompareAndSwap(start, now) {
			return min(start, now)
		}
	}
}

// nanoseconds returns a time in ns since 1970.
func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// builder builds the requests of one call.
type builder struct {
	encoder    *Encoder
	start, now uint64
	result     Result

	metrics []*metrics.Metric // of the request being built
	points  int
	bytes   int // of metrics, at most
}

// headerBytes is the largest size of the tags and lengths of a point and of the messages around it.
const headerBytes = 4 * (1 + 5)

// addFamily adds a family, as one metric in each request that it needs.
func (b *builder) addFamily(f *dto.MetricFamily) error {
	header := headerBytes + proto.Size(describe(f))
	var into *metrics.Metric
	for _, m := range f.Metric {
		p, ok := b.point(f.GetType(), m)
		if !ok {
			b.result.Skipped++
			continue
		}
		size := headerBytes + proto.Size(p)
		if b.encoder.empty+header+size > b.encoder.max {
			b.result.TooLarge++
			continue
		}
		larger := size
		if into == nil {
			larger += header
		}
		if b.points > 0 && b.encoder.empty+b.bytes+larger > b.encoder.target {
			if err := b.flush(); err != nil {
				return err
			}
			into, larger = nil, header+size
		}
		if into == nil {
			into = describe(f)
			b.metrics = append(b.metrics, into)
		}
		appendPoint(into, p)
		b.points, b.bytes = b.points+1, b.bytes+larger
	}
	return nil
}

// flush ends the request, if it is not empty.
func (b *builder) flush() error {
	if b.points == 0 {
		return nil
	}
	body, err := proto.Marshal(b.encoder.request(b.metrics))
	if err != nil {
		return fmt.Errorf("encoding metrics: %w", err)
	}
	b.result.Requests = append(b.result.Requests, encodedRequest{Body: body, Points: b.points})
	b.metrics, b.points, b.bytes = nil, 0, 0
	return nil
}

func attribute(key, value string) *common.KeyValue {
	return &common.KeyValue{
		Key: valid(key), Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(value)}},
	}
}

// valid makes a text UTF-8: otherwise the request would be undecodable.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
