package live

// quota divides something among the owners of processes, users and containers: each may hold as much of
// it as is left for the others. So an owner alone may hold half, two a third each, and so on.
type quota struct {
	capacity, used int
	held           map[string]int
}

func newQuota(capacity int) quota { return quota{capacity: capacity, held: make(map[string]int)} }

// take adds n to what an owner holds, and reports whether that is possible.
func (q *quota) take(owner string, n int) bool {
	free := q.capacity - q.used - n
	if free < 0 || q.held[owner]+n > free {
		return false
	}
	q.used += n
	q.held[owner] += n
	return true
}

// give takes back what take has added.
func (q *quota) give(owner string, n int) {
	q.used -= n
	if q.held[owner] -= n; q.held[owner] <= 0 {
		delete(q.held, owner)
	}
}
