package stats

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func texts(pairs ...string) (all []*common.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, text(pairs[i], pairs[i+1]))
	}
	return all
}

func bytesOf(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	assert.NilError(t, err)
	return b
}

// A whole request of a command line script, against every field of what it gives.
func TestSession(t *testing.T) {
	s := New(Options{ServiceName: "shop", HostID: "f00d", HostName: "web-7"})
	feed(t, s, "session-userland-cli.bin")
	if s.Period() != 2500*time.Millisecond {
		t.Errorf("period %v, not 2.5 s", s.Period())
	}
	start, end := uint64(1795196498_000_000_000), uint64(1795196500_500_000_000)
	const cumulative = metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	exemplar := func(e *metrics.Exemplar, filtered ...string) []*metrics.Exemplar {
		e.TraceId = bytesOf(t, "0123456789abcdef0123456789abcdef")
		e.SpanId = bytesOf(t, "00f067aa0ba902b7")
		e.TimeUnixNano = 1795196498_073_153_000
		e.FilteredAttributes = texts(filtered...)
		return []*metrics.Exemplar{e}
	}
	latency := func() *metrics.Exemplar { return &metrics.Exemplar{Value: &metrics.Exemplar_AsDouble{AsDouble: 12.75}} }
	sum, low, high := 12.75, 12.75, 12.75
	want := &collector.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource: &resource.Resource{Attributes: texts("service.name", "shop", "host.id", "f00d", "host.name", "web-7",
			"telemetry.sdk.name", "opencensus", "telemetry.sdk.language", "php")},
		ScopeMetrics: []*metrics.ScopeMetrics{{
			Scope: &common.InstrumentationScope{Name: "opencensus-php"},
			Metrics: []*metrics.Metric{{
				Name: "shop/requests", Description: "number of requests", Unit: "1",
				Data: &metrics.Metric_Sum{Sum: &metrics.Sum{AggregationTemporality: cumulative, IsMonotonic: true,
					DataPoints: []*metrics.NumberDataPoint{{
						Attributes: texts("code", "200", "route", "/cart"), StartTimeUnixNano: start, TimeUnixNano: end,
						Value:     &metrics.NumberDataPoint_AsInt{AsInt: 1},
						Exemplars: exemplar(latency(), "host", "web-1"),
					}}}},
			}, {
				Name: "shop/bytes_total", Description: "sum of bytes", Unit: "By",
				Data: &metrics.Metric_Sum{Sum: &metrics.Sum{AggregationTemporality: cumulative, IsMonotonic: true,
					DataPoints: []*metrics.NumberDataPoint{{
						Attributes: texts("route", "/cart"), StartTimeUnixNano: start, TimeUnixNano: end,
						Value: &metrics.NumberDataPoint_AsInt{AsInt: 25648},
						Exemplars: exemplar(&metrics.Exemplar{Value: &metrics.Exemplar_AsInt{AsInt: 25648}},
							"host", "web-1", "code", "200"),
					}}}},
			}, {
				Name: "shop/latency_dist", Description: "latency distribution", Unit: "ms",
				Data: &metrics.Metric_Histogram{Histogram: &metrics.Histogram{AggregationTemporality: cumulative,
					DataPoints: []*metrics.HistogramDataPoint{{
						Attributes: texts("route", "/cart"), StartTimeUnixNano: start, TimeUnixNano: end,
						Count: 1, Sum: &sum, Min: &low, Max: &high,
						ExplicitBounds: []float64{0, 5, 10, 25.5, 100}, BucketCounts: []uint64{0, 0, 0, 1, 0, 0},
						Exemplars: exemplar(latency(), "host", "web-1", "code", "200"),
					}}}},
			}, {
				Name: "shop/latency_last", Description: "last latency", Unit: "ms",
				Data: &metrics.Metric_Gauge{Gauge: &metrics.Gauge{
					DataPoints: []*metrics.NumberDataPoint{{
						TimeUnixNano: end, Value: &metrics.NumberDataPoint_AsDouble{AsDouble: 12.75},
					}}}},
			}},
		}},
	}}}
	requests := s.Encode(moment.Add(2500 * time.Millisecond))
	assert.Assert(t, len(requests) == 1 && requests[0].Points == 4, "%d requests", len(requests))
	got := decode(t, requests[0], 1<<20)
	assert.Check(t, proto.Equal(got, want), "got %v\nwant %v", got, want)
	expectLost(t, s, nil)

	// The next export has the same values, and no exemplars.
	expect(t, s, 5*time.Second,
		`shop/requests sum "1" {code=200 route=/cart} 1`,
		`shop/bytes_total sum "By" {route=/cart} 25648`,
		`shop/latency_dist histogram "ms" {route=/cart} 1 12.75 12.75..12.75 [0 5 10 25.5 100] [0 0 0 1 0 0]`,
		`shop/latency_last gauge "ms" {} 12.75`)
}

