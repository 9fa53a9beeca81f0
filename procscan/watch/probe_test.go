package watch

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

// The probe gets a record of our own mapping, and leaves no descriptor open.
func TestProbeEvents(t *testing.T) {
	testenv.NeedRoot(t)
	if err := ProbeEvents("/proc"); err != nil {
		t.Fatal(err)
	}
	before := child.Descriptors(t)
	if err := ProbeEvents("/proc"); err != nil {
		t.Error(err)
	}
	if after := child.Descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestProbeEventsDenied(t *testing.T) {
	testenv.NeedRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	if err := ProbeEvents("/proc"); !errors.Is(err, procscan.ErrDenied) {
		t.Error(err)
	}
}

// EventMemoryBytes is what each CPU maps.
func TestEventMemoryBytes(t *testing.T) {
	testenv.NeedRoot(t)
	ring, err := openPerfRing(0, ringBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.close()
	if mapped := len(ring.memory) + len(ring.wakerMemory); mapped != EventMemoryBytes() {
		t.Errorf("%d bytes are mapped, EventMemoryBytes returns %d", mapped, EventMemoryBytes())
	}
}
