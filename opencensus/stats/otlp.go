package stats

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/opencensus/wire"
	"correlator/otlp/field"
)

// The messages and fields of a request that are used (metrics_service.proto, metrics.proto,
// resource.proto, common.proto). All numbers are below 16, so a tag is one byte.
//
//	message                      field  type      content
//	ExportMetricsServiceRequest      1  messages  ResourceMetrics, one
//	ResourceMetrics                  1  message   Resource
//	                                 2  messages  ScopeMetrics, one
//	Resource                         1  messages  KeyValue: 1 text, 2 AnyValue
//	AnyValue                         1  text
//	                                 2  varint    bool
//	ScopeMetrics                     1  message   InstrumentationScope: 1 name
//	                                 2  messages  Metric
//	Metric                           1  text      name
//	                                 2  text      description
//	                                 3  text      unit
//	                                 5  message   Gauge: 1 NumberDataPoint
//	                                 7  message   Sum: 1 NumberDataPoint, 2 temporality, 3 monotonic
//	                                 9  message   Histogram: 1 HistogramDataPoint, 2 temporality
//	NumberDataPoint                  2  fixed64   start_time_unix_nano
//	                                 3  fixed64   time_unix_nano
//	                                 4  double    as_double
//	                                 5  messages  Exemplar
//	                                 6  sfixed64  as_int
//	                                 7  messages  KeyValue
//	HistogramDataPoint               2  fixed64   start_time_unix_nano
//	                                 3  fixed64   time_unix_nano
//	                                 4  fixed64   count
//	                                 5  double    sum
//	                                 6  fixed64s  bucket_counts
//	                                 7  doubles   explicit_bounds
//	                                 8  messages  Exemplar
//	                                 9  messages  KeyValue
//	                                11  double    min
//	                                12  double    max
//	Exemplar                         2  fixed64   time_unix_nano
//	                                 3  double    as_double
//	                                 4  bytes     span_id
//	                                 5  bytes     trace_id
//	                                 6  sfixed64  as_int
//	                                 7  messages  KeyValue
const (
	gaugeField, sumField, histogramField = 5, 7, 9
	temporalityField, monotonicField     = 2, 3
	cumulative                           = 2 // AggregationTemporality

	startField, timeField         = 2, 3
	doubleField, intField         = 4, 6
	countField, histogramSumField = 4, 5
	bucketsField, boundariesField = 6, 7
	minField, maxField            = 11, 12

	exemplarTime, exemplarDouble   = 2, 3
	exemplarSpanID, exemplarTrace  = 4, 5
	exemplarInt, exemplarAttribute = 6, 7
)

// pointAttributes and pointExemplars return the numbers of these fields in the points of a view.

func pointAttributes(v *view) protowire.Number {
	if v.aggregation == wire.Distribution {
		return 9
	}
	return 7
}

func pointExemplars(v *view) protowire.Number {
	if v.aggregation == wire.Distribution {
		return 8
	}
	return 5
}

// mostHeaderBytes is the largest size of a tag and a length.
const mostHeaderBytes = 1 + 5

// appendText appends a text, unless it is empty: then the field is left out.
func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return field.Append(b, number, text)
}

func appendDouble(b []byte, number protowire.Number, f float64) []byte {
	return field.AppendFixed64(b, number, math.Float64bits(f))
}

// overflowAttributes is the encoded attribute of the series for overflow, as OpenTelemetry's SDKs
// have it: true, without the tag and length of the field.
const overflowAttributes = "\x0a\x14" + "otel.metric.overflow" + "\x12\x02\x10\x01"

func appendOverflow(b []byte, number protowire.Number) []byte {
	return field.Append(b, number, overflowAttributes)
}

// appendPacked appends a list of fixed64 or double, unless it is empty.
func appendPacked[T uint64 | float64](b []byte, number protowire.Number, list []T, bits func(T) uint64) []byte {
	if len(list) == 0 {
		return b
	}
	b = field.AppendHeader(b, number, 8*len(list))
	for _, n := range list {
		b = binary.LittleEndian.AppendUint64(b, bits(n))
	}
	return b
}
