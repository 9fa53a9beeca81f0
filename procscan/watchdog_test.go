package procscan

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// hangs returns a probe that hangs until release is closed.
func hangs(release <-chan struct{}) func(int) (Found, error) {
	return func(pid int) (Found, error) {
		<-release
		return Found{ProcessID: ProcessID{PID: pid}}, nil
	}
}

func returns(pid int) (Found, error) { return Found{ProcessID: ProcessID{PID: pid}}, nil }

func findsNothing(int) (Found, error) { return Found{}, ErrNotFound }

// ofOwnUser has every process be one of a user of its own.
func ofOwnUser(pid int) uint32 { return uint32(pid) }

// A probe that hangs is abandoned after the timeout, and the process is not probed before it
// returns.
func TestWatchdogAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(probeTimeout, ofOwnUser)
		release := make(chan struct{})
		start := time.Now()
		r := w.run([]int{7}, hangs(release))
		assert.Check(t, r.err == ErrStuck && r.probed == 1 && r.found.PID == 7, "a probe that hangs: %+v", r)
		took := time.Since(start)
		assert.Check(t, took == probeTimeout, "abandoned after %v", took)
		start = time.Now()
		unwanted := func(int) (Found, error) {
			t.Error("probed again while the first probe hangs")
			return Found{}, nil
		}
		r = w.run([]int{7}, unwanted)
		assert.Check(t, r.err == ErrStuck && r.found.PID == 7, "the next probe: %+v", r)
		r = w.run([]int{8}, returns)
		assert.Check(t, r.err == nil && r.found.PID == 8, "another process meanwhile: %+v", r)
		took = time.Since(start)
		assert.Check(t, took == 0, "both waited, %v", took)
		close(release)
		synctest.Wait()
		r = w.run([]int{7}, returns)
		assert.Check(t, r.err == nil && r.found.PID == 7, "a probe after the first has returned: %+v", r)
		assert.Check(t, w.abandoned == 0 && len(w.stuck)+len(w.stuckOf) == 0,
			"%d probes abandoned, %v", w.abandoned, w.stuck)
	})
}

// After a probe that hangs, the other processes are still probed, once each.
func TestWatchdogRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(probeTimeout, ofOwnUser)
		release := make(chan struct{})
		var mu sync.Mutex
		var probed []int
		probe := func(pid int) (Found, error) {
			mu.Lock()
			probed = append(probed, pid)
			mu.Unlock()
			switch pid {
			case 3:
				<-release
			case 5:
				return returns(pid)
			case 2, 6:
				time.Sleep(probeTimeout - 1) // slower than the timeout only together
			case 4:
				return Found{}, ErrGone
			}
			return Found{}, ErrNotFound
		}
		pids := []int{1, 2, 3, 4, 5, 6, 2, 6}
		start := time.Now()
		for _, want := range []probeResult{
			{3, Found{ProcessID: ProcessID{PID: 3}}, ErrStuck},
			{2, Found{ProcessID: ProcessID{PID: 5}}, nil},
			{3, Found{}, ErrNotFound},
		} {
			r := w.run(pids, probe)
			assert.Check(t, r.probed == want.probed && r.err == want.err && r.found.ProcessID == want.found.ProcessID,
				"got %+v, want %+v", r, want)
			pids = pids[r.probed:]
		}
		took := time.Since(start)
		assert.Check(t, took == probeTimeout+4*(probeTimeout-1), "took %v", took)
		close(release)
		synctest.Wait()
		want := []int{1, 2, 3, 4, 5, 6, 2, 6}
		assert.Check(t, slices.Equal(probed, want), "probed %v, want %v", probed, want)
	})
}

// A round that ends at the moment of its timeout is either finished or abandoned, never both or
// neither.
func TestWatchdogLastMoment(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			w := newWatchdog(probeTimeout, ofOwnUser)
			r := w.run([]int{7}, func(pid int) (Found, error) {
				time.Sleep(probeTimeout)
				return returns(pid)
			})
			assert.Check(t, r.found.PID == 7 && (r.err == nil || r.err == ErrStuck), "got %+v", r)
			synctest.Wait()
			assert.Check(t, w.abandoned == 0 && len(w.stuck)+len(w.stuckOf) == 0,
				"%d probes abandoned, %v", w.abandoned, w.stuck)
		})
	}
}

// Probes hang at the same time, some of the same process, up to the bound.
func TestWatchdogBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(probeTimeout, ofOwnUser)
		release := make(chan struct{})
		start := time.Now()
		var probes sync.WaitGroup
		for i := range maxStuck - 1 {
			probes.Go(func() {
				r := w.run([]int{1 + i/2}, hangs(release))
				assert.Check(t, r.err == ErrStuck, "a probe that hangs: %+v", r)
			})
		}
		synctest.Wait()
		r := w.run([]int{1}, findsNothing)
		assert.Check(t, r.err == ErrNotFound, "while others hang, and none of them is abandoned: %+v", r)
		probes.Wait()
		took := time.Since(start)
		assert.Check(t, took == probeTimeout, "all together were abandoned after %v", took)
		r = w.run([]int{1000}, hangs(release))
		assert.Check(t, r.err == ErrStuck, "the last probe that may hang: %+v", r)
		r = w.run([]int{1001, 1002}, returns)
		assert.Check(t, r.err == errManyStuck && r.probed == 1, "one more: %+v", r)
		close(release)
		synctest.Wait()
		r = w.run([]int{1001}, returns)
		assert.Check(t, r.err, "after all have returned: %+v", r)
		assert.Check(t, w.abandoned == 0 && len(w.stuck)+len(w.stuckOf) == 0,
			"%d probes abandoned, %v", w.abandoned, w.stuck)
	})
}

