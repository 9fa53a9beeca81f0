package sampling

import "correlator/internal/host/label"

// Unwinder is how stacks are to be walked: a setting.
type Unwinder uint8

const (
	// FramePointers: by frame pointers, without an engine.
	FramePointers Unwinder = iota
	// AutoUnwinder: by the engine for each program that it can serve, else by frame pointers.
	AutoUnwinder
	// FullUnwinder: likewise, and it is an error when the engine cannot run.
	FullUnwinder
	numUnwinders
)

var unwinderNames = [numUnwinders]string{"frame-pointers", "auto", "full"}

// Unwinders returns all values.
func Unwinders() (all []Unwinder) {
	for u := range numUnwinders {
		all = append(all, u)
	}
	return all
}

// String returns the value of the setting.
func (u Unwinder) String() string { return unwinderNames[u] }

// Unwinds reports whether there is to be an engine.
func (u Unwinder) Unwinds() bool { return u != FramePointers }

// MarshalText returns the value of the setting.
func (u Unwinder) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText parses the value of the setting.
func (u *Unwinder) UnmarshalText(text []byte) error {
	return label.Parse(u, unwinderNames[:], text, "none of auto, frame-pointers and full")
}
