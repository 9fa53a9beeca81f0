package label

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestOf(t *testing.T) {
	for v, want := range map[uint8]string{0: "first", 1: "second", 2: "unknown", 255: "unknown"} {
		got := Of([]string{"first", "second"}, v)
		assert.Check(t, got == want, "%d is %s, want %s", v, got, want)
	}
}
