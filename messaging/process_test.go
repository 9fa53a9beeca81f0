package messaging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A setuid program has the rights of its file's owner, not of the user who started it.
func TestDialSetuidProgram(t *testing.T) {
	testenv.NeedRoot(t)
	const user, owner = 1000, 2000
	dir := openTempDir(t)
	program := filepath.Join(dir, "program")
	testenv.WriteProgram(t, program, testenv.ReadFile(t, "/proc/self/exe"), 0o700)
	assert.NilError(t, errors.Join(os.Chown(program, owner, owner), os.Chmod(program, 0o755|os.ModeSetuid)))
	var paths []string
	for _, uid := range []int{owner, user, 0} {
		r := listenAt(t, filepath.Join(dir, strconv.Itoa(uid)))
		assert.NilError(t, errors.Join(os.Chown(r.path, uid, uid), os.Chmod(r.path, 0o600)))
		paths = append(paths, r.path)
	}
	bound := filepath.Join(dir, "own")
	mkdir(t, bound, 0o777)
	c := helper{Connect: paths, Bind: filepath.Join(bound, "socket")}.startProgram(t, program,
		&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}})
	var itself []string
	for range paths {
		itself = append(itself, c.line())
	}
	creds := c.credentials()
	if creds.UID == user {
		testenv.Missing(t, "needs a temporary directory on a file system without nosuid")
	}
	for i, path := range paths {
		socket, err := Dial("/proc", c.root(), path, creds)
		allowed := i == 0
		if allowed != (err == nil) || allowed != (itself[i] == "<nil>") || !allowed && !errors.Is(err, ErrPermission) {
			t.Errorf("%s: %v, the process itself gets %s", path, err, itself[i])
		}
		if err == nil {
			socket.Close()
		}
	}
}

// A process is killed and started again: the sender reports it, and connects again.
func TestReceiverKilledAndRestarted(t *testing.T) {
	dir := openTempDir(t)
	path := filepath.Join(dir, "socket")
	counters := &Counters{}
	s := NewSender(counters, newTestPoller(t))
	defer s.Close()
	for n := range 5 {
		c := helper{Bind: path}.start(t, nil)
		got := c.line()
		assert.Assert(t, got == "bound", got)
		socket, err := Dial("/proc", openRoot(t, "/"), path, ourCredentials(t))
		assert.NilError(t, err)
		assert.NilError(t, s.Connect(socket, longRegistration))
		if n > 0 { // with the sample that the previous one did not get
			c.expect(longRegistration, correlationOf(n-1, 1))
		} else {
			c.expect(longRegistration)
		}
		c.kill()
		s.Add(keyOf(n), 1, time.Now())
		err = <-s.Down()
		assert.Check(t, errors.Is(err, errSocketGone), err)
		_, err = Dial("/proc", openRoot(t, "/"), path, ourCredentials(t))
		assert.Check(t, errors.Is(err, ErrRefused), "dialing a dead socket: %v", err)
	}
	if stats := s.Stats(); stats.Sent != 4 || stats.Queued != 1 || stats.Registrations != 5 ||
		counters.ConnectionsGone.Load() != 5 {
		t.Errorf("%+v", stats)
	}
}

// The root directory and credentials of another user's process are those that /proc shows.
func TestDialChrootedProcessOfAnotherUser(t *testing.T) {
	testenv.NeedRoot(t)
	f := newFakeRoot(t)
	us := Credentials{UID: 1000, GID: 1001, Groups: []uint32{2000}}
	mkdir(t, f.path("/home"), 0o755)
	assert.NilError(t, errors.Join(os.Chown(f.path("/home"), 1000, 1001), os.Chmod(f.path("/home"), 0o700)))
	symlink(t, f.host.path, f.path("/home/escape"))
	c := helper{Chroot: f.dir, Assume: &us, Bind: "/home/socket"}.start(t, nil)
	got := c.line()
	assert.Assert(t, got == "bound", got)
	socket, err := Dial("/proc", c.root(), "/home/socket", c.credentials())
	assert.NilError(t, err)
	reaches(t, socket, c)
	_, err = Dial("/proc", c.root(), "/home/escape", c.credentials())
	assert.Check(t, errors.Is(err, ErrNoSocket), "a link out of the root: %v", err)
	f.host.expectNothing()
}

// A file system that hangs blocks only the Dial that accesses it.
func TestDialOnHangingFileSystem(t *testing.T) {
	testenv.NeedRoot(t)
	f := newFakeRoot(t)
	mkdir(t, f.path("/hanging"), 0o755)
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		testenv.Missing(t, "needs /dev/fuse: "+err.Error())
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)
	if err := unix.Mount("test", f.path("/hanging"), "fuse", 0, options); err != nil {
		unix.Close(device)
		testenv.Missing(t, "needs FUSE: "+err.Error())
	}
	defer unix.Unmount(f.path("/hanging"), unix.MNT_DETACH)

	hung := make(chan error, 1)
	go func() {
		_, err := Dial("/proc", f.root, "/hanging/socket", ourCredentials(t))
		hung <- err
	}()
	for range 20 {
		socket, err := Dial("/proc", f.root, "/run/socket", ourCredentials(t))
		assert.NilError(t, err)
		reaches(t, socket, f.in)
	}
	select {
	case err := <-hung:
		t.Errorf("the file system did not hang: %v", err)
	default:
	}
	unix.Close(device) // ends the file system
	err = <-hung
	assert.Check(t, errors.Is(err, ErrPath), "%v, want ErrPath", err)
}

