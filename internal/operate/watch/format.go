package watch

import (
	"fmt"
	"strconv"
	"time"

	"correlator/dots/value"
)

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// ifKnown formats a value; nothing, if it is not known.
func ifKnown[T any](v value.Opt[T], format func(T) string) string {
	known, ok := v.Get()
	if !ok {
		return ""
	}
	return format(known)
}

// cpus formats how many CPUs are used.
func cpus(n value.Opt[float64]) string {
	return ifKnown(n, func(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) })
}

func percentOf(share value.Opt[float64]) string { return ifKnown(share, percent) }

// since formats how long ago a time is.
func since(at value.Opt[value.Timepoint], now time.Time) string {
	return ifKnown(at, func(at value.Timepoint) string { return lasted(now.Sub(at.Time())) })
}

func timeOf(d value.Opt[value.Duration]) string {
	return ifKnown(d, func(d value.Duration) string { return lasted(d.Duration()) })
}

// lasted formats a duration with two or three digits. Clocks of two hosts may make it negative.
func lasted(d time.Duration) string {
	d = d.Round(time.Millisecond) // timepoints are not more exact
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 100*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

func number[T ~uint32](n value.Opt[T]) string {
	return ifKnown(n, func(n T) string { return strconv.FormatUint(uint64(n), 10) })
}

// short returns enough of an id of a container to tell it from others, as container runtimes do.
func short(id string) string { return id[:min(len(id), 12)] }
