//go:build soak

package memread

import "testing"

// As many reads as slotCopies has figures of.
func TestSoakSlotRewrittenWithoutPause(t *testing.T) {
	testSlotRewrittenWithoutPause(t, 250_000, 250_000)
}