// Probes that hang because of one user's processes keep the others' from nothing.
func TestWatchdogBoundOfUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 1000 // pids from there on are another user's
		w := newWatchdog(probeTimeout, func(pid int) uint32 { return uint32(pid / others) })
		release := make(chan struct{})
		for pid := range maxStuckOfUser {
			r := w.run([]int{pid}, hangs(release))
			assert.Check(t, r.err == ErrStuck, "a probe that hangs: %+v", r)
		}
		unwanted := func(pid int) (Found, error) {
			t.Errorf("process %d is probed", pid)
			return Found{}, nil
		}
		start := time.Now()
		r := w.run([]int{maxStuckOfUser}, unwanted)
		assert.Check(t, r.err == ErrStuck && r.found.PID == maxStuckOfUser, "one more of the user: %+v", r)
		if r := w.run([]int{others}, returns); r.err != nil || time.Since(start) != 0 {
			t.Errorf("one of another user: %+v after %v", r, time.Since(start))
		}
		close(release)
		synctest.Wait()
		if r := w.run([]int{maxStuckOfUser}, returns); r.err != nil || len(w.stuckOf) != 0 {
			t.Errorf("after all have returned: %+v, %v", r, w.stuckOf)
		}
	})
}

// Process, LookForContext and Sweep use the watchdog: they do not probe a process while an earlier
// probe hangs. Who has LookForContext called does not wait as long as others.
func TestProbesAreWatched(t *testing.T) {
	p := startLibrary(t)
	s, err := NewScanner("/proc")
	assert.NilError(t, err)
	assert.Check(t, s.watchdog.timeout == probeTimeout && s.watchdog.hurried == hurriedTimeout,
		"a probe may take %v, or %v", s.watchdog.timeout, s.watchdog.hurried)
	s.watchdog.timeout = time.Millisecond
	release := make(chan struct{})
	defer close(release)
	r := s.watchdog.run([]int{p.PID}, hangs(release))
	assert.Assert(t, r.err == ErrStuck, "a probe that hangs: %+v", r)
	s.watchdog.timeout, s.watchdog.hurried = time.Minute, time.Minute // as newScanner
	found, err := s.Process(p.PID)
	assert.Check(t, errors.Is(err, ErrStuck), "Process: %+v, %v", found, err)
	_, err = s.LookForContext(p.PID)
	assert.Check(t, errors.Is(err, ErrStuck), "LookForContext: %v", err)
	report, err := s.Sweep(nil, func(f Found) {
		assert.Check(t, f.PID != p.PID, "found %+v", f)
	})
	assert.NilError(t, err)
	if !slices.ContainsFunc(report.Unreadable, func(u Unreadable) bool { return u.PID == p.PID && u.Err == ErrStuck }) {
		t.Errorf("unreadable: %+v", report.Unreadable)
	}
	s.procRoot, s.watchdog.hurried = t.TempDir(), time.Millisecond
	maps := filepath.Join(s.procRoot, "7/maps")
	assert.NilError(t, os.Mkdir(filepath.Dir(maps), 0o755))
	assert.NilError(t, unix.Mkfifo(maps, 0o600))
	s.watchdog.timeout = math.MaxInt64
	_, err = s.LookForContext(7)
	assert.Check(t, errors.Is(err, ErrStuck), "a look that hangs: %v", err)
	writer, err := os.OpenFile(maps, os.O_RDWR, 0) // ends it
	assert.NilError(t, err)
	writer.Close()
}

// Process works during sweeps, and while probes hang.
func TestProcessBesideSweep(t *testing.T) {
	forEachSource(t, func(t *testing.T, source Source) {
		p := startLibrary(t)
		s := scannerOf(t, source)
		release := make(chan struct{})
		var hanging, probing sync.WaitGroup
		hanging.Go(func() { s.watchdog.run([]int{1 << 30}, hangs(release)) })
		for range 4 {
			probing.Go(func() {
				for range 50 {
					if found, err := s.Process(p.PID); err != nil || found.PID != p.PID || len(found.Libraries) != 1 {
						t.Errorf("got %+v, %v", found, err)
					}
					_, err := s.Process(os.Getpid())
					assert.Check(t, errors.Is(err, ErrNotFound), "ourselves: %v", err)
				}
			})
		}
		for range 5 {
			found, ok := sweep(t, s)[p.PID]
			assert.Check(t, ok && len(found.Libraries) == 1, "the sweep found %+v", found)
		}
		probing.Wait()
		close(release)
		hanging.Wait()
	})
}
