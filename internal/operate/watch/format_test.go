package watch

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/value"
)

func TestLasted(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 ms", 0: "0 ms", 999 * time.Millisecond: "999 ms", time.Second: "1.0 s",
		59990 * time.Millisecond: "59.9 s", time.Minute: "1 min", 3599 * time.Second: "59 min", time.Hour: "1 h",
		99 * time.Hour: "99 h", 100 * time.Hour: "4 d",
	} {
		got := lasted(d)
		assert.Check(t, got == want, "%v: %q, want %q", d, got, want)
	}
}

func TestUnknown(t *testing.T) {
	now := time.Now()
	for _, got := range []string{
		cpus(value.Opt[float64]{}), percentOf(value.Opt[float64]{}), number(value.Opt[uint32]{}),
		since(value.Opt[value.Timepoint]{}, now), timeOf(value.Opt[value.Duration]{}), short(""),
	} {
		assert.Check(t, got == "", "%q", got)
	}
	got := since(value.Some(value.TimepointOf(now.Add(-90*time.Second))), now)
	assert.Check(t, got == "1 min", "%q", got)
}

// An id of zeros is none, and is not shown as one that many share.
func TestKnown(t *testing.T) {
	for id, want := range map[string]string{"": "-", "0000000000000000": "-", "0000000000000001": "0000000000000001"} {
		assert.Check(t, known(id) == want, "%q", id)
	}
}
