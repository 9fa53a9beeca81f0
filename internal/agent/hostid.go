package agent

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/messaging"
)

// HostID is the machine-id of the host: that of the process with pid 1 under procRoot, which
// is the host's also when we run in a container with the host's pid namespace, else our own.
// It is empty when neither can be read: the protocol allows that.
func HostID(procRoot string) string {
	for _, root := range []string{filepath.Join(procRoot, "1/root"), "/"} {
		if id := machineID(root); id != "" {
			return id
		}
	}
	return ""
}

// machineID reads etc/machine-id below root, and nowhere else whatever links there are.
func machineID(root string) string {
	dir, err := os.Open(root)
	if err != nil {
		return ""
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), "etc/machine-id", &unix.OpenHow{
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
	if err != nil || id == uninitialized {
		return ""
	}
	return id
}

// uninitialized stands in the file until systemd's first boot has made an id.
const uninitialized = "uninitialized"
