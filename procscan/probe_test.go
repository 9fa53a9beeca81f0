package procscan

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/testenv"
)

func TestProbeProcRoot(t *testing.T) {
	if err := ProbeProcRoot("/proc"); err != nil {
		t.Error(err)
	}
	if err := ProbeProcRoot("/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := ProbeProcRoot(t.TempDir()); err == nil {
		t.Error("a directory passes as procfs")
	}
}

// A record of a mapping of our own comes, and nothing is left open.
func TestProbeEvents(t *testing.T) {
	testenv.NeedRoot(t)
	if err := ProbeEvents("/proc"); err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	if err := ProbeEvents("/proc"); err != nil {
		t.Error(err)
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestProbeEventsRefused(t *testing.T) {
	testenv.NeedRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	if err := ProbeEvents("/proc"); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
}

// What is said to be locked for each CPU is what the kernel counts.
func TestEventMemoryBytes(t *testing.T) {
	testenv.NeedRoot(t)
	ring, err := openPerfRing(0, ringBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.close()
	if mapped := len(ring.memory) + len(ring.alarmed); mapped != EventMemoryBytes() {
		t.Errorf("%d bytes are mapped, not %d", mapped, EventMemoryBytes())
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
