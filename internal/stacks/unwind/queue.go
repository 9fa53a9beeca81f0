package unwind

import (
	"context"
	"slices"
	"sync"

	"correlator/internal/worker"
)

// maxWaiting is how many requests wait for the one that is served. A user's may be as many as there
// is room for those of others.
const maxWaiting = 64

// queue lets one request be served at a time, those of users in turn.
type queue struct {
	mu      sync.Mutex
	serving bool
	places  *quota
	waiting map[worker.User][]chan struct{} // closed when it is the request's turn; in their order
	turns   []worker.User                   // those that have requests that wait
	last    chan struct{}                   // of enterLast; nil: it does not wait
}

func newQueue() *queue {
	return &queue{places: newQuota("requests that wait", maxWaiting), waiting: make(map[worker.User][]chan struct{})}
}

// enter waits for the turn of a user's request, which must leave then. The error is ErrBusy, or
// that of the context.
func (q *queue) enter(ctx context.Context, user worker.User) error {
	turn := make(chan struct{})
	q.mu.Lock()
	switch {
	case !q.serving:
		q.serving = true
		close(turn)
	case q.places.take(user, 1) != nil:
		q.mu.Unlock()
		return ErrBusy
	default:
		if q.waiting[user] = append(q.waiting[user], turn); len(q.waiting[user]) == 1 {
			q.turns = append(q.turns, user)
		}
	}
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	at := slices.Index(q.waiting[user], turn)
	if at >= 0 {
		q.remove(user, at)
	}
	q.mu.Unlock()
	if at < 0 { // it was its turn meanwhile
		q.leave()
	}
	return ctx.Err()
}

// leave ends a request, after which the next user's turn comes.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.last != nil:
		close(q.last)
		q.last = nil
		return
	case len(q.turns) == 0:
		q.serving = false
		return
	}
	user := q.turns[0]
	turn := q.waiting[user][0]
	if q.remove(user, 0); len(q.waiting[user]) > 0 {
		q.turns = append(q.turns[1:], user)
	}
	close(turn)
}

// remove removes a request that waits. q.mu must be held.
func (q *queue) remove(user worker.User, at int) {
	q.places.give(user, 1)
	if q.waiting[user] = slices.Delete(q.waiting[user], at, at+1); len(q.waiting[user]) == 0 {
		delete(q.waiting, user)
		q.turns = slices.DeleteFunc(q.turns, func(u worker.User) bool { return u == user })
	}
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
