package testenv

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal opens a pseudoterminal of that size. Both ends are closed at the end of the test.
func Terminal(t testing.TB, columns, rows uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	terminal = os.NewFile(peer, "terminal")
	t.Cleanup(func() { terminal.Close() })
	size := unix.Winsize{Col: columns, Row: rows}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	return master, terminal
}
