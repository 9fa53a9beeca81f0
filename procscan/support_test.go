package procscan

import (
	"testing"

	"correlator/procscan/internal/child"
)

func TestMain(m *testing.M) {
	child.Main(m, map[string]func() error{
		"scan":       runScan,
		"read":       runRead,
		"namespace":  runNamespace,
		"leaderless": runLeaderless,
	})
}

func identityOf(t testing.TB, pid int) ProcessID {
	t.Helper()
	return ProcessID{pid, child.StartTime(t, pid)}
}

func newScanner(t testing.TB, procRoot string) *Scanner {
	t.Helper()
	s, err := NewScanner(procRoot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openHost opens a child and the mapping of the library that it has.
func openHost(t testing.TB, procRoot string, p *child.Process) (*Handle, Mapping) {
	t.Helper()
	found, err := newScanner(t, procRoot).Process(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenProcess(procRoot, found.ProcessID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, found.Libraries[0]
}
