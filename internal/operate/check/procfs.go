package check

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"correlator/messaging"
)

func procRoot(m *machine) finding {
	if err := m.procfs(); err != nil {
		return finding{Missing, err.Error(), lossRights, "mount the host's procfs, and name it by --proc-root"}
	}
	return ok("a procfs is mounted at " + m.config.ProcRoot)
}

// procRootPath checks the path of the proc root, because sockets are connected to by a name below
// it, with the privileges of their processes.
func procRootPath(m *machine) finding {
	const loss = "sockets cannot be reached"
	root := m.config.ProcRoot
	if len(root) > messaging.MaxProcRootBytes {
		return finding{Missing,
			fmt.Sprintf("%d bytes long; the address of a socket has room for %d", len(root),
				messaging.MaxProcRootBytes),
			loss, "mount the host's procfs at a shorter path"}
	}
	path, err := filepath.Abs(root)
	for err == nil {
		var stat unix.Stat_t
		if err = unix.Stat(path, &stat); err == nil && stat.Mode&unix.S_IXOTH == 0 {
			return finding{Missing, "not every user can enter " + path,
				"sockets of other users' processes cannot be reached", "chmod o+x " + path}
		}
		if path == "/" {
			break
		}
		path = filepath.Dir(path)
	}
	if err != nil {
		return m.unknown(err, loss, "see proc-root")
	}
	return ok(fmt.Sprintf("every user can enter it; %d of at most %d bytes", len(root), messaging.MaxProcRootBytes))
}

// hidepid checks a mount option of procfs that hides the processes that may not be traced, except
// from CAP_SYS_PTRACE.
func hidepid(m *machine) finding {
	mount, err := m.procMount()
	if err != nil {
		return m.unknown(err, lossUnproved, "see proc-root")
	}
	value, hides := mount.SuperOptions["hidepid"]
	switch {
	case !hides || value == "0" || value == "off":
		return ok("processes are not hidden")
	case m.caps.Has(unix.CAP_SYS_PTRACE):
		return ok("hidepid=" + value + ", which does not apply to CAP_SYS_PTRACE")
	}
	return finding{Degraded, "hidepid=" + value + " hides processes of other users", lossOthers,
		grant("CAP_SYS_PTRACE")}
}

// procMount returns the mount that contains the proc root.
func (m *machine) procMount() (*procfs.MountInfo, error) {
	self, err := m.self()
	if err != nil {
		return nil, err
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(m.config.ProcRoot)
	if err != nil {
		return nil, err
	}
	var best *procfs.MountInfo
	for _, mount := range mounts { // of several at one path the last one is on top
		if mount.FSType == "proc" && isBelow(root, mount.MountPoint) &&
			(best == nil || len(mount.MountPoint) >= len(best.MountPoint)) {
			best = mount
		}
	}
	if best == nil {
		return nil, errors.New("no procfs among the mounts of this process")
	}
	return best, nil
}

// isBelow reports whether path is dir or below it.
func isBelow(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// self returns this process in procfs.
func (m *machine) self() (procfs.Proc, error) {
	fs, err := procfs.NewFS(m.config.ProcRoot)
	if err != nil {
		return procfs.Proc{}, err
	}
	return fs.Self()
}
