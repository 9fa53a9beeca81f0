package sockfile

import (
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"correlator/internal/host/safedir"
)

// ProbeGroup returns why this process could not bind a socket of a group at path, as far as it is for
// the group: see Probe for the rest.
func ProbeGroup(path string, gid int) error {
	if path, err := filepath.Abs(path); err == nil {
		if dir, err := safedir.Open(filepath.Dir(path)); err == nil {
			defer dir.Close()
			if err := checkGroup(dir, gid); err != nil {
				return err
			}
		}
	}
	return inGroup(gid, func() error { return nil })
}

// checkGroup returns an error for a directory that decides on the group of its files itself.
func checkGroup(dir *safedir.Dir, gid int) error {
	if gid == OwnGroup {
		return nil
	}
	stat, err := dir.Lstat(".")
	if err == nil && stat.Mode&unix.S_ISGID != 0 && stat.Gid != uint32(gid) {
		err = fmt.Errorf("files of this directory are of its own group, %d (mode g+s): %w", stat.Gid, unix.EPERM)
	}
	return err
}

// noID is no group: it only asks for the present one.
const noID = -1

// inGroup calls a function on a thread that gives the files it creates to a group. (chown(2) would
// take a capability and a system call that nothing else here needs, and the file had another group
// for a moment.)
func inGroup(gid int, f func() error) error {
	if gid == OwnGroup {
		return f()
	}
	runtime.LockOSThread()
	own, _ := unix.SetfsgidRetGid(gid) // returns no error: the id is read back
	if is, _ := unix.SetfsgidRetGid(noID); is != gid {
		runtime.UnlockOSThread()
		return fmt.Errorf("making a file of group %d, which needs CAP_SETGID: %w", gid, unix.EPERM)
	}
	defer func() {
		_, _ = unix.SetfsgidRetGid(own)
		if is, _ := unix.SetfsgidRetGid(noID); is == own {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
	}()
	return f()
}
