package procscan

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"correlator/procscan/internal/child"
)

// hangs is a probe that returns when letGo is closed.
func hangs(letGo <-chan struct{}) func(int) (Found, error) {
	return func(pid int) (Found, error) {
		<-letGo
		return Found{ProcessID: ProcessID{PID: pid}}, nil
	}
}

func returns(pid int) (Found, error) { return Found{ProcessID: ProcessID{PID: pid}}, nil }

func findsNothing(int) (Found, error) { return Found{}, ErrNotFound }

// A probe that hangs is abandoned in time, and repeated only when it has returned.
func TestWatchdogLeavesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(probeTimeout)
		letGo := make(chan struct{})
		start := time.Now()
		if r := w.run([]int{7}, hangs(letGo)); r.err != ErrStuck || r.probed != 1 || r.found.PID != 7 {
			t.Errorf("a probe that hangs: %+v", r)
		}
		if took := time.Since(start); took != probeTimeout {
			t.Errorf("abandoned after %v", took)
		}
		start = time.Now()
		unwanted := func(int) (Found, error) {
			t.Error("probed again while the first probe hangs")
			return Found{}, nil
		}
		if r := w.run([]int{7}, unwanted); r.err != ErrStuck || r.found.PID != 7 {
			t.Errorf("the next probe: %+v", r)
		}
		if r := w.run([]int{8}, returns); r.err != nil || r.found.PID != 8 {
			t.Errorf("another process meanwhile: %+v", r)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("both waited, %v", took)
		}
		close(letGo)
		synctest.Wait()
		if r := w.run([]int{7}, returns); r.err != nil || r.found.PID != 7 {
			t.Errorf("a probe after the first has returned: %+v", r)
		}
		if w.abandoned != 0 || len(w.stuck) != 0 {
			t.Errorf("%d probes abandoned, %v", w.abandoned, w.stuck)
		}
	})
}

// One that hangs in the middle does not keep the others from being probed, once each.
func TestWatchdogRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(probeTimeout)
		letGo := make(chan struct{})
		var mu sync.Mutex
		var probed []int
		probe := func(pid int) (Found, error) {
			mu.Lock()
			probed = append(probed, pid)
			mu.Unlock()
			switch pid {
			case 3:
				<-letGo
			case 5:
				return returns(pid)
			case 2, 6:
				time.Sleep(probeTimeout - 1) // slow, and in time: all of them together are not
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
			if r.probed != want.probed || r.err != want.err || r.found.ProcessID != want.found.ProcessID {
				t.Errorf("got %+v, want %+v", r, want)
			}
			pids = pids[r.probed:]
		}
		if took := time.Since(start); took != probeTimeout+4*(probeTimeout-1) {
			t.Errorf("took %v", took)
		}
		close(letGo)
		synctest.Wait()
		if want := []int{1, 2, 3, 4, 5, 6, 2, 6}; !slices.Equal(probed, want) {
			t.Errorf("probed at %v, want %v", probed, want)
		}
	})
}

// A round that ends in the very moment when it would be abandoned is either, never both or none.
func TestWatchdogLastMoment(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			w := newWatchdog(probeTimeout)
			r := w.run([]int{7}, func(pid int) (Found, error) {
				time.Sleep(probeTimeout)
				return returns(pid)
			})
			if r.found.PID != 7 || r.err != nil && r.err != ErrStuck {
				t.Errorf("got %+v", r)
			}
			synctest.Wait()
			if w.abandoned != 0 || len(w.stuck) != 0 {
				t.Errorf("%d probes abandoned, %v", w.abandoned, w.stuck)
			}
		})
	}
}

// Probes hang at the same time, some at the same process, up to the bound.
func TestWatchdogBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(probeTimeout)
		letGo := make(chan struct{})
		start := time.Now()
		var probes sync.WaitGroup
		for i := range maxStuck - 1 {
			probes.Go(func() {
				if r := w.run([]int{1 + i/2}, hangs(letGo)); r.err != ErrStuck {
					t.Errorf("a probe that hangs: %+v", r)
				}
			})
		}
		synctest.Wait()
		if r := w.run([]int{1}, findsNothing); r.err != ErrNotFound {
			t.Errorf("while others hang, and none of them is abandoned: %+v", r)
		}
		probes.Wait()
		if took := time.Since(start); took != probeTimeout {
			t.Errorf("all together were abandoned after %v", took)
		}
		if r := w.run([]int{1000}, hangs(letGo)); r.err != ErrStuck {
			t.Errorf("the last that may hang: %+v", r)
		}
		if r := w.run([]int{1001, 1002}, returns); r.err != errManyStuck || r.probed != 1 {
			t.Errorf("one more: %+v", r)
		}
		close(letGo)
		synctest.Wait()
		if r := w.run([]int{1001}, returns); r.err != nil {
			t.Errorf("after all have returned: %+v", r)
		}
		if w.abandoned != 0 || len(w.stuck) != 0 {
			t.Errorf("%d probes abandoned, %v", w.abandoned, w.stuck)
		}
	})
}

// Probes of both kinds have the watchdog, also at a process that they could probe at.
func TestProbesAreWatched(t *testing.T) {
	p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{{Path: t.TempDir() + "/" + realName}}})
	s := newScanner(t, "/proc")
	if s.watchdog.timeout != probeTimeout {
		t.Errorf("a probe may take %v", s.watchdog.timeout)
	}
	s.watchdog.timeout = time.Millisecond
	letGo := make(chan struct{})
	defer close(letGo)
	if r := s.watchdog.run([]int{p.PID}, hangs(letGo)); r.err != ErrStuck {
		t.Fatalf("a probe that hangs: %+v", r)
	}
	s.watchdog.timeout = probeTimeout
	if found, err := s.Process(p.PID); !errors.Is(err, ErrStuck) {
		t.Errorf("looking at the process: %+v, %v", found, err)
	}
	report, err := s.Sweep(nil, func(f Found) {
		if f.PID == p.PID {
			t.Errorf("found %+v", f)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Unreadable, func(u Unreadable) bool { return u.PID == p.PID && u.Err == ErrStuck }) {
		t.Errorf("unreadable: %+v", report.Unreadable)
	}
}

// Probes at single processes go on beside sweeps, and while probes hang.
func TestProcessBesideSweep(t *testing.T) {
	forEachSource(t, func(t *testing.T, source Source) {
		p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{{Path: t.TempDir() + "/" + realName}}})
		s := scannerOf(t, source)
		letGo := make(chan struct{})
		var hanging, looking sync.WaitGroup
		hanging.Go(func() { s.watchdog.run([]int{1 << 30}, hangs(letGo)) })
		for range 4 {
			looking.Go(func() {
				for range 50 {
					if found, err := s.Process(p.PID); err != nil || found.PID != p.PID || len(found.Libraries) != 1 {
						t.Errorf("got %+v, %v", found, err)
					}
					if _, err := s.Process(os.Getpid()); !errors.Is(err, ErrNotFound) {
						t.Errorf("ourselves: %v", err)
					}
				}
			})
		}
		for range 5 {
			if found, ok := sweep(t, s)[p.PID]; !ok || len(found.Libraries) != 1 {
				t.Errorf("the sweep found %+v", found)
			}
		}
		looking.Wait()
		close(letGo)
		hanging.Wait()
	})
}
