package testenv

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Terminal opens a pseudoterminal of that size. Both ends are closed at the end of the test.
func Terminal(t testing.TB, columns, rows uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { master.Close() })
	assert.NilError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	assert.Assert(t, errno == 0, errno)
	terminal = os.NewFile(peer, "terminal")
	t.Cleanup(func() { terminal.Close() })
	size := unix.Winsize{Col: columns, Row: rows}
	assert.NilError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &size))
	return master, terminal
}
