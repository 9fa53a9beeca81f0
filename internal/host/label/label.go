// Package label names the values of enumerations, mostly as values of metrics' labels.
package label

// Of returns the name of a value, which is its index in names, or unknown for one without a name.
func Of[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}
