package messaging

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
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
	assert.Check(t, Supported())
}

// Without openat2 paths are not opened in another way, and the error reports what is missing.
func TestWithoutOpenat2(t *testing.T) {
	r := listen(t)
	for errno, dial := range map[unix.Errno]string{unix.ENOSYS: "ErrNoOpenat2", unix.EPERM: "ErrPermission"} {
		h := helper{NoOpenat2: errno, Supported: true, DialPath: r.path, Dial: []Credentials{ourCredentials(t)}}
		c := h.start(t, nil)
		got, want := c.line(), ErrNoOpenat2.Error()+": "+errno.Error()
		assert.Check(t, got == want, "%s, want %s", got, want)
		got = c.line()
		assert.Check(t, got == dial, "dialing with %v: %s, want %s", errno, got, dial)
	}
	r.expectNothing()
}
