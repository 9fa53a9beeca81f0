package stats

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"

	"correlator/internal/host/textcut"
	"correlator/opencensus/wire"
)

// definition is what makes two views of one name the same.
type definition struct {
	measure     string // as sent
	aggregation wire.Aggregation
	keys        []string  // of tags: UTF-8, sorted, without duplicates
	boundaries  []float64 // finite, sorted, without duplicates
}

// define sets the definition to that of a view, unless the view is invalid.
func (d *definition) define(v *wire.View, maxBoundaries int) (Loss, bool) {
	switch {
	case v.Name == "" || v.Aggregation == wire.None || v.Aggregation > wire.LastValue || slices.Contains(v.TagKeys, ""):
		return ViewInvalid, false
	case len(v.TagKeys) > maxTagKeys:
		return ViewTagKeys, false
	case len(v.Name) > maxName || len(v.Measure) > maxName || slices.ContainsFunc(v.TagKeys, tooLong):
		return ViewName, false
	}
	d.measure, d.aggregation, d.keys, d.boundaries = v.Measure, v.Aggregation, d.keys[:0], d.boundaries[:0]
	for _, key := range v.TagKeys {
		d.keys = append(d.keys, valid(key))
	}
	slices.Sort(d.keys)
	d.keys = slices.Compact(d.keys)
	if v.Aggregation != wire.Distribution {
		return 0, true
	}
	for _, boundary := range v.Boundaries {
		if !math.IsNaN(boundary) && !math.IsInf(boundary, 0) {
			d.boundaries = append(d.boundaries, boundary)
		}
	}
	slices.Sort(d.boundaries)
	d.boundaries = slices.Compact(d.boundaries)
	return ViewBoundaries, len(d.boundaries) <= maxBoundaries
}

func tooLong(name string) bool { return len(name) > maxName }

func (d *definition) equal(o *definition) bool {
	return d.measure == o.measure && d.aggregation == o.aggregation && slices.Equal(d.keys, o.keys) &&
		slices.Equal(d.boundaries, o.boundaries)
}

// clone returns a copy that shares nothing with what a client has sent.
func (d *definition) clone() definition {
	c := definition{
		measure: strings.Clone(d.measure), aggregation: d.aggregation,
		keys: make([]string, len(d.keys)), boundaries: slices.Clone(d.boundaries),
	}
	for i, key := range d.keys {
		c.keys[i] = strings.Clone(key)
	}
	return c
}

// bytes returns what a copy takes.
func (d *definition) bytes() int {
	n := len(d.measure) + 8*len(d.boundaries)
	for _, key := range d.keys {
		n += 16 + len(key)
	}
	return n
}

// hash returns the same for equal definitions.
func (d *definition) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, d.measure)
	maphash.WriteComparable(&h, d.aggregation)
	for _, key := range d.keys {
		maphash.WriteComparable(&h, key)
	}
	for _, boundary := range d.boundaries {
		maphash.WriteComparable(&h, boundary)
	}
	return h.Sum64()
}

var aggregationNames = [...]string{
	wire.Count: "count", wire.Sum: "sum", wire.Distribution: "distribution", wire.LastValue: "last value",
}

// describedBytes limits the text for a definition: a log line.
const describedBytes = 512

// String describes a definition for people. The text is cut if it is long, and what would be cut is
// not formatted.
func (d *definition) String() string {
	b := fmt.Appendf(nil, "%s of %q by ", aggregationNames[d.aggregation], d.measure)
	b = appendList(b, d.keys, strconv.AppendQuote)
	if d.aggregation == wire.Distribution {
		b = fmt.Appendf(b, " in %d buckets: ", len(d.boundaries)+1)
		b = appendList(b, d.boundaries, func(b []byte, boundary float64) []byte {
			return strconv.AppendFloat(b, boundary, 'g', -1, 64)
		})
	}
	if len(b) > describedBytes {
		b = append(textcut.At(b, describedBytes), "..."...)
	}
	return string(b)
}

// appendList appends a list for people, up to where the text will be cut.
func appendList[T any](b []byte, list []T, appendOne func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i := 0; i < len(list) && len(b) <= describedBytes; i++ {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendOne(b, list[i])
	}
	return append(b, ']')
}
