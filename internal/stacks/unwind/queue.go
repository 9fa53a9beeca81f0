package unwind

import (
	"context"
	"sync"

	"correlator/internal/host/share"
	"correlator/internal/worker"
)

// maxWaiting is how many requests wait for the one that is served. A user's may be as many as there
// is room for those of others.
const maxWaiting = 64

// queue lets one request be served at a time, those of users in turn.
type queue struct {
	mu      sync.Mutex
	serving bool
	room    *share.Budget[worker.User]
	waiting share.Turns[worker.User, chan struct{}] // closed when it is the request's turn
	last    chan struct{}                           // of enterLast; nil: it does not wait
}

func newQueue() *queue { return &queue{room: share.NewBudget[worker.User](maxWaiting)} }

// enter waits for the turn of a user's request, which must leave then. The error is ErrBusy, or
// that of the context.
func (q *queue) enter(ctx context.Context, user worker.User) error {
	turn := make(chan struct{})
	q.mu.Lock()
	switch {
	case !q.serving:
		q.serving = true
		close(turn)
	case !q.room.Take(user, 1):
		q.mu.Unlock()
		return ErrBusy
	default:
		q.waiting.Push(user, turn)
	}
	q.mu.Unlock()
	select {
	case <-turn: // mostly: then a context that makes its timer when it is asked for needs none
		return nil
	default:
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	removed := q.waiting.Remove(user, func(t chan struct{}) bool { return t == turn })
	if removed {
		q.room.Give(user, 1)
	}
	q.mu.Unlock()
	if !removed { // it was its turn meanwhile
		q.leave()
	}
	return ctx.Err()
}

// leave ends a request, after which the next user's turn comes.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last != nil {
		close(q.last)
		q.last = nil
		return
	}
	user, turn, ok := q.waiting.Pop()
	if !ok {
		q.serving = false
		return
	}
	q.room.Give(user, 1)
	close(turn)
}

// enterLast is enter for Close: it is not refused, and comes before all that wait.
func (q *queue) enterLast() {
	turn := make(chan struct{})
	q.mu.Lock()
	if q.serving {
		q.last = turn
	} else {
		q.serving = true
		close(turn)
	}
	q.mu.Unlock()
	<-turn
}
