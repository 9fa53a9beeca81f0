package testenv

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Cgroup creates a cgroup (v2) and its parents, and returns a descriptor of its directory that is
// open until the end of the test. Then those that it created are removed: so only processes that
// end before may be put there. It ends the test where cgroups cannot be created.
func Cgroup(t testing.TB, path string) int {
	t.Helper()
	NeedRoot(t)
	dir := mountCgroup(t)
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		parent := dir
		switch err := unix.Mkdirat(parent, part, 0o755); {
		case err == nil:
			t.Cleanup(func() { removeCgroup(t, parent, part) })
		case !errors.Is(err, unix.EEXIST):
			Missing(t, "needs a cgroup file system to write to: "+err.Error())
		}
		var err error
		dir, err = unix.Openat(parent, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		assert.NilError(t, err)
		fd := dir
		t.Cleanup(func() { unix.Close(fd) })
	}
	return dir
}

// mountCgroup mounts cgroup v2 without attaching it to a path, and returns its root.
func mountCgroup(t testing.TB) int {
	t.Helper()
	root := -1
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer unix.Close(fs)
		err = unix.FsconfigCreate(fs)
	}
	if err == nil {
		root, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	}
	if err != nil {
		Missing(t, "needs cgroup v2 and the right to mount it: "+err.Error())
	}
	t.Cleanup(func() { unix.Close(root) })
	return root
}

// removeCgroup waits for the last processes: they leave their cgroup some time after they have
// ended.
func removeCgroup(t testing.TB, parent int, name string) {
	t.Helper()
	Poll(t, time.Minute, "an empty cgroup "+name, func() bool {
		return !errors.Is(unix.Unlinkat(parent, name, unix.AT_REMOVEDIR), unix.EBUSY)
	})
}
