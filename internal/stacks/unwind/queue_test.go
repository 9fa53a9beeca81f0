package unwind

import (
	"context"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
)

// waits returns how many requests wait.
func (q *queue) waits() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}

// enterLater has a request wait, whose outcome comes by the channel.
func (q *queue) enterLater(ctx context.Context, t *testing.T, user worker.User) <-chan error {
	t.Helper()
	before, served := q.waits(), make(chan error, 1)
	go func() { served <- q.enter(ctx, user) }()
	testenv.Poll(t, deadline, "a request to wait", func() bool { return q.waits() == before+1 })
	return served
}

// One request is served at a time, users' in turn, and there is always room for another user's. One that does
// not wait any more has no turn.
func TestQueue(t *testing.T) {
	q := newQueue()
	assert.NilError(t, q.enter(t.Context(), "greedy"))
	var greedy []<-chan error
	for range maxWaiting / 2 {
		greedy = append(greedy, q.enterLater(t.Context(), t, "greedy"))
	}
	err := q.enter(t.Context(), "greedy")
	assert.Check(t, errors.Is(err, ErrBusy), err)
	cancelled, cancel := context.WithCancel(t.Context())
	ended := q.enterLater(cancelled, t, "third")
	other := q.enterLater(t.Context(), t, "other")
	cancel()
	err = <-ended
	assert.Check(t, errors.Is(err, context.Canceled), err)
	for i, want := range append([]<-chan error{greedy[0], other}, greedy[1:]...) {
		assert.Assert(t, q.waits() == maxWaiting/2+1-i && len(want) == 0, "request %d is served beside another", i)
		q.leave()
		assert.NilError(t, <-want)
	}
	q.leave()
	assert.Check(t, !q.serving && q.room.Used() == 0 && q.waiting.Len() == 0, "%+v is left", q)
}

// Close waits for the request that is served, and for no other.
func TestQueueEnds(t *testing.T) {
	q := newQueue()
	q.enterLast()
	later := q.enterLater(t.Context(), t, "user")
	last := make(chan struct{})
	go func() {
		q.enterLast()
		close(last)
	}()
	testenv.Poll(t, deadline, "the last one to wait", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.last != nil
	})
	q.leave()
	<-last
	assert.Check(t, q.waits() == 1, "another one was served before")
	q.leave()
	assert.NilError(t, <-later)
}
