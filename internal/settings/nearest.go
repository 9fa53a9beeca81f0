package settings

import "fmt"

// nearest is the one of the known names that an unknown one was meant to be, perhaps: that which
// differs least, by a third of its letters at most. It is empty if there is none.
func nearest(name string, known []string) (nearest string) {
	best := len(name)/3 + 1
	for _, k := range known {
		if d := distance(name, k, best); d < best {
			best, nearest = d, k
		}
	}
	return nearest
}

// DidYouMean is the end of a message about an unknown name.
func DidYouMean(nearest string) string {
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", nearest)
}

// distance is how many bytes must be added, removed or changed to make b of a, or limit if it is not
// less: names differ by their lengths at least, and a file's key may be very long.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1) // distances of what we have of a to every beginning of b
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
