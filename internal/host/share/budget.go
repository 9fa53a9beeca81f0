package share

// Budget divides an amount among keys: each may hold as much of it as is left for all others. So a
// key that is alone may hold half of it, two a third each, and n keys one part each of n+1; what is
// left is for the next one, which always finds something while it is not less than the unit. What the
// unit is, bytes or entries, is up to the caller.
//
// A Budget is not safe for concurrent use: the caller holds a lock, usually that of what is divided.
// Each operation takes constant time. It has an entry of memory for each key that holds something.
type Budget[K comparable] struct {
	capacity, used int
	held           map[K]int // without those that hold nothing
}

// NewBudget returns a Budget that divides an amount.
func NewBudget[K comparable](capacity int) *Budget[K] {
	return &Budget[K]{capacity: capacity, held: make(map[K]int)}
}

// Take adds n, which must not be negative, to what a key holds, if the key then holds no more than is
// left. It reports whether that was so; if not, nothing has changed. Nothing can always be taken.
func (b *Budget[K]) Take(key K, n int) bool {
	if n == 0 {
		return true
	}
	left := b.Left() - n
	if left < 0 || b.held[key]+n > left {
		return false
	}
	b.used += n
	b.held[key] += n
	return true
}

// Give returns n of what Take has added for a key, all at once or in parts.
func (b *Budget[K]) Give(key K, n int) {
	b.used -= n
	if b.held[key] -= n; b.held[key] == 0 {
		delete(b.held, key)
	}
}

// Capacity returns what is divided.
func (b *Budget[K]) Capacity() int { return b.capacity }

// Used returns what all keys hold.
func (b *Budget[K]) Used() int { return b.used }

// Left returns what no key holds.
func (b *Budget[K]) Left() int { return b.capacity - b.used }

// Held returns what a key holds.
func (b *Budget[K]) Held(key K) int { return b.held[key] }
