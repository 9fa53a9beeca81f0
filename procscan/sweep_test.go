package procscan

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

// Processes that exit before the sweep probes them are skipped.
func TestSweepVanishing(t *testing.T) {
	path := filepath.Join(t.TempDir(), realName)
	spec := child.HostSpec{Maps: []child.MapSpec{{Path: path}}}
	var victims []*child.Process
	var pids []int
	for range 6 {
		p := child.StartHost(t, spec)
		victims = append(victims, p)
		pids = append(pids, p.PID)
	}
	s := newScanner(t)
	var met []int
	report, err := s.Sweep(nil, func(f Found) {
		if !slices.Contains(pids, f.PID) { // of others on the host
			return
		}
		met = append(met, f.PID)
		for i, v := range victims {
			switch {
			case v.PID == f.PID:
			case i%2 == 0:
				v.Kill()
			default: // leaves a zombie
				v.Cmd.Process.Kill()
				testenv.Poll(t, child.Timeout, "a zombie", func() bool { return child.State(t, v.PID) == "Z" })
			}
		}
		victims = nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(met) != 1 {
		t.Errorf("found %v after the first one, when all others were killed", met)
	}
	for _, u := range report.Unreadable {
		if slices.Contains(pids, u.PID) {
			t.Errorf("reported %+v", u)
		}
	}
}

// A process that a sweep skips is probed by the next one as if this one had found it.
func TestSweepSkips(t *testing.T) {
	p := startLibrary(t)
	s := newScanner(t)
	sweep(t, s)
	for range 2 {
		if _, err := s.Sweep(func(int) bool { return true }, func(f Found) { t.Errorf("found %+v", f) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, known := s.matched[p.PID]; !known {
		t.Error("a process that was found and then skipped gets a quick probe again")
	}
	if _, known := s.matched[os.Getpid()]; known {
		t.Error("a process that was not found and then skipped gets no quick probe")
	}
	sweep(t, s)
	p.Kill()
	sweep(t, s)
	if _, known := s.matched[p.PID]; known {
		t.Error("a process that has exited is still recorded")
	}
}

func TestSweepLeaksNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), realName)
	startHost(t, child.MapSpec{Path: path})
	s := newScanner(t)
	sweep(t, s)
	before := child.Descriptors(t)
	for range 3 {
		sweep(t, s)
	}
	if after := child.Descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A lack of descriptors ends the sweep, and is not reported as an error of a process.
func TestSweepNoDescriptors(t *testing.T) {
	startLibrary(t) // probing it needs more than one
	s := newScanner(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	var fillers []int
	defer func() {
		for _, fd := range fillers {
			unix.Close(fd)
		}
	}()
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		fillers = append(fillers, fd)
	}
	unix.Close(fillers[0]) // enough to list the processes
	fillers = fillers[1:]
	report, err := s.Sweep(nil, func(Found) {})
	if !errors.Is(err, unix.EMFILE) || len(report.Unreadable) > 0 {
		t.Errorf("got %+v, %v", report, err)
	}
}
