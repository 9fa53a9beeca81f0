package sampling

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
)

// fakeClock is what the clocks of a machine show.
type fakeClock struct {
	clock
	wall                time.Time
	monotonic, boottime time.Duration
}

// newFakeClock returns a clock on a machine that has run for an hour, and was suspended for another.
func newFakeClock(interval time.Duration) *fakeClock {
	f := &fakeClock{wall: time.Unix(1e9, 0), monotonic: time.Hour, boottime: 2 * time.Hour}
	f.interval, f.read = interval, func() bpf.Instant {
		return bpf.Instant{Time: f.wall, MonotonicNs: uint64(f.monotonic), BoottimeNs: uint64(f.boottime)}
	}
	f.last = f.read()
	return f
}

func (f *fakeClock) pass(d time.Duration) {
	f.wall, f.monotonic, f.boottime = f.wall.Add(d), f.monotonic+d, f.boottime+d
}

func (f *fakeClock) suspend(d time.Duration) { f.wall, f.boottime = f.wall.Add(d), f.boottime+d }
func (f *fakeClock) set(by time.Duration)    { f.wall = f.wall.Add(by) }

// A sample, or a wait, has the time at which it was taken: however late it is fetched, by the clock as
// it is set when it is fetched, and before a suspension if it was taken before. Its interval holds
// it, and is never as long as a suspension, or what the clock was set by.
func TestInstant(t *testing.T) {
	const interval = 100 * time.Millisecond
	for name, test := range map[string]struct {
		meanwhile func(*fakeClock)
		taken     time.Duration // after the former drain, by CLOCK_MONOTONIC
		want      time.Duration // the same by the clock that people read
		from, to  time.Duration // and its interval; both 0: that needs the clock of Go, see TestClockSet of guests
	}{
		"at once": {func(f *fakeClock) { f.pass(interval) }, interval / 2, interval / 2, 0, interval},
		"five seconds late": {func(f *fakeClock) { f.pass(5 * time.Second) }, interval, interval, 0,
			5 * time.Second},
		"after we read clocks": {func(f *fakeClock) { f.pass(interval) }, time.Second, time.Second, 0, interval},
		"clock set forward": {func(f *fakeClock) { f.pass(time.Second); f.set(time.Hour); f.pass(time.Second) },
			interval,
			time.Hour + interval, 0, 0},
		"clock set back": {func(f *fakeClock) { f.pass(time.Second); f.set(-time.Hour); f.pass(time.Second) },
			1500 * time.Millisecond, -time.Hour + 1500*time.Millisecond, 0, 0},
		"before a suspension": {func(f *fakeClock) { f.pass(interval / 2); f.suspend(time.Hour); f.pass(time.Second) },
			interval / 4, interval / 4, 0, interval},
		"after a suspension": {func(f *fakeClock) { f.pass(interval / 2); f.suspend(time.Hour); f.pass(time.Second) },
			time.Second, time.Hour + time.Second, time.Hour + interval + 1, time.Hour + interval/2 + time.Second},
		"before two suspensions": {func(f *fakeClock) {
			f.pass(interval)
			f.suspend(time.Hour)
			f.now() // by who reads what was deferred
			f.suspend(time.Hour)
			f.pass(interval)
		}, interval / 4, interval / 4, 0, interval},
		"between two suspensions": {func(f *fakeClock) {
			f.suspend(time.Hour)
			f.pass(interval)
			f.now()
			f.pass(interval / 2)
			f.suspend(time.Hour)
			f.pass(interval)
		}, 3 * interval / 2, time.Hour + 3*interval/2, time.Hour + interval + 1, time.Hour + 2*interval},
		"too short for one": {func(f *fakeClock) { f.pass(interval); f.suspend(minSuspension - 1); f.pass(interval) },
			interval, interval + minSuspension - 1, 0, 2*interval + minSuspension - 1},
	} {
		f := newFakeClock(interval)
		f.pass(time.Minute)
		before := f.now()
		test.meanwhile(f)
		now, taken := f.now(), before.MonotonicNs+uint64(test.taken)
		got := now.at(taken).Sub(before.Time)
		assert.Check(t, got == test.want, "%s: taken after %v, by the clock after %v, not %v", name, test.taken, got,
			test.want)
		start, end := now.interval(before.Instant, taken)
		from, to := start.Sub(before.Time), end.Sub(before.Time)
		assert.Check(t, test.to == 0 || from == test.from && to == test.to, "%s: in %v to %v, not %v to %v", name,
			from, to, test.from,
			test.to)
	}
}

// What is remembered of suspensions is bounded, and what is older than those that are is by the clock before them.
func TestManySuspensions(t *testing.T) {
	f := newFakeClock(time.Second)
	begin := f.now()
	var forgotten instant
	for i := range maxSuspensions + 3 {
		f.pass(time.Minute)
		f.suspend(time.Hour)
		if now := f.now(); i == 2 {
			forgotten = now
		}
	}
	now := f.now()
	assert.Check(t, len(now.suspensions) == maxSuspensions, len(now.suspensions))
	assert.Check(t, now.at(forgotten.MonotonicNs).Equal(forgotten.Time))
	assert.Check(t, now.at(begin.MonotonicNs).Equal(begin.Add(3*time.Hour)))
}

// A sample that is fetched long after it was taken, and after its transaction has ended, has the times of that.
func TestFetchedLate(t *testing.T) {
	s := openWith(t, Options{Interval: time.Hour}) // nothing is fetched before the end
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	r := newReceiver(t, 1<<20)
	stop := r.serve(s)
	s.start(p, r)
	began := time.Now()
	p.Begin(1)
	s.poll("samples", func() bool {
		counters, err := s.sampler.Counters()
		assert.NilError(t, err)
		return counters[bpf.Correlated] > 20
	})
	p.End(1)
	ended := time.Now()
	s.end()
	stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Check(t, !r.first.Before(began) && r.first.Before(r.last) && !r.last.After(ended),
		"taken from %v to %v, in %v to %v", r.first, r.last, began, ended)
	assert.Check(t, s.outcome(process.OutcomeCorrelated) > 0)
}