// The bytes of a count with an exemplar, by hand from the message definitions.
func TestBytes(t *testing.T) {
	s := New(Options{ServiceName: "s"})
	s.Update(time.Unix(1, 0), func(u *Update) {
		u.RegisterViews([]wire.View{{Name: "v", Measure: "m", Aggregation: wire.Count, TagKeys: []string{"k"}}})
		u.Record(&wire.Record{Measurements: ints("m", 3), Tags: pairs("x", "b", "k", "a"),
			Attachments: pairs("SpanId", "ab")},
			time.Time{})
	})
	want := "\x0a\xcd\x01" + // ResourceMetrics
		"\x0a\x5a" + // Resource
		"\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01s" +
		"\x0a\x22\x0a\x12telemetry.sdk.name\x12\x0c\x0a\x0aopencensus" +
		"\x0a\x1f\x0a\x16telemetry.sdk.language\x12\x05\x0a\x03php" +
		"\x12\x6f" + // ScopeMetrics
		"\x0a\x10\x0a\x0eopencensus-php" +
		"\x12\x5b" + // Metric
		"\x0a\x01v" + "\x1a\x011" +
		"\x3a\x53" + // Sum
		"\x0a\x4d" + // NumberDataPoint
		"\x3a\x08\x0a\x01k\x12\x03\x0a\x01a" +
		"\x11\x00\xca\x9a\x3b\x00\x00\x00\x00" + // 1 s
		"\x19\x00\x94\x35\x77\x00\x00\x00\x00" + // 2 s
		"\x31\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x2a\x26" + // Exemplar
		"\x22\x08\x00\x00\x00\x00\x00\x00\x00\xab" +
		"\x11\x00\xca\x9a\x3b\x00\x00\x00\x00" +
		"\x3a\x08\x0a\x01x\x12\x03\x0a\x01b" +
		"\x31\x03\x00\x00\x00\x00\x00\x00\x00" +
		"\x10\x02\x18\x01" // cumulative, monotonic
	requests := s.Encode(time.Unix(2, 0))
	decode(t, requests[0], 1<<20)
	got := string(requests[0].Body)
	assert.Check(t, got == want, "got  %x\nwant %x", got, want)
}

// Whole connections that have records, and what they give.
func TestCaptures(t *testing.T) {
	s := New(Options{})
	s.Update(moment, func(u *Update) {
		u.RegisterViews([]wire.View{{Name: "sum", Measure: "fork/n", Aggregation: wire.Sum},
			{Name: "count", Measure: "fork/n", Aggregation: wire.Count}})
	})
	feed(t, s, "session-userland-fork.bin")
	expect(t, s, 0, `sum sum "1" {} 303`, `count sum "1" {} 6`)

	s = New(Options{})
	for _, file := range []string{"session-userland-fpm-two-requests.bin", "session-extension-cli.bin"} {
		feed(t, s, file)
	}
	if c := s.Counts(); c.ViewsCreated == 0 || c.ViewsKnown != 2*c.ViewsCreated {
		t.Errorf("%+v: three requests register the same views", c)
	}
	assert.Check(t, len(export(t, s, 0)) != 0, "no metrics")
	expectLost(t, s, nil)
}

// What clients send that is odd: float-specials and negative ints among it.
func TestOddValues(t *testing.T) {
	s := New(Options{NonMonotonicSums: true})
	for _, file := range []string{"42-view-register-all-aggregations.bin", "42-view-register-degenerate-bounds.bin",
		"44-stats-record-int-sizes.bin", "44-stats-record-float-specials.bin", "44-stats-record-nul-attachment.bin",
		"41-reporting-period-nan-inf-1e9.bin"} {
		feed(t, s, file)
	}
	const attachments = "{123=numeric key nul\x00\x00\x00\x00key=\ufffd}"
	expect(t, s, 0,
		`odd/count sum "1" {} 3`,
		`odd/sum sum "" {} 9223372036854775807 <6   `+attachments+`>`,
		`odd/dist histogram "" {} 3 no sum, -1.5..0 [-3 0.5 5 100] [0 3 0 0 0]`,
		`odd/last gauge "" {} -1.5`,
		`odd/float histogram "" {} 3 no sum, -1.5..0 [] [3]`,
		`odd/inf histogram "" {} 3 no sum, -1.5..0 [1] [3 0]`)
	expectLost(t, s, map[Loss]uint64{ViewInvalid: 1, NotFinite: 3, PeriodInvalid: 2, PeriodClamped: 1, Saturated: 3,
		ExemplarAttribute: 1}) // an empty key
	if s.Period() != time.Hour {
		t.Errorf("period %v", s.Period())
	}
}
