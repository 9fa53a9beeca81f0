package procscan

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

// sweep returns what a sweep finds, by pid.
func sweep(t *testing.T, s *Scanner) map[int]Found {
	t.Helper()
	all := make(map[int]Found)
	report, err := s.Sweep(nil, func(f Found) {
		_, twice := all[f.PID]
		assert.Check(t, !twice, "process %d was found twice", f.PID)
		all[f.PID] = f
	})
	assert.NilError(t, err)
	assert.Check(t, report.Processes > len(all), "%d processes listed, %d found", report.Processes, len(all))
	return all
}

func TestSweep(t *testing.T) { forEachSource(t, testSweep) }

func testSweep(t *testing.T, source Source) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a b\n  c\td (deleted)\\012ü")
	assert.NilError(t, os.Mkdir(odd, 0o755))
	lib := func(name string) string { return filepath.Join(dir, "elastic-jvmti-linux-"+name+".so") }
	escaped := strings.ReplaceAll(odd, "\n", `\012`)

	type library struct {
		path    string
		deleted bool
	}
	cases := []struct {
		name string
		maps []child.MapSpec
		want []library
	}{
		{"plain", []child.MapSpec{{Path: lib("plain")}}, []library{{lib("plain"), false}}},
		{"deleted", []child.MapSpec{{Path: lib("gone"), Unlink: true}}, []library{{lib("gone"), true}}},
		{"mapped twice", []child.MapSpec{{Path: lib("twice"), Times: 2}},
			[]library{{lib("twice"), false}, {lib("twice"), false}}},
		{"two libraries", []child.MapSpec{{Path: lib("one")}, {Path: lib("two"), Unlink: true}},
			[]library{{lib("one"), false}, {lib("two"), true}}},
		{"odd path", []child.MapSpec{{Path: filepath.Join(odd, realName)}},
			[]library{{filepath.Join(escaped, realName), false}}},
		{"mapped, not executable", []child.MapSpec{{Path: lib("data"), Prot: unix.PROT_READ}}, nil},
		{"other file", []child.MapSpec{{Path: filepath.Join(dir, "libother.so")}}, nil},
		{"similar name", []child.MapSpec{{Path: lib("x.1")}, {Path: lib("y") + ".1"}}, nil},
	}
	processes := make([]*child.Process, len(cases))
	for i, c := range cases {
		processes[i] = child.StartHost(t, child.HostSpec{Maps: c.maps})
	}
	s := scannerOf(t, source)
	for range 2 { // what was found is found again
		began := time.Now()
		all := sweep(t, s)
		for i, c := range cases {
			found, ok := all[processes[i].PID]
			if ok != (len(c.want) > 0) || found.Truncated {
				t.Errorf("%s: %+v, %v", c.name, found, ok)
				continue
			}
			single, err := s.Process(processes[i].PID)
			if !ok {
				assert.Check(t, errors.Is(err, ErrNotFound), "%s: looking at the process: %v", c.name, err)
				continue
			}
			if err != nil || single.ProcessID != found.ProcessID || !slices.Equal(single.Libraries, found.Libraries) {
				t.Errorf("%s: the sweep found %+v, a probe of the process %+v, %v", c.name, found, single, err)
			}
			assert.Check(t, found.ProcessID == identityOf(t, processes[i].PID),
				"%s: identity %+v", c.name, found.ProcessID)
			assert.Check(t, !found.At.Before(began) && !single.At.Before(found.At),
				"%s: found at %v, and before that at %v, in a sweep that began at %v", c.name, single.At, found.At,
				began)
			var got []library
			for _, m := range found.Libraries {
				got = append(got, library{m.Path, m.Deleted})
				assert.Check(t, m.End-m.Start == uint64(os.Getpagesize()) && m.Offset == 0 && m.Ino != 0 && m.Dev != 0,
					"%s: mapping %+v", c.name, m)
			}
			slices.SortFunc(got, func(a, b library) int { return strings.Compare(a.path, b.path) })
			assert.Check(t, slices.Equal(got, c.want), "%s: libraries %+v, want %+v", c.name, got, c.want)
			if !slices.IsSortedFunc(found.Libraries, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) }) {
				t.Errorf("%s: not by address: %+v", c.name, found.Libraries)
			}
		}
	}
}

