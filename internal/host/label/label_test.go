package label

import (
	"testing"

	"gotest.tools/v3/assert"
)

// The value of each name is read again; of another one, the value stays.
func TestParse(t *testing.T) {
	names := []string{"first", "second"}
	v := uint8(7)
	assert.Error(t, Parse(&v, names, []byte("unknown"), "neither"), `"unknown" is neither`)
	assert.Check(t, v == 7)
	for want, name := range names {
		assert.Check(t, Parse(&v, names, []byte(name), "neither") == nil && int(v) == want, "%s is %d", name, v)
	}
}

func TestOf(t *testing.T) {
	for v, want := range map[uint8]string{0: "first", 1: "second", 2: "unknown", 255: "unknown"} {
		got := Of([]string{"first", "second"}, v)
		assert.Check(t, got == want, "%d is %s, want %s", v, got, want)
	}
}
