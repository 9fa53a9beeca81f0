package memread

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestProbeReadv(t *testing.T) {
	assert.Check(t, ProbeReadv())
	onThread(func() {
		if err := refuseReadv(unix.EPERM); err != nil {
			t.Error("installing the filter:", err)
			return
		}
		err := ProbeReadv()
		assert.Check(t, errors.Is(err, unix.EPERM), "refused: %v", err)
	})
}

func TestProbeAccess(t *testing.T) {
	child := newPuppet(t)
	allowed := func() {
		assert.Check(t, ProbeAccess("/proc", child.pid()))
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
			err := ProbeAccess("/proc", child.pid())
			assert.Check(t, errors.Is(err, ErrDenied), "without capabilities: %v", err)
		})
	}
	const kthreadd = 2
	for _, pid := range []int{kthreadd, 1 << 30} {
		err := ProbeAccess("/proc", pid)
		assert.Check(t, errors.Is(err, ErrGone), "process %d without memory: %v", pid, err)
	}
}
