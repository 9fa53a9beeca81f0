package sockfile

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// foreignGroup is one that the tests are no members of.
const foreignGroup = 4711

// A socket of a group is of that one from the beginning.
func TestGroup(t *testing.T) {
	testenv.NeedRoot(t)
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		path := filepath.Join(t.TempDir(), "socket")
		var atOnce unix.Stat_t
		var listener net.Listener
		file, err := BindGroup("unix", path, mode, foreignGroup, func(c net.ListenConfig, path string) (err error) {
			if listener, err = c.Listen(context.Background(), "unix", path); err != nil {
				return err
			}
			t.Cleanup(func() { listener.Close() })
			return unix.Lstat(path, &atOnce)
		})
		assert.NilError(t, err)
		t.Cleanup(file.Remove)
		var stat unix.Stat_t
		assert.NilError(t, unix.Lstat(path, &stat))
		if atOnce.Mode&^(unix.S_IFSOCK|uint32(mode)) != 0 || atOnce.Gid != foreignGroup ||
			stat.Mode != unix.S_IFSOCK|uint32(mode) || stat.Gid != foreignGroup || stat.Uid != 0 {
			t.Errorf("mode %o: at once %o of group %d, then %o of %d:%d", mode, atOnce.Mode, atOnce.Gid, stat.Mode,
				stat.Uid, stat.Gid)
		}
	}
}

// asUser runs a function on a thread of a user who is a member of one other group.
func asUser(t *testing.T, uid, gid, group int, f func()) {
	t.Helper()
	testenv.NeedRoot(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		groups := []uint32{uint32(group)}
		done <- func() error {
			_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups[0])), 0)
			if errno != 0 {
				return errno
			}
			if _, _, errno = unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
				return errno
			}
			if _, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				return errno
			}
			f()
			return nil
		}()
	}()
	err := <-done
	assert.NilError(t, err)
}

// What a user may not do is known before, and leaves nothing behind.
func TestProbeGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	assert.Check(t, errors.Join(ProbeGroup(path, OwnGroup), ProbeGroup(path, foreignGroup)))
	const own, member = 1000, 1001
	asUser(t, own, own, member, func() {
		for group, want := range map[int]error{OwnGroup: nil, own: nil, member: unix.EPERM, foreignGroup: unix.EPERM} {
			err := ProbeGroup(path, group)
			assert.Check(t, errors.Is(err, want), "probe of %d: %v, want %v", group, err, want)
		}
	})
}

// A directory may decide on the group itself: then nobody gets the socket.
func TestGroupOfDirectory(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	assert.NilError(t, errors.Join(os.Chown(dir, 0, foreignGroup), os.Chmod(dir, 0o755|fs.ModeSetgid)))
	path := filepath.Join(dir, "socket")
	_, err := BindGroup("unix", path, 0o660, foreignGroup+1, func(c net.ListenConfig, path string) error {
		listener, err := c.Listen(context.Background(), "unix", path)
		if err == nil {
			t.Cleanup(func() { listener.Close() })
		}
		return err
	})
	_, left := os.Lstat(path)
	assert.Check(t, errors.Is(err, unix.EPERM) && errors.Is(left, fs.ErrNotExist), "%v, and the socket: %v", err, left)
	err = ProbeGroup(path, foreignGroup+1)
	assert.Check(t, errors.Is(err, unix.EPERM), "probe: %v", err)
	assert.Check(t, ProbeGroup(path, foreignGroup), "probe of its own group")
}
