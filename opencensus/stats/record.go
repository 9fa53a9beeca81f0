package stats

import (
	"bytes"
	"math"
	"time"
	"unicode/utf8"

	"correlator/internal/host/textcut"
	"correlator/opencensus/wire"
)

// tag is a tag of a record, as UTF-8 within the limits.
type tag struct {
	key, value []byte
	exemplar   bool // exemplars can have it: no attribute has its key
}

// Record updates the views of the measures. The record may be reused after the call. It was sent at
// that time by the sender's clock; zero: unknown.
func (u *Update) Record(r *wire.Record, sent time.Time) {
	s := u.s
	s.records++
	s.counts.Measurements += uint64(len(r.Measurements) + r.MoreMeasurements)
	s.counts.Lost[TooManyOfRecord] += uint64(r.MoreMeasurements)
	s.counts.Lost[TagsTooMany] += uint64(r.MoreTags + r.MoreAttachments)
	u.updates = 0
	u.prepareTags(r.Tags)
	u.prepareExemplar(r.Attachments, sent)
	for i := range r.Measurements {
		if i == maxMeasurements {
			s.counts.Lost[TooManyOfRecord] += uint64(len(r.Measurements) - i)
			break
		}
		if loss, ok := u.measurement(&r.Measurements[i]); !ok {
			s.counts.Lost[loss]++
		} else {
			s.counts.Aggregated++
		}
	}
	clear(u.tags) // they refer to the record, as do these
	clear(u.exemplar.keys)
}

// measurement updates the views of the measure of a measurement.
func (u *Update) measurement(x *wire.Measurement) (Loss, bool) {
	n := value{kind: x.Type, int: int64(x.Int), float: x.Float}
	switch {
	case !isNumber(x.Type):
		return NoValue, false
	case x.Type == wire.Float && (math.IsNaN(x.Float) || math.IsInf(x.Float, 0)):
		return NotFinite, false
	case x.Type == wire.Int && x.Int > math.MaxInt64: // not from PHP, whose ints these are
		return OutOfRange, false
	case x.Type == wire.Int:
		n.float = float64(x.Int)
	}
	m := u.s.measures[string(x.Measure)]
	if m == nil {
		if len(x.Measure) > maxName {
			return MeasureName, false
		}
		if m = u.addMeasure(string(x.Measure)); m == nil {
			return MeasureNoRoom, false
		}
	}
	m.used = u.now
	if m.kind == 0 {
		m.kind = x.Type
	}
	switch {
	case m.kind != x.Type:
		return TypeConflict, false
	case len(m.views) == 0:
		return NoView, false
	case u.updates > 0 && u.updates+len(m.views) > maxUpdates: // one measure may have more
		return TooManyOfRecord, false
	}
	u.updates += len(m.views)
	for _, v := range m.views {
		u.updateView(v, n)
	}
	return 0, true
}

func (u *Update) updateView(v *view, n value) {
	s := u.s
	if v.aggregation == wire.Sum && n.float < 0 && !s.options.NonMonotonicSums {
		s.counts.Lost[Negative]++
		return
	}
	x := u.find(v)
	if x == v.overflow {
		s.counts.Lost[Overflow]++
	}
	bucket := s.add(v, x, n)
	if u.exemplar.present && v.aggregation != wire.LastValue {
		u.keepExemplar(v, x, bucket, n)
	}
}

// prepareTags makes the tags of a record UTF-8, sorts them, and keeps their limits.
func (u *Update) prepareTags(tags []wire.KeyValue) {
	u.tags = u.tags[:0]
	for i := range tags {
		if i == maxTags {
			u.s.counts.Lost[TagsTooMany] += uint64(len(tags) - i)
			return
		}
		if len(tags[i].Key) > maxName {
			u.s.counts.Lost[TagName]++
			continue
		}
		u.insertTag(tag{key: validBytes(tags[i].Key), value: u.value(tags[i].Value, maxValue)})
	}
}

// insertTag inserts a tag behind those whose keys are not greater. There are few, and they are most
// often sorted, or in the order of a moment ago.
func (u *Update) insertTag(t tag) {
	u.tags = append(u.tags, t)
	for i := len(u.tags) - 1; i > 0 && bytes.Compare(u.tags[i-1].key, t.key) > 0; i-- {
		u.tags[i-1], u.tags[i] = t, u.tags[i-1]
	}
}

// match calls f for each tag of the record: with the position of its key in the view, or -1. Of
// several tags with one key, the view has the first.
func (u *Update) match(v *view, f func(key int, t *tag)) {
	next := 0
	for i := range u.tags {
		t := &u.tags[i]
		for next < len(v.keys) && v.keys[next] < string(t.key) {
			next++
		}
		if next < len(v.keys) && v.keys[next] == string(t.key) {
			f(next, t)
			next++
		} else {
			f(-1, t)
		}
	}
}

// value returns a value as UTF-8, cut at n bytes. It is valid until the next record.
func (u *Update) value(text []byte, n int) []byte {
	if len(text) > n {
		u.s.counts.Lost[ValueCut]++
		text = textcut.At(text, n)
	}
	return validBytes(text)
}

// validBytes returns a text as UTF-8, which takes a copy only if it is not. It is valid until the next
// record.
func validBytes(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	return bytes.ToValidUTF8(text, []byte(invalid))
}
