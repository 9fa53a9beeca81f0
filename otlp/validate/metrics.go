package validate

import "math"

// Tags of the kinds of data that a Metric may have, all with their points in field 1.
const (
	tagGauge                = 5<<3 | wireBytes
	tagSum                  = 7<<3 | wireBytes
	tagHistogram            = 9<<3 | wireBytes
	tagExponentialHistogram = 10<<3 | wireBytes
	tagSummary              = 11<<3 | wireBytes
	tagPoints               = 1<<3 | wireBytes
)

// metric checks a metric. Its data points are the items; without any, or with a kind of data that
// is newer than the schema, the metric itself is one.
func (c *checker) metric(f field, bad problem) {
	before := c.save()
	points := c.Units + c.RejectedUnits
	if !bad.found() {
		bad = c.metadata(f)
	}
	for data := range c.fields(f.body) {
		switch data.tag {
		case tagGauge, tagSum, tagHistogram, tagExponentialHistogram, tagSummary:
			for point := range c.fields(data.body) {
				if point.tag == tagPoints {
					c.point(data.tag, point, bad)
				}
			}
		}
	}
	if c.Units+c.RejectedUnits == points {
		c.complete(f, onItem, 1, bad, before)
	} else {
		c.leave(f, onItem, before)
	}
}

// tagMetadata is the tag of the attributes of a Metric.
const tagMetadata = 12<<3 | wireBytes

// metadata checks the attributes of a metric.
func (c *checker) metadata(metric field) problem {
	n := 0
	for f := range c.fields(metric.body) {
		if f.tag != tagMetadata {
			continue
		}
		if n++; n > maxAttributes {
			return found(BadAttributes, f.whole.from, "too many attributes")
		}
		if bad := c.clean(msgKeyValue, f.body, 0); bad.found() {
			return bad
		}
	}
	if n > 1 {
		c.unique(msgMetric, metric.body)
	}
	return problem{}
}

func (c *checker) point(data tag, f field, bad problem) {
	before := c.save()
	if !bad.found() {
		bad = c.pointTimes(f)
	}
	if !bad.found() {
		bad = c.pointValues(data, f)
	}
	if !bad.found() {
		bad = c.exemplars(pointMessages[data], f)
	}
	if !bad.found() {
		bad = c.clean(pointMessages[data], f.body, 0)
	}
	c.complete(f, onPoint, 1, bad, before)
}

func (c *checker) pointValues(data tag, f field) problem {
	switch data {
	case tagGauge:
		return c.numberPoint(f, true)
	case tagSum:
		return c.numberPoint(f, false)
	case tagHistogram:
		return c.histogramPoint(f)
	case tagExponentialHistogram:
		return c.exponentialPoint(f)
	default:
		return c.summaryPoint(f)
	}
}

// Tags of all data points.
const (
	tagPointStart = 2<<3 | wireFixed64
	tagPointTime  = 3<<3 | wireFixed64
)

// pointTimes checks that a point is not earlier than its start time.
func (c *checker) pointTimes(point field) problem {
	var start, end uint64
	for f := range c.fields(point.body) {
		switch f.tag {
		case tagPointStart:
			start = f.value
		case tagPointTime:
			end = f.value
		}
	}
	if end < start {
		return found(BadTime, point.whole.from, "ends before it starts")
	}
	return problem{}
}

// Tags of an Exemplar.
const (
	tagExemplarSpanID  = 4<<3 | wireBytes
	tagExemplarTraceID = 5<<3 | wireBytes
)

// exemplars checks the ids in the exemplars of a point.
func (c *checker) exemplars(m *messageType, point field) problem {
	for f := range c.fields(point.body) {
		if e := describe(m, f.tag); e.kind == messages && e.message == msgExemplar {
			if bad := c.reference(f, tagExemplarTraceID, tagExemplarSpanID); bad.found() {
				return bad
			}
		}
	}
	return problem{}
}

// noRecordedValue is the flag of a point without a value: DataPointFlags.
const noRecordedValue = 1

