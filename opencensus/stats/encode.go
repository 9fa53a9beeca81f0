package stats

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/opencensus/wire"
	"correlator/otlp/field"
)

// Request is an encoded ExportMetricsServiceRequest.
type Request struct {
	Body   []byte // owned by the caller of Encode
	Points int    // at least 1
	// Last: these are views that were dropped, and no later Encode has them.
	Last bool
}

// encoder has what all requests have.
type encoder struct {
	max      int
	resource []byte // a field of ResourceMetrics
	scope    []byte // a field of ScopeMetrics
}

func newEncoder(o *Options) encoder {
	var attributes []byte
	for _, a := range [...][2]string{
		{"service.name", o.ServiceName}, {"host.id", o.HostID}, {"host.name", o.HostName},
		{"telemetry.sdk.name", "opencensus"}, {"telemetry.sdk.language", "php"},
	} {
		if a[1] != "" {
			attributes = field.AppendTextAttribute(attributes, 1, a[0], valid(a[1]))
		}
	}
	return encoder{
		max: o.MaxBytes, resource: field.Append(nil, 1, attributes),
		scope: field.Append(nil, 1, field.Append(nil, 1, "opencensus-php")),
	}
}

// Encode returns requests with all views that have data, and those that were dropped since the last
// call; and it clears the exemplars. Times never decrease, even if now does. It has to be called
// every period even if nobody wants the requests, since what it clears takes memory.
func (s *State) Encode(now time.Time) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.time(now)
	s.forgetUnused(now)
	b := builder{encoder: &s.encoder, state: s}
	for _, v := range s.ended {
		b.addView(v, v.ended)
		s.release(v)
	}
	s.ended = nil
	b.flush()
	for i := range b.requests {
		b.requests[i].Last = true
	}
	for _, v := range s.inOrder() {
		b.addView(v, now)
		for _, x := range v.series {
			s.clearExemplars(x)
		}
	}
	b.flush()
	return b.requests
}

// inOrder returns the views in the order of registration.
func (s *State) inOrder() []*view {
	return slices.SortedFunc(maps.Values(s.views), func(a, b *view) int { return cmp.Compare(a.ordinal, b.ordinal) })
}

// nanoseconds returns a time in ns since 1970.
func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// builder builds the requests of one Encode.
type builder struct {
	*encoder
	state    *State
	requests []Request

	metrics []byte // complete ones of the request being built
	points  int    // in it, with those of the metric

	// The metric being built.
	kind         protowire.Number // of its data
	header, tail []byte           // before the data, and after the points in it
	data         []byte           // its points

	point []byte // scratch
}

// addView adds a view as of a time, as one metric in each request that it needs.
func (b *builder) addView(v *view, at time.Time) {
	if len(v.series) == 0 {
		return
	}
	b.describe(v)
	start := nanoseconds(v.start)
	end := nanoseconds(at)
	most := b.max - b.emptyBytes() - mostHeaderBytes
	for _, x := range v.series {
		b.encodePoint(v, x, start, end)
		if len(b.point) > most {
			b.state.counts.Lost[PointTooLarge]++
			continue
		}
		b.addExemplars(v, x, most)
		if b.emptyBytes()+len(b.metrics)+len(b.data)+mostHeaderBytes+len(b.point) > b.max {
			b.flush()
		}
		b.data = field.Append(b.data, 1, b.point)
		b.points++
	}
	b.endMetric()
}

// emptyBytes returns the largest size of a request that has the metric being built, without points.
func (b *builder) emptyBytes() int {
	return 4*mostHeaderBytes + len(b.resource) + len(b.scope) + len(b.header) + len(b.tail)
}

// describe begins a metric.
func (b *builder) describe(v *view) {
	unit := v.measure.unit
	if v.aggregation == wire.Count {
		unit = "1"
	}
	b.header = appendText(b.header[:0], 1, v.name)
	b.header = appendText(b.header, 2, v.description)
	b.header = appendText(b.header, 3, unit)
	b.kind, b.tail = gaugeField, b.tail[:0]
	switch v.aggregation {
	case wire.Count, wire.Sum:
		b.kind, b.tail = sumField, field.AppendVarint(b.tail, temporalityField, cumulative)
		if b.state.monotonic(v) {
			b.tail = field.AppendVarint(b.tail, monotonicField, 1)
		}
	case wire.Distribution:
		b.kind, b.tail = histogramField, field.AppendVarint(b.tail, temporalityField, cumulative)
	}
}

// monotonic reports whether the value of a Count or Sum cannot decrease.
func (s *State) monotonic(v *view) bool {
	return v.aggregation == wire.Count || v.measure.kind == wire.Int || !s.options.NonMonotonicSums
}

// encodePoint sets the point to that of a series, without exemplars.
func (b *builder) encodePoint(v *view, x *series, start, end uint64) {
	p := append(b.point[:0], x.attributes...)
	if v.aggregation != wire.LastValue {
		p = field.AppendFixed64(p, startField, start)
	}
	p = field.AppendFixed64(p, timeField, end)
	switch {
	case v.aggregation == wire.Count:
		p = field.AppendFixed64(p, intField, min(x.count, math.MaxInt64))
	case v.aggregation == wire.Distribution:
		p = field.AppendFixed64(p, countField, x.count)
		if !x.negative { // OTLP has sums of values only that are not negative
			p = appendDouble(p, histogramSumField, x.float)
		}
		p = appendPacked(p, bucketsField, x.buckets, func(n uint64) uint64 { return n })
		p = appendPacked(p, boundariesField, v.boundaries, math.Float64bits)
		p = appendDouble(p, minField, x.min)
		p = appendDouble(p, maxField, x.max)
	case v.measure.kind == wire.Int:
		p = field.AppendFixed64(p, intField, uint64(x.int))
	default:
		p = appendDouble(p, doubleField, x.float)
	}
	b.point = p
}

// addExemplars adds the exemplars of a series to the point, as long as it has at most that many
// bytes.
func (b *builder) addExemplars(v *view, x *series, most int) {
	for _, e := range x.exemplars {
		switch {
		case e == nil:
		case len(b.point)+field.Size(len(e.encoded)) > most:
			b.state.counts.Lost[ExemplarTooLarge]++
		default:
			b.point = field.Append(b.point, pointExemplars(v), e.encoded)
		}
	}
}

// endMetric completes the metric being built, if it has points. More can be added to the next one.
func (b *builder) endMetric() {
	if len(b.data) == 0 {
		return
	}
	data := len(b.data) + len(b.tail)
	m := field.AppendHeader(b.metrics, 2, len(b.header)+field.Size(data))
	m = append(m, b.header...)
	m = field.AppendHeader(m, b.kind, data)
	m = append(m, b.data...)
	b.metrics = append(m, b.tail...)
	b.data = b.data[:0]
}

// flush ends the request, if it is not empty.
func (b *builder) flush() {
	b.endMetric()
	if b.points == 0 {
		return
	}
	scope := len(b.scope) + len(b.metrics)
	resource := len(b.resource) + field.Size(scope)
	body := make([]byte, 0, field.Size(resource))
	body = field.AppendHeader(body, 1, resource)
	body = append(body, b.resource...)
	body = field.AppendHeader(body, 2, scope)
	body = append(body, b.scope...)
	body = append(body, b.metrics...)
	b.requests = append(b.requests, Request{Body: body, Points: b.points})
	b.metrics, b.points = b.metrics[:0], 0
}
