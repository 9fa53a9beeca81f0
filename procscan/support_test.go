package procscan

import (
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/procscan/internal/child"
)

func TestMain(m *testing.M) {
	child.Main(m, map[string]func() error{
		"scan":       runScan,
		"read":       runRead,
		"namespace":  runNamespace,
		"leaderless": runLeaderless,
		"connect":    runConnect,
	})
}

func identityOf(t testing.TB, pid int) ProcessID {
	t.Helper()
	return ProcessID{pid, child.StartTime(t, pid)}
}

// newScanner returns one that is patient: on a busy machine, looking at a process that does not hang may take longer
// than the agent waits for it.
func newScanner(t testing.TB) *Scanner {
	t.Helper()
	s, err := NewScanner("/proc")
	assert.NilError(t, err)
	s.watchdog.timeout, s.watchdog.hurried = time.Minute, time.Minute
	return s
}

// openPID opens a process until the test ends.
func openPID(t testing.TB, pid int) *Handle {
	t.Helper()
	h, err := OpenProcess("/proc", identityOf(t, pid))
	assert.NilError(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

// startHost starts a host with these mappings.
func startHost(t testing.TB, maps ...child.MapSpec) *child.Process {
	t.Helper()
	return child.StartHost(t, child.HostSpec{Maps: maps})
}

// startLibrary starts a host that maps the library.
func startLibrary(t testing.TB) *child.Process {
	t.Helper()
	return startHost(t, child.MapSpec{Path: filepath.Join(t.TempDir(), realName)})
}

// openHost opens a child and returns its mapping of the library.
func openHost(t testing.TB, p *child.Process) (*Handle, Mapping) {
	t.Helper()
	found, err := newScanner(t).Process(p.PID)
	assert.NilError(t, err)
	h, err := OpenProcess("/proc", found.ProcessID)
	assert.NilError(t, err)
	t.Cleanup(func() { h.Close() })
	return h, found.Libraries[0]
}
