package timerfd

import (
	"errors"
	"os"
	"testing"
	"time"
)

// A timer fires when it was set to, for the last time that it was set, and not after Stop.
func TestTimer(t *testing.T) {
	timer, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.Close()
	began := time.Now()
	timer.Set(time.Hour)
	timer.Set(20 * time.Millisecond)
	if err := timer.Wait(); err != nil || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%v, after %v", err, time.Since(began))
	}
	timer.Set(0)
	if err := timer.Wait(); err != nil {
		t.Error(err)
	}
	fired := make(chan error, 1)
	timer.Set(0)
	timer.Unset() // what has fired and was not waited for is gone, too
	go func() { fired <- timer.Wait() }()
	timer.Stop()
	if err := <-fired; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Stop: %v", err)
	}
}

// A ticker fires again and again, and a waiter is woken by a Set meanwhile.
func TestTicker(t *testing.T) {
	ticker, err := NewTicker(time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer ticker.Close()
	for range 3 {
		if err := ticker.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	ticker.Set(time.Hour)
	fired := make(chan error, 1)
	go func() { fired <- ticker.Wait() }()
	ticker.Set(0)
	if err := <-fired; err != nil {
		t.Error(err)
	}
}
