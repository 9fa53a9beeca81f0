package messaging

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Two processes in mount namespaces of their own bind the same path.
func TestDialInMountNamespace(t *testing.T) {
	testenv.NeedRoot(t)
	dir := openTempDir(t)
	path := filepath.Join(dir, "socket")
	host := listenAt(t, path)
	creds := Credentials{UID: 1000, GID: 1000}
	first := helper{Mount: dir, Bind: path}.start(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS})
	second := helper{Mount: dir, Bind: path}.start(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS})
	for n, c := range []*child{first, second, first} {
		if n < 2 {
			got := c.line()
			assert.Assert(t, got == "bound", got)
		}
		// Its socket is root's, 0755 as by umask: another user may not write to it.
		_, err := Dial("/proc", c.root(), path, creds)
		assert.Check(t, errors.Is(err, ErrPermission), "with other credentials: %v", err)
		socket, err := Dial("/proc", c.root(), path, c.credentials())
		assert.NilError(t, err)
		reaches(t, socket, c)
	}
	host.expectNothing()
}

// userNamespace starts a process as root of a new user namespace, in a new mount namespace. In our
// user namespace it has the user id.
func userNamespace(id int) *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: ids,
		GidMappings: ids,
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}
}

// Root of a user namespace has all capabilities in it. In ours it is the user that it is mapped to.
func TestDialInUserNamespace(t *testing.T) {
	testenv.NeedRoot(t)
	dir := openTempDir(t)
	path := filepath.Join(dir, "socket")
	c := helper{Mount: dir, Bind: path}.start(t, userNamespace(1000))
	got := c.line()
	assert.Assert(t, got == "bound", got)
	creds := c.credentials()
	assert.Assert(t, creds.UID == 1000 && creds.GID == 1000, "the helper runs as %v", creds)
	socket, err := Dial("/proc", c.root(), path, creds)
	assert.NilError(t, err)
	reaches(t, socket, c)

	// Its capabilities there give no access to a socket of the host.
	host := listenAt(t, filepath.Join(openTempDir(t), "host"))
	assert.NilError(t, os.Chmod(host.path, 0o600))
	_, err = Dial("/proc", c.root(), host.path, creds)
	assert.Check(t, errors.Is(err, ErrPermission), "a socket of the host: %v", err)
}

// Mounts of a process in its own namespace give it no further access: a socket of the host is
// reached through a mount only if the process itself may write to it.
func TestDialThroughMountsOfTheProcess(t *testing.T) {
	testenv.NeedRoot(t)
	dir := openTempDir(t)
	mkdir(t, filepath.Join(dir, "host"), 0o755)
	mkdir(t, filepath.Join(dir, "mount"), 0o755)
	var mounts [][2]string
	var paths []string
	var receivers []*receiver
	for name, mode := range map[string]os.FileMode{"closed": 0o600, "open": 0o666} {
		r := listenAt(t, filepath.Join(dir, "host", name))
		assert.NilError(t, os.Chmod(r.path, mode))
		over := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(over, nil, 0o600))
		mounts = append(mounts, [2]string{over, r.path})
		paths = append(paths, over, filepath.Join(dir, "mount", name))
		receivers = append(receivers, r, r)
	}
	mounts = append(mounts, [2]string{filepath.Join(dir, "mount"), filepath.Join(dir, "host")})
	own := filepath.Join(dir, "own")
	mkdir(t, own, 0o777)
	c := helper{BindMount: mounts, Connect: paths, Bind: filepath.Join(own, "socket")}.start(t, userNamespace(1000))
	creds := c.credentials()
	for i, path := range paths {
		itself := c.line()
		socket, err := Dial("/proc", c.root(), path, creds)
		switch want := filepath.Base(path); {
		case want == "open" && itself == "<nil>" && err == nil:
			reaches(t, socket, receivers[i])
		case want == "closed" && itself != "<nil>" && errors.Is(err, ErrPermission):
		default:
			t.Errorf("%s: %v, the process itself gets %s", path, err, itself)
		}
	}
	for _, r := range receivers {
		r.expectNothing()
	}
}
