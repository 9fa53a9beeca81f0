package share

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The pause begins with the shortest, doubles each time, and stays the longest.
func TestBackoff(t *testing.T) {
	b := Backoff{Min: 3 * time.Second, Max: 20 * time.Second}
	var got []time.Duration
	for pause := b.Next(0); len(got) < 5; pause = b.Next(pause) {
		got = append(got, pause/time.Second)
	}
	want := []time.Duration{3, 6, 12, 20, 20}
	assert.Check(t, slices.Equal(got, want), "pauses of %v seconds, want %v", got, want)
	if got := b.Next(time.Second); got != b.Min {
		t.Errorf("%v after a shorter one", got)
	}
}
