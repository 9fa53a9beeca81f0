package lifecycle

import (
	"context"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A function has returned when do does, whatever others are called meanwhile, and is not called on the caller's
// stack. No more goroutines than that wait for the next, and none after the end.
func TestHands(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	h := newHands(ctx)
	const many = 3 * maxIdleHands
	var called, returned atomic.Int32
	release := make(chan struct{})
	all := make(chan struct{}, many)
	for range many {
		go func() {
			ended := make(chan struct{}, 1)
			done := false
			h.do(func() {
				called.Add(1)
				<-release
				done = true
			}, ended)
			if done && len(ended) == 0 {
				returned.Add(1)
			}
			all <- struct{}{}
		}()
	}
	testenv.Poll(t, deadline, "all to be called at a time", func() bool { return called.Load() == many })
	assert.Check(t, returned.Load() == 0)
	close(release)
	for range many {
		<-all
	}
	assert.Check(t, returned.Load() == many)
	testenv.Poll(t, deadline, "some to wait", func() bool { return len(h.idle) == maxIdleHands })

	ended, before := make(chan struct{}, 1), called.Load()
	for range many {
		h.do(func() { called.Add(1) }, ended)
	}
	assert.Check(t, called.Load() == before+many)
	end()
	h.do(func() { called.Add(1) }, ended)
	assert.Check(t, called.Load() == before+many+1, "at the end, processes have work")
}
