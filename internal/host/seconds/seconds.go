// Package seconds is about durations as numbers of seconds in JSON.
package seconds

import (
	"strconv"
	"time"
)

// Seconds is a duration that JSON shows as a number of seconds.
type Seconds time.Duration

// MarshalJSON writes a decimal number, exact to a microsecond.
func (s Seconds) MarshalJSON() ([]byte, error) { return Append(nil, time.Duration(s)), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	d, err := time.ParseDuration(string(text) + "s")
	*s = Seconds(d)
	return err
}

// Append appends a duration as MarshalJSON writes it.
func Append(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, d.Round(time.Microsecond).Seconds(), 'f', -1, 64)
}
