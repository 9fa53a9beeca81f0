package procscan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/procdir"
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
				testenv.Poll(t, child.Timeout, "a zombie", func() bool {
					threads, err := procdir.IDs(fmt.Sprintf("/proc/%d/task", v.PID))
					return child.State(t, v.PID) == "Z" && err == nil && len(threads) == 1 // else some are still ending
				})
			}
		}
		victims = nil
	})
	assert.NilError(t, err)
	assert.Check(t, len(met) == 1, "found %v after the first one, when all others were killed", met)
	for _, u := range report.Unreadable {
		assert.Check(t, !slices.Contains(pids, u.PID), "reported %+v", u)
	}
}

// A process that a sweep skips is probed by the next one as if this one had found it.
func TestSweepSkips(t *testing.T) {
	p := startLibrary(t)
	s := newScanner(t)
	sweep(t, s)
	for range 2 {
		_, err := s.Sweep(func(int) bool { return true }, func(f Found) { t.Errorf("found %+v", f) })
		assert.NilError(t, err)
	}
	_, known := s.matched[p.PID]
	assert.Check(t, known, "a process that was found and then skipped gets a quick probe again")
	_, known = s.matched[os.Getpid()]
	assert.Check(t, !known, "a process that was not found and then skipped gets no quick probe")
	sweep(t, s)
	p.Kill()
	sweep(t, s)
	_, known = s.matched[p.PID]
	assert.Check(t, !known, "a process that has exited is still recorded")
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
	after := child.Descriptors(t)
	assert.Check(t, after == before, "%d descriptors before, %d after", before, after)
}

// A lack of descriptors ends the sweep, and is not reported as an error of a process.
func TestSweepNoDescriptors(t *testing.T) {
	startLibrary(t) // probing it needs more than one
	s := newScanner(t)
	var limit unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: limit.Max}))
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
	assert.Check(t, errors.Is(err, unix.EMFILE) && len(report.Unreadable) == 0, "got %+v, %v", report, err)
}
