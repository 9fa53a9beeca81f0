package sampling

import (
	"testing"

	"gotest.tools/v3/assert"
)

// The values of the setting are read as they are written, and no others.
func TestUnwinderText(t *testing.T) {
	for _, u := range Unwinders() {
		text, err := u.MarshalText()
		assert.NilError(t, err)
		read := numUnwinders
		err = read.UnmarshalText(text)
		if err != nil || read != u || u.Unwinds() != (string(text) != "frame-pointers") {
			t.Errorf("%s became %d, %v; it unwinds: %v", text, read, err, u.Unwinds())
		}
	}
	for _, text := range []string{"", "Auto", "frame_pointers", "auto "} {
		read := FullUnwinder
		if err := read.UnmarshalText([]byte(text)); err == nil || read != FullUnwinder {
			t.Errorf("%q became %v", text, read)
		}
	}
}