// The kernel decides which sockets the process may write to: every case is also tried by a process
// with these credentials and without capabilities.
func TestDialPermissions(t *testing.T) {
	testenv.NeedRoot(t)
	const user, group, extra, stranger = 1000, 1001, 2000, 3000
	creds := Credentials{UID: user, GID: group, Groups: []uint32{extra}}
	type socket struct {
		uid, gid int
		mode     os.FileMode
	}
	allowed := map[socket]bool{
		{user, group, 0o600}:        true,
		{user, group, 0o200}:        true,
		{user, group, 0o400}:        false,
		{user, group, 0o066}:        false, // the owner's own bits count
		{user, stranger, 0o600}:     true,
		{stranger, group, 0o060}:    true,
		{stranger, group, 0o020}:    true,
		{stranger, group, 0o606}:    false,
		{stranger, extra, 0o060}:    true,
		{stranger, extra, 0o606}:    false,
		{stranger, stranger, 0o666}: true,
		{stranger, stranger, 0o002}: true,
		{stranger, stranger, 0o660}: false,
		{stranger, stranger, 0o000}: false,
		{0, 0, 0o600}:               false,
		{0, 0, 0o660}:               false,
		{0, 0, 0o666}:               true,
	}
	dirs := map[socket]bool{
		{user, group, 0o700}:        true,
		{user, group, 0o600}:        false,
		{user, group, 0o077}:        false,
		{stranger, stranger, 0o700}: false, // its 0666 socket included
		{stranger, stranger, 0o711}: true,
		{stranger, stranger, 0o744}: false,
		{stranger, group, 0o710}:    true,
		{stranger, extra, 0o710}:    true,
		{stranger, stranger, 0o710}: false,
		{0, 0, 0o700}:               false,
		{0, 0, 0o755}:               true,
	}

	f := newFakeRoot(t)
	place := func(path string, s socket) {
		t.Helper()
		assert.NilError(t, errors.Join(os.Chown(path, s.uid, s.gid), os.Chmod(path, s.mode)))
	}
	want := make(map[string]bool)
	var paths []string
	n := 0
	for s, ok := range allowed {
		path := "/run/" + strconv.Itoa(n)
		n++
		listenAt(t, f.path(path))
		place(f.path(path), s)
		want[path], paths = ok, append(paths, path)
	}
	for dir, ok := range dirs {
		path := "/run/" + strconv.Itoa(n)
		n++
		mkdir(t, f.path(path), 0o755)
		listenAt(t, f.path(path+"/socket"))
		place(f.path(path+"/socket"), socket{stranger, stranger, 0o666})
		place(f.path(path), dir)
		want[path+"/socket"], paths = ok, append(paths, path+"/socket")
	}

	process := helper{Chroot: f.dir, Assume: &creds, Connect: paths}.start(t, nil)
	for _, path := range paths {
		socket, err := Dial("/proc", f.root, path, creds)
		if err == nil {
			socket.Close()
		}
		assert.Check(t, (err == nil) == want[path] && (err == nil || errors.Is(err, ErrPermission)),
			"%s: %v, want allowed: %v", path, err, want[path])
		if got := process.line(); (got == "<nil>") != want[path] {
			t.Errorf("%s: the process itself gets %s, want allowed: %v", path, got, want[path])
		}
	}
}

// A process of root that has dropped its capabilities, as in a container, may not write to the
// sockets of other users.
func TestDialPermissionsOfRootWithoutCapabilities(t *testing.T) {
	testenv.NeedRoot(t)
	f := newFakeRoot(t)
	theirs := listenAt(t, f.path("/run/theirs"))
	mkdir(t, f.path("/private"), 0o755)
	hidden := listenAt(t, f.path("/private/socket"))
	assert.NilError(t, errors.Join(
		os.Chown(theirs.path, 1000, 1000), os.Chmod(theirs.path, 0o600),
		os.Chmod(hidden.path, 0o666), os.Chown(f.path("/private"), 1000, 1000), os.Chmod(f.path("/private"), 0o700),
	))
	for _, creds := range []Credentials{ourCredentials(t), {UID: 0, GID: 0, Groups: []uint32{20}}} {
		for path, want := range map[string]error{
			"/run/socket": nil, "/run/theirs": ErrPermission, "/private/socket": ErrPermission,
		} {
			socket, err := Dial("/proc", f.root, path, creds)
			assert.Check(t, errors.Is(err, want), "%v, %s: %v, want %v", creds, path, err, want)
			if err == nil {
				socket.Close()
			}
		}
	}
}