// Sweeps find a process again as long as it maps the library.
func TestSweepUnmapped(t *testing.T) { forEachSource(t, testSweepUnmapped) }

func testSweepUnmapped(t *testing.T, source Source) {
	path := filepath.Join(t.TempDir(), realName)
	unmaps := startHost(t, child.MapSpec{Path: path})
	ends := startHost(t, child.MapSpec{Path: path})
	s := scannerOf(t, source)
	for _, want := range []bool{true, true, false, false} {
		if !want {
			unmaps.Tell(t, "unmap")
			ends.Kill()
		}
		all := sweep(t, s)
		for _, p := range []*child.Process{unmaps, ends} {
			_, found := all[p.PID]
			assert.Check(t, found == want, "process %d found: %v, want %v", p.PID, found, want)
		}
	}
}

// A process in another mount namespace maps a file that has no path in ours.
func TestSweepMountNamespace(t *testing.T) { forEachSource(t, testSweepMountNamespace) }

func testSweepMountNamespace(t *testing.T, source Source) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "private", realName)
	p := child.StartHost(t, child.HostSpec{
		Mounts: []child.MountSpec{{Source: "private", Target: dir, Type: "tmpfs", Dirs: []string{"private"}}},
		Maps:   []child.MapSpec{{Path: path}},
	})
	_, err := os.Stat(path)
	assert.Assert(t, errors.Is(err, os.ErrNotExist), "the mount is in our namespace: %v", err)
	found, err := scannerOf(t, source).Process(p.PID)
	assert.Check(t, err == nil && len(found.Libraries) == 1 && found.Libraries[0].Path == path,
		"got %+v, %v, want %s", found, err, path)
}

func TestTruncated(t *testing.T) { forEachSource(t, testTruncated) }

func testTruncated(t *testing.T, source Source) {
	path := filepath.Join(t.TempDir(), realName)
	s := scannerOf(t, source)
	for _, c := range []struct{ mapped, want int }{{maxLibraries, maxLibraries}, {maxLibraries + 1, maxLibraries}} {
		p := startHost(t, child.MapSpec{Path: path, Times: c.mapped})
		found, err := s.Process(p.PID)
		assert.Check(t, err == nil && len(found.Libraries) == c.want && found.Truncated == (c.mapped > c.want),
			"mapped %d times: %d, %v, %v", c.mapped, len(found.Libraries), found.Truncated, err)
		again := sweep(t, s)[p.PID]
		assert.Check(t, slices.Equal(again.Libraries, found.Libraries) && again.Truncated == found.Truncated,
			"the sweep found %+v", again)
	}
}

func TestProcessesWithoutMemory(t *testing.T) { forEachSource(t, testProcessesWithoutMemory) }

func testProcessesWithoutMemory(t *testing.T, source Source) {
	s := scannerOf(t, source)
	zombie := child.StartZombie(t)
	_, err := s.Process(zombie)
	assert.Check(t, errors.Is(err, ErrGone), "zombie: %v", err)
	reaped := child.StartSleep(t)
	reaped.Kill()
	_, err = s.Process(reaped.PID)
	assert.Check(t, errors.Is(err, ErrGone), "reaped process: %v", err)
	for _, pid := range []int{0, -1, 1 << 30} {
		_, err := s.Process(pid)
		assert.Check(t, errors.Is(err, ErrGone), "pid %d: %v", pid, err)
	}
	thread := child.KernelThread(t)
	_, err = s.Process(thread)
	assert.Check(t, errors.Is(err, ErrNotFound), "kernel thread %d: %v", thread, err)
	all := sweep(t, s)
	for _, pid := range []int{zombie, reaped.PID, thread} {
		found, ok := all[pid]
		assert.Check(t, !ok, "the sweep found %+v", found)
	}
	plain := child.StartSleep(t)
	assert.Check(t, all[plain.PID].PID == 0, "found without being asked for")
	s.All = true
	_, err = s.Process(thread)
	assert.Check(t, errors.Is(err, ErrNotFound) && strings.Contains(err.Error(), "kernel"), err)
	all = sweep(t, s)
	for _, pid := range []int{zombie, reaped.PID, thread} {
		assert.Check(t, all[pid].PID == 0, "the sweep found %+v", all[pid])
	}
	found, err := s.Process(plain.PID)
	swept := all[plain.PID]
	assert.Check(t, err == nil && found.ProcessID == identityOf(t, plain.PID) && swept.ProcessID == found.ProcessID,
		"%+v, %v; the sweep found %+v", found, err, swept)
}

