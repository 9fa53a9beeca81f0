package label

import "testing"

func TestOf(t *testing.T) {
	for v, want := range map[uint8]string{0: "first", 1: "second", 2: "unknown", 255: "unknown"} {
		if got := Of([]string{"first", "second"}, v); got != want {
			t.Errorf("%d is %s, want %s", v, got, want)
		}
	}
}
