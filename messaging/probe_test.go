package messaging

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// A proc root of that length leaves room for any descriptor number; a longer one does not.
func TestMaxProcRootBytes(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	for length, want := range map[int]error{MaxProcRootBytes: unix.ENOENT, MaxProcRootBytes + 1: unix.EINVAL} {
		name := "/" + strings.Repeat("r", length-1) + "/self/fd/2147483647"
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: name})
		assert.Check(t, err == want, "%d bytes: %v, want %v", length, err, want)
	}
	// documented in --help and README
	assert.Check(t, MaxProcRootBytes == 88, "%d bytes", MaxProcRootBytes)
}
