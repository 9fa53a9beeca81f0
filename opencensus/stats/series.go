package stats

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"correlator/opencensus/wire"
	"correlator/otlp/field"
)

// series is what a view has for one set of values of its tags.
type series struct {
	identity   string // without meaning for overflow
	attributes []byte // encoded, as fields of a point

	count    uint64  // Count, Distribution
	int      int64   // Sum, LastValue of ints
	float    float64 // Sum, LastValue of floats; the sum of a Distribution
	min, max float64 // Distribution
	negative bool    // Distribution: has a negative value, so that the sum is not monotonic
	buckets  []uint64

	exemplars []*exemplar // nil: none; else by bucket, or one

	user  *user
	bytes int // charged to the user, without exemplars
}

// value is that of a measurement.
type value struct {
	kind  wire.MeasureType
	int   int64
	float float64 // of an int as well
}

// find returns the series for the tags of the record.
func (u *Update) find(v *view) *series {
	if v.record == u.s.records {
		return v.current
	}
	u.identify(v)
	x := v.byValues[string(u.identity)]
	if x == nil {
		x = u.addSeries(v)
	}
	v.record, v.current = u.s.records, x
	return x
}

// identify sets the identity to that of the record's series: for each tag, in the order of their
// keys, the position of the key, and the value with its length.
func (u *Update) identify(v *view) {
	id := u.identity[:0]
	u.match(v, func(key int, t *tag) {
		if key >= 0 {
			id = append(id, byte(key))
			id = binary.BigEndian.AppendUint16(id, uint16(len(t.value))) // 3 times maxValue at most
			id = append(id, t.value...)
		}
	})
	u.identity = id
}

// addSeries adds the series with the identity, or returns the one for overflow.
func (u *Update) addSeries(v *view) *series {
	s := u.s
	if len(v.byValues) >= s.options.MaxSeries {
		return s.overflow(v)
	}
	var attributes []byte
	u.match(v, func(key int, t *tag) {
		if key >= 0 {
			attributes = field.AppendTextAttribute(attributes, pointAttributes(v), t.key, t.value)
		}
	})
	attributes = slices.Clone(attributes) // of the right size
	bytes := v.seriesBytes(len(u.identity), len(attributes))
	if !s.memory.take(u.owner(), bytes) {
		return s.overflow(v)
	}
	if v.byValues == nil {
		v.byValues = make(map[string]*series)
	}
	x := &series{identity: string(u.identity), attributes: attributes, user: u.owner(), bytes: bytes}
	v.byValues[x.identity] = x
	return s.insert(v, x)
}

// overflow returns the series for overflow, for which the view has taken memory already.
func (s *State) overflow(v *view) *series {
	if v.overflow == nil {
		v.overflow = s.insert(v, &series{attributes: appendOverflow(nil, pointAttributes(v))})
	}
	return v.overflow
}

func (s *State) insert(v *view, x *series) *series {
	if v.aggregation == wire.Distribution {
		x.buckets = make([]uint64, len(v.boundaries)+1)
	}
	v.series = append(v.series, x)
	s.series++
	return x
}

// seriesBytes returns what a series takes.
func (v *view) seriesBytes(identity, attributes int) int {
	n := seriesBytes + identity + attributes
	if v.aggregation == wire.Distribution {
		n += bucketBytes * (len(v.boundaries) + 1)
	}
	return n
}

// setValues sets the values of an identity, by the positions of their keys.
func (v *view) setValues(values []string, identity string) {
	for len(identity) > 0 {
		to := 3 + (int(identity[1])<<8 | int(identity[2]))
		values[identity[0]] = identity[3:to]
		identity = identity[to:]
	}
}

// add adds a measurement. It returns the bucket that it belongs to, else 0.
func (s *State) add(v *view, x *series, n value) (bucket int) {
	switch v.aggregation {
	case wire.Count:
		x.count++
	case wire.LastValue:
		x.int, x.float = n.int, n.float
	case wire.Sum:
		if n.kind == wire.Int {
			if x.int > math.MaxInt64-n.int { // neither is negative
				x.int, n.int = math.MaxInt64, 0
				s.counts.Lost[Saturated]++
			}
			x.int += n.int
		} else {
			s.addFloat(x, n.float)
		}
	case wire.Distribution:
		if x.count == 0 {
			x.min, x.max = n.float, n.float
		}
		x.count++
		x.min, x.max = min(x.min, n.float), max(x.max, n.float)
		x.negative = x.negative || n.float < 0
		s.addFloat(x, n.float)
		bucket = sort.SearchFloat64s(v.boundaries, n.float) // the first boundary that is not below
		x.buckets[bucket]++
	}
	return bucket
}

// addFloat adds to a sum, which stays finite.
func (s *State) addFloat(x *series, n float64) {
	sum := x.float + n
	if math.IsInf(sum, 0) {
		sum = math.Copysign(math.MaxFloat64, sum)
		s.counts.Lost[Saturated]++
	}
	x.float = sum
}
