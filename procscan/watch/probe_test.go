package watch

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

// The probe gets a record of our own mapping, and leaves no descriptor open.
func TestProbeEvents(t *testing.T) {
	testenv.NeedRoot(t)
	assert.NilError(t, ProbeEvents("/proc"))
	before := child.Descriptors(t)
	assert.Check(t, ProbeEvents("/proc"))
	after := child.Descriptors(t)
	assert.Check(t, after == before, "%d descriptors before, %d after", before, after)
}

func TestProbeEventsDenied(t *testing.T) {
	testenv.NeedRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	assert.NilError(t, unix.Capset(&header, &none[0]))
	err := ProbeEvents("/proc")
	assert.Check(t, errors.Is(err, procscan.ErrDenied), err)
}

// EventMemoryBytes is what each CPU maps.
func TestEventMemoryBytes(t *testing.T) {
	testenv.NeedRoot(t)
	ring, err := openPerfRing(0, ringBytes)
	assert.NilError(t, err)
	defer ring.close()
	if mapped := len(ring.memory) + len(ring.wakerMemory); mapped != EventMemoryBytes() {
		t.Errorf("%d bytes are mapped, EventMemoryBytes returns %d", mapped, EventMemoryBytes())
	}
}
