package messaging

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A process can interrupt every resolution of a path.
func TestInterruptedResolutionEnds(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EAGAIN, unix.EINTR} {
		attempts := 0
		err := retryInterrupted(func() error { attempts++; return errno })
		if err != errno || attempts != resolveAttempts {
			t.Errorf("%v after %d attempts, want %d", err, attempts, resolveAttempts)
		}
	}
}

func TestSupported(t *testing.T) {
	if err := Supported(); err != nil {
		t.Error(err)
	}
}

// Without openat2 paths are not opened in another way, and the error reports what is missing.
func TestWithoutOpenat2(t *testing.T) {
	r := listen(t)
	for errno, dial := range map[unix.Errno]string{unix.ENOSYS: "ErrNoOpenat2", unix.EPERM: "ErrPermission"} {
		h := helper{NoOpenat2: errno, Supported: true, DialPath: r.path, Dial: []Credentials{ourCredentials(t)}}
		c := h.start(t, nil)
		if got, want := c.line(), ErrNoOpenat2.Error()+": "+errno.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := c.line(); got != dial {
			t.Errorf("dialing with %v: %s, want %s", errno, got, dial)
		}
	}
	r.expectNothing()
}
