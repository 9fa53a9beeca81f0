package demo

import (
	"testing"

	"gotest.tools/v3/assert"
)

// The same file at two places, with a storage pointer each.
func TestLoadAgain(t *testing.T) {
	p := Start(t, Options{})
	p.Withdraw()
	again := p.LoadAgain()
	if again.Path != p.Library || again.Base == p.Loaded().Base {
		t.Errorf("%s at %#x, and %s at %#x", p.Library, p.Loaded().Base, again.Path, again.Base)
	}
	published := p.Publish()
	first, second := readWord(t, p.PID, p.Loaded().StoragePointer), readWord(t, p.PID, again.StoragePointer)
	assert.Check(t, first == 0 && second == published.Storage,
		"pointers %#x and %#x, want 0 and %#x", first, second, published.Storage)
}
