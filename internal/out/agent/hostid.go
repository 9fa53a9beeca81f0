package agent

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"correlator/messaging"
)

// HostID is the machine-id of the host: that of the process with pid 1 under procRoot, which is the
// host's also when we run in a container with the host's pid namespace. Our own, which an image may
// have brought with it, counts only when that process's files are not for us to see. It is empty
// when there is none: the protocol allows that.
func HostID(procRoot string) string {
	root, err := os.Open(filepath.Join(procRoot, "1/root"))
	if err != nil {
		root, err = os.Open("/")
	}
	if err != nil {
		return ""
	}
	defer root.Close()
	return machineID(root)
}

// machineID reads etc/machine-id below root, and nowhere else whatever links there are.
func machineID(root *os.File) string {
	fd, err := unix.Openat2(int(root.Fd()), "etc/machine-id", &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), "machine-id")
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, messaging.MaxHostIDBytes))
	id := strings.TrimSpace(string(text))
	if err != nil || id == uninitialized || !utf8.ValidString(id) {
		return ""
	}
	return id
}

// uninitialized stands in the file until systemd's first boot has made an id.
const uninitialized = "uninitialized"
