package timerfd

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// Tickers fire when the clock is a multiple of their interval, so those of multiples of an interval fire together.
func TestTickersTogether(t *testing.T) {
	const interval = time.Hour // in which it does not fire
	ticker, err := NewTicker(interval)
	assert.NilError(t, err)
	defer ticker.Close()
	var left unix.ItimerSpec
	before := sinceBoot()
	assert.NilError(t, ticker.raw.Control(func(fd uintptr) { err = unix.TimerfdGettime(int(fd), &left) }))
	assert.NilError(t, err)
	first, last := before+time.Duration(left.Value.Nano()), sinceBoot()+time.Duration(left.Value.Nano())
	assert.Check(t, last.Truncate(interval) >= first || last-first > interval, "between %v and %v", first, last)
	assert.Check(t, time.Duration(left.Interval.Nano()) == interval)
}

// The last tick is that of such a ticker, and not in the future.
func TestLastTick(t *testing.T) {
	const interval = time.Hour
	before, boot := time.Now(), sinceBoot()
	tick := LastTick(interval)
	passed, after := time.Since(before), sinceBoot()
	assert.Check(t, !tick.After(time.Now()))
	if boot/interval == after/interval { // else it may be either of two
		off := before.Sub(tick) - boot%interval
		assert.Check(t, -passed-(after-boot) <= off && off <= passed+(after-boot), "off by %v", off)
	}
}
