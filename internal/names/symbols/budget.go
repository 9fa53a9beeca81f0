package symbols

import (
	"context"
	"io"
	"sync/atomic"
)

// Budget is the memory that the queries which share it may still take. It is safe for concurrent
// use.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of lenBytes.
func NewBudget(lenBytes int64) *Budget {
	b := &Budget{}
	b.left.Store(lenBytes)
	return b
}

// take takes memory of all budgets. It reports false, and takes nothing, when one has not enough
// left.
func take(budgets []*Budget, lenBytes int) bool {
	for i, b := range budgets {
		if b.left.Add(-int64(lenBytes)) >= 0 {
			continue
		}
		for _, taken := range budgets[:i+1] {
			taken.left.Add(int64(lenBytes))
		}
		return false
	}
	return true
}

// Until returns a reader of r whose reads fail once ctx has ended. A read that hangs is not
// interrupted.
func Until(ctx context.Context, r io.ReaderAt) io.ReaderAt { return until{ctx, r} }

type until struct {
	ctx context.Context
	r   io.ReaderAt
}

func (u until) ReadAt(b []byte, off int64) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.ReadAt(b, off)
}