// An unprivileged reader finds its own processes; the others are reported, once each, also if a
// sweep in between skips them.
func TestSweepUnprivileged(t *testing.T) {
	testenv.NeedRoot(t)
	dir := child.SharedDir(t)
	ours := startHost(t, child.MapSpec{Path: filepath.Join(dir, "elastic-jvmti-linux-ours.so")})
	path := filepath.Join(dir, "elastic-jvmti-linux-theirs.so")
	theirs := startAs(t, child.Nobody, child.MapSpec{Path: path, ReadOnly: true})
	zombie := child.StartZombie(t)
	thread := child.KernelThread(t)

	cmd := child.Command(t, "scan", "/proc")
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: child.Nobody, Gid: child.Nobody}
	var result scanResult
	assert.NilError(t, json.Unmarshal([]byte(child.Output(t, cmd)), &result))
	assert.Check(t, slices.Contains(result.Found, theirs.PID) && !slices.Contains(result.Found, ours.PID),
		"found %v, want %d and not %d", result.Found, theirs.PID, ours.PID)
	assert.Check(t, slices.Contains(result.Denied, identityOf(t, ours.PID)),
		"denied %v, want %v among them", result.Denied, identityOf(t, ours.PID))
	for _, id := range result.Denied {
		assert.Check(t, id.PID != zombie && id.PID != thread && id.PID != theirs.PID, "denied: process %d", id.PID)
	}
	assert.Check(t, result.Again == 0 && len(result.Other) == 0,
		"%d were reported again; other errors: %q", result.Again, result.Other)
}

// startAs starts a host as another user, with a file that we create.
func startAs(t *testing.T, uid int, m child.MapSpec) *child.Process {
	t.Helper()
	assert.NilError(t, os.WriteFile(m.Path, []byte("contents of "+m.Path), 0o755))
	cmd := child.Command(t, "host")
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	return child.StartReady(t, cmd, child.HostSpec{Maps: []child.MapSpec{m}})
}

// With hidepid=1 not even the start time of another user's process can be read.
func TestSweepHidepid(t *testing.T) {
	testenv.NeedRoot(t)
	procRoot := t.TempDir()
	assert.NilError(t, os.Chmod(filepath.Dir(procRoot), 0o755))
	other := child.StartHost(t, child.HostSpec{})
	cmd := child.Command(t, "scan", procRoot, "hidepid=1")
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	var result scanResult
	assert.NilError(t, json.Unmarshal([]byte(child.Output(t, cmd)), &result))
	assert.Check(t, slices.Contains(result.Denied, ProcessID{PID: other.PID}),
		"denied %v, want process %d without start time among them", result.Denied, other.PID)
	assert.Check(t, result.Again == 0 && len(result.Other) == 0,
		"%d were reported again; other errors: %q", result.Again, result.Other)
}

func TestNewScannerErrors(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		dir:                           "no procfs",
		"/proc/self":                  "looking for ourselves",
	} {
		if _, err := NewScanner(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewScanner(%q): %v, want %q", path, err, want)
		}
	}
}
