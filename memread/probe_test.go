package memread

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProbeReadv(t *testing.T) {
	if err := ProbeReadv(); err != nil {
		t.Error(err)
	}
	onThread(func() {
		if err := refuseReadv(unix.EPERM); err != nil {
			t.Error("installing the filter:", err)
			return
		}
		if err := ProbeReadv(); !errors.Is(err, unix.EPERM) {
			t.Errorf("refused: %v", err)
		}
	})
}

func TestProbeAccess(t *testing.T) {
	child := newPuppet(t)
	allowed := func() {
		if err := ProbeAccess("/proc", child.pid()); err != nil {
			t.Error(err)
		}
	}
	allowed()
	onThread(func() {
		if err := refuseReadv(unix.EPERM); err != nil {
			t.Error("installing the filter:", err)
			return
		}
		allowed()
	})
	if os.Geteuid() == 0 {
		onThread(func() { // a process that may do more
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&header, &none[0]); err != nil {
				t.Error(err)
				return
			}
			if err := ProbeAccess("/proc", child.pid()); !errors.Is(err, ErrDenied) {
				t.Errorf("without capabilities: %v", err)
			}
		})
	}
	const kthreadd = 2
	for _, pid := range []int{kthreadd, 1 << 30} {
		if err := ProbeAccess("/proc", pid); !errors.Is(err, ErrGone) {
			t.Errorf("process %d without memory: %v", pid, err)
		}
	}
}
