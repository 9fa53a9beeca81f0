package watch

import (
	"fmt"
	"strconv"
	"time"

	"correlator/dots/value"
)

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// cpus formats how many CPUs are used; nothing, if that is not known.
func cpus(n value.Opt[float64]) string {
	v, ok := n.Get()
	if !ok {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// percentOf is percent of a share that need not be known.
func percentOf(share value.Opt[float64]) string {
	v, ok := share.Get()
	if !ok {
		return ""
	}
	return percent(v)
}

// since formats how long ago a time is; nothing, if it is not known.
func since(at value.Opt[value.Timepoint], now time.Time) string {
	t, ok := at.Get()
	if !ok {
		return ""
	}
	return lasted(now.Sub(t.Time()))
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
	v, ok := n.Get()
	if !ok {
		return ""
	}
	return strconv.FormatUint(uint64(v), 10)
}

// short returns enough of an id of a container to tell it from others, as container runtimes do.
func short(id string) string { return id[:min(len(id), 12)] }
