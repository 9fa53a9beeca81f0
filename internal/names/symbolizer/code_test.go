package symbolizer

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func TestJoined(t *testing.T) {
	many := make([]codeRange, maxCodeRanges+1)
	for i := range many {
		many[i] = codeRange{uint64(2 * i), uint64(2*i + 1)}
	}
	assert.Check(t, len(joined(many)) == maxCodeRanges)
	got := joined([]codeRange{{30, 40}, {10, 20}, {20, 25}, {12, 15}, {30, 40}, {50, 60}})
	want := []codeRange{{10, 25}, {30, 40}, {50, 60}}
	assert.Check(t, slices.Equal(got, want), "%v, want %v", got, want)
	for addr, want := range map[uint64]bool{9: false, 10: true, 24: true, 25: false, 39: true, 40: false, 50: true,
		60: false} {
		assert.Check(t, within(got, addr) == want, "%d", addr)
	}
}
