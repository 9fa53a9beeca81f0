package config

import "fmt"

// Nearest returns the known name that an unknown one most resembles: the one with the smallest edit
// distance, of at most a third of the name's length. It is empty if there is none.
func Nearest(name string, known []string) (nearest string) {
	best := len(name)/3 + 1
	for _, k := range known {
		if d := distance(name, k, best); d < best {
			best, nearest = d, k
		}
	}
	return nearest
}

// DidYouMean returns the end of a message about an unknown name.
func DidYouMean(nearest string) string {
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", nearest)
}

// distance returns the Levenshtein distance of two names in bytes, or limit if it is not smaller.
// The difference of the lengths is a lower bound: a file's key may be very long.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1) // distances from a's first bytes to every prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