// Tags of a NumberDataPoint.
const (
	tagDouble      = 4<<3 | wireFixed64
	tagExemplars   = 5<<3 | wireBytes
	tagInt         = 6<<3 | wireFixed64
	tagNumberFlags = 8<<3 | wireVarint
)

// numberPoint checks that there is a value. NaN is valid in a gauge, which may be undefined, but
// not in a sum, where it would spread to everything that it is added to.
func (c *checker) numberPoint(point field, nan bool) problem {
	var value field
	var flags uint64
	for f := range c.fields(point.body) {
		switch f.tag {
		case tagDouble, tagInt:
			value = f
		case tagNumberFlags:
			flags = f.value
		}
	}
	switch {
	case flags&noRecordedValue != 0:
	case value.tag == 0:
		return found(BadValue, point.whole.from, "has no value")
	case value.tag == tagDouble && !nan && isNaN(value.value):
		return found(BadValue, value.whole.from, "NaN")
	}
	return problem{}
}

func isNaN(bits uint64) bool { return math.IsNaN(math.Float64frombits(bits)) }

// Tags and field numbers of a HistogramDataPoint. Packed lists and single values may alternate.
const (
	tagHistogramSum = 5<<3 | wireFixed64
	histogramCounts = 6
	histogramBounds = 7
	tagHistogramMin = 11<<3 | wireFixed64
	tagHistogramMax = 12<<3 | wireFixed64
)

// histogramPoint checks that bounds increase, and that there is one bucket more than bounds, or
// neither.
func (c *checker) histogramPoint(point field) problem {
	counts, bounds := 0, 0
	last := 0.0
	for f := range c.fields(point.body) {
		switch {
		case f.tag == tagHistogramSum || f.tag == tagHistogramMin || f.tag == tagHistogramMax:
			if isNaN(f.value) {
				return found(BadValue, f.whole.from, "NaN")
			}
		case describe(msgHistogramPoint, f.tag).kind != fixed64s:
		case f.tag.number() == histogramCounts:
			for range c.fixed64s(f) {
				counts++
			}
		case f.tag.number() == histogramBounds:
			for v := range c.fixed64s(f) {
				bound := math.Float64frombits(v)
				if math.IsNaN(bound) || bounds > 0 && bound <= last {
					return found(BadValue, f.whole.from, "bounds do not increase")
				}
				bounds, last = bounds+1, bound
			}
		}
	}
	if counts != bounds+1 && counts+bounds != 0 {
		return found(BadShape, point.whole.from, "bucket_counts do not fit explicit_bounds")
	}
	return problem{}
}

// Tags of an ExponentialHistogramDataPoint.
const (
	tagExponentialSum = 5<<3 | wireFixed64
	tagExponentialMin = 12<<3 | wireFixed64
	tagExponentialMax = 13<<3 | wireFixed64
	tagZeroThreshold  = 14<<3 | wireFixed64
)

func (c *checker) exponentialPoint(point field) problem {
	for f := range c.fields(point.body) {
		switch f.tag {
		case tagExponentialSum, tagExponentialMin, tagExponentialMax, tagZeroThreshold:
			if isNaN(f.value) {
				return found(BadValue, f.whole.from, "NaN")
			}
		}
	}
	return problem{}
}

// Tags of a SummaryDataPoint and a ValueAtQuantile.
const (
	tagSummarySum = 5<<3 | wireFixed64
	tagQuantiles  = 6<<3 | wireBytes
	tagQuantile   = 1<<3 | wireFixed64
)

// summaryPoint checks that quantiles are between 0 and 1. Their values may be NaN, which is what a
// period without observations has.
func (c *checker) summaryPoint(point field) problem {
	for f := range c.fields(point.body) {
		switch f.tag {
		case tagSummarySum:
			if isNaN(f.value) {
				return found(BadValue, f.whole.from, "NaN")
			}
		case tagQuantiles:
			for q := range c.fields(f.body) {
				if v := math.Float64frombits(q.value); q.tag == tagQuantile && !(v >= 0 && v <= 1) {
					return found(BadValue, q.whole.from, "not between 0 and 1")
				}
			}
		}
	}
	return problem{}
}
