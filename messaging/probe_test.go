package messaging

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A proc root of that length leaves room for any descriptor number; a longer one does not.
func TestMaxProcRootBytes(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for length, want := range map[int]error{MaxProcRootBytes: unix.ENOENT, MaxProcRootBytes + 1: unix.EINVAL} {
		name := "/" + strings.Repeat("r", length-1) + "/self/fd/2147483647"
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != want {
			t.Errorf("%d bytes: %v, want %v", length, err, want)
		}
	}
	if MaxProcRootBytes != 88 { // documented in --help and README
		t.Errorf("%d bytes", MaxProcRootBytes)
	}
}
