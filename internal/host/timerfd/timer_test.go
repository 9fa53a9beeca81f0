package timerfd

import (
	"errors"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// A timer fires when it was set to, for the last time that it was set, and not after Stop.
func TestTimer(t *testing.T) {
	timer, err := New()
	assert.NilError(t, err)
	defer timer.Close()
	began := time.Now()
	timer.Set(time.Hour)
	timer.Set(20 * time.Millisecond)
	if err := timer.Wait(); err != nil || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%v, after %v", err, time.Since(began))
	}
	timer.Set(0)
	assert.Check(t, timer.Wait())
	fired := make(chan error, 1)
	timer.Set(0)
	timer.Unset() // what has fired and was not waited for is gone, too
	go func() { fired <- timer.Wait() }()
	timer.Stop()
	err = <-fired
	assert.Check(t, errors.Is(err, os.ErrDeadlineExceeded), "after Stop: %v", err)
}

// A ticker fires again and again, and a waiter is woken by a Set meanwhile.
func TestTicker(t *testing.T) {
	ticker, err := NewTicker(time.Millisecond)
	assert.NilError(t, err)
	defer ticker.Close()
	for range 3 {
		assert.NilError(t, ticker.Wait())
	}
	ticker.Set(time.Hour)
	fired := make(chan error, 1)
	go func() { fired <- ticker.Wait() }()
	ticker.Set(0)
	err = <-fired
	assert.Check(t, err)
}
