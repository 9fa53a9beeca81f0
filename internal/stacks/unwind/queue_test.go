package unwind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
)

// used returns how many requests wait.
func (q *queue) used() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.places.used
}

// Users have turns, however many requests of one wait, and there is always room for another user's.
func TestQueue(t *testing.T) {
	q := newQueue()
	assert.NilError(t, q.enter(t.Context(), "greedy"))
	served := make(chan string)
	enterLater := func(ctx context.Context, user worker.User, number int) {
		before := q.used()
		go func() {
			if err := q.enter(ctx, user); err != nil {
				served <- err.Error()
			} else {
				served <- fmt.Sprint(user, number)
			}
		}()
		testenv.Poll(t, deadline, "a request to wait", func() bool { return q.used() == before+1 })
	}
	const most = maxWaiting / 2
	for i := range most {
		enterLater(t.Context(), "greedy", i)
	}
	err := q.enter(t.Context(), "greedy")
	assert.Check(t, errors.Is(err, ErrBusy), err)
	enterLater(t.Context(), "other", 0)
	enterLater(t.Context(), "other", 1)
	cancelled, cancel := context.WithCancel(t.Context())
	enterLater(cancelled, "third", 0)
	enterLater(t.Context(), "fourth", 0)
	cancel()
	got := <-served
	assert.Check(t, got == context.Canceled.Error(), got)

	want := []string{"greedy0", "other0", "fourth0", "greedy1", "other1"}
	for i := 2; i < most; i++ {
		want = append(want, fmt.Sprint("greedy", i))
	}
	var order []string
	for range want {
		q.leave()
		order = append(order, <-served)
	}
	assert.Check(t, slices.Equal(order, want), order)
	q.leave()
	assert.Check(t, !q.serving && q.places.used == 0 && len(q.waiting) == 0 && len(q.turns) == 0, "%+v is left", q)
}

// Close waits for the request that is served, and for no other.
func TestQueueEnds(t *testing.T) {
	q := newQueue()
	q.enterLast()
	later := make(chan error)
	go func() { later <- q.enter(t.Context(), "user") }()
	testenv.Poll(t, deadline, "a request to wait", func() bool { return q.used() == 1 })
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
	assert.Check(t, q.used() == 1, "another one was served before")
	q.leave()
	err := <-later
	assert.Check(t, err)
}
