package share

import "time"

// Backoff is a pause between tries that doubles each time, from Min to Max.
type Backoff struct{ Min, Max time.Duration }

// Next returns the pause after one; after none, 0, the shortest.
func (b Backoff) Next(pause time.Duration) time.Duration { return min(max(2*pause, b.Min), b.Max) }
