// Package label names the values of enumerations, mostly as values of metrics' labels.
package label

import (
	"fmt"
	"slices"
)

// Of returns the name of a value, which is its index in names, or unknown for one without a name.
func Of[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

// Parse sets a value to the one with a name. The error says what another text is: "no kind of a waker".
func Parse[T ~uint8](v *T, names []string, text []byte, wrong string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%q is %s", text, wrong)
	}
	*v = T(i)
	return nil
}
