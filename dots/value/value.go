// Package value has the types of properties that Go has none for, and Opt, a property that may be
// unset. Generated code consists of them.
package value

import (
	"math"
	"math/bits"
	"time"
)

// PropertySet is a set of properties of a struct: bit n stands for the property with tag n.
type PropertySet uint32

// Has reports whether the property with a tag is in the set.
func (s PropertySet) Has(tag uint32) bool { return tag < 32 && s&(1<<tag) != 0 }

// Len returns how many properties are in the set.
func (s PropertySet) Len() int { return bits.OnesCount32(uint32(s)) }

// UUID is a UUID in the byte order of RFC 4122.
type UUID [16]byte

// Timepoint is a time as it is transmitted: seconds since 1970-01-01T00:00:00Z. What a time.Time
// has beyond a float64 (some 240 ns today) is lost.
type Timepoint float64

// SteadyTimepoint is a time of a monotonic clock in seconds; only its sender knows since when.
type SteadyTimepoint float64

// Duration is a duration in seconds, which may be negative.
type Duration float64

// TimepointOf returns a time as a Timepoint.
func TimepointOf(t time.Time) Timepoint {
	return Timepoint(float64(t.Unix()) + float64(t.Nanosecond())/1e9)
}

// Time returns the time. One that time.Time cannot hold becomes the zero time.
func (t Timepoint) Time() time.Time {
	seconds, fraction := math.Modf(float64(t))
	if math.IsNaN(seconds) || math.Abs(seconds) > 1<<53 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), int64(math.Round(fraction*1e9)))
}

// DurationOf returns a duration in seconds.
func DurationOf(d time.Duration) Duration { return Duration(d.Seconds()) }

// Duration returns the duration, the nearest one that time.Duration can hold.
func (d Duration) Duration() time.Duration {
	ns := float64(d) * 1e9
	switch {
	case math.IsNaN(ns):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	}
	return time.Duration(math.Round(ns))
}

// Opt is a property: a value, or unset. Its zero value is unset.
type Opt[T any] struct {
	value T
	set   bool
}

// Some returns a property that is set.
func Some[T any](v T) Opt[T] { return Opt[T]{value: v, set: true} }

// Get returns the value, and whether it is set. The value of one that is unset is zero.
func (o Opt[T]) Get() (v T, ok bool) { return o.value, o.set }

// Or returns the value, or another one if it is unset.
func (o Opt[T]) Or(other T) T {
	if o.set {
		return o.value
	}
	return other
}

// IsSet reports whether there is a value.
func (o Opt[T]) IsSet() bool { return o.set }

// Value returns the value, the zero value when it is unset.
func (o Opt[T]) Value() T { return o.value }

// Set sets the value.
func (o *Opt[T]) Set(v T) { o.value, o.set = v, true }

// Unset takes the value away.
func (o *Opt[T]) Unset() { *o = Opt[T]{} }

// Any is an instance of any type.
type Any struct {
	TypeName string
	Instance []byte // its encoding, a CBOR map
}
